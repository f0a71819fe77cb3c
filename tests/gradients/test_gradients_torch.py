"""Float32 errors of out and all gradients compared with PyTorch's.

PyTorch's are in torch_errors.json, for where torch is not installed; with it they are
computed afresh. As a script (``PYTHONPATH=tests/oracles:tests/cases:tests/recorded``)
this writes the file.
"""

from __future__ import annotations

import json

import dense_oracle
import numpy as np
import oracle_gradients
import pytest
from problems import cast, normal, qkv, terms
from recorded import SUBSET
from tolerances import TORCH_RATIO_MEDIAN, TORCH_RATIO_WORST, normwise

import relpos
from relpos import _core
from relpos._settings import use_isa

STORED = SUBSET / "torch_errors.json"
SEEDS = range(20)
HEADS = 4  # so that u and v, the smallest, are 256 numbers and not 64
KINDS = ("plain", "music", "xl", "shaw")
SIZES = ((64, 1.0), (256, 1.0), (256, 4.0))  # length, factor of queries and keys
CASES = [(kind, *size) for kind in KINDS for size in SIZES]
# Most keys of a query beyond one end of the tables, which share their rounding errors:
# the longer, the worse, where the backward does not take them out.
CASES += [("shaw causal", length, 1.0) for length in (64, 256, 512)]
FIRST = "min_relative_position"
CAUSAL = "is_causal"


def problem(kind, length, size, seed):
    """(inputs, settings, grad_out), all arrays float32."""
    rng = np.random.default_rng([seed, length])
    q, k, v = qkv(rng, (), HEADS, length, length, 64)
    inputs = {"query": size * q, "key": size * k, "value": v}
    kind, *causal = kind.split()
    inputs |= terms(rng, kind, HEADS, length, length, 64, k=16)
    settings = {n: inputs.pop(n) for n in ("query_offset", FIRST) if n in inputs}
    settings |= {CAUSAL: True} if causal else {}
    grad_out = normal(rng, HEADS, length, 64).astype("float32")
    return cast(inputs, "float32"), settings, grad_out


def run_relpos(inputs, settings, grad_out):
    result = relpos.attention(**inputs, **settings, return_context=True)
    gradients = result.context.backward(grad_out)._asdict()
    return {"out": result.out} | {name: gradients[name] for name in inputs}


def torch_attention(torch, query, key, value, **inputs):
    """The formula as models without a fused kernel write it: gather and scatter."""
    lq, lk = query.shape[-2], key.shape[-2]
    u, w = (inputs.get(n, torch.zeros(HEADS, 64)) for n in ("pos_bias_u", "pos_bias_v"))
    scores = (query + u[:, None]) @ key.transpose(-1, -2)
    relative = torch.arange(lk) - torch.arange(lq)[:, None]

    def rows(table):
        start = inputs.get(FIRST, -((table.shape[-2] - 1) // 2))
        return (relative - start).clamp(0, table.shape[-2] - 1).expand(HEADS, lq, lk)

    if "rel_key" in inputs:
        products = (query + w[:, None]) @ inputs["rel_key"].transpose(-1, -2)
        scores = scores + torch.gather(products, -1, rows(inputs["rel_key"]))
    scores = scores * query.shape[-1] ** -0.5
    if inputs.get(CAUSAL):
        scores = scores.masked_fill(relative > 0, -torch.inf)
    p = torch.softmax(scores, -1)
    out = p @ value
    if "rel_value" in inputs:
        table = inputs["rel_value"]
        sums = torch.zeros(HEADS, lq, table.shape[-2]).scatter_add(-1, rows(table), p)
        out = out + sums @ table
    return out


def run_torch(inputs, settings, grad_out):
    torch = pytest.importorskip("torch")
    leaves = {n: torch.from_numpy(x).requires_grad_() for n, x in inputs.items()}
    known = {n: x for n, x in settings.items() if n in (FIRST, CAUSAL)}
    out = torch_attention(torch, **leaves, **known)
    out.backward(torch.from_numpy(grad_out))
    found = {name: leaf.grad.numpy() for name, leaf in leaves.items()}
    return {"out": out.detach().numpy()} | found


def errors(case, seeds=SEEDS, **runs):
    """Per run {name: normwise error of each seed}, all against the same truth."""
    found = {run: {} for run in runs}
    for seed in seeds:
        inputs, settings, grad_out = problem(*case, seed)
        want = oracle_gradients.gradients(**inputs, **settings, grad_out=grad_out)
        want["out"] = dense_oracle.attention(**inputs, **settings).out
        for run, function in runs.items():
            for name, got in function(inputs, settings, grad_out).items():
                found[run].setdefault(name, []).append(normwise(got, want[name]))
    return found


def name_of(case):
    return "{}-{}-x{:g}".format(*case).replace(" ", "-")


def assert_as_good(ours, theirs):
    assert set(ours) == set(theirs)
    for name in ours:
        ratios = np.array(ours[name]) / np.array(theirs[name][: len(ours[name])])
        if len(ratios) == len(SEEDS):  # the median of fewer is left to chance
            assert np.median(ratios) <= TORCH_RATIO_MEDIAN, (name, np.median(ratios))
        assert np.max(ratios) <= TORCH_RATIO_WORST, (name, np.max(ratios))


def with_isa(isa):
    def run(*arguments):
        with use_isa(isa):
            return run_relpos(*arguments)

    return run


@pytest.mark.few(8)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_errors_compared_with_the_stored_ones_of_torch(case, sized):
    """All tables have the truth of one computation, which takes most of the time."""
    stored = json.loads(STORED.read_text())[name_of(case)]
    tables = {isa: with_isa(isa) for isa in _core.by_isa}
    found = errors(case, SEEDS[: sized(1, len(SEEDS))], **tables)
    for ours in found.values():
        assert_as_good(ours, stored)


@pytest.mark.torch
@pytest.mark.few(5)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_errors_compared_with_torch(case):
    pytest.importorskip("torch")  # before the truth is computed
    found = errors(case, relpos=run_relpos, torch=run_torch)
    assert_as_good(found["relpos"], found["torch"])


def write_stored():
    rounded = {
        name_of(case): {
            name: [float(f"{error:.3g}") for error in some]
            for name, some in errors(case, torch=run_torch)["torch"].items()
        }
        for case in CASES
    }
    STORED.write_text(json.dumps(rounded, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write_stored()
