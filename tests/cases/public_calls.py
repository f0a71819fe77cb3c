"""A small call of every public function that computes with real numbers.

name -> call(f, x): f is the function of that name, x(*shape) makes an array. Where a
function has gradients of its own, the call takes them as well.
"""

from __future__ import annotations

import numpy as np
from scheme_calls import ATTENTIONS, inputs_of

import relpos
from relpos import nn

H, L, D = 2, 5, 4
Q = (H, L, D)
BOTH = (2 * L - 1, D)
BIAS = (H, 2 * L - 1)
DIFFERENT = np.arange(L * L).reshape(L, L) % 3 == 0


def back(result, x, **options):
    """The gradients of a result with its context; grad_out may be of a wider dtype."""
    shape = result.out.shape
    result.context.backward(np.full(shape, 1e300), grad_lse=x(*shape[:-1]))
    return result.context.backward(x(*shape), **options)


def attention(f, x):
    tables = {"rel_key": x(*BOTH), "rel_query": x(*BOTH), "rel_value": x(*BOTH)}
    biases = {"rel_bias": x(*BIAS), "pos_bias_u": x(D), "pos_bias_v": x(H, D)}
    out = f(x(*Q), x(*Q), x(*Q), x(L, L), **tables, **biases)
    f(x(*Q), x(*Q), x(*Q), np.full((L, L), 1e300), is_causal=True, scale=1e-30)
    result = f(
        x(*Q), x(3, *Q), x(*Q), x(L, L), 0.5, rng=0, **tables, **biases,
        return_context=True, return_weights=True, return_lse=True,
    )  # fmt: skip
    assert result.out.shape == (3, *out.shape)
    back(result, x, wrt=["query", "attn_mask", "rel_key", "rel_bias", "pos_bias_u"])


def scores(f, x):
    tables = {"rel_key": x(*BOTH), "rel_query": x(*BOTH), "rel_bias": x(*BIAS)}
    biases = {"pos_bias_u": x(D), "pos_bias_v": x(H, D), "attn_mask": x(L, L)}
    f(x(*Q), x(3, *Q), **tables, **biases, is_causal=True, terms=True)
    f(x(*Q), x(*Q), attn_mask=np.full((L, L), 1e300), rel_bias=x(*BIAS), scale=1e-30)


def scheme(f, x):
    """Return the inputs of a scheme from the catalogue; x makes the numbers."""
    given = {
        name: x(*value.shape) if np.asarray(value).dtype.kind == "f" else value
        for name, value in inputs_of(f.__name__).items()
    }
    f(**given)
    back(f(**given, return_context=True), x)


def fire(x):
    return x(3), x(3), x(H, 3), x(H), x(), x()


def rotary(f, x):
    f(x(*Q), magnitude=x(D // 2))
    f(x(*Q), x(L), rotary_dim=2, interleaved=True)
    f(x(*Q), inv_freq=x(D // 2))
    f(x(*Q), angles=x(L, D // 2), inverse=True)


def rotary_backward(f, x):
    f(x(*Q), x(*Q), inv_freq=x(D // 2), magnitude=x(D // 2))
    f(x(*Q), x(*Q), angles=x(L, D // 2))


def frequencies(f, x):
    for base in (1e-300, 1e4, 1e300):
        f(8, base=base)
        f(8, base=base, scaling=("linear", 1e300))


def magnitude(f, x):
    f(None)
    f(("yarn", {"factor": 1e300, "original_max_position_embeddings": 8}))


def config(f, x):
    for base in (1e-300, 1e4, 1e300):
        f({"head_dim": 8, "rope_theta": base, "rope_scaling": None})


def audit(f, x):
    f(lambda length, dim: x(length, dim), lengths=(4, 8), dim=4)


def sinusoids(f, x):
    for layout in ("interleaved", "concat"):
        f(x(L), 5, layout=layout)
        f(x(L), 6, layout=layout, inv_freq=x(3), dtype=np.float64)
        f(L, 6, layout=layout, base=1e300)


def kerple(f, x, *grad):
    for kind in ("log", "power"):
        parameters = (x(H), np.abs(x(H)) + x(H).dtype.type(1e-7))
        f(*grad, *parameters, *(() if grad else (L,)), kind=kind)


def backward(f, x):
    qkv = x(*Q), x(*Q), x(*Q)
    result = relpos.attention_forward(*qkv, rel_key=x(3, D))
    f(x(*Q), x(H, L), result, *qkv, rel_key=x(3, D))


PUBLIC = dict.fromkeys(ATTENTIONS, scheme)
PUBLIC |= {
    "alibi_bias": lambda f, x: f(x(H), L),
    "alibi_bias_backward": lambda f, x: f(x(*BIAS)),
    "alibi_slopes": lambda f, x: f(3, max_exponent=1e4),
    "apply_rotary": rotary,
    "apply_rotary_backward": rotary_backward,
    "attention": attention,
    "attention_backward": backward,
    "attention_forward": lambda f, x: f(x(*Q), x(*Q), x(*Q), rel_key=x(3, D)),
    "audit_encoding": audit,
    "conv_encoding": lambda f, x: f(x(2, L, D), x(D, 3), x(D)),
    "conv_encoding_backward": lambda f, x: f(x(2, L, D), x(2, L, D), x(D, 3), x(D)),
    "deberta_bucket": lambda f, x: f(np.arange(-9, 9), bucket_size=4, max_position=8),
    "fire_bias": lambda f, x: f(*fire(x), L),
    "fire_bias_backward": lambda f, x: f(x(H, L, L), *fire(x), eps=0.0),
    "grid_labels": lambda f, x: f((2, 3)),
    "index_encoding": lambda f, x: f(L, D),
    "kerple_bias": kerple,
    "kerple_bias_backward": lambda f, x: kerple(f, x, x(*BIAS)),
    "indexer_top_k": lambda f, x: f(x(*Q), x(L, D), x(H, L), 2),
    "learned": lambda f, x: f(x(3, D), [0, 2]),
    "learned_backward": lambda f, x: f(x(4, D), [0, 2, 2, 2], 3),
    "merge_attention": lambda f, x: f(x(*Q), x(H, L), x(*Q), x(H, L)),
    "normalized_index_encoding": lambda f, x: f(1, D),
    "plan": lambda f, x: str(f(1, 2, 2**20, 2**20, 64, scheme="shaw")),
    "random_encoding": lambda f, x: f(L, D, rng=0),
    "rel_shift": lambda f, x: f(x(*Q)),
    "relative_positions": lambda f, x: f(L, max_relative_position=2),
    "rotary_frequencies": frequencies,
    "rotary_magnitude": magnitude,
    "rotary_from_config": config,
    "mrope_angles": lambda f, x: f(x(3, L), x(D // 2), (1, 0, 1)),
    "axial_angles": lambda f, x: f(x(L, 2), x(D // 4)),
    "scores": scores,
    "segment_ranges": lambda f, x: f([0, 0, 2], [0, 1, 2, 2]),
    "shaw_scores": lambda f, x: f(x(*Q), x(*Q), x(*BOTH), scale=1e-30),
    "sinusoidal": sinusoids,
    "sinusoidal_shift_matrix": lambda f, x: f(x(), 6, base=1e300),
    "skew": lambda f, x: f(x(*BIAS), is_causal=False),
    "skewed_scores": lambda f, x: f(x(*Q), x(*Q), x(*BOTH), is_causal=False),
    "t5_bias": lambda f, x: f(x(32, H), L),
    "t5_bias_backward": lambda f, x: f(x(*BIAS), 32),
    "t5_bucket": lambda f, x: f(np.arange(-9, 9)),
    "transformer_xl_scores": lambda f, x: f(x(*Q), x(*Q), x(*BOTH), x(D), x(D)),
    "unskew": lambda f, x: f(x(*Q), is_causal=False),
    "xpos_magnitude": lambda f, x: f(x(L), 6, scale_base=1e-3),
}


@np.errstate(all="ignore")
def to(array, dtype):
    return array.astype(dtype)


def entropy(f, x):
    f(x(L, 3), np.arange(L) % 3, label_smoothing=0.1)


def optimizer(f, x):
    for dtype in (np.float32, np.float64):
        parameter = nn.Parameter(to(x(L), dtype))
        made = f([parameter], lr=1e-3)
        for _ in range(3):
            parameter.add_grad(x(L).astype(np.float64))
            made.step()


def layer(f, x):
    """Return the weights that every layer has: projections in and out."""
    made = nn.Linear(2, 3)
    made.load_state_dict({"weight": to(x(3, 2), np.float64), "bias": x(3)})


NN = {
    "Adam": optimizer,
    "Module": layer,
    "Parameter": lambda f, x: f(to(x(3), np.float32)).add_grad(np.full(3, 1e300)),
    "SGD": lambda f, x: optimizer(lambda *a, **k: f(*a, **k, momentum=0.9), x),
    "cross_entropy": entropy,
    "update_memory": lambda f, x: f(x(3, 1, D), x(4, 1, D), 5),
    "warmup_rate": lambda f, x: f(10**9, 10**9, 10**9),
}

SIZES = {"q": L, "k": L, "s": L, "n": L, "l": L, "r": 2 * L - 1, "d": D, "v": 3}
SIZES |= {"h": 2, "w": 3, "e": 2, "i": 1, "j": 3}


def call_ufunc(ufunc, loop, x, lead=(), **sizes):
    """Return the results of one loop of a gufunc, integers 0, with outputs given."""
    sizes = SIZES | sizes
    sides = ufunc.signature.split("->"), ufunc.types[loop].split("->")
    arrays = []
    for shapes, types in zip(*sides, strict=True):
        for names, kind in zip(shapes[1:-1].split("),("), types, strict=True):
            shape = [*lead, *(sizes[name] for name in names.split(",") if name)]
            integer = np.dtype(kind).kind == "i"
            arrays.append(np.zeros(shape, kind) if integer else x(*shape, dtype=kind))
    outputs = tuple(np.empty_like(each) for each in arrays[ufunc.nin :])
    return ufunc(*arrays[: ufunc.nin], out=outputs)
