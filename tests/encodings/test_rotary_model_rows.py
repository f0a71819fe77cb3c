"""models.toml: what its rows may say, and when it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

import relpos
from relpos._encodings import rotary_models
from relpos._encodings.rotary_models import Model, model_of, models, read_models

FILE = Path(rotary_models.__file__).with_name("models.toml")


def test_every_row_is_read_and_in_order():
    lines = FILE.read_text("utf-8").splitlines()
    kinds = [line.partition(" ")[0] for line in lines if line[:1] not in ("", "#")]
    assert kinds == sorted(kinds) and kinds == [*models()]


def test_every_field_is_described_and_used():
    """The first lines of the file have each field, and some row has each value."""
    described = FILE.read_text("utf-8").partition("\n\n")[0]
    for field, default in Model()._asdict().items():
        assert f"#   {field} " in described
        values = [getattr(model, field) for model in models().values()]
        assert any(value != default for value in values)
    for field, choices in rotary_models._CHOICES.items():
        values = {getattr(model, field) for model in models().values()}
        assert {*choices} <= values
    keys = {key for model in models().values() for key in model.defaults}
    assert keys == rotary_models._DEFAULTS.keys()


def test_rows():
    text = "one = {}\ntwo = { grid = true }\nthree = { checked = false, base = 5e3 }"
    one, two, three = read_models(text).values()
    assert one == Model(checked=True)
    assert two == Model(grid=True)
    assert three == Model(base=5000.0)
    with pytest.raises(TypeError, match="does not support item assignment"):
        models()["one"] = one


def test_a_type_without_a_row():
    assert model_of("waltz") == Model()


@pytest.mark.parametrize(
    ("row", "message"),
    {
        "{ theta = 1e4 }": r"^models\.toml: x: got the field 'theta'; expected some",
        "{ base = 10000 }": r"x: base: got 10000; expected a positive float$",
        "{ base = -1.0 }": r"x: base: got -1\.0; expected a positive float$",
        "{ base = inf }": r"x: base: got inf; expected a positive float$",
        "{ base = true }": r"x: base: got True; expected a positive float$",
        "{ interleaved = 1 }": r"x: interleaved: got 1; expected True$",
        "{ interleaved = false }": r"x: interleaved: got False; expected True$",
        "{ checked = true }": r"x: checked: got True; expected False$",
        '{ rotated = "all" }': r"x: rotated: got 'all'; expected 'sliding' or ",
        '{ scaled = "none" }': r"x: scaled: got 'none'; expected 'all' or 'full'$",
        "{ defaults = {} }": r"x: defaults: got {}; expected some keys$",
        "{ defaults = 3 }": r"x: defaults: got 3; expected some keys$",
        "{ defaults = { heads = 3 } }": r"x: defaults: got 'heads'; expected some of ",
        "{ defaults = { head_dim = 64.0 } }": r"x: head_dim: got 64\.0; .* int$",
        "{ defaults = { rope_theta = 1 } }": r"x: rope_theta: got 1; .* float$",
        "{ grid = true, base = 1e4 }": r"x: got a grid with other fields$",
    }.items(),
)
def test_a_row_that_does_not_fit_is_refused(row, message):
    with pytest.raises(ValueError, match=message):
        read_models(f"x = {row}")


def test_a_row_is_a_table():
    with pytest.raises(TypeError, match=r"^models\.toml: x: got 3; expected a table$"):
        read_models("x = 3")


def test_the_file_is_read_by_the_first_call_that_needs_it(child):
    child(
        "import relpos\n"
        "from relpos._encodings.rotary_models import models\n"
        "relpos.rotary_frequencies(8)\n"
        "assert models.cache_info().misses == 0\n"
        "relpos.rotary_from_config({'head_dim': 8, 'rope_theta': 1e4})\n"
        "assert models.cache_info().misses == 1\n"
    )


def test_a_row_decides_the_rotation():
    config = {"head_dim": 8, "rope_theta": 1e4}
    plain = relpos.rotary_from_config(config)
    backwards = relpos.rotary_from_config({**config, "model_type": "nanochat"})
    assert (backwards.inv_freq == -plain.inv_freq).all()
    neighbours = relpos.rotary_from_config({**config, "model_type": "cohere2"})
    assert neighbours.interleaved and not plain.interleaved
