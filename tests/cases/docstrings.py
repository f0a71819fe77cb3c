"""Public names, and their docstrings taken apart."""

from __future__ import annotations

import importlib.util
import inspect
import re

import relpos

#: Where public names are; those of ufuncs have docstrings that NumPy makes.
MODULES = (
    relpos,
    relpos.nn,
    relpos.recipes,
    relpos.reference,
    relpos.plot,
    relpos.data,
    *((relpos.torch, relpos.torch.nn) if importlib.util.find_spec("torch") else ()),
    *((relpos.sharded,) if importlib.util.find_spec("dask") else ()),
)
#: Functions that are loaded when they are first named.
LATER = ("compare", "demo", "diagnose")
SECTIONS = (
    "Parameters",
    "Attributes",
    "Returns",
    "Yields",
    "Raises",
    "Warns",
    "See Also",
    "Notes",
    "References",
    "Examples",
)


def sections(thing):
    """The sections of a docstring by their titles; what comes before them by ''."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}$", inspect.getdoc(thing), flags=re.MULTILINE)
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def entries(body):
    """The names at the margin of a section; those of `a, b : kind` are two."""
    lines = re.findall(r"^(\S[^:\n]*)", body, flags=re.MULTILINE)
    return [name.strip(" *") for line in lines for name in line.split(",")]


def methods(thing):
    """The public methods and properties that a class of relpos defines, by name."""
    if not inspect.isclass(thing):
        return {}
    return {
        name: value
        for name, value in vars(thing).items()
        if (not name.startswith("_") or name == "__call__")
        and (inspect.isfunction(value) or isinstance(value, property))
    }


def public():
    """Objects by the names that a reader writes, methods of classes too."""
    found = {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in MODULES
        for name in module.__all__
        if name != "__version__"
    }
    found |= {f"relpos.{name}": getattr(relpos, name) for name in LATER}
    for name, thing in list(found.items()):
        found |= {f"{name}.{key}": value for key, value in methods(thing).items()}
    return found
