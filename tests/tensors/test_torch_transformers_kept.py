"""Projections of positions that modules keep in inference, and what ends it.

A module that was never called before is the oracle: it has to give the same bits.
"""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref
from typing import Any, NamedTuple

import hugging_models as models
import pytest
import torch
from torch.nn.utils import parameters_to_vector, parametrize, vector_to_parameters
from torch.overrides import TorchFunctionMode

import relpos.torch as rt
from relpos import _core
from relpos._settings import use_isa
from relpos.torch import _kept
from relpos.torch.nn._positions import deberta_buckets, used_by_deberta

WIDTH = models.WIDTH


class Case(NamedTuple):
    """A module that keeps projections, with what projects its positions."""

    module: Any
    layer: Any  # None where the module has the weights itself
    call: Any  # with tokens (B, L, WIDTH)


def tokens(length, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(2, length, WIDTH, generator=draw)


def deberta(**settings):
    case = models.CASES["deberta"]
    model = models.build(case, "eager", **settings)
    rt.replace_attention(model)
    module = model.encoder.layer[0].attention.self
    table = model.encoder.get_rel_embedding().detach().clone()

    def call(module, x):
        mask = torch.ones(len(x), 1, 1, x.shape[1])
        return module(x, mask, rel_embeddings=table.to(x.dtype))[0]

    layer = module.key_proj if module.share_att_key else module.pos_key_proj
    return Case(module, layer, call)


def conformer():
    model = models.build(models.CASES["wav2vec2-conformer"], "eager")
    rt.replace_attention(model)
    module = model.encoder.layers[0].self_attn

    def call(module, x):
        rows = 2 * x.shape[1] - 1
        table = torch.arange(rows * WIDTH).sin().view(1, rows, WIDTH).to(x.dtype)
        return module(x, relative_position_embeddings=table)[0]

    return Case(module, module.linear_pos, call)


def layer_of(position):
    torch.manual_seed(0)
    module = rt.nn.RelativeMultiheadAttention(
        WIDTH, 4, batch_first=True, position=position
    )
    layer = module.pos_proj if position == "transformer_xl" else None
    return Case(module.eval(), layer, lambda module, x: module(x, x, x)[0])


CASES = {
    "DeBERTa V3": deberta,
    "DeBERTa V2, tables of their own": lambda: deberta(share_att_key=False),
    "Wav2Vec2-Conformer": conformer,
    "layer of DeBERTa": lambda: layer_of("deberta"),
    "layer of Transformer-XL": lambda: layer_of("transformer_xl"),
}
WITH_LAYERS = [name for name in CASES if name != "layer of DeBERTa"]


@pytest.fixture(params=list(CASES))
def case(request):
    return CASES[request.param]()


def inferred(case, length=5, **settings):
    """The result in inference, by a module that may have kept something."""
    dtype = next(case.module.parameters()).dtype
    with torch.no_grad():
        return case.call(case.module, tokens(length, **settings).to(dtype))


def anew(case, length=5, **settings):
    """The same by a copy of the module, which was never called."""
    return inferred(
        case._replace(module=copy.deepcopy(case.module)), length, **settings
    )


def is_kept(case):
    return case.module in _kept._KEPT


# ---- which rows ----------------------------------------------------------------------


@pytest.mark.parametrize(("farthest", "span"), [(None, 4), (16, 8), (512, 256)])
def test_rows_that_positions_use(farthest, span):
    buckets = deberta_buckets(farthest, span)
    reach = len(buckets) // 2
    at = lambda r: int(buckets[min(max(r, -reach), reach) + reach])  # noqa: E731
    ends = [-reach - 3, -reach, -reach // 2, -2, 0, 1, 3, reach // 3, reach, reach + 5]
    for lowest in ends:
        for highest in [x for x in ends if x >= lowest]:
            used = used_by_deberta(farthest, span, lowest, highest)
            rows = range(2 * span)[used.rows]
            terms = used.terms(buckets)
            own, first = terms["buckets"], terms["min_relative_position"]
            chosen = []
            for r in range(lowest, highest + 1):
                chosen.append(int(own[min(max(r - first, 0), len(own) - 1)]))
            assert [rows[n] for n in chosen] == [
                at(r) for r in range(lowest, highest + 1)
            ]
            # no other rows
            assert set(chosen) == set(range(len(rows)))


def test_only_used_rows_are_projected_with_gradients():
    case = deberta()
    shapes = []
    original = _kept._products

    def products(rows, projections):
        shapes.append(len(rows))
        return original(rows, projections)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_kept, "_products", products)
        for length in (1, 2, 3):
            case.call(case.module, tokens(length))
    assert shapes == [1, 3, 5]


def test_gradients_are_those_of_all_rows():
    """A hook makes the layers project all rows, as the model does."""
    case = deberta(share_att_key=False)
    gradients = []
    for hooks in (False, True):
        module = copy.deepcopy(case.module)
        if hooks:
            module.pos_key_proj.register_forward_hook(lambda *args: None)
        out = case.call(module, tokens(4))
        out.square().sum().backward()
        gradients.append([out, *(p.grad for p in module.parameters())])
    # some are sums that cancel: all are compared with the largest of them
    largest = max(x.abs().max() for x in gradients[1] if x is not None)
    for mine, expected in zip(*gradients, strict=True):
        if expected is None:
            assert mine is None
        else:
            assert (mine - expected).abs().max() <= 1e-6 * largest


def test_dropout_draws_for_every_row_whatever_the_length():
    case = deberta(hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.0)
    case.module.pos_dropout.train()
    states = []
    for length in (2, 7):
        torch.manual_seed(3)
        case.call(case.module, tokens(length))
        states.append(torch.get_rng_state())
    assert torch.equal(*states)
    torch.manual_seed(3)
    untouched = torch.get_rng_state()
    assert not torch.equal(states[0], untouched)


# ---- what is kept --------------------------------------------------------------------


def test_a_result_does_not_depend_on_earlier_calls(case):
    for length in (2, 40, 2, 40, 1):
        assert torch.equal(inferred(case, length), anew(case, length))
        assert is_kept(case)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_module_of_16_bits_keeps_projections(case, dtype):
    case.module.to(dtype)
    for length in (2, 40, 2):
        out = inferred(case, length)
        assert out.dtype is dtype and out.isfinite().all()
        assert torch.equal(out, anew(case, length))
    assert is_kept(case)


def test_kept_projections_are_used_again(case):
    inferred(case)
    first = _kept._KEPT[case.module]
    assert torch.equal(inferred(case, seed=1), anew(case, seed=1))
    assert _kept._KEPT[case.module] is first


def test_equal_to_the_call_with_gradients(case):
    mine, expected = inferred(case, 6), case.call(case.module, tokens(6))
    torch.testing.assert_close(mine, expected.detach(), rtol=1e-5, atol=1e-6)


def by_optimiser(module):
    for p in module.parameters():
        p.grad = torch.full_like(p, 0.5)
    torch.optim.SGD(module.parameters(), lr=1.0).step()


def by_state(module, **options):
    state = {name: 0.5 - x for name, x in module.state_dict().items()}
    module.load_state_dict(state, **options)


def by_new_data(module):
    for p in module.parameters():
        p.data = p.data + 0.5


def by_copied_data(module):
    for p in module.parameters():
        p.data.copy_(p.data - 0.5)


def by_changed_data(module):
    for p in module.parameters():
        p.data.add_(0.5)


def by_arrays(module):
    for p in module.parameters():
        array = p.detach().numpy()
        array += 0.5


def by_bfloat16(module):
    module.to(torch.bfloat16).to(torch.float32)


def without_gradients(module):
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(1.5)


def under_inference_mode(module):
    with torch.inference_mode():
        for p in module.parameters():
            p.mul_(1.5)


def by_vector(module):
    vector = parameters_to_vector(module.parameters())
    vector_to_parameters(vector * 1.5, module.parameters())


def by_inference_tensors(module):
    with torch.inference_mode():
        for part in module.modules():
            for name, p in part._parameters.items():
                if p is not None:
                    part._parameters[name] = torch.nn.Parameter(p + 0.5, False)


CHANGES = {
    "an optimiser": by_optimiser,
    "load_state_dict": by_state,
    "load_state_dict, assign": lambda module: by_state(module, assign=True),
    "data, a new one": by_new_data,
    "data, copied": by_copied_data,
    "data, added to": by_changed_data,
    "an array": by_arrays,
    "bfloat16 and back": by_bfloat16,
    "no_grad": without_gradients,
    "inference_mode": under_inference_mode,
    "a vector": by_vector,
    "weights of inference_mode": by_inference_tensors,
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_are_seen(case, change):
    before = inferred(case)
    CHANGES[change](case.module)
    after = inferred(case)
    assert not torch.equal(before, after)
    assert torch.equal(after, anew(case))
    assert is_kept(case)


def test_one_bit_of_a_weight_is_seen():
    case = deberta()
    inferred(case)
    first = _kept._KEPT[case.module]
    case.layer.weight.data.view(torch.int32)[-1, -1] ^= 1
    inferred(case)
    assert _kept._KEPT[case.module] is not first


def test_autocast_before_and_after_a_plain_call(case):
    plain = anew(case)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = anew(case)
    assert not torch.equal(plain, rounded)
    assert torch.equal(inferred(case), plain)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(inferred(case), rounded)
    assert torch.equal(inferred(case), plain)


def test_inference_mode_before_and_after_no_grad(case):
    plain = anew(case)
    with torch.inference_mode():
        assert torch.equal(inferred(case), plain)
    assert torch.equal(inferred(case), plain)
    # what was kept may be part of a call that is recorded later
    case.call(case.module, tokens(5)).sum().backward()


def test_one_layer_with_two_embeddings_in_turn():
    module = deberta().module
    mask = torch.ones(2, 1, 1, 5)
    tables = [torch.randn(2 * module.pos_ebd_size, WIDTH) for _ in range(2)]
    for table in (tables[0], tables[1], tables[0]):
        results = []
        for each in (module, copy.deepcopy(module)):
            with torch.no_grad():
                results.append(each(tokens(5), mask, rel_embeddings=table)[0])
        assert torch.equal(*results)


def test_two_models_that_share_embeddings(case):
    other = case._replace(module=copy.deepcopy(case.module))
    CHANGES["data, added to"](other.module)
    for _ in range(2):
        assert torch.equal(inferred(case), anew(case))
        assert torch.equal(inferred(other), anew(other))


# ---- what is not kept ----------------------------------------------------------------


def test_nothing_is_kept_with_gradients_or_in_training(case):
    case.call(case.module, tokens(5))
    assert not is_kept(case)
    case.module.train()
    inferred(case)
    assert not is_kept(case)


def test_training_frees_it_and_evaluation_does_not(case):
    inferred(case)
    kept = weakref.ref(_kept._KEPT[case.module].results[0])
    case.module.eval()
    assert is_kept(case)
    case.module.train()
    assert not is_kept(case)
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("name", CASES)
def test_it_goes_with_its_module(name):
    case = CASES[name]()
    inferred(case)
    kept = weakref.ref(_kept._KEPT[case.module].results[0])
    del case
    gc.collect()
    assert kept() is None


def test_copies_and_states_never_hold_it(case):
    sizes, keys = [], []
    for _ in range(2):
        file = io.BytesIO()
        torch.save(case.module, file)
        sizes.append((len(pickle.dumps(case.module)), len(file.getvalue())))
        keys.append([*case.module.state_dict()])
        inferred(case)
    assert sizes[0] == sizes[1]
    assert keys[0] == keys[1]
    assert copy.deepcopy(case.module) not in _kept._KEPT


def test_it_can_be_switched_off():
    case = layer_of("deberta")
    case.module.keep_positions = False
    inferred(case)
    assert not is_kept(case)
    model = models.build(models.CASES["deberta"], "eager")
    rt.replace_attention(model, keep_positions=False)
    with torch.no_grad():
        model(torch.ones(1, 4, dtype=torch.long))
    assert not any(module in _kept._KEPT for module in model.modules())


def test_dropout_of_positions_alone():
    case = deberta()
    case.module.pos_dropout.train()
    inferred(case)
    assert not is_kept(case)


class Own(torch.nn.Linear):
    """A layer of a user."""


def observe(*args):
    """Return nothing: a hook that looks."""


def replaced_by_own(layer):
    layer.__class__ = Own


def parametrised(layer):
    parametrize.register_parametrization(layer, "weight", torch.nn.Identity())


def own_forward(layer):
    layer.forward = layer.forward


UNLIKE_LINEAR = {
    "a subclass": replaced_by_own,
    "a parametrisation": parametrised,
    "a forward of its own": own_forward,
    "a hook": lambda layer: layer.register_forward_hook(observe),
    "a hook before": lambda layer: layer.register_forward_pre_hook(observe),
    "a hook of gradients": lambda layer: layer.register_full_backward_hook(observe),
}


@pytest.mark.parametrize("change", UNLIKE_LINEAR)
@pytest.mark.parametrize("name", WITH_LAYERS)
def test_nothing_is_kept_of_another_layer(name, change):
    case = CASES[name]()
    expected = inferred(case)
    _kept.forget(case.module)
    UNLIKE_LINEAR[change](case.layer)
    torch.testing.assert_close(inferred(case), expected, rtol=1e-5, atol=1e-6)
    assert not is_kept(case)


@pytest.mark.parametrize("name", WITH_LAYERS)
def test_hooks_of_all_modules_see_every_call(name):
    case = CASES[name]()
    seen = []
    inferred(case)
    _kept.forget(case.module)
    see = torch.nn.modules.module.register_module_forward_hook
    with see(lambda module, args, out: seen.append(module)):
        inferred(case)
        inferred(case)
    assert seen.count(case.layer) >= 2
    assert not is_kept(case)


class Passing(TorchFunctionMode):
    """A mode that sees every function of torch."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **kwargs or {})


def test_nothing_is_kept_where_others_follow(case):
    with Passing():
        inferred(case)
    assert not is_kept(case)
    x = torch.stack([tokens(5), tokens(5)])
    with torch.no_grad():
        torch.vmap(lambda x: case.call(case.module, x))(x)
    assert not is_kept(case)
    with torch.no_grad():
        torch.func.grad(lambda x: case.call(case.module, x).sum())(x[0])
    assert not is_kept(case)


@pytest.mark.parametrize("name", ["DeBERTa V3", "layer of DeBERTa"])
def test_nothing_is_kept_where_a_call_is_traced(name):
    case = CASES[name]()
    compiled = torch.compile(case.module, backend="eager", fullgraph=True)
    torch.testing.assert_close(
        inferred(case._replace(module=compiled)), anew(case), rtol=1e-5, atol=1e-6
    )
    assert not is_kept(case)


@pytest.mark.parametrize("grad", [False, True])
def test_an_empty_input(grad):
    case = deberta()
    with torch.set_grad_enabled(grad):
        assert case.call(case.module, tokens(0)).shape == (2, 0, WIDTH)


def test_settings_of_products_are_seen():
    case = layer_of("deberta")
    inferred(case)
    first = _kept._KEPT[case.module]
    with use_isa("base"):
        inferred(case)
    assert (_kept._KEPT[case.module] is first) == (_core.isa == "base")
    first = _kept._KEPT[case.module]
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        inferred(case)
    finally:
        torch.set_num_threads(before)
    assert _kept._KEPT[case.module] is not first
