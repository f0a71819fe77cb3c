"""Makes single changes of Python and C source that a test should notice.

`python_mutations` and `c_mutations` list those of a text; `choose` draws some. A change
is a place in the text and what comes there instead. Only code inside functions is
changed; docstrings, annotations, decorators, what a `raise` says and strings with
fields are left alone.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
SKIPPED = (ast.JoinedStr, ast.Raise, ast.Assert)
C_TOKENS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
    "+": "-",
    "-": "+",
    "/": "*",
    "%": "*",
    "+=": "-=",
    "-=": "+=",
    "*=": "+=",
}


@dataclass(frozen=True)
class Mutation:
    """A change of one file: text[start:end] becomes `new`."""

    path: str
    line: int
    operator: str
    start: int
    end: int
    old: str
    new: str
    key: str  # without the line: it stays where other code of the file changes

    def apply(self, text: str) -> str:
        """Return the changed text."""
        return text[: self.start] + self.new + text[self.end :]


def changed_nodes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield operators that apply to a node of the syntax tree, and what they make."""
    text_of = ast.unparse
    match node:
        case ast.Compare(left, [sign, *signs], others) if type(sign) in COMPARISONS:
            flipped = [COMPARISONS[type(sign)](), *signs]
            yield "comparison", text_of(ast.Compare(left, flipped, others))
        case ast.BoolOp(sign, values):
            other = ast.Or() if isinstance(sign, ast.And) else ast.And()
            yield "and/or", f"({text_of(ast.BoolOp(other, values))})"
        case ast.BinOp(left, sign, right) if type(sign) in ARITHMETIC:
            other = ARITHMETIC[type(sign)]()
            yield "arithmetic", f"({text_of(ast.BinOp(left, other, right))})"
        case ast.Constant(value) if type(value) is int:
            yield "+1", str(value + 1)
            yield "-1", f"({value - 1})"
        case ast.Return(value) if value is not None and text_of(value) != "None":
            yield "return", "return None"
        case ast.If() | ast.While() | ast.IfExp():
            yield "negation", ""  # of the test, by `python_mutations`
        case ast.Call(args=[first, second, *_]) if not any(
            isinstance(x, ast.Starred) for x in (first, second)
        ):
            if text_of(first) != text_of(second):
                swapped = [second, first, *node.args[2:]]
                yield "swap", text_of(ast.Call(node.func, swapped, node.keywords))
        case ast.Expr(ast.Call()) | ast.Assign() | ast.AugAssign() | ast.Raise():
            yield "deletion", "pass"


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below one that are code which runs."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases"):
            continue
        nodes = value if isinstance(value, list) else [value]
        yield from (x for x in nodes if isinstance(x, ast.AST))


def code_nodes(node: ast.AST, inside: bool = False) -> Iterator[ast.AST]:
    """Yield nodes inside functions whose change is a mutation."""
    if inside:
        yield node
    if isinstance(node, SKIPPED):
        return
    if isinstance(node, ast.FunctionDef) and any(
        "overload" in ast.unparse(x) for x in node.decorator_list
    ):
        return
    for child in children(node):
        yield from code_nodes(child, inside or isinstance(node, ast.FunctionDef))


def python_mutations(path: str, text: str) -> list[Mutation]:
    """Return all mutations of a module, in the order of its text."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines()

    def place(line: int, column: int) -> int:
        in_bytes = lines[line - 1].encode()[:column]
        return starts[line - 1] + len(in_bytes.decode())

    found = []
    for node in code_nodes(ast.parse(text)):
        for operator, new in changed_nodes(node):
            target = node.test if operator == "negation" else node
            start = place(target.lineno, target.col_offset)
            end = place(target.end_lineno, target.end_col_offset)
            new = new or f"(not ({ast.unparse(target)}))"
            found.append((target.lineno, operator, start, end, text[start:end], new))
    return numbered(path, sorted(found, key=lambda row: (row[2], row[3], row[1])))


def numbered(path: str, rows: list[tuple[int, str, int, int, str, str]]):
    """Return rows as mutations, whose key counts those of the same text."""
    seen: dict[str, int] = {}
    found = []
    for line, operator, start, end, old, new in rows:
        same = f"{path}|{operator}|{old}|{new}"
        seen[same] = seen.get(same, 0) + 1
        key = hashlib.sha256(f"{same}|{seen[same]}".encode()).hexdigest()[:16]
        found.append(Mutation(path, line, operator, start, end, old, new, key))
    return found


def bodies(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield number, start and text of the lines in C functions, without comments."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    code = re.sub(r'/\*.*?\*/|//[^\n]*|"(\\.|[^"\\\n])*"', blank, text, flags=re.DOTALL)
    place, inside, directive = 0, False, False
    for number, line in enumerate(code.splitlines(keepends=True), 1):
        inside = line.startswith("{") or (inside and not line.startswith("}"))
        is_directive = directive or line.lstrip().startswith("#")
        if inside and not is_directive:
            yield number, place, line
        directive = is_directive and line.rstrip().endswith("\\")
        place += len(line)


STATEMENT = re.compile(
    r"\s+(\w+\(.*\)|[\w.>\[\]*-]+ (?:[-+*/|&]?=) [^=].*|[\w.>\[\]-]+\+\+);\s*"
)


def line_mutations(line: str) -> Iterator[tuple[str, int, int, str]]:
    """Yield operator, start, end and new text of each change of a line of C."""
    for match in re.finditer(r"(?<= )([<>=!]=|&&|\|\||[-+*]=|[<>+/%-])(?= )", line):
        yield "operator", *match.span(), C_TOKENS[match[0]]
    for match in re.finditer(r"(?<![\w.])(?<!e[-+])\d+(?![\w.])", line):
        yield "+1", *match.span(), f"({int(match[0]) + 1})"
        yield "-1", *match.span(), f"({int(match[0]) - 1})"
    if match := re.fullmatch(r"\s+return (?!0;)(.+);\s*", line):
        yield "return", *match.span(1), "0"
    match = re.match(r"\s+(?:if|while) \((.*)\)(?= \{$|$)", line.rstrip())
    if match and match[1].count("(") == match[1].count(")"):
        yield "negation", *match.span(1), f"!({match[1]})"
    if (match := STATEMENT.fullmatch(line)) and "return" not in match[1]:
        yield "deletion", *match.span(1), ""
    for match in re.finditer(r"\w\((\w+), (\w+)(?=[,)])", line):
        if match[1] != match[2]:
            swapped = f"{match[2]}, {match[1]}"
            yield "swap", match.start(1), match.end(2), swapped


def c_mutations(path: str, text: str) -> list[Mutation]:
    """Return all mutations of a C file, in the order of its text."""
    found = []
    for number, place, line in bodies(text):
        for operator, start, end, new in line_mutations(line):
            old = line[start:end]
            found.append((number, operator, place + start, place + end, old, new))
    return numbered(path, found)


def function_before(text: str, place: int) -> str:
    """Return the last function of C whose name is before a place: it begins a line."""
    names = re.findall(r"^(\w+)\(", text[:place], flags=re.MULTILINE)
    return names[-1] if names else ""


def choose(mutations: list[Mutation], count: int, seed: int) -> list[Mutation]:
    """Return those that come first by a digest of key and seed.

    A mutation of code that stays is chosen again in a later tree, more likely than not.
    """

    def rank(mutation: Mutation) -> str:
        return hashlib.sha256(f"{seed}|{mutation.key}".encode()).hexdigest()

    return sorted(mutations, key=rank)[:count]
