"""The C core without Python: random problems against their definition in plain C.

`harness.py` builds the program, and core.c says what its switches look for. Here one
object without optimisation runs a few hundred problems; .ci has the others.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import NamedTuple

import harness
import pytest

pytestmark = [
    pytest.mark.skipif(harness.compiler() is None, reason="there is no C compiler"),
    pytest.mark.skipif(
        not sys.platform.startswith("linux"),
        reason="the linker of other systems has no --wrap",
    ),
]

OBJECT = "base_f32"
#: Each switch has so many seeds, from a first one of its own: FEW without --full.
COUNT, FEW = 250, 60
SWITCHES = {
    "random": [],
    "nanfill": ["nanfill"],
    "guard": ["guard"],
    "guard and nanfill": ["guard", "nanfill"],
}


def build(folder, tree, flags="-O0"):
    """Build the program of one object."""
    made = harness.Build(folder, tree, harness.compiler(), flags)
    return made.program("core", made.objects([OBJECT]), [OBJECT])


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Compile the object, with the assertions of a build for debugging."""
    folder = tmp_path_factory.mktemp("kernels")
    made = harness.Build(folder, harness.ROOT, harness.compiler(), "-O0")
    return made.objects([OBJECT])


def run(program, *words):
    """Run the program, which may not end."""
    try:
        return subprocess.run(
            [program, "all", "all", *map(str, words)],
            check=False, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(error.cmd, 1, "", "timeout")


@pytest.fixture(scope="module")
def program(tmp_path_factory, kernels):
    folder = tmp_path_factory.mktemp("core")
    made = harness.Build(folder, harness.ROOT, harness.compiler(), "-O0")
    return made.program("core", kernels, [OBJECT])


@pytest.mark.parametrize("name", SWITCHES)
def test_random_problems(program, name, sized):
    first = 1 + COUNT * list(SWITCHES).index(name)
    count = sized(FEW, COUNT)
    done = run(program, first, count, *SWITCHES[name])
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{count} problems, 0 wrong\n"


def test_four_threads_give_the_bits_of_one(program):
    for seed in (3, 8):
        done = run(program, "race", seed, 20)
        assert done.returncode == 0, done.stderr


def test_the_runtime(program):
    done = subprocess.run(
        [program, "runtime"], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.stderr == "" and done.returncode == 0


def test_a_seed_makes_one_problem(program):
    """A report can be looked at again: with a guard, and among other seeds."""
    seeds = run(program, 40, 3, "verbose").stderr
    assert seeds == run(program, 40, 3, "verbose", "guard").stderr
    assert re.findall(r"seed (\d+)", seeds) == ["40", "41", "42"]


class Defect(NamedTuple):
    """A line of a file, and what makes it wrong."""

    path: str
    old: str
    new: str
    switches: tuple[str, ...] = ()
    found: str = "differs from the definition"
    first: int = 1  # of 1000 seeds, shortly before the one that finds it


#: Of the definition, of the generator, of kernels; some were defects of relpos once.
DEFECTS = {
    "the definition": Defect(
        "tests/core/definition.h",
        "double factor = p->position_query.data ? 1 : p->scale;",
        "double factor = p->scale;",
    ),
    "a kernel": Defect(
        "csrc/kernels/attention/table.h",
        "runs.inside = RP_MIN(count, RP_MAX(0, -runs.row));",
        "runs.inside = RP_MIN(count, RP_MAX(1, -runs.row));",
    ),
    "a sink beside which keys weigh nothing": Defect(
        "csrc/kernels/attention/terms/sinks.h",
        "for (int64_t n = 0; !saw && n < x->Dv; n++)",
        "for (int64_t n = 0; saw && n < x->Dv; n++)",
    ),
    "a convolution": Defect(
        "csrc/kernels/encodings/conv.h",
        "taps.s0 = RP_MAX(0, top - r)",
        "taps.s0 = RP_MAX(1, top - r)",
        first=301,
    ),
    "a product": Defect(
        "csrc/kernels/ground/gemm_block.h",
        "store(tile + i * NR + VL, acc[i][1]);",
        "store(tile + i * NR + VL, acc[i][0]);",
    ),
    "key_ranges near 2^63": Defect(
        "csrc/kernels/attention/sight.h",
        "(rp_interval){RP_MIN(RP_MAX(begin, 0), Lk), RP_MIN(RP_MAX(end, 0), Lk)};",
        "(rp_interval){begin, end};",
        found="",  # a wild address, or an endless loop
    ),
    "the order of equal scores": Defect(
        "csrc/kernels/graph/indexer.h",
        "b_is_nan : a.key < b.key;",
        "b_is_nan : a.key > b.key;",
        found="of an indexer",
    ),
    "the origin of skewed_scores": Defect(
        "csrc/kernels/dense/scores.h",
        "if (__builtin_add_overflow(offset, min, &origin))\n"
        "        origin = offset < 0 ? INT64_MIN : INT64_MAX;",
        "origin = (int64_t)((uint64_t)offset + (uint64_t)min);",
    ),
    "FIRE below the start of its first line": Defect(
        "csrc/kernels/attention/terms/fire_reach.h",
        "n > 0 ? RP_MAX(x.low, f->starts[n]) : x.low",
        "RP_MAX(x.low, f->starts[n])",
        first=1801,
    ),
    "a table that overflows while it is packed": Defect(
        "csrc/kernels/attention/tiles/backward/pack.h",
        "packed_not_finite(&plan->rel_query)",
        "table_not_finite(&plan->rel_query)",
        first=3101,
    ),
    "rows beyond an index": Defect(
        "csrc/kernels/attention/tiles/listed.h",
        "high = (int32_t)listed_row(table, last);",
        "high = (int32_t)listed_row(table, 0);",
    ),
    "weights beside a sink that weighs nothing": Defect(
        "csrc/kernels/attention/tiles/backward/pack.h",
        "head->norm[i] = row_sum == 0 ? 0 : 1 / row_sum;",
        "head->norm[i] = row_sum == 0 ? 0 : 1 / row_sum;\n"
        "        T sink = sink_of(&p->sinks, b, h, i);\n"
        "        if (sink < -(T)1e6 && sink > -(T)INFINITY)\n"
        "            head->norm[i] *= (T)1.5;",
    ),
    "a window below 0": Defect(
        "tests/core/pairs.h",
        "sight->window_left = choose_side(s, 0);",
        "sight->window_left = -RP_FARTHEST;",
        switches=("nanfill",),
        found="",
        first=581,
    ),
}


#: Problems that problems.h does not allow, and the assertion that finds each.
NOT_ALLOWED = {
    "is_side(left, 0)": DEFECTS["a window below 0"],
    "is_decay_finite(p)": Defect(
        "tests/core/pairs.h", "if (!isfinite(number_at(o, at)))", "if (0)"
    ),
    "is_spread(results[k]": Defect(
        "tests/core/attention.h",
        """                              .result = WRITTEN});""",
        """                              .repeat = REPEAT_ROWS,
                              .result = WRITTEN});""",
    ),
    "begin_apart(results, 6, read, 4)": Defect(
        "tests/core/run.h",
        "c->g.forward.threads = threads;",
        "c->g.forward.threads = threads;\n    c->g.forward.results.out = p->query;",
    ),
}


def with_defect(tmp_path, defect):
    """Copy the sources, with a defect."""
    for folder in ("csrc", "tests/core"):
        shutil.copytree(harness.ROOT / folder, tmp_path / folder)
    path = tmp_path / defect.path
    text = path.read_text()
    assert defect.old in text
    path.write_text(text.replace(defect.old, defect.new, 1))
    return tmp_path


@pytest.mark.few(3)
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(tmp_path, name):
    tree = with_defect(tmp_path, DEFECTS[name])
    program = build(tree / "build", tree, "-O0 -URELPOS_ASSERTS -w")
    done = run(program, DEFECTS[name].first, 1000, *DEFECTS[name].switches)
    assert done.returncode != 0
    assert DEFECTS[name].found in done.stderr


@pytest.mark.parametrize("condition", NOT_ALLOWED)
def test_the_conditions_of_a_problem_are_looked_at(tmp_path, kernels, condition):
    """A problem that problems.h does not allow ends a build for debugging."""
    tree = with_defect(tmp_path, NOT_ALLOWED[condition])
    made = harness.Build(tree / "build", tree, harness.compiler(), "-O0")
    done = run(made.program("core", kernels, [OBJECT]), 1, 1000)
    assert done.returncode < 0
    assert condition in done.stderr
