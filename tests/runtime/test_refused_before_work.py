"""Results that memory cannot hold are refused first; empty results cost no work."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pytest

import relpos

#: What each call cannot allocate first, where little memory is left: its result.
TOO_LARGE = {
    "alibi_bias(repeated(MANY), 2**20)": (2**28, 2**21 - 1),
    "alibi_bias(MANY, 2**20)": (2**28, 2**21 - 1),
    "alibi_bias(2**20, MANY)": (2**20, 2**29 - 1),
    "t5_bias(repeated(32, 2**20), MANY)": (2**20, 2**29 - 1),
    "kerple_bias(repeated(MANY), repeated(MANY), 2**20)": (2**28, 2**21 - 1),
    "kerple_bias(repeated(MANY), repeated(MANY), 9, kind='power')": (2**28, 17),
    "fire_bias(*network, MANY, 2**20)": (1, 2**28, 2**20),
    "relative_positions(MANY, 2**20)": (2**28, 2**20),
    "grid_labels((2**12, 2**13))": (2**25, 2**25),
    "sinusoidal(MANY, 2**20)": (2**28, 2**20),
    "sinusoidal(repeated(MANY, kind=int), 4)": (2**28, 4),
    "sinusoidal_shift_matrix(1, 2**20)": (2**20, 2**20),
    "xpos_magnitude(MANY, 2**20)": (2**28, 2**19),
    "index_encoding(MANY, 2**20)": (2**28, 2**20),
    "normalized_index_encoding(MANY, 2**20)": (2**28, 2**20),
    "conv_encoding(repeated(MANY, 3, 2), ones, mask=repeated(MANY, 3, kind=bool))": (
        (2**28, 1, 3, 2)
    ),
    # and what does not fit the arguments before it is not copied to find that out
    "graph_attention(x, x, x, repeated(MANY, kind=int), [0])": "indptr",
    "graph_attention(x, x, x, [0, 1, 1], repeated(MANY, kind=int))": "indptr",
    "graph_attention(x, x, x, [0, 1, 1], repeated(2, MANY, kind=int))": "indices",
    "graph_attention(x, x, x, [0, 1, 1], [0], repeated(MANY, kind=int))": "labels",
}
CALLS = """
import json, re, resource
import numpy as np
import relpos
from relpos import *

def repeated(*shape, kind=float):
    return np.broadcast_to(np.ones((), kind), shape)

MANY, x, ones = 2**28, np.ones((1, 2, 2)), np.ones((2, 3))
network = np.ones(1), np.zeros(1), np.ones((1, 1)), np.zeros(1), 1.0, 1.0
with open("/proc/self/status") as lines:
    used = next(int(line.split()[1]) for line in lines if line.startswith("VmSize"))
limit = used * 1024 + 2**27
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
found = {}
for call in %s:
    try:
        eval(call)
    except MemoryError as error:
        shape = re.search(r"with shape \\((.*?),?\\)", str(error))[1]
        found[call] = [int(size) for size in shape.split(",")]
    except ValueError as error:
        found[call] = str(error).partition(":")[0]
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_refused_before_anything_else_is_stored(child):
    found = json.loads(child(CALLS % list(TOO_LARGE)).stdout)
    wanted = {
        call: first if isinstance(first, str) else list(first)
        for call, first in TOO_LARGE.items()
    }
    assert found == wanted


def network(heads=1):
    return np.ones(1), np.zeros(1), np.ones((heads, 1)), np.zeros(heads), 1.0, 1.0


NOTHING = {
    "fire_bias": (lambda: relpos.fire_bias(*network(), 2**40, 0), (1, 2**40, 0)),
    "fire_bias, no heads": (
        lambda: relpos.fire_bias(*network(0), 2**40, 8),
        (0, 2**40, 8),
    ),
    "fire_bias_backward": (
        lambda: relpos.fire_bias_backward(np.zeros((1, 2**40, 0)), *network()).w1,
        (1,),
    ),
    "relative_positions": (lambda: relpos.relative_positions(2**40, 0), (2**40, 0)),
    "relative_positions, no queries": (
        lambda: relpos.relative_positions(0, 2**40),
        (0, 2**40),
    ),
    "grid_labels": (lambda: relpos.grid_labels((0, 2**40)), (0, 0)),
    "grid_labels, far more": (lambda: relpos.grid_labels((2**59, 0, 2**59)), (0, 0)),
    "index_encoding": (lambda: relpos.index_encoding(0, 2**60), (0, 2**60)),
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_done_for_nothing(name):
    call, shape = NOTHING[name]
    result = call()
    assert result.shape == shape and not result.any()


def test_a_grid_of_many_axes():
    """More of them than an array of NumPy may have."""
    assert relpos.grid_labels([1] * 70).tolist() == [[0]]
    assert np.array_equal(
        relpos.grid_labels([1] * 40 + [2] + [1] * 30 + [3]), relpos.grid_labels((2, 3))
    )


def test_what_repeats_is_read_once():
    """Unsigned positions are compared with int64's largest: 2**33 of them at once."""
    start = time.process_time()
    message = r"^relative_position: got 9223372036854775808, which doe"
    with pytest.raises(ValueError, match=message):
        relpos.t5_bucket(np.broadcast_to(np.uint64(2**63), 2**33))
    assert time.process_time() - start < 0.5
