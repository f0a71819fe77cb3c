"""Recorded gradients of public implementations: the adapters, run backwards.

A file's incoming gradient is `core_d_ctx`, that of the attention's output, or, where it
records none, those of its outputs (`ct_*`). Whatever an adapter read from the file and
used on the way has its recorded gradient there: `core_d_*` and `grad_*`.
"""

from __future__ import annotations

import numpy as np
import pytest
import tape
import tape_library
from oracle_gradients import sum_to
from recorded import NOT_EXPRESSED, ORACLE, Case
from recorded_cases import FAMILIES, pytest_generate_tests, unheard_of
from tape import Traced
from tolerances import TOLERANCES

import relpos

# the files of the folder, and a strange one
__all__ = ["pytest_generate_tests", "unheard_of"]

#: Files whose gradients are not those of an attention alone.
NOT_DIFFERENTIATED = {
    "hf_deberta_v1_L5_m32_talking_pad": "weights mixed over heads: their gradient",
    "t2t_music_L7_m7_nobias_garbage": "weights moved along the sequence: same",
    "kimi_xl_fullmask_nan": "no gradients recorded: NaN upstream",
    "kimi_posemb": "no gradients recorded",
    **dict.fromkeys(
        (
            "alibi_bias_bloom",
            "alibi_bias_flasht5",
            "alibi_bias_gptneox",
            "alibi_bias_onmt",
            "alibi_slopes_tables",
            "deberta_log_bucket_tables",
            "icefall_compact_relpos_tables",
            "hf_rope_from_config_a",
            "t5_bucket_tables",
        ),
        "no gradients recorded: nothing learned",
    ),
}

#: What upstreams add to the logits, and so has the gradient of these.
ADDED = ("in_attention_mask", "in_mask", "in_bias", "out_alibi")

#: (file, array): used on the way, but its gradient is not recorded, or not this one.
UNCERTAIN = {
    ("labml_alibi_mha_h4", "out_biases"): "an output, from which slopes are read",
    ("onmt_shaw_L5_k16", "core_q_unscaled"): "not in the file",
    ("onmt_relative_helpers_raw", "in_z"): "also of a product with arbitrary weights",
}
VANISHING = 1e-9


class TracedCase(Case):
    """A case whose float arrays are leaves of the tape."""

    def __init__(self, path, dtype):
        super().__init__(path, dtype)
        self.incoming, self.want = {}, {}
        for name in list(self.arrays):
            for prefix, store in (("ct_", self.incoming), ("grad_", self.want)):
                if name.startswith(prefix):
                    store[name.removeprefix(prefix)] = self.arrays.pop(name)
            if name.startswith("core_d_"):
                core = name.replace("core_d_", "core_")
                self.want[core] = self.incoming[core] = self.arrays.pop(name)
        for name, array in self.arrays.items():
            if array.dtype.kind == "f":
                self.arrays[name] = Traced(array)

    def constant(self, array):
        return Traced(array.value) if isinstance(array, Traced) else array

    def recorded(self, name):
        """The gradient of a leaf; u and v are recorded under the layer's own names."""
        if name in self.want:
            return self.want[name]
        twin = self.arrays[name].value
        if name in ADDED:
            logits = self.want["core_logits"]
            batch = logits.shape[: twin.ndim - 2] if twin.ndim > 3 else (-1,)
            return sum_to(logits.reshape(*batch, *logits.shape[-2:]), twin.shape)
        for other, gradient in self.want.items():
            if np.array_equal(self.arrays[other].value, twin):
                return gradient
        return None


def seeds_of(case, pairs):
    """(array, incoming gradient) where the adapter compared an output of the file."""
    names = {id(array): name for name, array in case.arrays.items()}
    found = {}
    for got, want in pairs:
        name = names.get(id(want), "")
        incoming = case.incoming.get(name.removeprefix("out_"), case.incoming.get(name))
        if isinstance(got, Traced) and incoming is not None:
            found.setdefault(name, []).append((got, incoming))
    if "core_ctx" in found:
        return found["core_ctx"][:1]
    return [
        seed for name, some in found.items() if "core_" not in name for seed in some
    ]


def run_backwards(path, dtype, source=relpos):
    """{name: (gradient, recorded gradient)} of all that the outputs depend on."""
    case = TracedCase(path, dtype)
    steps = FAMILIES[case.family](tape_library.library(source), case)
    seeds = seeds_of(case, [(got, want) for _, got, want in steps])
    assert seeds, "no output with a recorded incoming gradient"
    found = tape.reverse(seeds)
    return {
        name: (found[id(array)], case.recorded(name))
        for name, array in case.arrays.items()
        if id(array) in found and (case.name, name) not in UNCERTAIN
    }


def compare_gradients(path, dtype, source=relpos):
    family = Case(path, dtype).family
    if family in NOT_EXPRESSED:
        pytest.skip(f"needs {NOT_EXPRESSED[family]}")
    if path.stem in NOT_DIFFERENTIATED:
        pytest.skip(NOT_DIFFERENTIATED[path.stem])
    pairs = run_backwards(path, dtype, source)
    assert pairs
    limit = TOLERANCES["recorded_gradient"].of(dtype)
    sizes = {name: np.abs(want).max() for name, (_, want) in pairs.items()}
    for name, (got, want) in pairs.items():
        assert got.shape == want.shape and np.isfinite(got).all(), name
        size = sizes[name]
        if size < VANISHING:  # zero but for rounding: no size of its own
            size = max(1.0, *sizes.values())
        error = np.abs(got - want).max() / size
        assert error <= limit, f"{name}: {error:.2g}"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_relpos_reproduces_gradients(path, dtype):
    compare_gradients(path, dtype)


def test_oracle_reproduces_gradients(path):
    """The oracle that judges the kernels, against code of other people."""
    compare_gradients(path, "float64", ORACLE)


def test_gradients_of_an_unknown_family_fail(request):
    with pytest.raises(KeyError, match="unheard_of"):
        compare_gradients(request.getfixturevalue("unheard_of"), "float64")


def test_projected_inputs_are_all_compared(path):
    """Whatever has a recorded gradient right before the attention is reached."""
    case = TracedCase(path, "float64")
    wanted = {"core_q", "core_k", "core_v", "core_q_unscaled", "core_r"}
    wanted |= {"core_k_new", "core_v_new", "core_pos_key", "core_pos_query"}
    wanted &= set(case.want)
    if wanted and case.family not in NOT_EXPRESSED:
        assert wanted <= set(run_backwards(path, "float64"))
