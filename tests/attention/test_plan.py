"""relpos.plan: numbers of the papers, sums by hand, memory beside measured peaks."""

from __future__ import annotations

import itertools
import json
import sys

import numpy as np
import pytest

import relpos
from relpos import _core
from relpos._catalogue.schemes import SCHEMES
from relpos._settings import use_isa

MUSIC, XL = "relative_global_attention", "transformer_xl_attention"
#: What attention is given beside the tokens, of each scheme with known costs.
OPERANDS = {
    scheme.name: scheme.operands
    for scheme in SCHEMES
    if scheme.operands is not None and "rel_query" not in scheme.operands
}


def by_name(costs):
    return {form.name: form for form in costs.formulations}


# The Music Transformer, table 1: memory per layer and head in MB, float32, D_h = 64.
TERMS = [("L x L x d", 650, 108.0), ("table", 650, 0.17), ("table", 3500, 0.90)]
LOGITS = [(650, 1.7), (3500, 49.0)]


@pytest.mark.parametrize(("term", "length", "megabytes"), TERMS)
def test_terms_of_the_music_transformer(term, length, megabytes):
    costs = relpos.plan(1, 1, length, length, 64, scheme=MUSIC, is_causal=True)
    got = costs.table if term == "table" else costs.pair_vectors_per_head
    digits = 0 if megabytes > 10 else 2  # that the table gives
    assert round(got / 1e6, digits) == megabytes


@pytest.mark.parametrize(("length", "megabytes"), LOGITS)
def test_relative_logits_of_the_music_transformer(length, megabytes):
    plain = relpos.plan(1, 1, length, length, 64, scheme="attention", is_causal=True)
    music = relpos.plan(1, 1, length, length, 64, scheme=MUSIC, is_causal=True)
    logits = by_name(music)["L x L"].bytes - by_name(plain)["L x L"].bytes
    assert round(logits / 1e6, 0 if megabytes > 10 else 1) == megabytes


def test_terms_of_shaw():
    """Section 3.3: O(bhnd) grows by n^2 d; relative to each other n / (bh)."""
    costs = relpos.plan(8, 4, 256, 256, 64, scheme="shaw_keys")
    activations = 8 * 4 * 256 * 64 * 4
    assert costs.output == activations
    assert costs.pair_vectors == 256 * 256 * 64 * 4
    assert costs.increase == 256 / (8 * 4) == costs.pair_vectors / activations
    assert costs.table == 4 * 33 * 64 * 4


def test_bytes_and_flops_by_hand():
    """B = 2, H = 3, Lq = 10, Lk = 15, D = 4, k = 1, causal, float64."""
    costs = relpos.plan(
        2,
        3,
        10,
        15,
        4,
        scheme="shaw_attention",
        is_causal=True,
        dtype=np.float64,
        max_relative_position=1,
    )
    visible = sum(min(i + 5 + 1, 15) for i in range(10))
    forms = by_name(costs)
    heads, pairs = 6, 150
    assert forms["L x L x d"].bytes == 8 * (2 * pairs * 4 + 2 * heads * pairs)
    assert forms["L x L x d"].flops == heads * pairs * 4 * (4 + 2 * 2)
    assert forms["L x L"].bytes == 8 * 2 * heads * pairs
    assert forms["L x L"].flops == heads * (4 * pairs * 4 + 2 * 2 * 10 * 3 * 4)
    assert forms["L x R"].bytes == 8 * 2 * heads * 10 * 3
    assert forms["L x R"].flops == heads * (4 * visible * 4 + 2 * 2 * 10 * 3 * 4)
    assert forms["relpos"].flops == forms["L x R"].flops
    assert costs.inputs == 8 * (heads * (10 + 2 * 15) * 4 + 2 * 3 * 4)
    assert costs.output == 8 * heads * 10 * 4


@pytest.mark.parametrize("lq, lk", [(1, 1), (3, 9), (9, 3), (9, 9)])
@pytest.mark.parametrize("causal", [False, True])
def test_pairs_and_rows_are_those_that_occur(lq, lk, causal):
    """Visible pairs by counting; tables long enough, none longer than it must be."""
    reach = [
        j - (i + lk - lq)
        for i in range(lq)
        for j in range(lk)
        if not causal or j <= i + lk - lq
    ]
    plain = relpos.plan(1, 1, lq, lk, 8, scheme="attention", is_causal=causal)
    assert plain.relpos.flops == 4 * 8 * len(reach)
    rows = {}
    for scheme in (MUSIC, XL):
        costs = relpos.plan(1, 1, lq, lk, 8, scheme=scheme, is_causal=causal)
        rows[scheme] = costs.table // (8 * 4)
    assert rows[XL] == lk if causal else lk + lq - 1
    if reach and causal:
        assert rows[MUSIC] == lk >= 1 - min(reach)
    elif reach:
        assert rows[MUSIC] == 2 * max(map(abs, reach)) + 1


@pytest.mark.parametrize("scheme", OPERANDS)
def test_relpos_needs_the_least(scheme, isa):
    """But for tables of a few rows, whose L x R form is as small."""
    costs = relpos.plan(4, 8, 4096, 4096, 64, scheme=scheme, is_causal=True)
    forms = by_name(costs)
    assert all(form.flops >= costs.relpos.flops for form in costs.formulations)
    assert forms["L x L"].bytes > 100 * costs.relpos.bytes
    assert [f.name for f in costs.formulations] == [
        name
        for name in ("L x L x d", "L x L", "L x R", "relpos")
        if name in ("L x L", "relpos") or {"rel_key", "rel_value"} & {*OPERANDS[scheme]}
    ]


@pytest.mark.parametrize("name", OPERANDS)
def test_a_scheme_has_its_other_names(name):
    """Those that were its names before, among others."""
    sizes = dict(batch=2, heads=3, query_length=20, key_length=30, head_dim=8)
    want = relpos.plan(**sizes, scheme=name)
    others = next(scheme.synonyms for scheme in SCHEMES if scheme.name == name)
    assert all(relpos.plan(**sizes, scheme=other) == want for other in others)


def test_names_of_before():
    """Each is another name of a scheme whose costs are known."""
    known = {other for s in SCHEMES if s.name in OPERANDS for other in s.synonyms}
    assert {"plain", "bias", "shaw", "music", "transformer_xl"} <= known
    assert "shaw_keys" in OPERANDS


def test_prints_as_a_table():
    costs = relpos.plan(1, 8, 2048, 2048, 64, scheme=MUSIC, is_causal=True)
    text = str(costs)
    assert "8.59 GB per head" in text and "4.194 MB" in text
    assert [line.split("  ")[0] for line in text.splitlines()[1:5]] == [
        "L x L x d",
        "L x L",
        "L x R",
        "relpos",
    ]
    assert "n / (b h) = 256" in text
    tiny = relpos.plan(1, 1, 1, 1, 1, scheme="attention")
    assert "output 4 B" in str(tiny)


MEASURE = """
import ctypes
import json
import numpy as np
import relpos
from relpos._settings import use_isa
from relpos._catalogue.measure import forget_peak, resident
from relpos._catalogue.schemes import scheme_called

ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no huge pages, which round up by 2 MB each
b, h, lq, lk, d, scheme, causal, dtype, k, threads, isa = {case!r}
rng = np.random.default_rng(0)

def normal(*shape):
    return rng.standard_normal(shape).astype(dtype)

known = scheme_called(scheme)
rows = known.rows(lq, lk, k, causal)
shapes = {{"rel_bias": (h, rows), "pos_bias_u": (h, d), "pos_bias_v": (h, d)}}
given = {{name: normal(*shapes.get(name, (rows, d))) for name in known.operands}}
run = getattr(relpos, known.call)
query, key, value = normal(b, h, lq, d), normal(b, h, lk, d), normal(b, h, lk, d)
options = {{"is_causal": causal, "query_offset": lk - lq, "num_threads": threads}}
out = np.ones_like(query)  # touched, so that it counts before the call
with use_isa(isa):
    for few in (4, 64):  # loads what is loaded once, starts the threads
        short = query[:1, :2, :few], key[:1, :2, :64], value[:1, :2, :64]
        relpos.attention(*short, **options)
    known, before = forget_peak(), resident("VmRSS")
    run(query, key, value, out=out, **given, **options)
peak = resident("VmHWM")
print(json.dumps(peak - before if known else None))
"""

# b, h, lq, lk, d, scheme, causal, dtype, k, threads
MEASURED = [
    (1, 8, 4096, 4096, 64, MUSIC, True, "float32", 0, 2),
    (1, 8, 4096, 4096, 64, MUSIC, False, "float32", 0, 1),
    (2, 8, 2048, 2048, 64, "shaw_attention", False, "float32", 16, 2),
    (2, 4, 1024, 2048, 72, "shaw_attention", False, "float64", 700, 2),
    (2, 4, 2048, 2048, 64, "shaw_keys", True, "float64", 100, 1),
    (1, 8, 1024, 4096, 64, XL, True, "float32", 0, 2),
    (4, 16, 1024, 4096, 64, "attention", False, "float32", 0, 2),
    (4, 8, 1024, 1024, 160, "rel_bias", True, "float32", 0, 2),
    (64, 64, 8, 8, 64, "attention", False, "float32", 0, 2),
    (1, 8, 2048, 2048, 64, MUSIC, False, "float64", 0, 2),
]
TABLES = list(_core.by_isa)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and prctl")
@pytest.mark.parametrize(
    ("case", "isa"), list(zip(MEASURED, itertools.cycle(TABLES), strict=False))
)
def test_memory_is_what_is_measured(child, isa, case):
    """Within 20 % of the peak of a process of its own; kernel tables take turns."""
    found = json.loads(child(MEASURE.format(case=(*case, isa))).stdout)
    if found is None:
        pytest.skip("the system does not tell the peak of the memory in use")
    *shape, scheme, causal, dtype, k, threads = case
    with use_isa(isa):
        costs = relpos.plan(
            *shape,
            scheme=scheme,
            is_causal=causal,
            dtype=dtype,
            max_relative_position=k,
            num_threads=threads,
        )
    assert costs.relpos.bytes == pytest.approx(found, rel=0.2)


GOOD = dict(batch=1, heads=2, query_length=3, key_length=3, head_dim=4, scheme=XL)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"batch": 0}, ValueError, ["batch", "got 0", "from 1"]),
        ({"heads": 2.0}, TypeError, ["heads", "float", "integer"]),
        ({"query_length": -1}, ValueError, ["query_length", "-1"]),
        ({"key_length": True}, TypeError, ["key_length", "True"]),
        ({"head_dim": 2**70}, ValueError, ["head_dim", str(2**70)]),
        ({"scheme": "ropes"}, ValueError, ["scheme", "'ropes'", f"{XL!r}"]),
        ({"scheme": np.array(["a", "b"])}, TypeError, ["scheme", "array"]),
        ({"scheme": None}, TypeError, ["scheme", "NoneType"]),
        ({"is_causal": 1}, TypeError, ["is_causal", "int"]),
        ({"dtype": "x"}, TypeError, ["dtype", "'x'", "float32"]),
        ({"dtype": np.float16}, TypeError, ["dtype", "float16", "float32"]),
        ({"max_relative_position": -1}, ValueError, ["max_relative_position", "-1"]),
        ({"num_threads": 0}, ValueError, ["num_threads", "0"]),
    ],
)
def test_bad_calls(changes, error, words):
    with pytest.raises(error) as caught:
        relpos.plan(**GOOD | changes)
    assert all(word in str(caught.value) for word in words), str(caught.value)
