"""Results show shapes and dtypes, not numbers, as text and as HTML."""

from __future__ import annotations

import inspect
import pickle
import re
from html import unescape

import numpy as np
import pytest
from docstrings import public

import relpos
from relpos._text import brief, html_table

RESULTS = {
    name: thing
    for name, thing in public().items()
    if inspect.isclass(thing)
    and issubclass(thing, tuple)
    and not name.startswith(("relpos.reference.", "relpos.data.", "relpos.torch."))
}
#: Tables of numbers, and names.
OTHERS = {"relpos.Plan", "relpos.EncodingAudit", "relpos.nn.LoadResult"}
ARRAYS = {name: thing for name, thing in RESULTS.items() if name not in OTHERS}
PLAN = relpos.plan(1, 2, 3, 3, 4, scheme="alibi")
AUDIT = relpos.audit_encoding(relpos.index_encoding, lengths=(8, 16), dim=4)


def cells(html, tag):
    """The texts of all cells of a kind."""
    return [unescape(text) for text in re.findall(f"<{tag}>(.*?)</{tag}>", html)]


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_by_dtype_and_shape_a_line_a_field_or_all_in_one(name):
    fields = ARRAYS[name]._fields
    small = ARRAYS[name](*[None] * len(fields))
    large = ARRAYS[name](*[np.full((4, 50, 64), 7.125, np.float32)] * len(fields))
    lines = repr(large).splitlines()
    said = [f"{field}=float32 (4, 50, 64)" for field in fields]
    start = f"{ARRAYS[name].__name__}("
    if len(lines) > 1:
        assert lines == [start, *(f"    {text}," for text in said), ")"]
    else:
        assert lines == [f"{start}{', '.join(said)})"] and len(lines[0]) <= 88
    assert all(f"{field}=None" in repr(small) for field in fields)
    html = large._repr_html_()
    assert cells(html, "th") == [ARRAYS[name].__name__, ""]
    assert cells(html, "td") == [x for f in fields for x in (f, "float32 (4, 50, 64)")]


@pytest.mark.parametrize("name", RESULTS)
def test_they_are_named_tuples_as_ever(name):
    kind = RESULTS[name]
    given = tuple(range(len(kind._fields)))
    result = kind(*given)
    assert tuple(result) == given == result and hash(result) == hash(given)
    assert result._asdict() == dict(zip(kind._fields, given, strict=True))
    assert type(result._replace()) is kind and kind(**result._asdict()) == result
    again = pickle.loads(pickle.dumps(result))
    assert type(again) is kind and again == result


def test_a_result_of_attention():
    x = np.ones((1, 2, 4), np.float16)
    result = relpos.attention(x, x, x, return_lse=True, return_context=True)
    assert repr(result).splitlines() == [
        "AttentionOutput(",
        "    out=float16 (1, 2, 4),",
        "    lse=float32 (1, 2),",
        "    weights=None,",
        "    context=<AttentionContext of query, key, value: out (1, 2, 4)>,",
        ")",
    ]
    assert "&lt;AttentionContext of" in result._repr_html_()
    gradients = relpos.kerple_bias_backward([[1.0, 0.0, 1.0]], [1.0], [1.0])
    assert repr(gradients) == "KerpleGradients(r1=float64 (1,), r2=float64 (1,))"


def test_what_is_no_array_is_said_whole():
    assert brief(np.zeros((), ">i2")) == ">i2 ()"
    assert brief(0.25) == "0.25" and brief("a, b") == "'a, b'"


@pytest.mark.parametrize("result", [PLAN, AUDIT], ids=["plan", "audit"])
def test_tables_of_numbers_show_as_tables(result):
    lines = repr(result).splitlines()
    assert str(result) == repr(result)
    html = result._repr_html_()
    header = cells(html, "th")
    assert re.split("  +", lines[0].strip()) == header[1:]
    rows = zip(*[iter(cells(html, "td"))] * len(header), strict=True)
    shown = [re.split("  +", line) for line in lines[1:]]
    for row in rows:
        assert list(row) == shown.pop(0)
    assert cells(html, "p") == [" ".join(line) for line in shown]
    if result is AUDIT:
        assert [line.split()[0] for line in lines[1:]] == list(AUDIT._fields)


@pytest.mark.parametrize("table", ["comparison", "families", "reported", "slips"])
def test_tables_of_data_are_lists_that_show_as_tables(table):
    rows = getattr(relpos.data, table)()
    assert isinstance(rows, list) and rows == [*rows]
    again = pickle.loads(pickle.dumps(rows))
    assert again == rows and type(again) is type(rows)
    lines = repr(rows).splitlines()
    assert len(lines) == len(rows) + 1 and max(map(len, lines)) <= 88
    assert lines[0].split() == [*rows[0]._fields] == cells(rows._repr_html_(), "th")
    texts = cells(rows._repr_html_(), "td")
    assert len(texts) == len(rows) * len(rows[0]) and texts[0] == rows[0][0]
    rows.clear()
    assert repr(rows) == "[]" and cells(rows._repr_html_(), "td") == []


def test_nothing_in_a_cell_is_markup():
    html = html_table(["<b>"], [["<script>alert('&')</script>"]], ["1 < 2"])
    assert html == (
        "<table>\n<tr><th>&lt;b&gt;</th></tr>\n"
        "<tr><td>&lt;script&gt;alert('&amp;')&lt;/script&gt;</td></tr>\n</table>\n"
        "<p>1 &lt; 2</p>"
    )
