"""The paper of each scheme, as the docstring of its function has it."""

from __future__ import annotations

import inspect
import re
from operator import attrgetter

import relpos
from relpos import data
from relpos._schemes import Scheme
from relpos._twins import sections


def references(function: str) -> list[str]:
    """Return the references of a docstring, each in one line, without its number.

    The function is named as it is written after ``relpos.``.
    """
    docstring = inspect.getdoc(attrgetter(function)(relpos)) or ""
    section = sections(docstring).get("References", "")
    entries = re.split(r"^\.\. \[\d+\] ", section, flags=re.MULTILINE)[1:]
    return [" ".join(entry.split()) for entry in entries]


def papers(scheme: Scheme) -> list[str]:
    """Return the references of the first function of a scheme.

    A scheme may be nothing but arguments of `attention`, whose references are those of
    all schemes. Such a scheme has recipes of several models, and the references of each
    of them count. Plain attention has the paper of its family.
    """
    if scheme.name == "attention":
        return [f"{f.paper}." for f in data.families() if f.name == scheme.family]
    functions = [name for name in scheme.functions if name != "attention"]
    if not all(name.startswith("recipes.") for name in functions):
        functions = functions[:1]
    found = [text for name in functions for text in references(name)]
    return list(dict.fromkeys(found))


def linked(reference: str) -> str:
    """Return a reference with a link of its number at arXiv, in Markdown."""
    link = r"[arXiv:\1](https://arxiv.org/abs/\1)"
    return re.sub(r"arXiv:(\d{4}\.\d{5})", link, reference)
