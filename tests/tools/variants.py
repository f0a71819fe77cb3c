"""Puts many changes of the kernels into one copy of the sources, for mutants_core.py.

To compile an object takes longer than most mutants live. So each function that a
mutation changes is there once as it was and once for each mutation, under names of
their own, and what has its name calls the one that the variable RELPOS_MUTANT of the
environment says.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

from mutations import Mutation

VARIABLE = "RELPOS_MUTANT"
DECLARATION = "extern int rp_mutant;\n"
#: Read before main: nothing of a program need know of it.
DEFINITION = f"""
#include <stdlib.h>
int rp_mutant = -1;
__attribute__((constructor)) static void
read_mutant(void)
{{
    const char *text = getenv("{VARIABLE}");
    if (text)
        rp_mutant = atoi(text);
}}
"""


class Function(NamedTuple):
    """A function of C: places in its text, and its parameters."""

    start: int  # of its type
    name: int
    body: int  # the brace that begins it
    end: int
    parameters: tuple[str, ...]


def function_at(text: str, place: int) -> Function:
    """Return the function around a place; its name and both braces begin lines."""
    *_, name = re.finditer(r"^\w+\(", text[:place], flags=re.MULTILINE)
    body = text.index("\n{\n", name.start()) + 1
    end = text.index("\n}\n", body) + 3
    # a line, or two, of type and attributes: up to what ends the code before
    before = re.finditer(r"^(\}|.*\*/|.*;|#.*|)\n", text[: name.start()], re.MULTILINE)
    start = max((match.end() for match in before), default=0)
    listed = text[name.end() : body].rstrip()[:-1]
    return Function(start, name.start(), body, end, names_of(listed))


def names_of(parameters: str) -> tuple[str, ...]:
    """Return the names of parameters, which are no pointers to functions."""
    found = []
    for parameter in parameters.split(","):
        name = re.search(r"(\w+)\s*(\[[^\]]*\]\s*)*$", parameter.strip())
        if name and name[1] != "void":
            found.append(name[1])
    return tuple(found)


def variant_name(name: str, number: int) -> str:
    """Return the name of a function with a mutation."""
    return f"{name}_mutant{number}"


def numbers_in(errors: str) -> set[int]:
    """Return the numbers of the mutations whose functions a compiler refuses."""
    return {int(n) for n in re.findall(r"In function \W\w+_mutant(\d+)\W", errors)}


def variants_of(text: str, function: Function, mutations: dict[int, Mutation]) -> str:
    """Return the text of a function with all its variants, and what chooses one."""
    kind = text[function.start : function.name]
    name = text[function.name : text.index("(", function.name)]
    arguments = ", ".join(function.parameters)
    rest = function.name + len(name)
    parts = [f"{kind}{name}_unchanged{text[rest : function.end]}"]
    choices = []
    for number, mutation in mutations.items():
        changed = (
            text[rest : mutation.start]
            + mutation.new
            + text[mutation.end : function.end]
        )
        variant = variant_name(name, number)
        parts.append(f"{kind}{variant}{changed}")
        choices.append(
            f"    if (rp_mutant == {number})\n        return {variant}({arguments});\n"
        )
    chosen = "".join(choices) + f"    return {name}_unchanged({arguments});\n"
    parts.append(f"{text[function.start : function.body]}{{\n{chosen}}}\n")
    return "\n".join(parts)


def with_variants(text: str, mutations: dict[int, Mutation]) -> str:
    """Return the text of a file with variants of all functions that are changed."""
    functions: dict[Function, dict[int, Mutation]] = {}
    for number, mutation in mutations.items():
        function = function_at(text, mutation.start)
        functions.setdefault(function, {})[number] = mutation
    for function in sorted(functions, reverse=True):  # the places before stay
        made = variants_of(text, function, functions[function])
        text = text[: function.start] + made + text[function.end :]
    return text


def write_variants(tree: Path, folder: Path, mutations: dict[int, Mutation]) -> Path:
    """Write the sources of the programs with variants into a folder; return it."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("csrc", "tests/core"):
        shutil.copytree(tree / name, folder / name)
    for path in {mutation.path for mutation in mutations.values()}:
        own = {n: m for n, m in mutations.items() if m.path == path}
        text = (tree / path).read_text(encoding="utf-8")
        (folder / path).write_text(with_variants(text, own), encoding="utf-8")
    shared, program = folder / "csrc/relpos.h", folder / "tests/core/wrapped.c"
    before, end, after = shared.read_text(encoding="utf-8").rpartition("#endif")
    shared.write_text(before + DECLARATION + end + after, encoding="utf-8")
    with program.open("a", encoding="utf-8") as file:
        file.write(DEFINITION)
    return folder
