"""The overview of encodings: its table as data, its claims as measured by the demo."""

from __future__ import annotations

import io

import numpy as np
import pytest

import relpos
from relpos import data
from relpos._demo import overview
from relpos._demo.report import Report


@pytest.fixture
def report():
    report = Report(stream=io.StringIO())
    report.begin("overview")
    return report


def failed(report):
    return [check for check in report.checks if not check["passed"]]


def test_the_comparison_has_every_feature_on_both_sides():
    rows = data.comparison()
    assert len(rows) == 9 == len({row.feature for row in rows})
    assert all(row.absolute and row.relative for row in rows)


def test_families():
    names = " ".join(family.name.split()[0] for family in data.families())
    assert names == "absolute relative rotary linear learned convolutional none"
    assert all("arXiv:" in family.paper for family in data.families())
    assert all(family.functions for family in data.families())
    used = {name for family in data.families() for name in family.functions}
    assert used <= set(relpos.__all__)


@pytest.mark.parametrize("slip", data.slips(), ids=lambda slip: slip.printed)
def test_slips_are_slips(slip):
    """Statements that are marked as right are true, wherever they can be computed."""
    assert slip.printed != slip.correct
    assert eval(slip.check or "True", {"relpos": relpos, "np": np})


def test_slips_by_document():
    """Most of each can be computed, and a name that is wrong is told the right ones."""
    names = {slip.document: None for slip in data.slips()}
    assert len(names) == 4
    assert [slip for name in names for slip in data.slips(name)] == data.slips()
    for name in names:
        computed = [bool(slip.check) for slip in data.slips(name)]
        assert np.mean(computed) > 2 / 3 and sum(computed) >= 4
    with pytest.raises(ValueError, match=r"document: .*Chilkuri 2023.*Shaw et al\."):
        data.slips("Shaw")


def test_papers_numbers_are_beside_others():
    """Each has a rival; those that can be counted are as counted."""
    rows = data.reported()
    assert all("arXiv:" in row.paper for row in rows)
    for row in rows:
        rivals = [r for r in rows if r[:3] == row[:3] and r.positions != row.positions]
        assert rivals, row
    megabytes = [row.value for row in rows if row.measure.startswith("MB")]
    counted = relpos.plan(1, 8, 2048, 2048, 64, scheme="music", is_causal=True)
    wanted = [counted.pair_vectors_per_head / 1e6, counted.table / 1e6]
    assert megabytes == pytest.approx(wanted, rel=0.02)


def test_requirements(report):
    overview.requirements(report)
    assert failed(report) == []
    (table,) = report.steps[0]["tables"]
    assert table["header"][1:] == list(relpos.EncodingAudit._fields)
    verdicts = {row[0]: [cell.split()[0] for cell in row[1:]] for row in table["rows"]}
    assert verdicts == {
        name: known.split() for name, (_, known) in overview.ENCODINGS.items()
    }


def test_directions(report):
    overview.directions(report)
    assert failed(report) == []
    measured = [float(row[1]) for row in report.steps[0]["tables"][0]["rows"]]
    assert measured == sorted(measured, reverse=True)


def test_rotary_decay(report):
    """Beside the formula: for a query with itself, sum |q_c|^2 cos(r w_c)."""
    overview.rotary_decay(report)
    assert failed(report) == []
    shown = [float(cell) for cell in report.steps[0]["tables"][0]["rows"][0][1:]]
    query, _ = np.random.default_rng(6).standard_normal((2, 16, 1, 64))
    weight = query[:, 0, :32] ** 2 + query[:, 0, 32:] ** 2
    frequency = 10000.0 ** (-np.arange(32) / 32)
    r = np.arange(2048)
    product = np.cos(np.multiply.outer(r, frequency)) @ weight.T / weight.sum(axis=1)
    mean = product.mean(axis=1)
    want = [mean[2**n : 2 ** (n + 1)].mean() for n in range(0, 11, 2)]
    assert shown == pytest.approx(want, abs=0.005 + 1e-9)


def test_moved_words(report):
    overview.moved_words(report)
    assert failed(report) == []
    rows = report.steps[0]["tables"][0]["rows"]
    assert [row[0].split()[0] for row in rows] == ["sinusoids", "relative", "rotary"]


def test_the_sentences_hold_the_phrase_where_it_is_said_to_be():
    starts = [sentence.index("smoking") for sentence in overview.SENTENCES]
    assert starts == [0, 2, 12]
    assert all(sentence[-2:] == overview.PHRASE for sentence in overview.SENTENCES)


def test_the_tables_of_shaw_hold_what_the_abstract_says():
    rows = data.shaw_tables()
    assert [len(data.shaw_tables(n)) for n in (1, 2, 3)] == [8, 7, 4]
    assert len(rows) == 19
    big = {(row.pair, row.k): row.bleu for row in rows if row.model == "big"}
    gains = [big[pair, 8] - big[pair, None] for pair in ("EN-DE", "EN-FR")]
    assert gains == pytest.approx([1.3, 0.3])
    bleu = {(row.keys, row.values): row.bleu for row in data.shaw_tables(3)}
    by_k = {row.k: row.bleu for row in data.shaw_tables(2)}
    assert bleu[True, True] == by_k[16] and bleu[False, False] == by_k[0]
