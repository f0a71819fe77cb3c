"""Every model of transformers that can be built small: by relpos as by eager code."""

from __future__ import annotations

import importlib
import warnings
from types import SimpleNamespace

import hugging_every as every
import pytest
import torch
import transformers
from hugging_names import MODELS, NOT_BUILT, REFUSED

import relpos.torch as rt

#: Attention that says nothing of `is_causal`, or the wrong thing where a mask is None.
SAY_NOTHING = {
    "AlignTextSelfAttention",
    "BigBirdPegasusDecoderAttention",
    "ClapTextSelfAttention",
    "DogeAttention",
    "LayoutLMSelfAttention",
    "MarkupLMSelfAttention",
    "MllamaTextCrossAttention",
    "MllamaVisionAttention",
    "PegasusXAttention",
    "SplinterSelfAttention",
    "VideoPrismAttention",
}

#: Attention that is built without its model, whose other parts have no small form.
ESMFOLD2 = "transformers.models.esmfold2.modeling_esmfold2"
ALONE = {
    "EsmFold2AtomAttention": {"position_embeddings": (torch.ones(2, 9, 8),) * 2},
    "EsmFold2DiffusionAttention": {},
}


@pytest.fixture(autouse=True, scope="module")
def registered():
    """Models are registered, and small ones run on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rt.register()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def seen():
    """The attention classes and types of each model that was built, and its way."""
    return {}


def built(name, way):
    with warnings.catch_warnings():  # of models that stay eager
        warnings.simplefilter("ignore")
        return every.build(name, way)


def note(seen, name, model):
    """Remember what a model by "relpos" consists of."""
    parts = [p for p in model.modules() if isinstance(p, transformers.PreTrainedModel)]
    ways = {part.config._attn_implementation for part in parts}
    kinds = {
        f"{type(part).__module__}.{type(part).__name__}" for part in model.modules()
    }
    seen[name] = kinds, {part.config.model_type for part in parts}, "relpos" in ways


@pytest.mark.parametrize("name", MODELS)
def test_equals_eager(name, seen):
    """Hidden states of real tokens without a mask, and padded right and left."""
    eager, mine = (built(name, way) for way in ("eager", "relpos"))
    note(seen, name, mine)
    compared = 0
    for side in every.SIDES:
        found = []
        for model in (eager, mine):
            call = every.call_of(model, side, name.endswith("+"))
            torch.manual_seed(0)
            with torch.no_grad():
                found.append(every.real(model(**call), side) if call else [])
        for wanted, got in zip(*found, strict=True):
            off = (got - wanted).abs().max() / wanted.abs().max()
            assert off <= 1e-4, side  # nan is not
            compared += 1
    assert compared


@pytest.mark.parametrize("name", REFUSED)
def test_a_sink_for_each_query_is_refused(name, seen):
    model = built(name, "relpos")
    note(seen, name, model)
    with pytest.raises(ValueError, match="sinks: got a Tensor; expected None"):
        model(**every.call_of(model, "none", across=False))


@pytest.mark.parametrize("name", ALONE)
def test_attention_alone_equals_eager(name):
    kind = getattr(importlib.import_module(ESMFOLD2), name)
    sizes = SimpleNamespace(hidden_size=16, head_dim=8)
    x = 3 * torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(0))
    hidden = torch.zeros(2, 1, 1, 9)
    hidden[1, ..., :4] = -torch.inf
    for mask in (None, hidden, hidden.flip(-1)):
        found = []
        for way in ("eager", "relpos"):
            torch.manual_seed(0)
            layer = kind(SimpleNamespace(_attn_implementation=way), sizes)
            found.append(layer(x, mask, **ALONE[name])[0])
        torch.testing.assert_close(found[1], found[0])


def test_every_class_that_asks_is_compared_or_listed(seen, capsys):
    for name in {*MODELS, *REFUSED} - seen.keys():
        note(seen, name, built(name, "relpos"))
    asks = {
        f"{file}.{kind}" for file, kinds in every.asking().items() for kind in kinds
    }
    kinds = set().union(*(kinds for kinds, _, _ in seen.values())) & asks
    kinds |= {f"{ESMFOLD2}.{name}" for name in ALONE} & asks
    listed = {name for names in NOT_BUILT.values() for name in names}
    short = {name.rpartition(".")[2] for name in kinds}
    assert short | listed == {name.rpartition(".")[2] for name in asks}
    assert not short & listed
    assert len(kinds) >= 250 and short >= SAY_NOTHING | ALONE.keys()
    types = set().union(*(types for _, types, _ in seen.values()))
    mine = set().union(*(types for _, types, takes in seen.values() if takes))
    assert len(types) >= 90 and len(mine) >= 90
    with capsys.disabled():
        print(f" {len(types)} model types, {len(mine)} of them by relpos", end="")
