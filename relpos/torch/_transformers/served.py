"""``python -m relpos models``: what relpos serves of the installed transformers."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import torch
import transformers

from relpos._tested import warn_of_newer
from relpos._text import table_lines
from relpos.torch._transformers.adapters.table import ADAPTERS
from relpos.torch._transformers.sources import Folder, folders, model_types
from relpos.torch._transformers.unserved import (
    BESIDE,
    DENSE,
    NO_ATTENTION,
    REASONS,
    reasons_by_class,
)

HEADER = ("model type", "register", "replace_attention", "notes")
#: Cells: for all attention of a type, for a part of it, for none; or there is none.
YES, PART, NO, NONE = "yes", "in part", "no", "-"
DENSE_FIRST = "makes a dense bias first"
OTHERS = "models of other types"
OF_TORCH = "torch.nn.MultiheadAttention"
BELOW = """
register: relpos.torch.register() and attn_implementation="relpos". In part: some models
of the type stay eager, or some configurations of it, and relpos warns of each.
replace_attention: relpos.torch.replace_attention(model).
-: the type has no attention of its own. A part of a model has a type of its own.
makes a dense bias first: with register, the model makes an array of length x length for
each head, which relpos takes as a mask; replace_attention needs none.
later: relpos may serve it in a later version."""

_LISTED = reasons_by_class(REASONS)
_DENSE = {*DENSE.split()}
#: The classes with attention that `replace_attention` swaps.
SWAPPED = {
    f"{x.home.split('.')[2]}.{x.kind}" for x in ADAPTERS.values() if x.adapter.attends
}


class ModelType(NamedTuple):
    """A row of the table: a model type, and what serves its attention."""

    name: str
    register: str
    replace: str
    notes: tuple[str, ...]


class _Model(NamedTuple):
    """A class of models by what it uses; classes are named `folder.Class`."""

    used: set[str]
    asking: set[str]
    staying: set[str]  # attention that never asks: `register` leaves the model eager
    others: set[str]  # the model types of other models in it
    has_any: bool  # True if it makes models that its file does not name


def run() -> int:
    """Print the table and what its cells mean, and return the exit status."""
    warn_of_newer(torch=torch.__version__, transformers=transformers.__version__)
    rows = served()
    cells = [(*row[:3], "; ".join(row.notes)) for row in rows]
    print("\n".join(table_lines(HEADER, cells, left=range(len(HEADER)))))
    print(f"\n{counts(rows)}\n{BELOW}")
    return 0


def counts(rows: list[ModelType]) -> str:
    """Return how many types each way serves, as one sentence."""
    ways = Counter((row.register in (YES, PART), row.replace == YES) for row in rows)
    none = sum(row.register == NONE for row in rows)
    return (
        f"{len(rows)} model types of transformers {transformers.__version__}: "
        f"{ways[True, False]} by register, {ways[False, True]} by replace_attention, "
        f"{ways[True, True]} by both, {ways[False, False] - none} by neither, and "
        f"{none} without attention of their own."
    )


def served() -> list[ModelType]:
    """Return a row for each model type of the installed transformers."""
    types = model_types()
    models: dict[str, list[_Model]] = {}
    for folder in folders():
        for name in folder.models():
            kind = types.get(folder.config_of(name) or "")
            if kind is not None:
                models.setdefault(kind, []).append(_model(folder, name, types))
    return [_row(kind, models[kind]) for kind in sorted(models)]


def _model(folder: Folder, name: str, types: dict[str, str]) -> _Model:
    used, inner, words = folder.used_by(name)
    attention = {each for each in used if folder.is_attention(each)}
    asking = {each for each in used if folder.asks(each)}
    # the outer one of two hands on to the inner one
    leaves = {
        each for each in attention if not attention & folder.used_by(each)[0] - {each}
    }
    of_torch: set[str] = set()
    if "MultiheadAttention" in words - folder.definitions.keys():
        # as a pooling head, it is no obstacle to most encoders that ask
        around = {x for x in leaves if "MultiheadAttention" in folder.names_in(x)}
        leaves -= {x for x in around if f"{folder.name}.{x}" not in _LISTED}
        if not asking:
            of_torch = {OF_TORCH}
    configs = {folder.config_of(each) for each in inner}
    return _Model(
        _in(folder, used),
        _in(folder, asking),
        _in(folder, leaves - asking) | of_torch,
        {types[config] for config in configs if config in types},
        any(_makes_models(word) for word in words - folder.definitions.keys()),
    )


def _in(folder: Folder, names: set[str]) -> set[str]:
    """Return the names as `folder.Class`."""
    return {f"{folder.name}.{name}" for name in names}


def _makes_models(word: str) -> bool:
    """Return True for a name by which a model of another folder is made."""
    if word in ("load_backbone", "timm"):
        return True
    is_model = word.endswith("Model") and not word.endswith("PreTrainedModel")
    return word.startswith("AutoModel") or is_model


def _row(kind: str, models: list[_Model]) -> ModelType:
    """Return the row of a model type that has these classes of models."""
    used = {name for model in models for name in model.used}
    asking = {name for model in models for name in model.asking}
    staying = {name for model in models for name in model.staying}
    others = {name for model in models for name in model.others} - {kind}
    reasons = _reasons(used - asking, staying)
    has_attention = bool(asking or reasons or used & SWAPPED)
    register = replace = NONE
    if has_attention:
        replace = YES if used & SWAPPED else NO
        register = NO
        if any(_is_taken(model) for model in models):
            register = PART if staying else YES
    if replace == YES or reasons != {BESIDE}:
        reasons.discard(BESIDE)
    notes = sorted(reasons)
    if register != NO and asking & _DENSE:
        notes.insert(0, DENSE_FIRST)
    parts = sorted(others)
    if any(model.has_any for model in models):
        parts.append(OTHERS)
    if parts:
        notes.append(f"parts: {', '.join(parts)}")
    elif not has_attention:
        notes.append("no attention")
    return ModelType(kind, register, replace, tuple(notes))


def _is_taken(model: _Model) -> bool:
    """Return True where `register` serves a model, at least by some configurations."""
    blocks = {name for name in model.staying if _LISTED.get(name) == BESIDE}
    return bool(model.asking and not blocks)


def _reasons(used: set[str], staying: set[str]) -> set[str]:
    """Return why relpos does not serve classes; a class without a reason is named."""
    left = used & _LISTED.keys() | staying - SWAPPED
    return {_LISTED.get(name, name) for name in left} - {NO_ATTENTION}
