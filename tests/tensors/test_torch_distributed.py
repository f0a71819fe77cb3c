"""docs/examples/sequence_parallel.py: two processes find what one does."""

from __future__ import annotations

import pathlib

import pytest
import torch

if not torch.distributed.is_available():
    pytest.skip("torch is built without distributed", allow_module_level=True)

import relpos.torch

EXAMPLES = pathlib.Path(__file__).parents[2] / "docs" / "examples"


@pytest.mark.skipif(
    torch.__version__.startswith("2.6."),
    reason="destroy_process_group of PyTorch 2.6 sometimes waits for ever",
)
def test_two_processes_are_one(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))  # the processes get the path, too
    import sequence_parallel

    found = sequence_parallel.run(2, 24)
    problem = sequence_parallel.problem(24)
    whole = sequence_parallel.step(relpos.torch.attention, *problem)
    assert found.keys() == whole.keys() == {"out", "query", "key", "value", *problem[1]}
    for name in problem[1]:
        first, second = found[name]
        assert torch.equal(first, second), name  # or their tables would part
    for name, want in whole.items():
        got = found[name][0] if name in problem[1] else found[name]
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12, msg=name)
