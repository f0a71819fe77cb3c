"""Models that call relpos, exported to ONNX at one length and run at others.

Every test needs onnxruntime and onnxscript, which the stage `onnx` installs.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from recipe_calls import RECIPES, recorded
from torch.export import Dim

import relpos.torch
from relpos._attention.operands import ROWS
from relpos._catalogue.rows import arguments_of
from relpos._schemes import SCHEMES, scheme_called
from relpos.torch import nn as layers
from relpos.torch.nn._positions import SCHEMES as POSITIONS

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

# they are raised in PyTorch's own modules, and in those of the exporter
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

#: The length at which a model is exported, and those at which it runs.
EXPORTED, LENGTHS = 6, (1, 9, 40)
#: The largest error of a result, relative to its largest entry.
LIMITS = {"float32": 1e-5, "float64": 1e-12}
H, D = 2, 4
LENGTH = Dim("length", min=1)


class Model(torch.nn.Module):
    """A function of tensors by name."""

    def __init__(self, function, names, module=None):
        super().__init__()
        self.function, self.names, self.module = function, names, module

    def forward(self, *tensors):
        return self.function(**dict(zip(self.names, tensors, strict=True)))


def shape_of(first, second):
    """Return the lengths of a tensor as expressions, by two tensors of two lengths."""
    axes = {}
    for axis, (a, b) in enumerate(zip(first.shape, second.shape, strict=True)):
        times = b - a
        if times:
            rest = a - EXPORTED * times
            expression = LENGTH if times == 1 else times * LENGTH
            axes[axis] = expression + rest if rest else expression
    return axes


def as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


def check(function, inputs, module=None, from_program=False):
    """Compare a model, made of a function, with its export; `inputs` of a length."""
    first, second = inputs(EXPORTED), inputs(EXPORTED + 1)
    model = Model(function, [*first], module).eval()
    args = tuple(first.values())
    shapes = {"tensors": tuple(shape_of(x, second[n]) for n, x in first.items())}
    if from_program:
        program = torch.export.export(model, args, dynamic_shapes=shapes)
        exported = torch.onnx.export(program, verbose=False)
    else:
        exported = torch.onnx.export(
            model, args, dynamic_shapes=shapes, dynamo=True, verbose=False
        )
    session = onnxruntime.InferenceSession(
        exported.model_proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    # an input that the model does not read may be left out
    names = [each.name for each in session.get_inputs()]
    places = [int(name.removeprefix("tensors_")) for name in names]
    for length in LENGTHS:
        args = tuple(inputs(length).values())
        arrays = {n: args[at].numpy() for n, at in zip(names, places, strict=True)}
        found = session.run(None, arrays)
        with torch.no_grad():
            wanted = [x.numpy() for x in as_tuple(model(*args))]
        for got, want in zip(found, wanted, strict=True):
            assert_near(got, want)


def assert_near(got, want):
    assert got.shape == want.shape and got.dtype == want.dtype
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    largest = np.abs(want[finite]).max(initial=0.0)
    error = np.abs(got[finite] - want[finite]).max(initial=0.0)
    assert error <= LIMITS[want.dtype.name] * largest


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator)


def mask_of(length):
    """Return a mask that hides a third of the pairs, and all keys of one query."""
    mask = torch.arange(length * length).reshape(length, length) % 3 != 1
    mask[length // 2] = False
    return mask


# ---- schemes -----------------------------------------------------------------------


def of_attention(scheme):
    """Return the function of a scheme, and its inputs of a length."""
    known = scheme_called(scheme)
    function = partial(getattr(relpos.torch, known.call), softcap=2.0)
    if known.call == "attention":
        function = partial(function, query_offset=0)
    function.keywords.update(dict(known.settings))

    def call(**tensors):
        result = function(**tensors, return_lse=True)
        return result.out, result.lse

    def inputs(length):
        arrays = arguments_of(scheme, known.call == "relative_global_attention")(
            np.float32, H, length, D
        )
        tensors = {name: torch.from_numpy(x) for name, x in arrays.items()}
        if "log_decay" in tensors:
            tensors["log_decay"] = -tensors["log_decay"].abs()
        return tensors | {"attn_mask": mask_of(length)}

    return call, inputs


def tokens(length):
    """Return inputs of attention, (2, H, L, D)."""
    names = "query", "key", "value"
    found = {n: draw(2, H, length, D, seed=seed) for seed, n in enumerate(names)}
    return found | {"attn_mask": mask_of(length)}


def biased(bias):
    """Return a call of attention with a bias that is a function of the length."""

    def call(query, key, value, attn_mask):
        return relpos.torch.attention(
            query,
            key,
            value,
            attn_mask=attn_mask,
            softcap=2.0,
            rel_bias=bias(query.shape[-2]),
        )

    return call, tokens


def rotated(**keywords):
    """Return a call of attention with rotated queries and keys."""

    def call(query, key, value, attn_mask):
        return relpos.torch.attention(
            relpos.torch.apply_rotary(query, **keywords),
            relpos.torch.apply_rotary(key, **keywords),
            value,
            attn_mask=attn_mask,
            softcap=2.0,
        )

    return call, tokens


def xpos():
    def call(query, key, value, attn_mask):
        length = query.shape[-2]
        sides = [
            relpos.torch.apply_rotary(
                x, magnitude=relpos.torch.xpos_magnitude(length, D, inverse=inverse)
            )
            for x, inverse in ((query, False), (key, True))
        ]
        return relpos.torch.attention(*sides, value, attn_mask=attn_mask, softcap=2.0)

    return call, tokens


def fire():
    network = {
        "w1": draw(5),
        "b1": draw(5, seed=1),
        "w2": draw(H, 5, seed=2),
        "b2": draw(H, seed=3),
        "c": torch.tensor(0.3),
        "threshold": torch.tensor(4.5),
    }

    def call(**tensors):
        return relpos.torch.fire_attention(**tensors, **network, softcap=2.0)

    return call, tokens


def deberta():
    arguments = relpos.recipes.deberta(draw(8, D), draw(8, D, seed=1), max_position=16)

    def call(**tensors):
        return relpos.torch.attention(**tensors, **arguments, softcap=2.0)

    return call, tokens


def sequence(length):
    return {"x": draw(2, length, D)}


def added(encoding):
    """Return a call that adds an encoding of the positions."""
    return lambda x: x + encoding(x.shape[-2]), sequence


def convolved():
    weight, bias = draw(D, 3, seed=1), draw(D, seed=2)
    return partial(relpos.torch.conv_encoding, weight=weight, bias=bias), sequence


def plain():
    def call(**tensors):
        result = relpos.torch.attention(
            **tensors, softcap=2.0, return_lse=True, return_weights=True
        )
        return tuple(result)

    return call, tokens


TABLE = draw(50, D)
SLOPES = draw(H).abs() + 0.1
WEIGHT = draw(8, H)
#: What a scheme is a model of: a function of tensors by name, and inputs of a length.
MODELS = {
    "sinusoidal": added(lambda length: relpos.torch.sinusoidal(length, D)),
    "learned": added(lambda length: relpos.torch.learned(TABLE, length)),
    "attention": plain(),
    "rotary": rotated(interleaved=True, rotary_dim=2, offset=3),
    "xpos": xpos(),
    "alibi": biased(lambda length: relpos.torch.alibi_bias(SLOPES, length)),
    "kerple": biased(lambda length: relpos.torch.kerple_bias(SLOPES, SLOPES, length)),
    "t5": biased(lambda length: relpos.torch.t5_bias(WEIGHT, length, max_distance=20)),
    "deberta": deberta(),
    "conv_encoding": convolved(),
    "fire_attention": fire(),
}
for _scheme in SCHEMES:
    if (_scheme.operands or _scheme.settings) and _scheme.name != "graph_attention":
        MODELS.setdefault(_scheme.name, of_attention(_scheme.name))


def test_every_scheme_of_tensors_has_a_model():
    on_tensors = {
        scheme.name
        for scheme in SCHEMES
        if scheme.operands
        or scheme.settings
        or {*scheme.functions} & {*relpos.torch.__all__}
    }
    assert on_tensors - {"graph_attention"} <= MODELS.keys()


@pytest.mark.parametrize("name", MODELS)
def test_schemes(name):
    check(*MODELS[name])


@pytest.mark.parametrize("name", ["shaw_attention", "t5", "rotary"])
def test_schemes_from_an_exported_program(name):
    check(*MODELS[name], from_program=True)


def wide(tensors):
    """Return tensors by name, those of float32 as float64."""
    return {n: x.double() if x.is_floating_point() else x for n, x in tensors.items()}


def sides(query, key, value, attn_mask):
    """Return attention with a bias and rotated queries, of constants in float64."""
    slopes, length = SLOPES.double(), query.shape[-2]
    bias = relpos.torch.kerple_bias(slopes, slopes, length, kind="power")
    bias = bias + relpos.torch.alibi_bias(slopes, length)
    query = query + relpos.torch.sinusoidal(length, D, dtype=query.dtype)
    return relpos.torch.attention(
        relpos.torch.apply_rotary(query, base=777.7, offset=0.3),
        relpos.torch.apply_rotary(key, base=777.7),
        value,
        attn_mask=attn_mask,
        scale=0.3,
        softcap=0.7,
        rel_bias=bias,
        sinks=SLOPES.double(),
    )


IN_FLOAT64 = ["shaw_attention", "transformer_xl_attention", "t5", "forgetting"]
IN_FLOAT64 += ["fire_attention", "xpos"]


@pytest.mark.parametrize("name", [*IN_FLOAT64, "biases"])
def test_models_of_float64(name):
    call, inputs = (sides, tokens) if name == "biases" else MODELS[name]
    check(call, lambda length: wide(inputs(length)))


@pytest.mark.parametrize("is_wide", [False, True])
def test_masks_of_float64_with_the_least_number(is_wide):
    """It hides nothing next to the same number, also where scores are of float32."""

    def inputs(length):
        mask = torch.zeros(length, length, dtype=torch.float64)
        mask.masked_fill_(~mask_of(length), torch.finfo(torch.float64).min)
        given = tokens(length)
        return (wide(given) if is_wide else given) | {"attn_mask": mask}

    def call(**tensors):
        result = relpos.torch.attention(**tensors, return_lse=True)
        return result.out, result.lse

    check(call, inputs)


@pytest.mark.parametrize("number", [1e-50, 1e50])
def test_numbers_of_float64_that_float32_lacks(number):
    def call(**tensors):
        result = relpos.torch.attention(**tensors, softcap=number, return_lse=True)
        return result.out, result.lse

    check(call, lambda length: wide(tokens(length)))


# ---- operands that no scheme has ---------------------------------------------------


def along_lengths(name, array, length):
    """Return an operand for another length: its numbers again and again."""
    letters = ROWS[name].letters.replace("1", "") if name in ROWS else ""
    for axis, letter in enumerate(letters[::-1], start=1):
        if letter in "qkt" and axis <= array.ndim:
            places = np.arange(length) % array.shape[-axis]
            array = np.take(array, places, axis=-axis)
    return torch.from_numpy(np.array(array, order="C"))


def operands_of_schemes():
    schemes = [scheme for scheme in SCHEMES if scheme.call != "graph_attention"]
    return {name for scheme in schemes for name in scheme.operands}


def recipes_with_other_operands():
    """Return a call of attention for each set of operands of which no scheme has all.

    They are those of the arrays in the results of recipes.
    """
    known, found = operands_of_schemes() | {"query", "key", "value"}, {}
    for name in sorted(RECIPES):
        for call in recorded(name, np.float32):
            for arguments in call.attention:
                names = [n for n, x in arguments.items() if is_operand(x)]
                if {*names} - known:
                    found.setdefault(tuple(sorted(names)), (name, arguments))
    return dict(found.values())


def is_operand(value):
    return isinstance(value, np.ndarray | tuple) and not isinstance(value[0], int)


RECIPES_OF_OTHERS = recipes_with_other_operands()


def test_recipes_have_operands_that_no_scheme_has():
    found = {name for call in RECIPES_OF_OTHERS.values() for name in call}
    assert {"buckets", "labels", "key_ranges", "attn_mask"} <= found


@pytest.mark.parametrize("name", RECIPES_OF_OTHERS)
def test_recipes(name):
    arrays, settings = {}, {"softcap": 2.0}
    for argument, value in RECIPES_OF_OTHERS[name].items():
        if argument == "return_context":
            continue
        if not is_operand(value):
            settings[argument] = value
        elif isinstance(value, tuple):
            arrays |= {f"{argument}[{n}]": x for n, x in enumerate(value)}
        else:
            arrays[argument] = value

    def inputs(length):
        tensors = {n: along_lengths(n, x, length) for n, x in arrays.items()}
        return {"attn_mask": mask_of(length)} | tensors

    def call(**tensors):
        labels = [tensors.pop(n) for n in [*tensors] if n.startswith("labels[")]
        if labels:
            tensors["labels"] = tuple(labels)
        return relpos.torch.attention(**tensors, **settings)

    check(call, inputs)


def ends(*parts):
    """Return integers of a length, from fractions of it."""
    return lambda length: torch.tensor([int(part * length) for part in parts])


#: Further keywords of attention: those of a length, and those of every length.
KEYWORDS = {
    "key_lengths": ({"key_lengths": ends(0.0, 0.7)}, {}),
    "query_offset": (
        {"query_offset": ends(0.0, -0.5)},
        {"rel_key": draw(5, D), "rel_value": draw(3, D), "beyond": "zero",
         "is_causal": True, "window": (3, None)},
    ),
    "cu_seqlens": ({"cu_seqlens": ends(0.0, 0.5, 0.5, 1.0)}, {"rel_key": draw(5, D)}),
    "key_blocks": (
        {"key_blocks": lambda n: draw(H, n, 1) > 0},
        {"block_size": (1, 64)},
    ),
    "sinks": ({"sinks": lambda n: draw(2, H, n)}, {}),
    "tables": (
        {},
        {"rel_key": draw(H, 4, D), "rel_query": draw(4, D), "rel_bias": draw(9),
         "pos_bias_u": draw(D), "pos_bias_v": draw(H, D), "min_relative_position": -2,
         "query_offset": 1, "scale": 0.3},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEYWORDS)
def test_keywords(name):
    of_length, others = KEYWORDS[name]

    def inputs(length):
        more = {n: function(length) for n, function in of_length.items()}
        return tokens(length) | more

    def call(**tensors):
        return tuple(
            x
            for x in relpos.torch.attention(
                **tensors, **others, softcap=2.0, return_lse=True
            )
            if x is not None
        )

    check(call, inputs)


def test_groups_of_heads():
    def inputs(length):
        shapes = {"query": 4, "key": 2, "value": 2}
        return {name: draw(heads, length, D) for name, heads in shapes.items()}

    def call(**tensors):
        return relpos.torch.attention(**tensors, enable_gqa=True, is_causal=True)

    check(call, inputs)


def test_rows_outside_of_a_table_are_nan():
    def call(query, key, value):
        return relpos.torch.relative_global_attention(query, key, value, TABLE[:20])

    model = Model(call, ["query", "key", "value"])
    x = draw(H, EXPORTED, D)
    shapes = {"tensors": ({1: LENGTH},) * 3}
    exported = torch.onnx.export(
        model, (x, x, x), dynamic_shapes=shapes, dynamo=True, verbose=False
    )
    session = onnxruntime.InferenceSession(exported.model_proto.SerializeToString())
    x = draw(H, 30, D).numpy()
    (out,) = session.run(None, {each.name: x for each in session.get_inputs()})
    # the queries from 20 on see a key that is farther than the table reaches
    assert np.isfinite(out[:, :20]).all() and np.isnan(out[:, 20:]).all()


# ---- layers ------------------------------------------------------------------------

E = H * D
SIZES = {
    None: {},
    "shaw": {"max_relative_position": 3},
    "music": {"max_len": 48},
    "transformer_xl": {},
    "t5": {"num_buckets": 8, "max_distance": 6},
    "alibi": {},
    "kerple": {},
    "rope": {},
    "fire": {"width": 4, "max_distance": 3},
    "deberta": {"max_relative_position": 16, "num_buckets": 8},
}


def layer_inputs(length):
    return {"x": draw(2, length, E), "attn_mask": mask_of(length)}


def test_every_position_has_sizes():
    assert SIZES.keys() == POSITIONS.keys()


@pytest.mark.parametrize("position", SIZES)
def test_multihead_attention(position):
    torch.manual_seed(0)
    layer = layers.RelativeMultiheadAttention(
        E, H, batch_first=True, position=position, **SIZES[position]
    )

    def call(x, attn_mask):  # True = hidden
        return layer(x, x, x, attn_mask=~attn_mask)

    check(call, layer_inputs, layer)


def layer_cases():
    """Return layers, how they are called, and their inputs of a length."""
    causal = layers.RelPartialLearnableMultiHeadAttn(H, E, D, 0.0)
    wide = layers.RelPartialLearnableMultiHeadAttn(H, E, D, 0.0)

    def segments(length):
        hidden = ~mask_of(length)[..., None]
        rows = draw(2 * length - 1, E, seed=1)
        return {"w": draw(length, 2, E), "r": rows, "attn_mask": hidden}

    def of_past(length):
        given = segments(length)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)[..., None]
        return given | {"r": given["r"][:length], "attn_mask": future}

    def speech(length):
        mask = mask_of(length).expand(2, length, length)
        rows = draw(2 * length - 1, E, seed=1)
        return {"x": draw(2, length, E), "pos_emb": rows, "mask": mask}

    def alone(length):
        return {"x": draw(2, length, E)}

    def padded(length):
        return alone(length) | {"mask": torch.arange(length).repeat(2, 1) % 3 != 1}

    return {
        "ShawAttention": (
            layers.ShawAttention(E, H, 3),
            lambda layer, x, attn_mask: layer(x, attn_mask=attn_mask, is_causal=True),
            layer_inputs,
        ),
        "RelativeGlobalAttention": (
            layers.RelativeGlobalAttention(E, H, 48), None, alone,
        ),
        "RelPartialLearnableMultiHeadAttn": (wide, None, segments),
        "RelPartialLearnableMultiHeadAttn of the past": (causal, None, of_past),
        "ConformerRelPositionAttention": (
            layers.ConformerRelPositionAttention(E, H),
            lambda layer, x, pos_emb, mask: layer(x, x, x, pos_emb, mask),
            speech,
        ),
        "LearnedAPE": (layers.LearnedAPE(48, E), None, alone),
        "SinusoidalEncoding": (layers.SinusoidalEncoding(E, 48), None, alone),
        "DynamicPositionBias": (
            layers.DynamicPositionBias(8, H, 2),
            lambda layer, x: layer(x.shape[1]),
            alone,
        ),
        "ConvPositionEmbedding": (
            layers.ConvPositionEmbedding(E, 4, 2), None, padded,
        ),
    }  # fmt: skip


LAYERS = layer_cases()


def test_every_layer_is_here():
    names = {name for name in layers.__all__ if isinstance(getattr(layers, name), type)}
    found = {name.partition(" ")[0] for name in LAYERS}
    assert names == found | {"RelativeMultiheadAttention"}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    layer, call, inputs = LAYERS[name]
    check(layer if call is None else partial(call, layer), inputs, layer)


def test_a_layer_from_an_exported_program():
    layer, call, inputs = LAYERS["ShawAttention"]
    check(partial(call, layer), inputs, layer, from_program=True)


# ---- what has no form --------------------------------------------------------------


@pytest.mark.parametrize("from_program", [False, True])
@pytest.mark.parametrize("what", ["graph_attention", "attention", "fire_attention"])
def test_graphs_and_dropout_are_refused(what, from_program):
    x = draw(H, EXPORTED, D)
    inputs = {"query": x, "key": x, "value": x}
    function = getattr(relpos.torch, what)
    if what == "graph_attention":
        inputs["edges"] = torch.tensor([[0, 2, 2], [0, 0, 2]])
        words = "ONNX has no form of it"
    else:
        function = partial(function, dropout_p=0.5)
        words = "ONNX has no form of dropout"
    if what == "fire_attention":
        network = [draw(5), draw(5), draw(H, 5), draw(H), 1.0, 1.0]
        names = "w1", "b1", "w2", "b2", "c", "threshold"
        function = partial(function, **dict(zip(names, network, strict=True)))
    model, args = Model(function, [*inputs]), tuple(inputs.values())
    if from_program:
        model, args = torch.export.export(model, args), ()
    with pytest.raises(torch.onnx.OnnxExporterError) as raised:
        torch.onnx.export(model, args, dynamo=True, verbose=False)
    assert f"relpos.torch.{what}: {words}" in str(raised.value)


# ---- several dynamic dimensions ----------------------------------------------------


@pytest.mark.parametrize("transformer_xl", [False, True])
def test_batch_queries_and_keys_have_lengths_of_their_own(transformer_xl):
    def call(query, key, value):
        queries, keys = query.shape[-2], key.shape[-2]
        if transformer_xl:  # which knows the offset
            table = relpos.torch.sinusoidal(queries + keys - 1, D)
            return relpos.torch.transformer_xl_attention(
                query, key, value, table, None, None
            )
        return relpos.torch.attention(
            query,
            key,
            value,
            rel_bias=relpos.torch.alibi_bias(SLOPES, keys),
            query_offset=keys - queries,
            window=(keys // 2, 0),
        )

    def inputs(batch, queries, keys):
        shapes = (batch, H, queries, D), (1, H, keys, D), (H, keys, D)
        return tuple(draw(*shape, seed=seed) for seed, shape in enumerate(shapes))

    model = Model(call, ["query", "key", "value"])
    batch, queries, keys = (Dim(name) for name in ("batch", "queries", "keys"))
    shapes = {"tensors": ({0: batch, 2: queries}, {2: keys}, {1: keys})}
    exported = torch.onnx.export(
        model, inputs(3, 4, 6), dynamic_shapes=shapes, dynamo=True, verbose=False
    )
    session = onnxruntime.InferenceSession(exported.model_proto.SerializeToString())
    names = [each.name for each in session.get_inputs()]
    for sizes in ((1, 1, 1), (2, 1, 9), (1, 9, 9), (5, 7, 40), (2, 9, 4)):
        args = inputs(*sizes)
        arrays = dict(zip(names, (x.numpy() for x in args), strict=True))
        (got,) = session.run(None, arrays)
        assert_near(got, model(*args).numpy())


def test_an_offset_that_is_not_known_is_refused():
    def call(query, key, value):
        return relpos.torch.attention(query, key, value, is_causal=True)

    x, length = draw(H, EXPORTED, D), Dim("queries")
    shapes = {"tensors": ({1: length}, {1: LENGTH}, {1: LENGTH})}
    with pytest.raises(torch.onnx.OnnxExporterError, match="query_offset: got None"):
        torch.onnx.export(
            Model(call, ["query", "key", "value"]),
            (x, x.clone(), x.clone()),
            dynamic_shapes=shapes,
            dynamo=True,
            verbose=False,
        )


@pytest.mark.parametrize("name", ["attention", "apply_rotary", "sinusoidal"])
def test_the_older_exporter_is_refused(name, tmp_path):
    def call(x):
        if name == "attention":
            return relpos.torch.attention(x, x, x)
        if name == "apply_rotary":
            return relpos.torch.apply_rotary(x)
        return relpos.torch.sinusoidal(x[..., 0], D)

    model, x = Model(call, ["x"]), draw(H, EXPORTED, D)
    with pytest.raises(NotImplementedError, match=f"{name}: is not exported to ONNX"):
        torch.onnx.export(model, (x,), str(tmp_path / "model.onnx"), dynamo=False)
