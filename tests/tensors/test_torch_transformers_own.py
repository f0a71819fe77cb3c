"""Attention outside of transformers' registry: served, or listed with a reason."""

from __future__ import annotations

import ast
import functools
import math
import re
from pathlib import Path

import hugging_families as families
import hugging_models as models
import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

import relpos.torch as rt
from relpos.torch._transformers import unserved
from relpos.torch._transformers.adapters import table

ROOT = Path(transformers.__file__).parent / "models"

_SOFTMAX = {"softmax", "Softmax", "XSoftmax", "multi_head_attention_forward"}
_SDPA = "scaled_dot_product_attention"
_PRODUCTS = {"matmul", "bmm", "baddbmm", "einsum"}
#: One call that has both.
_BOTH = {_SDPA, "multi_head_attention_forward"}

_WORDS = re.compile("|".join([*_SOFTMAX, *_BOTH]))


@functools.cache
def computing():
    """The classes of transformers that compute attention, and ask no registry."""
    found = set()
    for path in sorted(ROOT.glob("*/modeling_*.py")):
        for text in classes(path.read_text("utf-8")):
            if _WORDS.search(text):
                (part,) = ast.parse(text).body
                if computes(part):
                    found.add(f"{path.parent.name}.{part.name}")
    return frozenset(found)


def classes(source):
    """The texts of the classes of a file, which takes less time than to parse it."""
    for text in re.split(r"^(?=class )", source, flags=re.MULTILINE)[1:]:
        yield re.split(r"\n(?=[@\w])", text)[0]


def computes(part):
    """Return True for a class with a softmax and products, or PyTorch's attention."""
    names = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(part) if isinstance(node, ast.Attribute)}
    if "ALL_ATTENTION_FUNCTIONS" in names:
        return False
    multiplies = any(isinstance(node, ast.MatMult) for node in ast.walk(part))
    multiplies |= bool(names & _PRODUCTS)
    return bool(names & _BOTH) or (bool(names & _SOFTMAX) and multiplies)


def test_every_class_is_served_or_listed():
    served = {f"{x.home.split('.')[2]}.{x.kind}" for x in table.ADAPTERS.values()}
    listed = [name for names in unserved.REASONS.values() for name in names.split()]
    assert len(listed) == len({*listed})
    assert not served & {*listed}
    assert computing() - served - {*listed} == set()


def test_what_computes_attention():
    """A new file is found: with a softmax over products, or by PyTorch's function."""
    for code, expected in {
        "x = softmax(q @ k)": True,
        "x = nn.functional.scaled_dot_product_attention(q, k, v)": True,
        "x = nn.functional.softmax(router(x))": False,
        "x = ALL_ATTENTION_FUNCTIONS[name](softmax, q @ k)": False,
    }.items():
        (part,) = ast.parse(f"class New:\n    {code}").body
        assert computes(part) == expected


def test_classes_that_relpos_serves_are_found():
    """But for those that hand on to others, or ask the registry."""
    found = computing()
    for name in ("mpnet.MPNetSelfAttention", "wavlm.WavLMAttention"):
        assert name in found
    assert len(found) > 130


# ---- arrays of all pairs -------------------------------------------------------------


class Pairs(TorchDispatchMode):
    """Notes the shapes of tensors with two axes of a text's length."""

    def __init__(self):
        super().__init__()
        self.shapes = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for x in tree_flatten(result)[0]:
            if isinstance(x, torch.Tensor) and [*x.shape].count(models.LENGTH) > 1:
                self.shapes.add(tuple(x.shape))
        return result


#: Granite Speech has arrays of blocks, which its own test counts.
WHOLE = [name for name in families.CASES if not name.startswith("granite")]
#: The code of these models has bands: a row has the keys of a window.
BANDED = {"longformer", "longformer, window alone", "led"}


@pytest.mark.parametrize("name", WHOLE)
def test_no_array_of_all_pairs_and_heads_is_made(name):
    """Forward and backward: masks have no axis of heads, and no other array is left."""
    case = families.CASES[name]
    seen = []
    for replaces in (False, True):
        model = models.build(case, "eager")
        if replaces:
            rt.replace_attention(model)
        with Pairs() as pairs:
            models.run(case, model)
        pairs = [math.prod(shape) // models.LENGTH**2 for shape in pairs.shapes]
        seen.append(max(pairs, default=0))
    own, mine = seen
    assert name in BANDED or own >= 3 * models.BATCH
    assert mine <= models.BATCH
