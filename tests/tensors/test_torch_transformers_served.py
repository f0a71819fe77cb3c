"""`python -m relpos models`: rows that are known, and the page that has the table.

tests/tensors/test_torch_transformers_every.py compares the rows with models as built.
"""

from __future__ import annotations

import re

import pytest
import transformers
from documents import ROOT, page_as_written, text

from relpos import __main__
from relpos._tested import TESTED
from relpos.torch._transformers import served, sources, unserved

DAILY = TESTED["daily"]["transformers"]
#: Rows of several kinds: register, replace_attention, notes.
KNOWN = {
    "llama": (served.YES, served.NO),
    "beit": (served.YES, served.NO, served.DENSE_FIRST),
    "t5": (served.YES, served.YES, served.DENSE_FIRST),
    "bloom": (served.NO, served.YES),
    "xlnet": (served.NO, served.YES),
    "speecht5": (served.NO, served.YES),
    "sam_vision_model": (served.NO, served.YES),
    "sam": (served.YES, served.NO, "parts: sam_vision_model"),
    "falcon": (served.NO, served.NO, "later"),
    "gpt_neo": (served.NO, served.NO, "no relative positions"),
    "pegasus_x": (
        served.PART,
        served.NO,
        "softmax over chosen blocks of pairs, without relative positions",
    ),
    "bridgetower_vision_model": (served.NO, served.NO, served.OF_TORCH),
    "llava": (served.NONE, served.NONE, f"parts: {served.OTHERS}"),
    "resnet": (served.NONE, served.NONE, "no attention"),
}
#: Classes with a reason that only older versions have.
OLDER = {"gptj.GPTJFlashAttention2"}


@pytest.fixture(scope="module")
def rows():
    return {row.name: row for row in served.served()}


@pytest.mark.parametrize("name", KNOWN)
def test_rows(name, rows):
    register, replace, *notes = KNOWN[name]
    assert rows[name] == (name, register, replace, tuple(notes))


def test_every_class_that_stays_has_a_reason(rows):
    """A class of attention without an adapter or a reason would be named."""
    notes = "; ".join(note for row in rows.values() for note in row.notes)
    assert re.findall(r"\b\w+\.[A-Z]\w+", notes.replace(served.OF_TORCH, "")) == []


def test_classes_are_those_of_the_files():
    there = {f"{f.name}.{name}" for f in sources.folders() for name in f.definitions}
    assert there >= served.SWAPPED
    if transformers.__version__ == DAILY:
        listed = {*unserved.DENSE.split()}
        listed |= unserved.reasons_by_class(unserved.REASONS).keys()
        assert listed - there == OLDER


def test_the_command_prints_the_table(capsys, rows):
    assert __main__.main(["models"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["model", "type", "register", "replace_attention", "notes"]
    at = header.index(served.HEADER[1])
    assert [line[:at].strip() for line in lines[: len(rows)]] == [*rows]
    assert lines[len(rows) + 1] == served.counts([*rows.values()])
    total, *parts = map(
        int,
        re.findall(
            r"\b\d+\b(?!\.)", lines[len(rows) + 1].replace(transformers.__version__, "")
        ),
    )
    assert total == sum(parts) == len(rows)


def test_the_page_has_the_table(monkeypatch):
    if transformers.__version__ != DAILY:
        pytest.skip(f"the page is of transformers {DAILY}")
    text = page_as_written(monkeypatch, "model_types")
    assert f"model types of transformers {DAILY}" in text


def test_rows_with_a_version_are_served_from_it_on(rows):
    """The rows of docs/models.md that name the version of transformers."""
    if not (ROOT / "docs" / "models.md").exists():
        pytest.skip("no docs/ in this tree")
    lines = re.findall(
        r"^\| [^|]+ \| ([^|]+) \| ([^|]+) \| (5\.\d+) \|$",
        text("docs/models.md"),
        re.MULTILINE,
    )
    assert len(lines) == 13
    installed = [*map(int, transformers.__version__.split(".")[:2])]
    for types, calls, version in lines:
        is_served = installed >= [*map(int, version.split("."))]
        for name in re.findall(r"`(\w+)`", types):
            row = rows.get(name)
            if calls in ("both", "`register()`"):
                assert (row is not None and row.register == served.YES) == is_served
            else:
                assert (row is not None and row.replace == served.YES) == is_served


# ---- files as texts ------------------------------------------------------------------

SOURCE = '''
"""Not a use: Unused."""
from .configuration_new import NewConfig
TABLE = {"eager": NewSelfAttention, "sdpa": NewSdpaAttention}
class Unused(nn.Module):
    pass
class NewSelfAttention(nn.Module):
    def forward(self):
        return softmax(self.q @ self.k)  # Unused
class NewSdpaAttention(NewSelfAttention):
    def forward(self):
        return ALL_ATTENTION_FUNCTIONS["Unused"]
class NewAttention(nn.Module):
    def __init__(self, config):
        self.inner = TABLE[config.way](config)
class NewPreTrainedModel(PreTrainedModel):
    config: NewConfig
    parts = {"attentions": Unused}
class NewTextModel(NewPreTrainedModel):
    config: NewTextConfig
    def __init__(self, config):
        self.layer = NewAttention(config)
class NewModel(NewPreTrainedModel):
    def __init__(self, config):
        self.text = NewTextModel(config)
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "modeling_new.py").write_text(SOURCE, "utf-8")
    return sources.Folder(tmp_path)


def test_what_a_model_uses(folder):
    used, inner, _ = folder.used_by("NewTextModel")
    assert used - {"NewTextModel"} == {
        "TABLE",
        "NewAttention",
        "NewSelfAttention",
        "NewSdpaAttention",
    }
    assert inner == set()
    assert folder.used_by("NewModel")[:2] == ({"NewModel"}, {"NewTextModel"})


def test_models_and_their_configurations(folder):
    assert folder.models() == ["NewTextModel", "NewModel"]
    names = [folder.config_of(name) for name in folder.models()]
    assert names == ["NewTextConfig", "NewConfig"]
    assert folder.config_of("NewAttention") is None


def test_who_asks(folder):
    asking = [name for name in folder.definitions if folder.asks(name)]
    assert asking == ["NewSdpaAttention"]
    assert folder.is_attention("NewAttention") and not folder.is_attention("TABLE")


def test_types_of_configurations():
    types = sources.model_types()
    assert types["T5Config"] == "t5" and types["SamVisionConfig"] == "sam_vision_model"
    assert len(types) > 700
