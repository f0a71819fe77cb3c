"""Random calls with hostile objects: of public functions, gufuncs and private entries.

`calls` makes one of a generator. Of a call without a hostile object, and of one that is
accepted with such an object, `define` gives what the definition makes of the same
arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import hostile_objects
import numpy as np
from good_calls import GOOD
from hostile_objects import Array, DLPack, Interface, changing, disguised, odd
from operand_arrays import others

import relpos
from relpos import _core, reference, ufuncs

FARTHEST, UNBOUNDED = 2**60 - 1, 2**63 - 1
#: The lowest and the highest value of each integer of the private entries.
LIMITS = {
    "part_query": (0, FARTHEST),
    "part_key": (0, FARTHEST),
    "part_head": (0, FARTHEST),
    "part_key_heads": (0, FARTHEST),
    "part_has_more_keys": (0, 1),
    "min_relative_position": (-FARTHEST, FARTHEST),
    "min_bias_position": (-FARTHEST, FARTHEST),
    "window_left": (0, UNBOUNDED),
    "window_right": (-FARTHEST, UNBOUNDED),
    "fire_signed": (0, 1),
    "beyond": (0, 1),
    "weigh_all": (0, 1),
    "num_threads": (1, 1024),
}
#: Functions that set something, draw something or print, and those of other tests.
LEFT_OUT = ("threads", "set_num_threads", "show_config", "random_encoding", "plan")
LEFT_OUT += ("attention_backward",)  # whose result is one of another call
SCALARS = ("scale", "softcap", "dropout_p", "seed")


class Call(NamedTuple):
    """A call, and what is known of it."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    names: list[str]  # one of them is to be in the text of an error
    define: Callable[[], Any] | None
    kind: str = "valid"  # or "odd", or "changing"
    forbidden: str = ""  # why it has to be refused


def plain(value):
    """Return the array that a definition reads, in the place of an object."""
    if isinstance(value, (Array, Interface, DLPack)):
        return value.array
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    return value


def plainly(function, args, keywords):
    """Return a call of a definition with the same arguments, but for how it is run."""
    known = inspect.signature(function).parameters
    left_out = {"out", "num_threads", "dtype"} - known.keys()
    given = {n: plain(x) for n, x in keywords.items() if n not in left_out}
    given = {n: np.asarray(x) if isinstance(x, list) else x for n, x in given.items()}
    return lambda: function(*map(plain, args), **given)


def normal(rng, *shape, dtype=np.float64):
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


#: Floating operands that are drawn elsewhere, or that go with others alone.
APART = {"query", "key", "value", "rel_query"}
APART |= {"pos_bias_v", "position_query", "log_decay"}


def rest_of(some, rng, lengths, dtype):
    """Draw each floating operand that is not among some of them, by its letters."""
    drawn = others({*some} | APART, rng, lengths, 9)
    return {name: x.astype(dtype) for name, x in drawn.items()}


# ---- attention -----------------------------------------------------------------------


def attention_arguments(rnd, rng):
    """Return good arguments by name: the first three, and some of the others."""
    H, Lq, D = 2, rnd.choice([1, 5, 13]), 4
    Lk, dtype = rnd.choice([Lq, 6]), rnd.choice([np.float32, np.float64])
    some = {
        "rel_key": normal(rng, H, 9, D, dtype=dtype),
        "rel_query": normal(rng, 9, D, dtype=dtype),
        "rel_value": normal(rng, 9, D, dtype=dtype),
        "rel_bias": normal(rng, H, 9, dtype=dtype),
        "pos_bias_u": normal(rng, H, D, dtype=dtype),
        "sinks": normal(rng, *rnd.choice([(H,), (2, H, Lq), (H, 1)]), dtype=dtype),
        "softcap": 3.0,
        "attn_mask": rng.random((2, 1, Lq, Lk)) < 0.8,
        "key_lengths": rng.integers(0, Lk + 1, 2),
        "window": (rnd.randrange(4), rnd.choice([None, 3])),
        "dropout_p": 0.25,
        "num_threads": rnd.randrange(1, 4),
        "key_ranges": rng.integers(-2, Lk + 3, (Lq, 2)),
        "key_blocks": rng.random((rnd.choice([1, H]), -(-Lq // 4), -(-Lk // 3))) < 0.8,
        "block_size": (4, 3),
        "is_causal": True,
        "scale": 0.3,
    }
    lengths = {"H": H, "q": Lq, "k": Lk, "t": Lk, "D": D, "V": D, "P": D}
    some |= rest_of(some, rng, lengths, dtype)
    given = {
        "query": normal(rng, 2, H, Lq, D, dtype=dtype),
        "key": normal(rng, 2, H, Lk, D, dtype=dtype),
        "value": normal(rng, 2, H, Lk, D, dtype=dtype),
        "query_offset": rnd.randrange(-3, 4),
        **{name: some[name] for name in rnd.sample(list(some), rnd.randrange(6))},
    }
    blocks = {"key_blocks", "block_size"}
    if blocks & given.keys():
        given |= {name: some[name] for name in blocks}
    excluded = {"key_ranges", "key_lengths", "key_blocks"}  # next to documents
    if Lq == Lk and rnd.random() < 0.1 and not excluded & {*given}:
        del given["query_offset"]
        given["cu_seqlens"] = np.array([0, rnd.randrange(Lq + 1), Lq])
    has_table = any(name.startswith("rel_") for name in given)
    if has_table and rnd.random() < 0.3:
        given["min_relative_position"] = rnd.randrange(-6, 0)
    elif has_table and rnd.random() < 0.3:
        given["labels"] = rng.integers(-1, 9, (Lq, Lk))
    if "dropout_p" in given:
        given["rng"] = rnd.randrange(9)
    if rnd.random() < 0.3:
        given["out"] = np.full((2, H, Lq, D), np.nan, dtype)
    return given


def replace(rnd, rng, given, names):
    """Put odd or changing objects in the place of some arguments; return the kind."""
    draw = rnd.random()
    if draw < 0.4:
        return "valid"
    if draw < 0.8:
        for name in rnd.sample(names, rnd.choice([1, 1, 2])):
            given[name] = odd(rnd, rng)
        return "odd"
    first, other = rnd.choice(list(given)), rnd.choice(list(given))
    if isinstance(given[other], np.ndarray) and rnd.random() < 0.2:
        form = rnd.choice([memoryview, np.ndarray.tolist])
        given[other] = form(np.ascontiguousarray(given[other]))
    given[first] = changing(rnd, given[first], given[other])
    return "changing"


def of_attention(rnd, rng):
    """A call of attention."""
    given = attention_arguments(rnd, rng)
    names = list(inspect.signature(relpos.attention).parameters)
    for name in given.keys() - {"out"}:
        if isinstance(given[name], np.ndarray):
            given[name] = disguised(rnd, given[name])
    if any(isinstance(x, list) for x in given.values()):
        given.pop("out", None)  # a list of float32 is one of float64
    kind = replace(rnd, rng, given, names)
    if "dropout_p" in given:  # the definition drops the same pairs
        given.setdefault("rng", 3)
    return Call(
        relpos.attention, (), given, [*names, "attention", "arguments"],
        plainly(reference.attention, (), given), kind,
    )  # fmt: skip


def of_backward(rnd, rng):
    """A call of a context's backward."""
    arguments = attention_arguments(rnd, rng)
    arguments.pop("out", None)
    context = relpos.attention(**arguments, return_context=True).context
    shape = arguments["query"].shape
    given = {"grad_out": disguised(rnd, normal(rng, *shape))}
    if rnd.random() < 0.5:
        given["grad_lse"] = disguised(rnd, normal(rng, *shape[:-1]))
    names = ["grad_out", "grad_lse", "wrt", "num_threads"]
    kind = replace(rnd, rng, given, names)
    define = plainly(reference.attention_backward, (), arguments)
    incoming = {n: plain(x) for n, x in given.items() if n.startswith("grad_")}
    incoming = {"grad_out": None} | incoming

    def gradients():
        found = define_with(reference.attention_backward, arguments, incoming)
        return {n: getattr(found, n) for n in arguments if hasattr(found, n)}

    return Call(context.backward, (), given, names, gradients if define else None, kind)


def define_with(function, arguments, more):
    """Call a definition with arguments of another function, and more."""
    known = inspect.signature(reference.attention).parameters
    given = {n: plain(x) for n, x in arguments.items() if n in known}
    return function(**given, **more)


# ---- the private entries of attention ------------------------------------------------


def dict_arguments(rnd, rng):
    """Return a good dict of attention_forward, with what a definition needs of it."""
    H, Lq, Lk, D, batch = 2, rnd.choice([2, 12]), 6, 4, rnd.choice([(2,), (2, 3)])
    dtype = rnd.choice([np.float32, np.float64])
    some = {
        "rel_key": normal(rng, *rnd.choice([(9, D), (*batch, H, 9, D)]), dtype=dtype),
        "rel_value": normal(rng, H, 9, D, dtype=dtype),
        "rel_bias": normal(rng, *rnd.choice([(H, 9), (*batch, H, 9)]), dtype=dtype),
        "pos_bias_u": normal(rng, D, dtype=dtype),
        "sinks": normal(rng, *rnd.choice([(H,), (*batch, H, Lq)]), dtype=dtype),
        "softcap": 3.0,
        "attn_mask": rng.random((Lq, Lk)) < 0.8,
        "key_lengths": rng.integers(0, Lk + 1, batch),
        "key_ranges": rng.integers(-2, Lk + 3, (Lq, 2)),
        "query_offset": rng.integers(-3, 4, batch),
        "window_left": rnd.randrange(4),
        "window_right": rnd.randrange(4),
        "min_relative_position": -rnd.randrange(5),
        "beyond": rnd.randrange(2),
        "labels": rng.integers(-1, 9, (Lq, Lk)).astype(rnd.choice(["i1", "i8"])),
    }
    lengths = {"H": H, "q": Lq, "k": Lk, "t": Lk, "D": D, "V": D, "P": D}
    some |= rest_of(some, rng, lengths, dtype)
    call = {
        "query": normal(rng, *batch, H, Lq, D, dtype=dtype),
        "key": normal(rng, *batch, H, Lk, D, dtype=dtype),
        "value": normal(rng, *batch, H, Lk, D, dtype=dtype),
        "scale": 0.5,
        "num_threads": rnd.randrange(1, 4),
        "out": np.full((*batch, H, Lq, D), np.nan, dtype),
        **{name: some[name] for name in rnd.sample(list(some), rnd.randrange(6))},
    }
    call["min_bias_position"] = call.setdefault("min_relative_position", -4)
    return call


def definition_of(call):
    """Return the arguments of the definition of a dict."""
    names = set(inspect.signature(reference.attention).parameters) - {"out"}
    given = {name: plain(x) for name, x in call.items() if name in names}
    given["beyond"] = ["clip", "zero"][call.get("beyond") or 0]
    given.setdefault("query_offset", 0)
    sides = [call.get(f"window_{side}") for side in ("left", "right")]
    sides = [None if side is None or side > 2**61 else side for side in sides]
    given["window"] = tuple(sides)
    if not any(name.startswith("rel_") and given[name] is not None for name in given):
        given.pop("labels", None)
    if given.get("labels") is not None or not any(n.startswith("rel_") for n in given):
        del given["min_relative_position"]
    return given


def forbidden(call, batch):
    """Return why the dict of a call has to be refused, or an empty text."""
    for name, (low, high) in LIMITS.items():
        number = call.get(name)
        if isinstance(number, int) and not low <= number <= high:
            return f"{name} is {number}"
    for name in ("grad_rel_key", "grad_rel_bias"):
        own = {"grad_rel_key": 3, "grad_rel_bias": 2}[name]
        gradient = call.get(name)
        if gradient is not None and isinstance(gradient, np.ndarray):
            axes = gradient.shape[:-own]
            if set(axes) - {1} and axes != batch:
                return f"{name} is shared by some batch items"
    return ""


def odd_operand(rnd, rng, call, name):
    """Return an object in the place of an operand of a dict."""
    value = call.get(name)
    if not isinstance(value, np.ndarray) or rnd.random() < 0.4:
        far = rnd.choice(hostile_objects.FAR)
        return rnd.choice([odd(rnd, rng), far, -far, -1])
    at = rnd.randrange(max(value.ndim, 1))
    return rnd.choice([
        value[None], value[..., :-1], value.astype(">f4"), value.astype(np.float16),
        np.moveaxis(value, 0, -1), hostile_objects.read_only(value),
        call["query"], value.sum(at, keepdims=True), value.view(np.int8),
    ])  # fmt: skip


def spoil(rnd, rng, call, names, dtype):
    """Put something that is out of place into a dict."""
    draw = rnd.random()
    if draw < 0.3:
        name, (low, high) = rnd.choice([*LIMITS.items()])
        far = rnd.choice(hostile_objects.FAR)
        call[name] = rnd.choice([low - 1, low - far, high + 1, high + far, -far])
    elif draw < 0.5 and "grad_out" in call and call["grad_out"].ndim == 5:
        shape = rnd.choice([(2, 1), (1, 3), (3,)])  # of a batch (2, 3)
        call["rel_key"] = normal(rng, *shape, 2, 9, 4, dtype=dtype)
        call["grad_rel_key"] = np.zeros_like(call["rel_key"])
    else:
        for name in rnd.sample(sorted(set(names)), rnd.choice([1, 2])):
            call[name] = odd_operand(rnd, rng, call, name)


def of_dict(rnd, rng):
    """A call of attention_forward or attention_backward."""
    kernels = _core.by_isa[rnd.choice(list(_core.by_isa))]
    call = dict_arguments(rnd, rng)
    batch, dtype = call["out"].shape[:-3], call["out"].dtype
    is_backward = rnd.random() < 0.5
    function = kernels.attention_forward
    results = ["out"]
    if is_backward:
        sums = {n: np.empty(call["out"].shape[:-1], call["out"].dtype)
                for n in ("row_max", "row_sum")}  # fmt: skip
        kernels.attention_forward(call | sums)
        function, names = kernels.attention_backward, ["query", "key", "value"]
        names += [n for n in ("rel_key", "rel_value", "rel_bias") if n in call]
        gradients = {f"grad_{n}": np.zeros_like(call[n]) for n in names}
        grad_out = normal(rng, *call["out"].shape, dtype=call["out"].dtype)
        call |= sums | gradients | {"grad_out": grad_out}
        results = list(gradients)
    names = [*call, *_core.operands, *LIMITS, *SCALARS, "operands"]
    draw, kind = rnd.random(), "valid"
    if draw > 0.8:
        given = [name for name in (*LIMITS, *SCALARS) if name in call]
        numbers = [name for name in given if isinstance(call[name], int | float)]
        arrays = [n for n in call if isinstance(call[n], np.ndarray)]
        name, kind = rnd.choice(numbers), "changing"
        call[name] = changing(rnd, call[name], call[rnd.choice(arrays)])
    elif draw > 0.4:
        kind = "odd"
        spoil(rnd, rng, call, names[:-1], dtype)

    def define():
        given = definition_of(call)
        if not is_backward:
            return {"out": reference.attention(**given)}
        found = reference.attention_backward(call["grad_out"], **given)
        return {n: getattr(found, n.removeprefix("grad_")) for n in results}

    def run(operands):
        function(operands)
        return {n: operands[n] for n in results if n in operands}

    softcap = call.get("softcap")
    # The definition has one first position for all tables, and every number is a cap.
    is_defined = call.get("min_bias_position") is call.get(
        "min_relative_position"
    ) and (not isinstance(softcap, int | float) or softcap > 0)
    if (is_backward and kind != "valid") or not is_defined:
        define = None  # or what the forward left belongs to other operands
    return Call(run, (call,), {}, names, define, kind, forbidden(call, batch))


# ---- gufuncs, and the other functions ------------------------------------------------


def of_scores(rnd, rng):
    """A gufunc of scores, with any integers, against its formula."""
    q, k, table = normal(rng, 5, 4), normal(rng, 6, 4), normal(rng, 9, 4)
    far = [-7, -4, 0, 3, *hostile_objects.FAR, *(-x for x in hostile_objects.FAR)]
    far = [x for x in far if -(2**63) <= x < 2**63]
    offset, first = rnd.choice(far), rnd.choice(far)
    scores = [(q, k, table, 0.5, offset)]
    function = rnd.choice([ufuncs.shaw_scores, ufuncs.skewed_scores])
    is_skewed = function is ufuncs.skewed_scores
    if is_skewed:
        scores = [(*scores[0], first)]

    def define():
        want = np.empty((5, 6))
        for i, j in np.ndindex(5, 6):
            row = j - (i + offset) - (first if is_skewed else -4)
            vector = k[j]
            if 0 <= row < 9 or not is_skewed:
                vector = vector + table[min(max(row, 0), 8)]
            want[i, j] = 0.5 * q[i] @ vector
        return want

    return Call(function, scores[0], {}, [], define)


def believed(value):
    """Return an object that NumPy may make an array of: it believes every interface."""
    return 1 if isinstance(value, hostile_objects.Elsewhere) else value


def of_ufunc(rnd, rng):
    """A gufunc of anything."""
    function = getattr(ufuncs, rnd.choice(ufuncs.__all__))
    args = [
        rnd.choice([normal(rng, 5, 4), 1, odd(rnd, rng)]) for _ in range(function.nin)
    ]
    args = map(believed, args)
    return Call(function, tuple(args), {}, [], None, "odd")


def of_function(rnd, rng):
    """Another public function, with an odd object among good arguments."""
    choices = sorted(
        name for name in GOOD
        if "." not in name and name not in LEFT_OUT and hasattr(relpos, name)
    )  # fmt: skip
    function = getattr(relpos, rnd.choice(choices))
    given = dict(GOOD[function.__name__])
    names = list(inspect.signature(function).parameters)
    kind = "valid"
    if rnd.random() < 0.7:
        given[rnd.choice(names)] = believed(odd(rnd, rng))
        kind = "odd"
    of = getattr(reference, function.__name__, None)
    define = plainly(of, (), given) if of and kind == "valid" else None
    names += [function.__name__, "arguments"]
    return Call(function, (), given, names, define, kind)


def of_private(rnd, rng):
    """Another private entry, with anything."""
    kernels = _core.by_isa[rnd.choice(list(_core.by_isa))]
    function = rnd.choice([
        kernels.apply_rotary, kernels.learned_rows, kernels.learned_sums,
        kernels.has_zeros_and_ones, kernels.gemm_tiles, kernels.attend,
        kernels.attend_backward, kernels.attend_tensors,
        kernels.attention_bytes, kernels.attention_forward,
        _core.memory_of, _core.broadcast_to, _core.read_operands, _core.read_tensors,
    ])  # fmt: skip
    args = [
        rnd.choice([odd(rnd, rng), normal(rng, 5, 4), np.arange(4), (), {}, 1, True])
        for _ in range(rnd.choice([1, 2, 3, 3, 4, 6, 7, 8]))
    ]
    return Call(function, tuple(args), {}, [], None, "odd")


KINDS = {of_attention: 45, of_backward: 10, of_dict: 20, of_scores: 5, of_ufunc: 4,
         of_function: 10, of_private: 6}  # fmt: skip


def calls(rnd, rng):
    """Return a call of any kind."""
    (make,) = rnd.choices(list(KINDS), list(KINDS.values()))
    return make(rnd, rng)
