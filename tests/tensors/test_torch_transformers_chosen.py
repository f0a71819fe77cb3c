"""Models that choose a class of attention by name: what the name "relpos" tells."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import hugging_every as every
import pytest
import transformers

import relpos.torch as rt
from relpos.torch._transformers.adapters import chosen, table

ROOT = Path(transformers.__file__).parent / "models"
#: Files with a dict of attention by name, and the model of each that is built here.
MODELS = {
    "sam": "SamVisionModel",
    "sam_hq": "SamHQVisionModel",
    "falcon": "FalconModel",
    "gpt_neo": "GPTNeoModel",
    "git": "GitModel",
    "data2vec": "Data2VecVisionModel",
    "bark": "BarkSemanticModel",
}
#: What else the configurations need.
MORE = {"gpt_neo": {"attention_types": [[["global"], 2]]}}
NOT_BUILT = {"deepseek_ocr2", "gptj", "unlimited_ocr", "superglue"}


def files():
    """The folders of files that choose a class by the configuration's name."""
    pattern = re.compile(
        r"_CLASSES\[(config\._attn_implementation|attn_implementation)"
    )
    found = ROOT.glob("*/modeling_*.py")
    return {p.parent.name: p for p in found if pattern.search(p.read_text("utf-8"))}


def test_every_such_file_is_known():
    # GPT-J asks the registry from transformers 5.24 on
    assert {*MODELS, *NOT_BUILT} - {"gptj"} <= files().keys() <= {*MODELS, *NOT_BUILT}


@pytest.mark.parametrize("folder", MODELS)
def test_the_name_is_refused(folder):
    rt.register()
    kind = getattr(transformers, MODELS[folder])
    sizes = {**every.settings(kind.config_class), **MORE.get(folder, {})}
    config = kind.config_class(**sizes)
    config._attn_implementation = "relpos"
    with pytest.raises(ValueError, match=r"^attn_implementation: got 'relpos'") as seen:
        kind(config)
    served = any(folder == x.home.split(".")[2] for x in table.ADAPTERS.values())
    assert ("replace_attention(model) afterwards" in str(seen.value)) == served
    assert (chosen.PAGE in str(seen.value)) != served


@pytest.mark.parametrize("folder", sorted(NOT_BUILT & files().keys()))
def test_an_entry_is_added_once(folder):
    module = f"transformers.models.{folder}.{files()[folder].stem}"
    import_module(module)
    for _ in range(2):
        chosen._add_to(module)
    (classes,) = (
        value
        for name, value in vars(import_module(module)).items()
        if name.endswith("ATTENTION_CLASSES")
    )
    assert {"eager", "relpos"} <= classes.keys()
    with pytest.raises(ValueError, match=r"^attn_implementation: got 'relpos'"):
        classes["relpos"](None, 0)


def test_another_name_is_taken_as_before():
    rt.register()
    sizes = {**every.settings(transformers.GPTNeoConfig), **MORE["gpt_neo"]}
    config = transformers.GPTNeoConfig(**sizes)
    config._attn_implementation = "eager"
    assert transformers.GPTNeoModel(config) is not None
