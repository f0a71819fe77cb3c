"""The calls of docs/schemes for PyTorch, compared with the definitions on tensors."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from documents import ROOT, blocks, run_examples, text
from scheme_pages import DEFINITIONS, SETUP, page_of
from tolerances import TOLERANCES, normwise

import relpos.torch
from relpos import recipes, reference
from relpos._schemes import SCHEMES

if not (ROOT / "docs" / "conf.py").exists():
    pytest.skip("no docs/ in this tree", allow_module_level=True)


def sinusoidal(*sizes):
    """Return what the definition makes of numbers alone, which is an array."""
    return torch.from_numpy(reference.sinusoidal(*sizes))


ON_TENSORS = SimpleNamespace(**(vars(DEFINITIONS) | {"sinusoidal": sinusoidal}))


def is_on_tensors(scheme):
    """Return True if relpos.torch has a function or an argument for the scheme."""
    is_arguments = bool(scheme.operands or scheme.settings)
    return is_arguments or bool({*scheme.functions} & {*relpos.torch.__all__})


def out_of(scheme, library=relpos.torch):
    """Run the call of a page, with `library` as relpos.torch."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        names = run_examples(SETUP, 5, "pycon")
        names["relpos"] = SimpleNamespace(torch=library, recipes=recipes)
        return run_examples(page_of(scheme), 1, "pycon", names)["out"]


def test_pages_of_schemes_on_tensors_have_a_call():
    for scheme in SCHEMES:
        calls = blocks(text(page_of(scheme.name)), "pycon")
        assert bool(calls) == is_on_tensors(scheme), scheme.name


@pytest.mark.parametrize("scheme", [s.name for s in SCHEMES if is_on_tensors(s)])
def test_a_call_gives_what_the_definition_gives(scheme):
    limit = TOLERANCES["forward_large_logits"].of("float32")
    assert normwise(out_of(scheme), out_of(scheme, ON_TENSORS)) <= limit
