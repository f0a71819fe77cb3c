"""Training: positions make the difference, and every step is that of PyTorch."""

from __future__ import annotations

import time

import numpy as np
import pytest
from char_model import ADAM, DISTANCE, CharModel, accuracy, batch, train

STEPS = 300


def test_relative_positions_learn_to_copy_from_a_distance(sized):
    begin = time.process_time()
    with_positions, without = CharModel(), CharModel(positions=False)
    losses = list(train(with_positions, STEPS))
    assert losses[-1] < 0.1 < losses[0]
    assert accuracy(with_positions) > 0.99
    for _ in train(without, sized(STEPS // 2, STEPS)):
        pass
    assert accuracy(without) < 0.6
    assert time.process_time() - begin < 30


def test_losses_do_not_depend_on_the_number_of_threads():
    import relpos

    with relpos.threads(1):
        one = list(train(CharModel(), 3))
    with relpos.threads(3):
        assert list(train(CharModel(), 3)) == one


@pytest.mark.torch
def test_the_first_losses_are_those_of_torch():
    torch = pytest.importorskip("torch")
    import torch_reference

    model = CharModel()
    twin = torch_reference.CharModel()
    state = {name: torch.tensor(x) for name, x in model.state_dict().items()}
    twin.load_state_dict(state)
    optimizer = torch.optim.Adam(twin.parameters(), **ADAM)
    rng, losses = np.random.default_rng(1), []
    for _ in range(20):
        tokens, targets = (torch.tensor(x) for x in batch(rng))
        answers = twin(tokens)[:, DISTANCE:]
        loss = torch.nn.functional.cross_entropy(
            answers.flatten(0, 1), targets.flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(list(train(model, 20)), losses, rtol=0, atol=1e-5)
