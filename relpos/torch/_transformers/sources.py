"""Files of models of transformers, read as text: their classes, and what each uses.

To import all of them would take minutes. What a class uses are the names in its text,
as far as they are defined at the top of a file of the same folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import transformers

from relpos.torch._transformers.interface.registry import ASKS, names_attention

ROOT = Path(transformers.__file__).parent / "models"

#: Strings and comments, which name classes that are not used.
_NO_CODE = re.compile(
    r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    r"|#[^\n]*"
)
_TOP = re.compile(r"^(?:class|def) (\w+)|^(\w+) = ", re.MULTILINE)
_END = re.compile(r"\n(?=[@\w])")
_BASES = re.compile(r"\(([^)]*)\)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_CONFIG = re.compile(r"^    config(?:_class)?\s*[:=]\s*(\w+)", re.MULTILINE)
_TYPE = re.compile(r'^    model_type(?:: str)? = "(.*?)"', re.MULTILINE)


class Definition(NamedTuple):
    """A class, a function or a table: the bases, the names in its text, its config."""

    bases: tuple[str, ...]
    names: frozenset[str]
    config: str | None


def model_types() -> dict[str, str]:
    """Return the model type of each class of configurations, by the class's name."""
    found = {}
    for path in sorted(ROOT.glob("*/configuration_*.py")):
        text = path.read_text("utf-8")
        _, *classes = re.split(r"^class (\w+)", text, flags=re.MULTILINE)
        for name, body in zip(classes[::2], classes[1::2], strict=True):
            match = _TYPE.search(body)
            if match:
                found[name] = match[1]
    return found


def folders() -> Iterator[Folder]:
    """Yield the folders that have files of models."""
    for path in sorted({path.parent for path in ROOT.glob("*/modeling_*.py")}):
        yield Folder(path)


class Folder:
    """The definitions in the files of models of one folder, by name."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.definitions: dict[str, Definition] = {}
        for file in sorted(path.glob("modeling_*.py")):
            self.definitions.update(_definitions(file.read_text("utf-8")))

    def lineage(self, name: str) -> list[str]:
        """Return a class and all its bases, those of other files too."""
        names = [name]
        if name in self.definitions:
            for base in self.definitions[name].bases:
                names += self.lineage(base)
        return names

    def is_model(self, name: str) -> bool:
        return "PreTrainedModel" in self.lineage(name)

    def models(self) -> list[str]:
        """Return the names of the classes of models, without those that are only bases.

        A base names classes that only some of its models have.
        """
        names = [name for name in self.definitions if self.is_model(name)]
        return [name for name in names if not _is_base(name)]

    def config_of(self, name: str) -> str | None:
        """Return the name of the class of configurations of a model."""
        for each in self.lineage(name):
            if each in self.definitions and self.definitions[each].config:
                return self.definitions[each].config
        return None

    def names_in(self, name: str) -> frozenset[str]:
        """Return the names in the text of a class and of its bases, see `models`."""
        names = self.definitions[name].names
        for base in self.definitions[name].bases:
            if base in self.definitions and not _is_base(base):
                names |= self.names_in(base)
        return names

    def used_by(self, name: str) -> tuple[set[str], set[str], set[str]]:
        """Return what a class uses, the models among it, and all names in the texts.

        It counts itself. The texts of other models are left out.
        """
        used, waiting = {name}, [name]
        inner: set[str] = set()
        words: set[str] = set()
        while waiting:
            names = self.names_in(waiting.pop())
            words |= names
            for each in names & self.definitions.keys() - used - inner:
                if self.is_model(each):
                    inner.add(each)
                else:
                    used.add(each)
                    waiting.append(each)
        return used, inner, words

    def asks(self, name: str) -> bool:
        """Return True for a class that asks the registry for its attention."""
        known = self.definitions.keys() & {*self.lineage(name)}
        return any(self.definitions[each].names & {*ASKS} for each in known)

    def is_attention(self, name: str) -> bool:
        """Return True for a module that has the word in its name, as the registry."""
        lineage = self.lineage(name)
        return names_attention(name) and any(
            each == "Module" or each.endswith("Layer") for each in lineage[1:]
        )


def _is_base(name: str) -> bool:
    return name.lower().endswith("pretrainedmodel")


def _definitions(source: str) -> Iterator[tuple[str, Definition]]:
    """Yield what is defined at the top of a file, with its name."""
    code = _NO_CODE.sub("", source)
    starts = [*_TOP.finditer(code)]
    ends = [*(start.start() for start in starts[1:]), len(code)]
    for start, end in zip(starts, ends, strict=True):
        body = _END.split(code[start.end() : end])[0]
        bases: tuple[str, ...] = ()
        head = _BASES.match(body) if start[0].startswith("class") else None
        if head:
            bases = tuple(_WORD.findall(head[1]))
            body = body[head.end() :]
        config = _CONFIG.search(body)
        yield (
            start[1] or start[2],
            Definition(
                bases, frozenset(_WORD.findall(body)), config[1] if config else None
            ),
        )
