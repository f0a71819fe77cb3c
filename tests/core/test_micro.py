"""The micro-kernels of each object against plain C: micro.c, which `harness.py` builds.

The list of micro.c is compared with what micro_kernels.py finds in the sources.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import NamedTuple

import harness
import micro_kernels
import pytest

from relpos import _core

compiles = pytest.mark.skipif(
    harness.compiler() is None or not sys.platform.startswith("linux"),
    reason="there is no C compiler, or no linker that has --wrap",
)

#: The objects that this CPU can run, from the plainest to the best.
OBJECTS = [f"{isa}_{number}" for isa in _core.by_isa for number in ("f32", "f64")]
SEEDS = 200
#: Functions that pass over a whole tile, row or wave of a problem: core.c runs them.
#: `index_unit` is the unit of `index_rows`, which micro.c runs.
PASSES = {
    "cap_tile",
    "edge_gradients",
    "finish_row",
    "grad_tile",
    "hide_past_keys",
    "index_unit",
    "merge_unit",
    "softmax_tile",
    "stretch_gradients",
    "write_query_unit",
}


def build(folder, tree, name, flags="-O0"):
    """Build the program of one object."""
    return harness.Build(folder, tree, harness.compiler(), flags).micro(name)


def run(program, *kernels):
    """Run all seeds of some kernels, or of all kernels."""
    return subprocess.run(
        [program, "1", str(SEEDS), *kernels],
        check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def copy_sources(to):
    """Copy what the program is built of."""
    for folder in ("csrc", "tests/core"):
        shutil.copytree(harness.ROOT / folder, to / folder)
    return to


def change(path, old, new):
    """Change a line of a copied file."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


# ---- the kernels ---------------------------------------------------------------------


@compiles
@pytest.mark.few(1)
@pytest.mark.parametrize("name", OBJECTS)
def test_micro_kernels(tmp_path, name):
    """Runs the plainest object alone without --full: each is compiled for seconds."""
    done = run(build(tmp_path, harness.ROOT, name))
    assert done.returncode == 0, done.stderr
    count = len(micro_kernels.checked_kernels(harness.ROOT))
    assert done.stdout == f"{count} kernels, 0 wrong\n"


class Defect(NamedTuple):
    """A line of a kernel, what makes it wrong, and what is reported."""

    path: str
    old: str
    new: str
    kernel: str
    report: str


#: A term that is left out, a wrong rounding, a number behind the end, bytes between
#: numbers, NaN where the other factor is 0.
DEFECTS = [
    Defect(
        "ground/line_products.h",
        "for (; kind == RP_OWN && k < width; k += VL)",
        "for (; kind == RP_OWN && k + VL < width; k += VL)",
        "add_dots",
        "expected",
    ),
    Defect(
        "ground/widen.h",
        "(x + 0x7fff + ((x >> 16) & 1)) >> 16",
        "(x + 0x8000) >> 16",
        "narrow",
        "expected",
    ),
    Defect(
        "ground/pack.h",
        "for (ptrdiff_t k = 0; k < columns; k++)\n                packed[k] *= factor;",
        "for (ptrdiff_t k = 0; k <= padded; k++)\n                packed[k] *= factor;",
        "pack_sums",
        "was written at byte",
    ),
    Defect(
        "ground/lines.h",
        "memset(to + i * step, 0, (size_t)size);",
        "memset(to + i * step, 0, (size_t)size + 1);",
        "zero_run",
        "was written at byte",
    ),
    Defect(
        "ground/selected.h",
        "if (a[k * term_step] != 0)",
        "if (1)",
        "gemm_add_rows_selected",
        "is nan",
    ),
]


@compiles
@pytest.mark.few(1)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.kernel)
def test_a_defect_is_found(tmp_path, defect):
    tree = copy_sources(tmp_path)
    change(tree / "csrc/kernels" / defect.path, defect.old, defect.new)
    done = run(build(tree / "build", tree, OBJECTS[0]), defect.kernel)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{defect.kernel}, seed ")
    assert defect.report in done.stderr


# ---- the list ------------------------------------------------------------------------


def missing(tree):
    """Return the kernels of a tree that micro.c does not have."""
    wanted = micro_kernels.micro_kernels(tree)
    wanted |= micro_kernels.vector_code_of_problems(tree) - PASSES
    return wanted - set(micro_kernels.checked_kernels(tree))


def test_every_micro_kernel_has_a_check():
    assert missing(harness.ROOT) == set()
    functions = micro_kernels.functions_of(harness.ROOT)
    checks = micro_kernels.checked_kernels(harness.ROOT)
    assert len(checks) > 90
    assert set(checks) <= set(functions)
    assert micro_kernels.vector_code_of_problems(harness.ROOT) >= PASSES


def runs(name, text):
    """Return True if a text calls a function, or hands it to one that does."""
    return (
        re.search(rf"\b(?:{name}\(|\w+\(s, {name},|run_shear\({name},)", text)
        is not None
    )


def test_every_check_runs_its_kernel():
    checks = micro_kernels.checked_kernels(harness.ROOT)
    assert [name for name, text in checks.items() if not runs(name, text)] == []


#: A function, and the line that calls it from one that knows a problem.
NEW = {
    "vectors": "RP_INLINE V\nadd_twice(V x)\n{\n    return x + x;\n}\n",
    "numbers": (
        "static void\nadd_twice(T *to, int64_t count)\n{\n"
        "    for (int64_t n = 0; n < count; n++)\n        to[n] += to[n];\n}\n"
    ),
    "a problem": (
        "static void\nadd_twice(tile_t *t, new_struct *x)\n{\n"
        "    store(t->s, load(t->s) + load(t->s));\n}\n"
    ),
}


@pytest.mark.parametrize("kind", NEW)
def test_a_new_kernel_without_a_check_is_found(tmp_path, kind):
    tree = copy_sources(tmp_path)
    path = tree / "csrc/kernels/attention/tiles/values.h"
    change(
        path, "static void\nsoftmax_tile(", f"{NEW[kind]}\nstatic void\nsoftmax_tile("
    )
    change(
        path, "T base[BQ], factor[BQ]", "add_twice(t->s);\n    T base[BQ], factor[BQ]"
    )
    assert missing(tree) == {"add_twice"}
