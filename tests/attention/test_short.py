"""Many short sequences: tables are cut to what pairs have, and units are slices."""

import numpy as np
import pytest

import relpos

L, CLIP = 16, 16


def call(rows, arrays, num_threads):
    """Return the output and the gradients with those rows of both tables."""
    query, key, value, *tables = arrays
    rel_key, rel_value = (table[rows] for table in tables)
    first = rows.start - CLIP
    result = relpos.attention(
        query, key, value, rel_key=rel_key, rel_value=rel_value, return_context=True,
        min_relative_position=first, num_threads=num_threads,
    )  # fmt: skip
    return result.out, result.context.backward(query + value)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_no_pair_has_change_nothing(isa, dtype):
    """The whole tables give the bits of those that hold distances below L alone."""
    rng = np.random.default_rng(0)
    shapes = [(40, 2, L, 24)] * 3 + [(2 * CLIP + 1, 24)] * 2
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    out, gradients = call(slice(0, 2 * CLIP + 1), arrays, 1)
    met = slice(CLIP - L + 1, CLIP + L)
    for num_threads in (1, 2, 3):
        narrow, others = call(met, arrays, num_threads)
        assert out.tobytes() == narrow.tobytes()
        for name in ("query", "key", "value"):
            assert getattr(gradients, name).tobytes() == getattr(others, name).tobytes()
        for name in ("rel_key", "rel_value"):
            whole = getattr(gradients, name)
            assert whole[met].tobytes() == getattr(others, name).tobytes()
            assert not whole[0].any() and not whole[-1].any()
