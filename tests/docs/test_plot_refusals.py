"""relpos.plot: calls that are refused, before anything is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import check, rows

import relpos

Figure = pytest.importorskip("matplotlib.figure").Figure

X, WIDE, HEADS = np.zeros((3, 3)), np.zeros((3, 2)), np.zeros((2, 2, 2))
NAMES = {
    "X": X,
    "WIDE": WIDE,
    "HEADS": HEADS,
    "ABC": ["a", "b", "c"],
    "GRAPH": {"indptr": [0, 2, 2, 4], "indices": [2, 1, 0, 2]},
    "none": np.zeros(0, int),
    "relative": relpos.relative_positions(20),
    "plan": relpos.plan(2, 8, 300, 300, 64, scheme="shaw"),
    "found": relpos.compare(np.sin, np.cos, np.ones(3)),
    "one_audit": relpos.audit_encoding(relpos.index_encoding, lengths=(8, 16), dim=4),
    "two": {"a": np.ones((2, 3)), "b": np.ones((3, 3)), "c": np.ones((1, 3))},
}
ROWS = """
score_map(WIDE, tokens=ABC) -> ValueError: tokens: got 3; expected 2, one for each
score_map(X, query_tokens="abc") -> TypeError: query_tokens: got str; expected
score_map(X, query_tokens=3) -> TypeError: query_tokens: got int; expected
score_map(X, query_tokens=[1, 2, 3]) -> TypeError: query_tokens: got list; expected
score_map(X, query_tokens=Tensor()) -> TypeError: query_tokens: got a torch Tensor; exp
score_map(X, mask=[[1] * 3] * 3) -> TypeError: mask: got an array of dtype int64; exp
score_map(X, mask=[True] * 3) -> ValueError: mask: got shape (3,); expected (3, 3)
score_map(X, annotate="x") -> ValueError: annotate: got 'x'; expected 'auto' or a bool
score_map(X, cmap="no such", ax=ax) -> ValueError: cmap: got …; expected a
score_map(X, cmap=3, ax=ax) -> TypeError: cmap: got …; expected a
score_map(X, title=3, ax=ax) -> TypeError: title: got int; expected a string
score_map(X, colour="red") -> TypeError: colour: got an unexpected keyword argument
attention_map(WIDE, tokens=ABC) -> ValueError: tokens: got 3; expected 2, one for each
attention_map(X, query_tokens="abc") -> TypeError: query_tokens: got str; expected
attention_map(X, query_tokens=3) -> TypeError: query_tokens: got int; expected
attention_map(X, query_tokens=[1] * 3) -> TypeError: query_tokens: got list; expected
attention_map(X, query_tokens=Tensor()) -> TypeError: query_tokens: got a torch Tensor
attention_map(HEADS, head=2) -> ValueError: head: got 2; expected an integer from 0 to 1
attention_map(X, head=0) -> ValueError: …expected three axes, (H, Lq, Lk)
attention_map(Tensor()) -> TypeError: weights: got a torch Tensor; expected
attention_heads(HEADS, figure=ax) -> TypeError: figure: got Axes; expected a matplotlib
score_terms(WIDE[None, None, :0], WIDE[None, None]) -> ValueError: query: got 0 by 3
score_terms(np.ones((2, 1, 3, 4)), np.ones((2, 1, 3, 4))) -> ValueError: query: got
    (2,) batch items; expected one
score_terms(Tensor(), X) -> TypeError: query: got a torch Tensor; expected
encoding_map(Tensor()) -> TypeError: encoding: got a torch Tensor; expected
encoding_map(X, positions_on="z") -> ValueError: positions_on: got 'z'; expected one of
encoding_maps({"a": Tensor()}) -> TypeError: encodings['a']: got a torch Tensor
encoding_maps(two, tokens={"d": ["x"]}) -> ValueError: tokens: got 'd'; expected titles
encoding_maps(two, tokens={"b": ["x", "y"]}) -> ValueError: tokens['b']: got 2; expec
relative_position_map([[0.5]]) -> TypeError: relative: got dtype float64; expected int
relative_position_map(Tensor()) -> TypeError: relative: got a torch Tensor; expected
relative_position_map(relative, highlight=[(6, 20)]) -> IndexError: highlight: got
    (6, 20); expected a pair
relative_position_map(relative, highlight=[1, 2, 3]) -> ValueError: highlight: got
    shape (3,); expected
relative_position_map(relative, highlight=Tensor()) -> TypeError: highlight: got a torch
relative_position_map(0) -> ValueError: relative: got 0; expected an integer from 1
relative_position_map(True) -> TypeError: relative: got True; expected an integer
wavelengths(63) -> ValueError: inv_freq: got 63; expected an even number
wavelengths(0) -> ValueError: inv_freq: got 0; expected an integer from 2
skew_steps(WIDE) -> ValueError: scores: got shape (3, 2); expected
edges(3, pairs=[(0, 3)]) -> IndexError: pairs: got (0, 3); expected a pair of
edges([[1, 2]]) -> ValueError: labels: got shape (1, 2); expected (L, L
edges(Tensor()) -> TypeError: labels: got a torch Tensor
attention_graph(**GRAPH, layout=[[0, 0], [1, 1]], ax=ax) -> IndexError: edges: got one
    at node 2; expected nodes up to 1
attention_graph([0, 2, 2, 4], [256] * 4, ax=ax) -> IndexError: indices: got some outside
    0 to 255
attention_graph([0, 3, 2, 4], [2, 1, 0, 2], ax=ax) -> ValueError: indptr: falls
attention_graph(**GRAPH, labels=[1], ax=ax) -> ValueError: labels: got shape (1,); exp
attention_graph(**GRAPH, weights=[1], ax=ax) -> ValueError: weights: got shape (1,); exp
attention_graph(**GRAPH, layout=[[1] * 3], ax=ax) -> ValueError: layout: got shape
    (1, 3); expected
attention_graph(**GRAPH, weights=[1] * 4, vmin=2, ax=ax) -> ValueError: vmin: got 2.0;
    expected less
attention_graph(**GRAPH, edges=[[0], [0]], ax=ax) -> ValueError: edges: given together
attention_graph([0] * 301, none, ax=ax) -> ValueError: edges: got 0 of 300 queries; exp
attention_graph([0, 1], ax=ax) -> TypeError: indices: got NoneType; expected
attention_graph(**GRAPH, weights=Tensor(), ax=ax) -> TypeError: weights: got a torch
fingerprints({"b": "t5", "a": "x"}, 4, figure=figure) -> ValueError: schemes['a']: got
    'x'; expected one of 'al
fingerprint(np.ones((3, 2)), 4) -> ValueError: scheme: got shape (3, 2); expected an enc
fingerprint(lambda x: [1, 2], 4) -> ValueError: scheme's result: got shape (2,); expect
fingerprint({"terms": True}, 4) -> TypeError: scheme: got terms; expected keywords of
fingerprint(Tensor(), 4) -> TypeError: scheme: got a torch Tensor
fingerprints(["t5"], 4) -> TypeError: schemes: got list; expected a mapping
bias_by_distance(WIDE, buckets=[2]) -> ValueError: buckets: got shape (1,); expected (N
bias_by_distance(HEADS, queries=[4]) -> ValueError: queries: got [4]; expected some from
bias_by_distance(WIDE) -> ValueError: bias: got 2 relative positions; to be centred on 0
bias_by_distance(X, buckets=[0, 2]) -> ValueError: buckets: got 2 relative positions; to
bias_by_distance(X, queries=[0]) -> ValueError: queries: given with a bias of shape
    (3, 3); expected it with (H, Lq, Lk) alone
bias_by_distance(HEADS, buckets=[0]) -> ValueError: buckets: given with a bias of shape
    (2, 2, 2); expected it with (H, R) alone
bias_by_distance(HEADS, min_relative_position=0) -> ValueError: min_relative_position: g
bias_by_distance(np.ones(3)) -> ValueError: bias: got shape (3,); expected (H, R)
buckets(3, 3) -> TypeError: bucket: got int; expected a callable
buckets(lambda x: [0], 3) -> ValueError: bucket's result: got shape (1,); expected
grid_bias(np.ones(35), (2, 3)) -> ValueError: bias: got shape (35,); expected (15,)
grid_bias(np.ones(35), (3, 4), query=(3, 0)) -> ValueError: query: got (3, 0); expected
grid_bias(np.ones(15), (2, 3), labels=np.eye(4, dtype=int)) -> ValueError: labels: got
    shape (4, 4); expected (6, 6
grid_bias(np.ones(15), (2, 3), labels=np.full((6, 6), 15)) -> ValueError: labels: got
    15 to 15; expected 0 to 14
rotary_wheel(6, [0], inv_freq=[1.0]) -> ValueError: inv_freq: got shape (1,); expected
wavelengths(np.ones(4)) -> TypeError: inv_freq: got an array of dtype float64
wavelengths({"a": [1.0]}, vmin=2, vmax=1) -> ValueError: vmin: got 2.0; expected less
    than vmax, 1.0
decay({"a": [1.0]}, 3, vmin=2, vmax=1) -> ValueError: vmin: got 2.0; expected less than
decay(Tensor(), 3) -> TypeError: encodings: got a torch Tensor
decay({}, 3) -> ValueError: encodings: got an empty mapping
decay({"a": lambda length, dim: np.ones((2, 3))}, 20) -> ValueError: encodings['a']'s
    result: got shape (2, 3); expected an
decay({"a": lambda length, dim: np.zeros((length, dim))}, 20) -> ValueError: …got a last
    row of 0; expected any other
plan_bars(plan, vmin=0) -> ValueError: vmin: got 0.0; expected more than 0
plan_bars(3) -> TypeError: plan: got int; expected what relpos
plan_bars(plan, quantity="x") -> ValueError: quantity: got 'x'; expected one of 'bytes'
costs_over_length("shaw", [1, 0]) -> ValueError: lengths[1]: got 0; expected an integer
costs_over_length("x", [8]) -> ValueError: scheme: got 'x'; expected
costs_over_length("alibi", [8], formulations=["L x R"]) -> ValueError: formulations: got
    … expected some
costs_over_length("alibi", [8], formulations=["L"]) -> ValueError: formulations[0]: got
    'L'; expected one
costs_over_length(3, [8]) -> TypeError: schemes: got int; expected
costs_over_length(Tensor(), [8]) -> TypeError: schemes: got a torch Tensor; expected
costs_over_length([3], [8]) -> TypeError: schemes: got list; expected
length_generalisation({"a": ([1, 2], [1, 2, 3])}) -> ValueError: results['a'][1]: got
    shape (3,); exp
length_generalisation({"a": Tensor()}) -> TypeError: results['a']: got a torch Tensor
length_generalisation({"a": [1]}) -> TypeError: results['a']: got list; expected
length_generalisation(Tensor()) -> TypeError: results: got a torch Tensor; expected
loss_curves([1.0, 2.0]) -> TypeError: losses: got list; expected a mapping
loss_curves({"a": [[[1.0, 2.0]]]}) -> ValueError: losses['a']: got shape (1, 1, 2); ex
loss_curves({"a": np.ones((0, 2))}) -> ValueError: losses['a']: got shape (0, 2); expec
loss_curves({"a": ["x"]}) -> TypeError: losses['a']: got …; expected real num
loss_curves({"a": Tensor()}) -> TypeError: losses['a']: got a torch Tensor
loss_curves(Tensor()) -> TypeError: losses: got a torch Tensor
loss_curves({"a": [1.0]}, smooth=0) -> ValueError: smooth: got 0; expected an integer
    from 1
loss_curves({"a": [1.0]}, log=True, vmin=0) -> ValueError: vmin: got 0.0; expected more
loss_curves({}) -> ValueError: losses: got an empty mapping
compare(found, vmin=-1) -> ValueError: vmin: got -1.0; expected more than 0
compare(Tensor()) -> TypeError: comparison: got …; expected what relpos
audit(3) -> TypeError: audits: got int; expected a mapping
audit(Tensor()) -> TypeError: audits: got a torch Tensor; expected
audit({"a": Tensor()}) -> TypeError: audits['a']: got a torch Tensor; expected
audit({"a": 3}) -> TypeError: audits['a']: got int; expected what
audit(tuple(one_audit)) -> TypeError: audits: got tuple; expected a mapping
"""


@pytest.mark.parametrize("row", rows(ROWS), ids=lambda row: row[0])
def test_bad_calls(row):
    figure = Figure()
    ax = figure.subplots()
    check(row, vars(relpos.plot) | NAMES | {"ax": ax, "figure": figure})
    assert figure.axes == [ax] and not (ax.texts or ax.images or ax.has_data())
