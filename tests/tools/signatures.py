"""Writes signature and help() of every public name, and compares two such records.

Run in each tree, with the same Python (torch and dask installed, or their rooms are
left out, which is said), and compare::

    python tests/tools/signatures.py record before.json --tree ../other
    python tests/tools/signatures.py record after.json
    python tests/tools/signatures.py compare before.json after.json
    python tests/tools/signatures.py text after.json | diff before.txt -

A public name is one of `__all__` of a room, and each public method of its classes that
relpos defines, inherited ones too. `compare` lists names and signatures that differ,
and of each help() the parameters, shapes, units, sources and errors that only one has.
The condition of an error and a source may be worded anew: they count as lost where less
than half of their words is left. The exit status is 1 where something is listed.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import pydoc
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "relpos",
    "relpos.nn",
    "relpos.torch",
    "relpos.torch.nn",
    "relpos.recipes",
    "relpos.reference",
    "relpos.plot",
    "relpos.data",
    "relpos.sharded",
)
Fact = tuple[str, str]
UNITS = (
    "radian",
    "degree",
    "second",
    "microsecond",
    "byte",
    "MB",
    "token",
    "step",
    "percent",
    "nat",
    "bit",
    "flop",
    "head",
    "row",
    "position",
    "octave",
    "beat",
)
SHAPE = r"\((?:[\w.*+/ -]{1,24},)+ ?(?:[\w.*+/ -]{1,24})?\)"


def methods(thing: type) -> dict[str, Any]:
    """Return the public methods and properties of a class that relpos defines."""
    found = {}
    for base in reversed(thing.__mro__):
        if base.__module__.partition(".")[0] != "relpos":
            continue
        for name, value in vars(base).items():
            is_public = not name.startswith("_") or name in ("__init__", "__call__")
            kinds = (property, classmethod, staticmethod)
            if is_public and (inspect.isroutine(value) or isinstance(value, kinds)):
                found[name] = value
    return found


def public() -> dict[str, Any]:
    """Return public names in full, with what each stands for."""
    things: dict[str, Any] = {}
    for room in ROOMS:
        try:
            module = importlib.import_module(room)
        except ImportError as error:
            print(f"{room} is left out: {error}", file=sys.stderr)
            continue
        things[room] = module
        listed = set(module.__all__) | {n for n in dir(module) if is_own(module, n)}
        things |= {f"{room}.{name}": getattr(module, name) for name in listed}
    for name, thing in list(things.items()):
        if inspect.isclass(thing):
            things |= {f"{name}.{key}": value for key, value in methods(thing).items()}
    return things


def is_own(module: Any, name: str) -> bool:
    """Return True for a name that `dir` of a room shows and `__all__` does not list."""
    thing = None if name.startswith("_") else getattr(module, name, None)
    is_code = inspect.isclass(thing) or inspect.isfunction(thing)
    return is_code and (thing.__module__ or "").startswith("relpos")


def signature_of(thing: Any) -> str:
    """Return a signature as `inspect` has it, '' where there is none."""
    thing = thing.fget if isinstance(thing, property) else thing
    thing = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
    try:
        return without_addresses(str(inspect.signature(thing)))
    except (TypeError, ValueError):
        return ""


def without_addresses(text: str) -> str:
    """Return a text without what differs from one process or folder to another."""
    return re.sub(r" at 0x[0-9a-f]+", "", text).replace(str(Path.cwd()), "")


def record() -> dict[str, dict[str, str]]:
    """Return what is known of each public name."""
    records = {}
    for name, thing in sorted(public().items()):
        if isinstance(thing, str):  # help() of a text looks for a topic of that name
            shown = repr(thing)
        else:
            shown = pydoc.plain(pydoc.render_doc(thing, renderer=pydoc.plaintext))
        records[name] = {
            "signature": signature_of(thing),
            "doc": without_addresses(inspect.getdoc(thing) or ""),
            "help": "" if inspect.ismodule(thing) else without_addresses(shown),
        }
    return records


def sections(doc: str) -> dict[str, str]:
    """Return the sections of a docstring by title; what comes before them by ''."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}$", doc, flags=re.MULTILINE)
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def entries(body: str) -> dict[str, str]:
    """Return what a section says of each name at its margin."""
    parts = re.split(r"^(\S.*)$", body, flags=re.MULTILINE)
    found = {}
    for head, text in zip(parts[1::2], parts[2::2], strict=True):
        names, _, kind = head.partition(" : ")
        for name in names.split(","):
            found[name.strip(" *")] = " ".join(f"{kind} {text}".split())
    return found


def facts(doc: str) -> set[Fact]:
    """Return the kinds and texts of what a docstring tells: see the module's."""
    parts, pairs = sections(doc), set()
    for title in ("Parameters", "Attributes", "Returns", "Yields"):
        for name, text in entries(parts.get(title, "")).items():
            kind = "parameter" if title in ("Parameters", "Attributes") else "result"
            pairs.add((kind, name))
            pairs |= {("shape", f"{name} {s}") for s in re.findall(SHAPE, text)}
    prose = " ".join(parts.get(t, "") for t in parts if t not in ("Examples", "Raises"))
    pairs |= {("shape", " ".join(s.split())) for s in re.findall(SHAPE, parts[""])}
    for unit in UNITS:
        if re.search(rf"\b{unit}s?\b", prose):
            pairs.add(("unit", unit))
    for text in re.split(
        r"^\.\. \[\d+\]", parts.get("References", ""), flags=re.MULTILINE
    ):
        if text.strip():
            pairs.add(("source", " ".join(text.split())))
    for names, text in errors(parts.get("Raises", "")):
        pairs |= {("error", f"{name}: {text}") for name in names}
    return pairs


def errors(body: str) -> list[tuple[list[str], str]]:
    """Return the types of each entry of Raises, and the condition of its own."""
    parts = re.split(r"^(\S.*)$", body, flags=re.MULTILINE)
    found = []
    for head, text in zip(parts[1::2], parts[2::2], strict=True):
        own = re.sub(r"^As (for )?`[^`]*`[.;,]?", "", " ".join(text.split())).strip()
        found.append((re.findall(r"\w+", head), own))
    return found


def is_kept(fact: Fact, others: set[Fact]) -> bool:
    """Return True where one of the others says the same."""
    kind, text = fact
    if fact in others or kind not in ("source", "error"):
        return fact in others
    head = text.partition(":")[0] + ":" if kind == "error" else ""
    words = set(re.findall(r"\w+", text.removeprefix(head).lower()))
    said: set[str] = set()
    for other, line in others:
        if other == kind and line.startswith(head):
            said |= set(re.findall(r"\w+", line.removeprefix(head).lower()))
    any_left = any(o == kind and line.startswith(head) for o, line in others)
    return any_left and 2 * len(words & said) >= len(words)


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return a line for each difference between two records."""
    lines = [f"gone: {name}" for name in before if name not in after]
    lines += [f"new: {name}" for name in after if name not in before]
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        if old["signature"] != new["signature"]:
            lines.append(f"{name}: signature\n  - {old['signature']}")
            lines.append(f"  + {new['signature']}")
        had, has = facts(old["doc"]), facts(new["doc"])
        lines += [
            f"{name}: help {'lost' if mark == '-' else 'gained'} {kind} {text}"
            for mark, these, those in (("-", had, has), ("+", has, had))
            for kind, text in sorted(these)
            if not is_kept((kind, text), those)
        ]
    return lines


def main() -> int:
    """Record, compare, or print a record as text."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("record", "compare", "text"))
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--tree", type=Path, default=ROOT, help="with relpos built")
    asked = parser.parse_args()
    if asked.action == "record":
        sys.path.insert(0, str(asked.tree.resolve()))
        text = json.dumps(record(), indent=1, sort_keys=True, ensure_ascii=False)
        asked.files[0].write_text(text + "\n", encoding="utf-8")
        return 0
    records = [json.loads(path.read_text(encoding="utf-8")) for path in asked.files]
    if asked.action == "text":
        for name, known in records[0].items():
            print(f"{'=' * 80}\n{name}{known['signature']}\n\n{known['help']}")
        return 0
    if len(records) != 2:
        parser.error(f"compare: got {len(records)} files; expected 2")
    lines = differences(*records)
    print(*lines, sep="\n")
    print(f"{len(lines)} differences", file=sys.stderr)
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
