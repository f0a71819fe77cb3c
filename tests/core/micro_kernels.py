"""A search in csrc/kernels for the functions that tests/core/micro.c has to run.

A micro-kernel is a function that works on vectors, or in a loop on numbers at an
address, that is handed no struct of a problem, and that a function which is none calls.
What only micro-kernels call is a part of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: Types of numbers and of vectors, and structs that say where lines of numbers lie or
#: what becomes of them. A struct that is not here is one of a problem.
NUMBERS = {
    "T",
    "TI",
    "char",
    "double",
    "float",
    "int",
    "int8_t",
    "int64_t",
    "ptrdiff_t",
    "size_t",
    "uint16_t",
    "uint32_t",
    "uint64_t",
    "uintptr_t",
}
VECTORS = {"V", "VI", "DV", "DM", "uvec", "words_t", "bits_t", "truths_t", "part_t"}
DESCRIPTIONS = {
    "angles",
    "diagonal_t",
    "fetched_t",
    "lines_t",
    "rp_ahead",
    "rp_array",
    "rp_product",
    "running_t",
    "softcap_t",
    "taps_t",
}
QUALIFIERS = {"const", "unsigned", "signed", "volatile", "struct"}
#: What a function that works on vectors has in its text.
VECTOR_WORD = re.compile(
    rf"\b({'|'.join(sorted(VECTORS))}|load|store|splat|vexp2)\b|omp simd"
)
LOOP = re.compile(r"\b(for|while|memcpy|memset)\b")
FUNCTION = re.compile(
    r"^(?P<result>(?:RP_INLINE|static)[^;{}()=]*)\n(?P<name>\w+)"
    r"\((?P<parameters>[^{};]*)\)\n\{\n(?P<body>.*?)^\}",
    re.MULTILINE | re.DOTALL,
)


class Function(NamedTuple):
    """A function of csrc/kernels: its text without comments."""

    name: str
    parameters: str
    body: str
    text: str

    def types(self) -> Iterator[tuple[str, bool]]:
        """Yield the type of each parameter, and whether it is an address."""
        flat = re.sub(r"\(\*\w*\)\([^()]*\)", "*", self.parameters)  # of functions
        for parameter in flat.split(","):
            words = [x for x in re.findall(r"\w+", parameter) if x not in QUALIFIERS]
            # the one word of `const unsigned *x` is its name
            is_number = "unsigned" in parameter and len(words) < 2
            kind = "int" if is_number else words[0]
            yield kind, "*" in parameter or "[" in parameter

    def knows_a_problem(self) -> bool:
        """Return True if a struct of a problem is handed to it."""
        known = NUMBERS | VECTORS | DESCRIPTIONS
        return any(kind not in known for kind, _ in self.types())

    def works_on_vectors(self) -> bool:
        """Return True if it has vectors of its own."""
        return VECTOR_WORD.search(self.text) is not None

    def takes_numbers(self) -> bool:
        """Return True if it is handed the address of numbers."""
        return any(
            is_address or kind in ("lines_t", "rp_array")
            for kind, is_address in self.types()
        )

    def loops_over_numbers(self) -> bool:
        """Return True if it has a loop, and the address of numbers."""
        numbers = any(
            is_address and kind not in DESCRIPTIONS for kind, is_address in self.types()
        )
        return numbers and LOOP.search(self.body) is not None

    def calls(self, names: set[str]) -> set[str]:
        """Return those of some functions that it calls."""
        return names & set(re.findall(r"\w+", self.body)) - {self.name}


def functions_of(tree: Path) -> dict[str, Function]:
    """Return the functions of csrc/kernels by name."""
    functions = {}
    for path in sorted(tree.glob("csrc/kernels/**/*.h")):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        for match in FUNCTION.finditer(text):
            name, parameters, body = match["name"], match["parameters"], match["body"]
            functions[name] = Function(name, parameters, body, match[0])
    return functions


def micro_kernels(tree: Path) -> set[str]:
    """Return the names of the micro-kernels of a tree."""
    functions = functions_of(tree)
    simple = {name: f for name, f in functions.items() if not f.knows_a_problem()}
    kernels = {
        name
        for name, f in simple.items()
        if f.works_on_vectors() or f.loops_over_numbers()
    }
    while more := {
        name
        for name, f in simple.items()
        if name not in kernels and f.takes_numbers() and f.calls(kernels)
    }:
        kernels |= more
    table = (tree / "csrc/kernels/kernels.h").read_text()
    called = set(re.findall(r"\.\w+ = (\w+),", table)) & kernels
    for name, f in functions.items():
        if name not in kernels:
            called |= f.calls(kernels)
    return called


def vector_code_of_problems(tree: Path) -> set[str]:
    """Return the functions that work on vectors, and know a problem."""
    return {
        name
        for name, f in functions_of(tree).items()
        if f.knows_a_problem() and f.works_on_vectors()
    }


def checked_kernels(tree: Path) -> dict[str, str]:
    """Return the text of the check of each kernel in the list of micro.c."""
    names = re.findall(r"CHECK\((\w+)\),", (tree / "tests/core/micro.c").read_text())
    headers = sorted(tree.glob("tests/core/micro/*.h"))
    text = "\n".join(path.read_text() for path in headers)
    checks = re.findall(
        r"^check_(\w+)\(source_t \*s\)\n\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL
    )
    texts = dict(checks)
    return {name: texts.get(name, "") for name in names}
