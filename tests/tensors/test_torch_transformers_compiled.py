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
#: Models whose masks transformers makes in a compiled program from PyTorch 2.7 on.
MAKE_MASKS = SEVERAL_GRAPHS | {"mpnet", "bloom", "speecht5"}


@pytest.mark.few(5)
@pytest.mark.parametrize("name", families.CASES)
def test_compiled_whole(name):
    """Forward and backward."""
    if name in MAKE_MASKS and not hasattr(torch.compiler, "is_exporting"):
        pytest.skip("transformers does not compile the model with this PyTorch")
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
