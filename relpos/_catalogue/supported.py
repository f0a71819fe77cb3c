"""Record of what each function supports on tensors and arrays, for docs/supported.md.

It is one record: the page is made of it, and tests/tensors/test_torch_supported.py
calls each of its cells. PyTorch is not imported.
"""

from __future__ import annotations

import inspect
from typing import NamedTuple

import relpos

YES, NO = "yes", "no"
#: There is no operand to which the cell applies, such as a floating one.
NONE = "-"


class Support(NamedTuple):
    """Cells of a function: YES, NO or NONE.

    "yes" gives the result of the definition, or its derivative. "no" raises an error
    that names the function.
    """

    wide: str = YES  # float32 and float64
    short: str = YES  # float16 and bfloat16
    layouts: str = YES  # any strides
    backward: str = YES
    forward_mode: str = NO
    second_derivatives: str = NO
    vmap: str = YES
    compile: str = YES  # a whole graph
    export: str = YES
    nested: str = NO


#: Titles of the cells.
TITLES = Support(
    "float32, float64",
    "16 bits",
    "strides",
    "backward",
    "forward mode",
    "second derivatives",
    "`vmap`",
    "`torch.compile`",
    "`torch.export`",
    "nested",
)
#: Kernels with a backward.
WITH_GRADIENTS = Support()
#: Operators of PyTorch, which have every derivative.
OF_TORCH = Support(forward_mode=YES, second_derivatives=YES)
#: Kernels whose results are constants.
WITHOUT_GRADIENTS = Support(backward=NO)
#: Functions of integers.
OF_INTEGERS = Support(
    wide=NONE, short=NONE, backward=NONE, forward_mode=NONE, second_derivatives=NONE
)
#: Functions without an operand, whose result is no tensor either.
OF_SHAPES = Support(*[NONE] * len(TITLES))
#: Functions without an operand: they take lengths, settings and names.
OF_SETTINGS = OF_SHAPES._replace(compile=YES, export=YES)

#: The functions of relpos.torch that relpos has as well, by name.
SUPPORTED = {
    "alibi_bias": OF_TORCH,
    "alibi_slopes": OF_SETTINGS,
    "apply_rotary": WITH_GRADIENTS,
    "attention": WITH_GRADIENTS,
    "axial_angles": WITHOUT_GRADIENTS,
    "conv_encoding": WITH_GRADIENTS,
    "deberta_bucket": OF_INTEGERS,
    "fire_attention": WITH_GRADIENTS,
    "fire_bias": WITH_GRADIENTS,
    "graph_attention": WITH_GRADIENTS,
    "grid_labels": OF_SETTINGS,
    "indexer_top_k": WITHOUT_GRADIENTS,
    "kerple_bias": WITH_GRADIENTS,
    "learned": WITH_GRADIENTS,
    "merge_attention": OF_TORCH,
    "mrope_angles": WITHOUT_GRADIENTS,
    "plan": OF_SHAPES,
    "rel_shift": WITH_GRADIENTS,
    "relative_global_attention": WITH_GRADIENTS,
    "relative_positions": OF_SETTINGS,
    "rotary_frequencies": OF_SETTINGS,
    "rotary_from_config": OF_SETTINGS._replace(compile=NO),
    "rotary_magnitude": OF_SETTINGS,
    # made to be looked at, outside of compiled programs
    "scores": Support(backward=NO, vmap=NO, compile=NO, export=NO),
    "segment_ranges": OF_INTEGERS,
    "shaw_attention": WITH_GRADIENTS,
    "sinusoidal": WITHOUT_GRADIENTS,
    "sinusoidal_shift_matrix": OF_SETTINGS,
    "skew": WITH_GRADIENTS,
    "t5_bias": OF_TORCH,
    "t5_bucket": OF_INTEGERS,
    "transformer_xl_attention": WITH_GRADIENTS,
    "xpos_magnitude": WITHOUT_GRADIENTS,
}


def gradients_of(name: str) -> str:
    """Return what computes gradients of a function of arrays; "" where nothing does."""
    if "return_context" in inspect.signature(getattr(relpos, name)).parameters:
        return "return_context"
    if name in ("skew", "rel_shift"):  # both move numbers, and this moves them back
        return "unskew"
    backward = f"{name}_backward"
    return backward if backward in relpos.__all__ else ""
