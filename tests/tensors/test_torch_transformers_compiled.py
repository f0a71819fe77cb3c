"""Models with attention of their own under torch.compile: numbers of eager code."""

from __future__ import annotations

import hugging_families as families
import hugging_models as models
import pytest
import torch

#: Models that are several graphs: VITS draws a number by NumPy, and MPT and XLNet hand
#: what a call asks for to their layers by a context variable. Longformer and LED read
#: their masks.
SEVERAL_GRAPHS = {"mpt", "vits", "led"}
SEVERAL_GRAPHS |= {x for x in families.CASES if x.startswith(("xlnet", "longformer"))}


@pytest.mark.parametrize("name", families.CASES)
def test_compiled_whole(name):
    """Forward and backward."""
    case = families.CASES[name]
    original, model = families.pair(case)
    torch._dynamo.reset()
    compiled = torch.compile(
        case.call, backend="aot_eager", fullgraph=name not in SEVERAL_GRAPHS
    )
    families.check_results(
        models.run(case, original),
        models.run(case._replace(call=compiled), model),
        torch.float32,
    )
