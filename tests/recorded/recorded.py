"""Recorded outputs of public implementations, replayed through relpos.

A case is one file: arrays of one upstream call and a JSON string of flags, among them
`ref`, the family. An adapter per family turns a case into calls and yields
`(label, got, want)`. tests/recorded/ holds a subset; `--golden` names another folder.
"""

from __future__ import annotations

import inspect
import json
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import dense_oracle
import numpy as np
import oracle
import oracle_biases
import oracle_fire
import oracle_positions
import oracle_rotary
import oracle_rotary_config

from relpos import recipes

SUBSET = Path(__file__).parent

#: Where the arrays are that a file of the subset has in common with the package.
DATA = resources.files("relpos.data")

#: Families that other tests replay, and which ones. A family that is not in a table of
#: this file fails.
NOT_EXPRESSED = {
    "dynb": "nn.DynamicPositionBias: tests/nn/test_nn_recorded.py",
    "mem_raw": "nn.update_memory: tests/nn/test_nn_recorded.py",
}

#: Families whose smallest file is too large for the subset in the repository.
LARGE = {
    "rope_learned",
    "neox_att",
    "gptj_att",
    "roformer_att",
    "rot_before_proj",
    "onmt_rotary",
}


def load(path):
    """Return the arrays of a file."""
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


class Case:
    """One file: `case[name]` in the dtype under test, `case.true(name)` as recorded."""

    def __init__(self, path, dtype):
        self.dtype = np.dtype(dtype)
        self.arrays = load(path)
        for name, at in json.loads(str(self.arrays.pop("shared_json", "{}"))).items():
            own, array = at.split("/")
            self.arrays[name] = load(DATA / f"{own}.npz")[array]
        self.flags = json.loads(str(self.arrays.pop("flags_json")))
        self.name = path.stem

    def __contains__(self, name):
        return name in self.arrays

    def __getitem__(self, name):
        return self.cast(self.arrays[name])

    def get(self, name):
        array = self.arrays.get(name)
        return None if array is None else self.cast(array)

    def true(self, name):
        return self.arrays[name]

    def cast(self, array):
        return array.astype(self.dtype) if array.dtype.kind == "f" else array

    def constant(self, array):
        """Return an input that upstream detaches: no gradient passes."""
        return array

    def core(self, *names):
        return [self["core_" + name] for name in names]

    @property
    def family(self):
        """`ref`, with OpenNMT's rotary option as a family of its own."""
        rotary = self.flags["ref"] == "onmt" and "rotary" in self.name
        return "onmt_rotary" if rotary else self.flags["ref"]


def linear(case, x, layer, heads):
    """Heads (B, H, L, D) of a torch Linear layer applied to x (B, L, E), in float64."""
    y = x @ case.true(f"w_{layer}.weight").T
    if f"w_{layer}.bias" in case:
        y = y + case.true(f"w_{layer}.bias")
    return split_heads(y, heads)


def split_heads(y, heads):
    """(B, L, H * D) -> (B, H, L, D)"""
    return y.reshape(*y.shape[:-1], heads, -1).swapaxes(-2, -3)


def join_heads(y):
    return y.swapaxes(-2, -3).reshape(*y.shape[:-3], y.shape[-2], -1)


def module(case, out, layer, name="out"):
    """The recorded output of the module: heads side by side, through a torch Linear."""
    y = join_heads(out) @ case.true(f"w_{layer}.weight").T
    if f"w_{layer}.bias" in case:
        y = y + case.true(f"w_{layer}.bias")
    return "module", case.cast(y), case.true(f"out_{name}")


def families(names, *parameters):
    """Return the adapters among a module's names: generators of these parameters."""
    return {
        name: function
        for name, function in names.items()
        if inspect.isgeneratorfunction(function) and not name.startswith("_")
        if tuple(inspect.signature(function).parameters) == parameters
    }


def log_sum_exp(logits, allowed):
    logits = np.where(allowed, np.asarray(logits), -np.inf)
    top = logits.max(-1, keepdims=True)
    return (top + np.log(np.exp(logits - top).sum(-1, keepdims=True)))[..., 0]


def attend(lib, case, query=None, **keywords):
    """Return the attention of the recorded core, under its mask."""
    query = case["core_q"] if query is None else query
    key, value = case.core("k", "v")
    mask = case.true("core_allowed")
    return lib.attention(query, key, value, mask, **keywords, **WITH_ALL)


def compare(case, result, value=None):
    """Compare an AttentionOutput that has lse and weights with the recorded case.

    value: of files without core_ctx, the core's by default; the output is then the
    recorded weights times it. lse is compared in rows with a visible key: upstreams
    fill the others in many ways.
    """
    allowed = case.true("core_allowed")
    seen = np.broadcast_to(allowed.any(-1), result.lse.shape)
    if "core_probs" in case:
        yield "weights", result.weights, case.true("core_probs")
    if "core_ctx" in case:
        yield "out", result.out, case.true("core_ctx")
    else:
        value = case["core_v"] if value is None else value
        yield "out", result.out, case.true("core_probs") @ value.astype(np.float64)
    with np.errstate(all="ignore"):
        lse = log_sum_exp(case.true("core_logits"), allowed)
    yield "lse", result.lse[seen], np.broadcast_to(lse, seen.shape)[seen]


def visible_scores(case, scores):
    """A dense score matrix against the recorded logits, where these were not masked."""
    allowed = np.broadcast_to(case.true("core_allowed"), scores.shape)
    yield "scores", scores[allowed], case.true("core_logits")[allowed]


def logits_alone(lib, case, query, logits, **keywords):
    """Recorded logits of a query and a position term, from an attention over no keys.

    With the identity for values, out is the probabilities, which gives the logits back.
    """
    length = logits.shape[-1]
    identity = np.broadcast_to(
        np.eye(length, dtype=case.dtype), (query.shape[-3], length, length)
    )
    keys = np.zeros((*identity.shape[:-1], query.shape[-1]), case.dtype)
    result = lib.attention(query, keys, identity, scale=1.0, **keywords, **WITH_ALL)
    yield "weights", result.weights, np.asarray(result.out, np.float64)
    yield "logits", np.log(result.out) + result.lse[..., None], logits


WITH_ALL = {"return_lse": True, "return_weights": True}


# ---- the oracle behind the same names, so that it faces the recordings too ----------


def dense_attention(*args, return_lse=False, return_weights=False, **keywords):
    del return_lse, return_weights
    return dense_oracle.attention(*args, **keywords)


def oracle_library(attention=dense_attention):
    """relpos's names over the oracle's functions and one function for attention."""

    def shaw(query, key, value, rel_key=None, rel_value=None, **keywords):
        tables = {"rel_key": rel_key, "rel_value": rel_value}
        return attention(query, key, value, **tables, **keywords)

    def relative_global(query, key, value, rel_key, **keywords):
        settings = {"is_causal": True, "beyond": "clip"} | keywords
        if settings["is_causal"]:
            settings.setdefault("min_relative_position", 1 - rel_key.shape[-2])
        return attention(query, key, value, rel_key=rel_key, **settings)

    def transformer_xl(query, key, value, rel_key, pos_bias_u, pos_bias_v, **keywords):
        lq, lk = query.shape[-2], key.shape[-2]
        settings = {"query_offset": lk - lq, "min_relative_position": 1 - lk} | keywords
        settings |= {"pos_bias_u": pos_bias_u, "pos_bias_v": pos_bias_v}
        return attention(query, key, value, rel_key=rel_key, **settings)

    return SimpleNamespace(
        attention=attention,
        merge_attention=oracle.merge,
        shaw_attention=shaw,
        relative_global_attention=relative_global,
        transformer_xl_attention=transformer_xl,
        fire_bias=oracle_fire.fire_bias,
        fire_bias_backward=oracle_fire.fire_bias_backward,
        **{
            name: getattr(oracle_positions, name)
            for name in (
                "relative_positions",
                "grid_labels",
                "skew",
                "unskew",
                "rel_shift",
                "shaw_scores",
                "skewed_scores",
                "transformer_xl_scores",
                "sinusoidal",
                "learned",
            )
        },
        recipes=recipes,
        apply_rotary=oracle_rotary.apply_rotary,
        apply_rotary_backward=oracle_rotary.apply_rotary_backward,
        xpos_magnitude=oracle_rotary.xpos_magnitude,
        mrope_angles=oracle_rotary.mrope_angles,
        axial_angles=oracle_rotary.axial_angles,
        rotary_from_config=oracle_rotary_config.rotary_from_config,
        **{
            name: getattr(oracle_biases, name)
            for name in ("alibi_slopes", "alibi_bias", "t5_bucket", "deberta_bucket")
        },
    )


ORACLE = oracle_library()
