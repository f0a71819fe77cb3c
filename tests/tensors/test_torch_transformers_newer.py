"""register and replace_attention warn of versions newer than the newest tested."""

import pytest
import torch
import transformers

import relpos.torch as rt
from relpos import _tested

CALLS = {
    "register": lambda model: rt.register(),
    "replace_attention": rt.replace_attention,
}


def deberta():
    config = transformers.DebertaV2Config(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, vocab_size=8,
        intermediate_size=16, relative_attention=True, pos_att_type=["c2p", "p2c"],
    )  # fmt: skip
    return transformers.DebertaV2Model(config)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """No version was warned of, and the installed ones are the newest tested."""
    newest = {"torch": torch.__version__, "transformers": transformers.__version__}
    monkeypatch.setattr(_tested, "TESTED", {"newest": newest})
    monkeypatch.setattr(_tested, "_warned", set())


def versions_of(warnings):
    return [str(each.message).partition(" is newer than ")[0] for each in warnings]


@pytest.mark.parametrize("package", ["torch", "transformers"])
@pytest.mark.parametrize("call", CALLS)
def test_a_newer_version_is_warned_of_once_by_both(call, package, monkeypatch, recwarn):
    models = [deberta() for _ in range(3)]
    monkeypatch.setattr(f"{package}.__version__", "99.0.0")
    for name, model in zip((call, *CALLS), models, strict=True):
        CALLS[name](model)
    assert versions_of(recwarn) == [f"{package} 99.0.0"]
    assert recwarn[0].filename == __file__


@pytest.mark.parametrize("call", CALLS)
def test_a_newer_patch_release_is_not(call, monkeypatch, recwarn):
    model = deberta()
    for package in (torch, transformers):
        series = ".".join(package.__version__.split(".")[:2])
        monkeypatch.setattr(f"{package.__name__}.__version__", f"{series}.99")
    CALLS[call](model)
    assert versions_of(recwarn) == []


@pytest.mark.filterwarnings("error::UserWarning")
def test_where_warnings_are_errors_a_model_stays_as_it_was(monkeypatch):
    model = deberta()
    classes = [type(module) for module in model.modules()]
    monkeypatch.setattr(torch, "__version__", "99.0.0")
    for _ in range(2):
        with pytest.raises(UserWarning, match=r"^torch 99\.0\.0 is newer than "):
            rt.replace_attention(model)
    assert [type(module) for module in model.modules()] == classes
