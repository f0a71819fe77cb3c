"""Random small problems, forward and backward, against the oracles.

The same problems every time: 2,000 of them, 20,000 with --thorough.
"""

from __future__ import annotations

import dense_oracle
import numpy as np
import oracle
from gradient_problems import assert_gradients_close
from layouts import LAYOUTS
from random_problems import check_examples, runs
from tolerances import assert_results_close

import relpos
from relpos._settings import use_isa

FEW_PAIRS = 60  # up to which the loops are as fast as whole matrices


def laid_out(run):
    """The problem in the dtype and memory layout of the run."""
    problem = run.problem.cast(run.dtype)
    change = LAYOUTS.get(run.layout, np.asarray)
    return problem._replace(
        inputs={name: change(x) for name, x in problem.inputs.items()},
        grad_out=change(problem.grad_out),
        grad_lse=change(problem.grad_lse),
    )


def check(run):
    truth, given = run.problem, laid_out(run)
    pairs = truth.grad_lse.size * truth.inputs["key"].shape[-2]
    source = oracle if pairs <= FEW_PAIRS else dense_oracle
    want = source.attention(**truth.inputs, **truth.settings)
    keywords = {"return_lse": True, "return_weights": True, "return_context": True}
    with use_isa(run.isa):
        got = given.forward(**keywords, num_threads=run.num_threads)
        found = got.context.backward(
            given.grad_out,
            grad_lse=given.grad_lse,
            wrt=run.wrt,
            num_threads=run.num_threads,
        )._asdict()
    assert_results_close(got, want, "forward", floor=1.0)
    gradients = {name: x for name, x in found.items() if x is not None}
    assert all(x.dtype == run.dtype for x in (got.out, *gradients.values()))
    # Among 20,000 problems some sums cancel to nearly nothing: each is judged by the
    # sum of its absolute values, in float64 by a quarter of it. Float32 needs the whole
    # where weights are equal: every row then rounds alike, and nothing averages out.
    of = truth.truth()
    assert_gradients_close(
        gradients,
        {name: of[name] for name in run.wrt},
        lambda: truth.truth(magnitude=True),
        terms=1 if run.dtype == "float32" else 16,
    )


def test_random_problems(examples):
    check_examples(runs(), check, examples)


def test_the_problems_are_of_every_kind():
    """The strategy leaves out no argument by accident."""
    seen = set()

    def look(run):
        seen.update(run.problem.inputs, run.problem.settings, [run.dtype, run.isa])

    check_examples(runs(), look, 300)
    names = set(relpos.attention.__annotations__)
    names -= {"return", "return_lse", "return_weights", "return_context", "out"}
    names -= {"cu_seqlens"}  # which become key_ranges
    assert names - {"num_threads"} <= seen
