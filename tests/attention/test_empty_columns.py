"""Operands of no columns, in every scheme: no uninitialised memory is read."""

from __future__ import annotations

import functools
import itertools

import dense_oracle
import numpy as np
import pytest
from gradient_problems import VARIANTS, assert_gradients_close, make
from problems import DTYPES, normal
from tolerances import assert_results_close

import relpos
from relpos import _core
from relpos._settings import use_isa

#: D and Dv: without columns of queries and keys, of values, and of all three.
COLUMNS = [(0, 8), (16, 0), (0, 0)]
#: Lq and Lk: few queries, and tiles of them.
LENGTHS = [(5, 40), (40, 70)]
WITH_ALL = {"return_lse": True, "return_weights": True}


def dirty_memory(dtype):
    """Leave large numbers in the memory that the next call is likely to be given."""
    x = 30 * normal(np.random.default_rng(5), 3, 2, 90, 64).astype(dtype)
    result = relpos.attention(*x, return_context=True)
    result.context.backward(x[0])


def problem(scheme, variant, lengths, columns):
    """A problem of `gradient_problems` with a scale, which D = 0 does not give."""
    given = make(scheme, variant, (*lengths, *columns, 2, (2,)))
    given.settings.setdefault("scale", 0.5)
    return given


def check(arguments, dtype, want, truth, sizes, label):
    cast = arguments.cast(dtype)
    dirty_memory(dtype)
    assert_results_close(cast.forward(**WITH_ALL), want, "forward", floor=1.0)
    dirty_memory(dtype)
    found = cast.gradients()
    assert_gradients_close(found, truth, sizes, label, terms=1)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_scheme(variant, lengths, columns):
    for scheme in ("shaw", "xl", "everything"):
        given = problem(scheme, variant, lengths, columns)
        want = dense_oracle.attention(**given.inputs, **given.settings)
        truth, sizes = (
            given.truth(),
            functools.cache(functools.partial(given.truth, magnitude=True)),
        )
        for isa, dtype in itertools.product(_core.by_isa, DTYPES):
            with use_isa(isa):
                check(given, dtype, want, truth, sizes, f"{scheme} {isa} {dtype}")
