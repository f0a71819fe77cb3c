"""The layers of `python -m benchmarks.transformers`: every way of one is the same."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks import transformers as page  # noqa: E402
from benchmarks.layers import LAYERS, WAYS, caught  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", LAYERS)
def test_ways_are_equal(name):
    layer = LAYERS[name]
    eager = caught(layer, "eager", 40)
    wanted = eager.step()
    assert torch.equal(eager.forward(), wanted[0])
    assert {"eager"} < set(layer.ways) <= set(WAYS)
    for way in layer.ways[1:]:
        found = caught(layer, way, 40)
        page.check(name, way, found.step(), wanted)
        assert torch.allclose(found.forward(), wanted[0], rtol=1e-4, atol=1e-4)


def test_wrong_results_are_not_timed():
    wanted = caught(LAYERS["WavLM"], "eager", 40).step()
    for number in (0, len(wanted) - 1):
        wrong = [x + 0.01 * x.abs().max() * (n == number) for n, x in enumerate(wanted)]
        with pytest.raises(ValueError, match=rf"WavLM mine: result {number} is \d"):
            page.check("WavLM", "mine", wrong, wanted)


def test_memory_and_report():
    used = page.in_fork(lambda: page.memory_of(lambda: b"x" * 2**25))
    assert used is None or 2**25 <= used < 2**26
    figures = {"eager": {"seconds": 0.2, "bytes": 3e6}}
    figures["replaced"] = {"seconds": 0.1, "bytes": 1e6}
    row = {"model": "M", "length": 9, "forward": figures, "training": figures}
    facts = dict.fromkeys(("date", "cpu", "isa", "relpos", "torch", "transformers"), "")
    text = page.report([row], facts)
    assert text.count("| M | 9 | 200.0 |  |  | 100.0 | **2.00** | 3 |  |  | 1 |") == 2
    assert "M, L = 9" in page.text_of(row)
