"""relpos.plan: numbers of papers, sums by hand, sizes past all memory, bad calls."""

from __future__ import annotations

import numpy as np
import pytest
from plan_calls import KINDS
from refusals import refused

import relpos
from relpos._schemes import SCHEMES

MUSIC, XL = "relative_global_attention", "transformer_xl_attention"
OPERANDS = {scheme.name: scheme.operands for scheme in SCHEMES}


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
    tables = (6 + 4) * 10 * 3 * 4  # of keys, and of values
    assert costs.backward.flops == heads * (10 * visible * 4 + tables)
    assert costs.inputs == 8 * (heads * (10 + 2 * 15) * 4 + 2 * 3 * 4)
    assert costs.output == 8 * heads * 10 * 4


@pytest.mark.parametrize(("lq", "lk"), [(1, 1), (3, 9), (9, 3), (9, 9)])
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
    """But for tables of a few rows, whose L x R form is as small.

    Tables of the keys meet every pair, however few their rows. That a call takes the
    memory of its plan is in test_plan_memory.py.
    """
    costs = relpos.plan(4, 8, 4096, 4096, 64, scheme=scheme, is_causal=True)
    forms = by_name(costs)
    for form in costs.formulations:
        few_rows = form.name == "L x R" and "rel_query" in OPERANDS[scheme]
        assert few_rows or form.flops >= costs.relpos.flops
    assert forms["L x L"].bytes > 100 * costs.relpos.bytes
    two_threads = relpos.plan(
        4, 8, 4096, 4096, 64, scheme=scheme, is_causal=True, num_threads=2
    )
    assert forms["L x L"].bytes > 100 * two_threads.backward.bytes
    assert [f.name for f in costs.formulations] == [
        name
        for name in ("L x L x d", "L x L", "L x R", "relpos")
        if name in ("L x L", "relpos") or {"rel_key", "rel_value"} & {*OPERANDS[scheme]}
    ]


@pytest.mark.parametrize("name", OPERANDS)
def test_a_scheme_has_its_other_names(name):
    """Former names of a scheme are among its other names."""
    sizes = {
        "batch": 2,
        "heads": 3,
        "query_length": 20,
        "key_length": 30,
        "head_dim": 8,
    }
    want = relpos.plan(**sizes, scheme=name)
    others = next(scheme.synonyms for scheme in SCHEMES if scheme.name == name)
    assert all(relpos.plan(**sizes, scheme=other) == want for other in others)


def test_names_of_before():
    known = {other for scheme in SCHEMES for other in scheme.synonyms}
    assert {"plain", "bias", "shaw", "music", "transformer_xl"} <= known
    assert "shaw_keys" in OPERANDS


def test_prints_as_a_table():
    costs = relpos.plan(1, 8, 2048, 2048, 64, scheme=MUSIC, is_causal=True)
    text = str(costs)
    assert "1.074 GB if heads share it, 8.59 GB if not" in text
    assert "a table for each head: 4.194 MB" in text
    assert [line.split("  ")[0] for line in text.splitlines()[1:6]] == [
        "L x L x d",
        "L x L",
        "L x R",
        "relpos",
        "relpos, backward",
    ]
    assert "keys / (sequences * heads) = 256" in text
    alibi = str(relpos.plan(1, 8, 2048, 2048, 64, scheme="alibi"))
    assert alibi.splitlines()[-1].startswith("inputs ")  # it has no vectors
    tiny = relpos.plan(1, 1, 1, 1, 1, scheme="attention")
    assert "output 4 B" in str(tiny)


HUGE = [2**20, 2**31, 2**40, 2**50, 2**59, 2**60]


@pytest.mark.parametrize("scheme", KINDS)
@pytest.mark.parametrize("argument", ["batch", "heads", "query_length", "key_length",
                                      "head_dim", "max_relative_position"])  # fmt: skip
def test_sizes_of_any_magnitude(scheme, argument):
    """A number that grows, then an error that names what is too large; no memory."""
    sizes = GOOD | {"query_length": 50, "key_length": 50, "scheme": scheme}
    before, refused = 0, False
    for size in HUGE:
        try:
            costs = relpos.plan(**sizes | {argument: size})
        except (ValueError, MemoryError) as error:
            refused = True
            assert "memory" in str(error) and ":" in str(error)
            continue
        assert not refused
        assert 0 < before <= costs.backward.bytes or not before
        assert costs.relpos.bytes > 0
        before = costs.backward.bytes
    assert before


@pytest.mark.parametrize("scheme", KINDS)
def test_sequences_longer_than_any_memory(scheme):
    costs = relpos.plan(1, 8, 2**38, 2**38, 64, scheme=scheme, num_threads=2)
    shorter = relpos.plan(1, 8, 2**37, 2**37, 64, scheme=scheme, num_threads=2)
    for which in ("relpos", "backward"):
        now, half = (getattr(plan, which).bytes for plan in (costs, shorter))
        assert now == pytest.approx(2 * half, rel=0.01)
    with pytest.raises(ValueError, match=r"query: shape .* memory can address"):
        relpos.plan(1, 8, 2**59, 2**59, 64, scheme=scheme)


@pytest.mark.parametrize("scheme", KINDS)
def test_sixteen_bits_take_half_and_less_in_all(scheme, isa):
    """Though values are widened, which float32 reads in place, and a result is kept."""
    sizes = 2, 8, 300, 400, 64
    single, *short = (
        relpos.plan(*sizes, scheme=scheme, dtype=dtype)
        for dtype in ("float32", "float16", "bfloat16")
    )
    assert short[0] == short[1]
    assert short[0].output * 2 == single.output
    assert short[0].inputs <= single.inputs
    whole = [x.inputs + x.output + x.relpos.bytes for x in (short[0], single)]
    assert whole[0] < whole[1]
    trained = [2 * (x.inputs + x.output) + x.backward.bytes for x in (short[0], single)]
    assert trained[0] < trained[1]
    assert short[0].backward.bytes >= single.output  # which is kept


GOOD = {
    "batch": 1,
    "heads": 2,
    "query_length": 3,
    "key_length": 3,
    "head_dim": 4,
    "scheme": XL,
}


test_bad_calls = refused(
    relpos.plan,
    GOOD,
    """
batch=0 -> ValueError: batch: got 0; …from 1
heads=2.0 -> TypeError: heads: …float…integer
query_length=-1 -> ValueError: query_length: …-1
key_length=True -> TypeError: key_length: …True
head_dim=2**70 -> ValueError: head_dim: …1180591620717411303424
scheme="ropes" -> ValueError: scheme: …'ropes'…'transformer_xl_attention'
scheme=np.array(["a", "b"]) -> TypeError: scheme: …array
scheme=None -> TypeError: scheme: …NoneType
is_causal=1 -> TypeError: is_causal: …int
dtype="x" -> TypeError: dtype: …'x'…float32
dtype=">f2" -> TypeError: dtype: …>f2…bfloat16, float16, float32 or float64
dtype=np.int16 -> TypeError: dtype: …int16…bfloat16, float16, float32
max_relative_position=-1 -> ValueError: max_relative_position: …-1
scheme="deberta", max_relative_position=0 -> ValueError: max_relative_position: … from 1
num_threads=0 -> ValueError: num_threads: got 0
""",
    {},
)
