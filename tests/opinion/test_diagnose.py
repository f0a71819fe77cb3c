"""relpos.diagnose: published mistakes and other conventions, each named."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from opinions import CONVENTIONS, MISTAKES, qkv, shaw
from random_problems import runs

import relpos
from relpos._opinion.differences import DIFFERENCES
from relpos._opinion.kept import MOST_BYTES, Kept
from relpos._schemes import scheme_called

KINDS = [(name, "mistake", *x) for name, x in MISTAKES.items()]
KINDS += [(name, "convention", *x) for name, x in CONVENTIONS.items()]


@pytest.mark.few(24)
@pytest.mark.parametrize(("name", "kind", "names", "make"), KINDS)
def test_each_is_named(name, kind, names, make):
    mine, arguments = make(np.random.default_rng(3))
    found = relpos.diagnose(mine, **arguments)
    assert (found.kind, found.differences, found.closest) == (kind, names, names)
    assert found.error < 1e-13
    assert f"({found.error:.1g})" in found.verdict


def test_how_many_there_are():
    assert len(MISTAKES) >= 30
    assert len(CONVENTIONS) >= 20


@pytest.mark.parametrize("what", ["outputs", "scores", "weights"])
def test_right_ones_are_the_same(what, sized):
    """Any arguments of attention, by the kernels, in float32 and float64."""
    kinds = []

    @settings(
        max_examples=sized(10, 67),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(runs())
    def check(run):
        problem = run.problem.cast(run.dtype)
        arguments = {**problem.inputs, **problem.settings}
        for name in ("dropout_p", "rng"):
            arguments.pop(name, None)
        if what == "outputs":
            mine = relpos.attention(**arguments)
        elif what == "weights":
            mine = relpos.attention(**arguments, return_weights=True).weights
        else:
            del arguments["value"]
            mine = relpos.scores(**arguments)
        if what == "weights":
            arguments = {n: x for n, x in arguments.items() if n != "value"}
            if mine.shape != relpos.scores(**arguments).shape:
                return  # values alone have batch axes
        kinds.append(relpos.diagnose(mine, **arguments).kind)

    check()
    assert {*kinds} == {"same"}
    assert len(kinds) > sized(5, 50)


@pytest.mark.parametrize(
    ("scheme", "names"),
    [
        ("shaw_attention", ("rel_key", "rel_value")),
        ("music", ("rel_key",)),
        ("transformer_xl_attention", ("rel_key", "pos_bias_u", "pos_bias_v")),
        ("fire_attention", ("w1", "b1", "w2", "b2", "c", "threshold")),
    ],
)
def test_schemes_by_name(scheme, names):
    rng = np.random.default_rng(5)
    q, k, v = qkv(rng)
    length, heads = q.shape[-2], q.shape[-3]
    shapes = dict.fromkeys(("rel_key", "rel_value"), (2 * length - 1, q.shape[-1]))
    shapes |= dict.fromkeys(("pos_bias_u", "pos_bias_v"), q.shape[-1:])
    shapes |= dict.fromkeys(("w1", "b1"), (4,)) | dict.fromkeys(("c", "threshold"), ())
    shapes |= {"w2": (heads, 4), "b2": (heads,)}
    arguments = {name: rng.random(shapes[name]) for name in names}
    function = getattr(relpos, scheme_called(scheme).name)
    out = function(q, k, v, **arguments)
    found = relpos.diagnose(out, q, k, v, scheme=scheme, **arguments)
    assert (found.kind, found.differences) == ("same", ())
    assert found.verdict.startswith(f"equals relpos.{function.__name__} (")


@pytest.mark.usefixtures("few_pairs")
def test_what_nobody_knows():
    rng = np.random.default_rng(0)
    q, k, v, _, arguments = shaw(rng)
    diagnosis = relpos.diagnose(rng.standard_normal(v.shape), **arguments)
    assert (diagnosis.kind, diagnosis.differences) == ("unknown", ())
    assert diagnosis.error > 0.1
    assert diagnosis.closest is None
    assert "the closest" not in diagnosis.verdict
    assert "closest     none" in repr(diagnosis)
    near = relpos.shaw_attention(q, k, v, arguments["rel_key"])
    near[..., 4, 2] *= 1.001
    diagnosis = relpos.diagnose(near, **arguments)
    assert (diagnosis.kind, diagnosis.closest) == ("unknown", None)
    assert 0 < diagnosis.error < 1e-3
    assert diagnosis.verdict.startswith("fits none of ")
    at = diagnosis.verdict.split("largest entry, at ")[1]
    assert at.startswith("[") and at.endswith(", 4, 2]")


@pytest.mark.usefixtures("few_pairs")
def test_the_closest_is_named_where_it_is_near():
    """Its error is at most a tenth of the formula's own, or it is not named."""
    rng = np.random.default_rng(0)
    *_, table, arguments = shaw(rng)
    mine = relpos.shaw_attention(
        *(arguments[n] for n in ("query", "key", "value")), table[::-1]
    )
    off = rng.standard_normal(mine.shape) * np.abs(mine).max()
    own = relpos.diagnose(mine + 0.5 * off, **arguments)
    assert (own.kind, own.closest) == ("unknown", None)
    assert not [x.name for x in DIFFERENCES if f"with {x.words}" in own.verdict]
    near = relpos.diagnose(mine + 1e-3 * off, **arguments)
    assert (near.kind, near.differences) == ("unknown", ())
    assert near.closest == ("table_reversed",)
    assert near.verdict.startswith("fits none of ")
    assert (
        "the closest is relpos.shaw_attention with the table reversed" in near.verdict
    )
    formula = np.abs(
        mine
        - relpos.shaw_attention(
            *(arguments[n] for n in ("query", "key", "value")), table
        )
    ).max()
    assert near.error * np.abs(mine).max() < formula / 10
    joined = np.swapaxes(mine + 0.5 * off, 1, 2).reshape(*mine.shape[::2][:1], L, -1)
    assert relpos.diagnose(joined, **arguments).closest is None
    nothing = np.full_like(mine, np.nan)
    assert relpos.diagnose(nothing, **arguments).closest is None


#: Begin of the error for a call that has no keys.
KEY = r"^diagnose\(\) needs an argument 'key'\. "


def test_a_layer_with_projections_says_what_to_do():
    layer = relpos.nn.RelativeGlobalAttention(32, 4, max_len=64, rng=0)
    x = np.ones((2, 19, 32), np.float32)
    with pytest.raises(TypeError, match=KEY + r".*\(layer of relpos, mine, x, weig"):
        relpos.diagnose(layer, x)
    with pytest.raises(TypeError, match=KEY + r".*projections"):
        relpos.diagnose(mine=layer, query=x)
    with pytest.raises(TypeError, match=r"^diagnose\(\) needs an argument 'query'$"):
        relpos.diagnose(layer)
    linear = relpos.nn.Linear(32, 32, rng=0)

    class Layer(relpos.nn.Module):
        def __call__(self, query, key, value):
            return linear(query)[..., :5]

    with pytest.raises(ValueError, match=r"^mine: got shape .*projections"):
        relpos.diagnose(Layer(), x, x, x)


@pytest.mark.usefixtures("few_pairs")
def test_what_is_not_finite_is_nothing_known():
    q, k, v, table, arguments = shaw(np.random.default_rng(0))
    out = relpos.shaw_attention(q, k, v, table)
    out[0, 0, 2, 1] = np.nan
    found = relpos.diagnose(out, **arguments)
    assert (found.kind, found.error) == ("unknown", np.inf)


def test_inputs_that_cannot_tell():
    rng = np.random.default_rng(1)
    q, k, v, _, arguments = shaw(rng)
    half = rng.standard_normal((3, 8))
    table = np.concatenate([half, [half[0]], half[::-1]])
    out = relpos.shaw_attention(q, k, v, table)
    found = relpos.diagnose(out, **(arguments | {"rel_key": table}))
    assert found.kind == "same"
    assert (
        "these inputs would not show: table_reversed, future_is_past" in found.verdict
    )
    one = relpos.attention(q, k, v, scale=1 / 8)
    found = relpos.diagnose(one, q, k, v)
    assert found.differences == ("scale_by_dim",)
    assert found.verdict.endswith("these inputs cannot tell it from: scaled_twice")


def test_scores_that_could_be_weights_are_scores_if_that_is_simpler():
    """Scores of 0 could be the weights of queries that see no key."""
    q, k, *_ = shaw(np.random.default_rng(1))
    zeros = relpos.scores(q, k, scale=0.0)
    assert relpos.diagnose(zeros, q, k, scale=0.0, query_offset=-20).kind == "same"
    halves = relpos.attention(q, k, k, key_lengths=0, return_weights=True).weights
    assert relpos.diagnose(halves, q, k, key_lengths=0).kind == "same"


@pytest.mark.parametrize("shape", [(2, 0, 4), (0, 2, 4), (2, 3, 0)])
def test_nothing_is_the_same(shape):
    x, value = np.ones(shape), np.ones((*shape[:-1], 4))
    for v in (x, value):
        found = relpos.diagnose(
            relpos.attention(x, x, v, scale=1.0), x, x, v, scale=1.0
        )
        assert found.kind == "same" and found.error < 1e-15


@pytest.mark.usefixtures("few_pairs")
def test_rounding_of_the_dtype_in_which_something_is_computed():
    q, k, v, table, arguments = shaw(np.random.default_rng(1))
    rough = relpos.shaw_attention(*(x.astype(np.float32) for x in (q, k, v, table)))
    assert relpos.diagnose(rough, **arguments).verdict.endswith("e-07)")
    found = relpos.diagnose(rough.astype(np.float64), **arguments)
    assert found.kind == "same"
    assert "to the rounding of float32" in found.verdict
    off = relpos.shaw_attention(q, k, v, table) * (1 + 1e-4)
    assert relpos.diagnose(off, **arguments).kind == "unknown"


def test_functions_and_tuples_of_results():
    q, k, v, table, arguments = shaw(np.random.default_rng(1))

    def mine(query, key, value):
        return relpos.shaw_attention(query, key, value, table[::-1]), "weights"

    found = relpos.diagnose(mine, **arguments)
    assert found.differences == ("table_reversed",)
    arguments["value"] = None

    def scores(query, key):
        return relpos.shaw_scores(query, key, table)

    assert relpos.diagnose(scores, **arguments).kind == "same"
    weights = relpos.shaw_attention(q, k, v, table, return_weights=True).weights
    assert relpos.diagnose(weights, **arguments).kind == "same"


def test_heads_elsewhere_and_another_difference():
    q, k, v, table, arguments = shaw(np.random.default_rng(1))
    out = relpos.shaw_attention(q, k, v, table[::-1]).swapaxes(1, 2)
    found = relpos.diagnose(out, **arguments)
    assert found.differences == ("heads_last", "table_reversed")
    assert found.verdict.startswith("its heads after the positions; equals ")
    by_heads = np.moveaxis(relpos.shaw_scores(q, k, table), 1, -1)
    found = relpos.diagnose(by_heads, **(arguments | {"value": None}))
    assert found.differences == ("heads_last",)


@pytest.mark.parametrize(
    ("error", "message", "changes"),
    [
        (ValueError, "^mine: got shape", {"mine": np.zeros((3, 3))}),
        (TypeError, "^mine: got an array of dtype int64", {"mine": np.zeros(3, int)}),
        (ValueError, "^scheme: got 'xx'", {"scheme": "xx"}),
        (TypeError, "^scheme: got int", {"scheme": 1}),
        (ValueError, "no dense scores", {"scheme": "graph_attention"}),
        (ValueError, "no dense scores", {"scheme": "sinusoidal"}),
        (TypeError, "^rel_kye: got an .*; did you mean rel_key", {"rel_kye": 1}),
        (TypeError, "^causal: .*did you mean is_causal", {"causal": True}),
        (
            TypeError,
            "^theta: .*did you mean angles or base",
            {"theta": 1, "scheme": "rope"},
        ),
        (
            TypeError,
            "^W1: .*did you mean .*1.*wants w1, b1",
            {"W1": 1, "scheme": "fire"},
        ),
        (ValueError, "^scheme: got 'RoPE'; did you mean 'rotary'", {"scheme": "RoPE"}),
        (
            TypeError,
            "^dropout_p: got an unexpected keyword argument 'dropout_p'",
            {"dropout_p": 0.1},
        ),
        (TypeError, "^out: got an unexpected keyword argument", {"out": np.zeros(2)}),
        (TypeError, "^rng: got an unexpected keyword argument", {"rng": 0}),
        (
            TypeError,
            r"^diagnose\(\) needs an argument 'rel_key' .* wants rel_key, pos_bias_u",
            {"rel_key": None, "scheme": "xl"},
        ),
        (
            TypeError,
            r"^diagnose\(\) needs an argument 'w1' .* wants w1, b1, w2, b2, c, thr",
            {"scheme": "fire"},
        ),
        (ValueError, "^rel_key: 4 rows", {"rel_key": np.ones((4, 8))}),
        (ValueError, "^query_offset: None with", {"key": np.ones((2, 5, 3, 8))}),
    ],
)
def test_errors_name_the_argument(error, message, changes):
    q, k, v, table, arguments = shaw(np.random.default_rng(1))
    arguments["mine"] = relpos.shaw_attention(q, k, v, table)
    arguments |= changes
    if "key" in changes:
        arguments["value"] = changes["key"]
    with pytest.raises(error, match=message):
        relpos.diagnose(**arguments)


def test_it_shows_itself_a_line_a_field():
    *_, arguments = shaw(np.random.default_rng(1))
    mine = relpos.shaw_attention(*(arguments[n] for n in ("query", "key", "value")))
    found = relpos.diagnose(mine, **arguments)
    lines = repr(found).splitlines()
    assert lines[0].startswith("verdict     equals relpos.shaw_attention with the pos")
    assert lines[1:3] == ["kind        mistake", "differences no_rel_key"]
    assert found._repr_html_().count("<tr>") == 6
    assert "<td>mistake</td>" in found._repr_html_()


def test_the_docstring_lists_every_name():
    notes = relpos.diagnose.__doc__.split("Conventions:")[1].split("Where several")[0]
    conventions, mistakes = notes.split("Mistakes:")
    for kind, text in (("convention", conventions), ("mistake", mistakes)):
        known = [row.name for row in DIFFERENCES if row.kind == kind]
        known += ["heads_last", "heads_joined"] if kind == "convention" else []
        assert re.findall(r"`(\w+)`", text) == known


# ---- each other row of the table, by the kernels with arguments changed --------------

H, L, D = 3, 9, 8
RNG = np.random.default_rng(11)
Q, K, V = RNG.standard_normal((3, 2, H, L, D))
KEYS, QUERIES, VALUES = RNG.standard_normal((3, 2 * L - 1, D))
U, W = RNG.standard_normal((2, H, D))
BIAS = RNG.standard_normal((H, 2 * L - 1))
OWN = RNG.standard_normal((2, H, L, D))
STEPS = -RNG.random((H, L))
MASK = RNG.random((L, L)) < 0.6
RANGES = np.array([[max(i - 2, 0), L - i // 2] for i in range(L)])
EVERY = {"query": Q, "key": K, "value": V}
TABLES = {**EVERY, "rel_key": KEYS, "rel_query": QUERIES, "rel_value": VALUES}
XL = {**EVERY, "rel_key": KEYS, "pos_bias_u": U, "pos_bias_v": W}
BIASED = {**EVERY, "rel_bias": BIAS}
CAUSAL = {**EVERY, "is_causal": True}
FEW = {**EVERY, "query": Q[..., :4, :], "rel_key": KEYS, "query_offset": 2}
ROOT = D**-0.5

#: Arguments of the call, and the arguments that are different.
CASES = {
    "queries_share_table": (TABLES, {"rel_query": KEYS}),
    "scale_head_dim": ({**TABLES, "scale": 0.2}, {"scale": ROOT}),
    "scale_three": (TABLES, {"scale": (3 * D) ** -0.5}),
    "position_scaled": (
        {**EVERY, "rel_key": KEYS, "position_query": OWN},
        {"position_query": OWN * ROOT},
    ),
    "value_table_reversed": (TABLES, {"rel_value": VALUES[::-1]}),
    "query_table_reversed": (TABLES, {"rel_query": QUERIES[::-1]}),
    "scaled_twice": ({**EVERY, "scale": 0.3}, {"scale": 0.09}),
    "scale_inverted": (EVERY, {"scale": 1 / ROOT}),
    "u_is_v": (XL, {"pos_bias_v": U}),
    "u_v_unscaled": (XL, {"pos_bias_u": U / ROOT, "pos_bias_v": W / ROOT}),
    "bias_negated": (BIASED, {"rel_bias": -BIAS}),
    "position_negated": (XL, {"rel_key": -KEYS}),
    "no_rel_key": (TABLES, {"rel_key": None}),
    "no_rel_query": (TABLES, {"rel_query": None}),
    "no_pos_bias_u": (XL, {"pos_bias_u": None}),
    "no_pos_bias_v": (XL, {"pos_bias_v": None}),
    "no_log_decay": ({**CAUSAL, "log_decay": STEPS}, {"log_decay": None}),
    "no_is_causal": (CAUSAL, {"is_causal": False}),
    "no_window": ({**EVERY, "window": (2, 1)}, {"window": None}),
    "no_key_lengths": ({**EVERY, "key_lengths": [7, 5]}, {"key_lengths": None}),
    "no_key_ranges": ({**EVERY, "key_ranges": RANGES}, {"key_ranges": None}),
    "no_attn_mask": ({**EVERY, "attn_mask": MASK}, {"attn_mask": None}),
    "mask_transposed": ({**EVERY, "attn_mask": MASK}, {"attn_mask": MASK.T}),
    "offset_0": (FEW, {"query_offset": 0}),
    "offset_end": (FEW, {"query_offset": L - 4}),
    "causal_untold": (BIASED, {"is_causal": True}),
    "causal_strict": (CAUSAL, {"attn_mask": np.tri(L, L, -1, bool)}),
    "causal_sees_next": (
        CAUSAL,
        {"is_causal": False, "attn_mask": np.tri(L, L, 1, bool)},
    ),
    "causal_backwards": (
        CAUSAL,
        {"is_causal": False, "attn_mask": np.tri(L, L, dtype=bool).T},
    ),
    "window_wider": ({**EVERY, "window": (2, 1)}, {"window": (3, 2)}),
    "query_minus_key": (
        {**EVERY, "rel_key": KEYS[: 2 * L - 2], "min_relative_position": 1 - L},
        {"rel_key": KEYS[: 2 * L - 2][::-1], "min_relative_position": 2 - L},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_arguments_changed(name):
    call, changes = CASES[name]
    changed = {n: x for n, x in {**call, **changes}.items() if x is not None}
    found = relpos.diagnose(relpos.attention(**changed), **call)
    assert found.differences == (name,), found.verdict
    assert found.error < 1e-14


@pytest.mark.parametrize(
    ("name", "rotated", "options"),
    [
        ("rotary_inverse", "qk", {"inverse": True}),
        ("rotary_base", "qk", {"base": 5e5}),
        ("rotary_pairs", "qk", {"interleaved": True}),
        ("no_magnitude", "qk", {}),
        ("rotary_one_side", "q", {}),
        ("rotary_one_side", "k", {}),
        ("rotary_values", "qkv", {}),
        ("no_rotary", "", {}),
    ],
)
def test_rotations(name, rotated, options):
    call = {"magnitude": 1.5} if name == "no_magnitude" else {}
    arrays = [
        relpos.apply_rotary(x, **options) if letter in rotated else x
        for letter, x in zip("qkv", (Q, K, V), strict=True)
    ]
    found = relpos.diagnose(relpos.attention(*arrays), **EVERY, **call, scheme="rotary")
    assert found.differences == (name,), found.verdict


@pytest.mark.parametrize(
    "mask", [MASK, np.where(MASK, 0.25, -np.inf)], ids=["bool", "float"]
)
def test_the_mask_of_fire_is_added_to_its_bias(mask):
    network = [np.ones(4), np.ones(4), np.ones((H, 4)), np.zeros(H), 1.0, 2.0]
    out = relpos.fire_attention(Q, K, V, *network, attn_mask=mask)
    named = dict(zip(("w1", "b1", "w2", "b2", "c", "threshold"), network, strict=True))
    call = {**EVERY, **named, "scheme": "fire_attention"}
    assert relpos.diagnose(out, **call, attn_mask=mask).kind == "same"
    assert relpos.diagnose(out, **call).kind == "unknown"


def test_keys_counted_from_the_query():
    at = np.arange(L - 4, L)
    q, k = relpos.apply_rotary(Q[..., :4, :], at), relpos.apply_rotary(K, offset=L - 4)
    few = {**EVERY, "query": Q[..., :4, :], "query_offset": L - 4}
    found = relpos.diagnose(relpos.attention(q, k, V), **few, scheme="rotary")
    assert found.differences == ("offset_0",)
    assert found.verdict.endswith("cannot tell it from: rotary_keys_moved")


def test_wrapped_scores_of_a_reversed_table():
    """Reverse a table, and leave the wrapped entries of the shift."""
    table = KEYS[:L]
    scores = (Q @ K.swapaxes(-1, -2) + relpos.rel_shift(Q @ table[::-1].T)) * ROOT
    found = relpos.diagnose(scores, Q, K, scheme="music", rel_key=table)
    assert found.differences == ("unmasked_wrapped", "table_reversed")
    assert found.kind == "convention"
    assert "scores of the next query" in found.verdict


def test_scores_with_another_mask_of_their_own_are_not_before_the_mask():
    scores = relpos.scores(Q, K, attn_mask=np.tri(L, L, 2, bool))
    found = relpos.diagnose(scores, Q, K, is_causal=True)
    assert (found.kind, found.differences) == ("mistake", ("causal_diagonal",))
    scores = relpos.scores(Q, K, attn_mask=np.tri(L, L, 1, bool))
    found = relpos.diagnose(scores, Q, K, is_causal=True)
    assert found.differences == ("causal_sees_next",)


def test_the_better_of_two_that_a_coarse_dtype_allows():
    table = KEYS.copy()
    table[0] = table[1] + 0.05 * table[0]
    clipped = np.concatenate([[table[1]], table[1:-1], [table[-2]]])
    table[-1] = table[-2] + 0.05 * table[-1]
    out = relpos.attention(**(EVERY | {"rel_key": clipped})).astype(np.float16)
    found = relpos.diagnose(out, **(EVERY | {"rel_key": table}))
    assert found.differences == ("clip_one_early",)


def test_a_constant_is_something_to_sinks():
    scores = relpos.scores(Q, K) + np.arange(L)[:, None]
    assert relpos.diagnose(scores, Q, K).differences == ("constant_in_rows",)
    assert relpos.diagnose(scores, Q, K, sinks=np.ones(H)).kind == "unknown"


@pytest.mark.usefixtures("few_pairs")
def test_a_mask_of_large_finite_numbers_does_not_make_errors_small():
    mask = np.where(MASK, 0.0, -1e9)
    call = {"query": Q, "key": K, "rel_bias": BIAS, "attn_mask": mask}
    right = relpos.scores(**call)
    assert relpos.diagnose(right, **call).kind == "same"
    reversed_bias = relpos.scores(**(call | {"rel_bias": BIAS[:, ::-1]}))
    assert relpos.diagnose(reversed_bias, **call).differences == ("table_reversed",)
    near = right + 1e-3 * RNG.standard_normal(right.shape)
    assert relpos.diagnose(near, **call).kind == "unknown"
    out = relpos.attention(**call, value=V)
    assert relpos.diagnose(out * 1.001, **call, value=V).kind == "unknown"
    assert relpos.diagnose(np.where(MASK, right, -np.inf), **call).kind == "same"


# ---- tensors -------------------------------------------------------------------------


@pytest.mark.torch
def test_tensors_and_modules():
    torch = pytest.importorskip("torch")
    *_, table, arguments = shaw(np.random.default_rng(1))
    rows = torch.nn.Parameter(torch.from_numpy(table[::-1].copy()))

    class Mine(torch.nn.Module):
        def forward(self, query, key, value):
            reach = torch.arange(query.shape[-2])
            r = (reach - reach[:, None]).clip(-3, 3) + 3
            s = query @ key.mT + torch.einsum("...id,ijd->...ij", query, rows[r])
            return (s / query.shape[-1] ** 0.5).softmax(-1) @ value

    found = relpos.diagnose(Mine(), **arguments)
    assert (found.kind, found.differences) == ("convention", ("table_reversed",))
    tensors = {n: x for n, x in arguments.items() if n != "scheme"}
    tensors = {n: torch.from_numpy(x) for n, x in tensors.items()}
    found = relpos.diagnose(Mine(), **tensors)
    assert found.differences == ("table_reversed",)
    half = Mine()(*(tensors[n] for n in ("query", "key", "value"))).bfloat16()
    assert relpos.diagnose(half, **tensors).differences == ("table_reversed",)


@pytest.mark.torch
def test_functions_get_what_they_take():
    torch = pytest.importorskip("torch")
    q, k, v, _, arguments = shaw(np.random.default_rng(1))

    def of_tensors(query, key, value):
        return (query @ key.transpose(-1, -2) / 8**0.5).softmax(dim=-1) @ value

    assert relpos.diagnose(of_tensors, q, k, v).kind == "same"
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    assert relpos.diagnose(relpos.attention, *tensors).kind == "same"
    with pytest.raises(AttributeError, match="nothing"):
        relpos.diagnose(lambda *inputs: inputs[0].nothing, **arguments)


def test_results_that_are_kept_have_a_limit_of_bytes():
    """The one that was used least recently is computed again."""
    kept, computed = Kept(), []

    def result(number):
        computed.append(number)
        return np.zeros(MOST_BYTES // 4, np.uint8)

    for number in (0, 1, 2, 3, 0, 4, 0, 1):
        kept.by_contents(number, lambda number=number: result(number))
    assert computed == [0, 1, 2, 3, 4, 1]


def test_a_layer_with_projections_that_fits_nothing():
    layer = relpos.nn.MultiheadAttention(8, 2, rng=0, dtype=np.float64)
    x = np.random.default_rng(1).standard_normal((2, 6, 8))
    found = relpos.diagnose(layer, x, x, x)
    assert found.kind == "unknown"
    assert (
        "For a layer with projections, call relpos.compare(layer of " in found.verdict
    )
    assert "projections" not in relpos.diagnose(x, x, x, x).verdict


def test_a_mask_that_hides_nothing_has_items_of_its_own():
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 2, 1, 3, 4))
    mask = np.ones((2, 2, 1, 3, 3), bool)
    mine = relpos.scores(q, k, attn_mask=mask)
    assert mine.shape == (2, 2, 1, 3, 3)
    assert relpos.diagnose(mine, q, k, attn_mask=mask).kind == "same"


@pytest.mark.parametrize("batch", [(2, 1), (2, 3), (5, 2, 3)])
def test_scores_have_the_items_of_relative_values(batch):
    """No score depends on them; other items than the formula's are refused."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 2, 1, 1, 3, 4))
    given = {
        "rel_key": rng.standard_normal((5, 4)),
        "rel_value": np.ones((*batch, 1, 5, 4)),
    }
    mine = relpos.scores(q, k, **given)
    assert mine.shape == np.broadcast_shapes((2, 1, 1, 3, 3), (*batch, 1, 3, 3))
    assert relpos.diagnose(mine, q, k, **given).kind == "same"
    if 1 not in batch:
        mine[..., -1, :, :, :] += 1.0
        with pytest.raises(ValueError, match="mine: got shape"):
            relpos.diagnose(mine, q, k, **given)
