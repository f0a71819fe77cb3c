"""Run the notebooks: ``python docs/notebooks/run.py [--write] [NN ..]``.

Each is executed from the top in a kernel of its own, one thread a notebook,
in a folder that is thrown away, and must end in a cell of asserts.
``--write`` stores the outputs, without what differs from run to run. A
notebook whose metadata names modules that are not installed
(``relpos.needs``) is skipped by name. The status is 1 if one failed.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).resolve().parent
LARGEST, LARGEST_OF_ALL = 300_000, 4_000_000  # bytes
SECONDS = 240  # no notebook may take longer, on a busy machine
# Of a machine or of a run: no output may hold them.
STAMPS = re.compile(
    r"0x[0-9a-f]{8,}|/home/|/root/|/tmp/|/usr/|site-packages|File \"/"
)


def code_cells(
    notebook: nbformat.NotebookNode,
) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def ends_in_asserts(notebook: nbformat.NotebookNode) -> bool:
    """Return True if the last code cell asserts at least twice."""
    cells = code_cells(notebook)
    if not cells:
        return False
    nodes = ast.walk(ast.parse(cells[-1].source))
    return sum(isinstance(node, ast.Assert) for node in nodes) >= 2


def texts(cell: nbformat.NotebookNode) -> list[str]:
    """Return the texts that a cell printed or showed, without pictures."""
    shown = []
    for output in cell.outputs:
        shown.append(output.get("text", ""))
        for kind, data in output.get("data", {}).items():
            if kind.startswith("text/"):
                shown.append(data)
    return shown


def faults(path: Path) -> list[str]:
    """Return the faults of the notebook as it is stored."""
    notebook = nbformat.read(path, as_version=4)
    problems = []
    if path.stat().st_size > LARGEST:
        problems.append(
            f"has {path.stat().st_size} bytes, more than {LARGEST}"
        )
    if not ends_in_asserts(notebook):
        problems.append("does not end in two asserts or more")
    for number, cell in enumerate(code_cells(notebook), 1):
        if cell.execution_count != number:
            problems.append(
                f"code cell {number} is stored as [{cell.execution_count}]"
            )
        if any(output.get("name") == "stderr" for output in cell.outputs):
            problems.append(f"code cell {number} warns")
        for text in texts(cell):
            stamps = STAMPS.findall(text)
            problems += [
                f"code cell {number} shows {each!r}" for each in stamps
            ]
    return problems


def strip(notebook: nbformat.NotebookNode) -> None:
    """Take out what differs from run to run, and the names of the machine."""
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02d}"
        cell.metadata = {
            k: v for k, v in cell.metadata.items() if k == "tags"
        }
    notebook.metadata = {
        "kernelspec": {
            "display_name": "Python 3",
            "language": "python",
            "name": "python3",
        },
        "language_info": {"name": "python"},
        **{k: v for k, v in notebook.metadata.items() if k == "relpos"},
    }


def missing(notebook: nbformat.NotebookNode) -> list[str]:
    """The modules that it names and that are not installed."""
    needs = notebook.metadata.get("relpos", {}).get("needs", [])
    return [name for name in needs if importlib.util.find_spec(name) is None]


def run(path: Path, write: bool) -> tuple[bool, str]:
    """Execute one; whether it passed, and what there is to say."""
    notebook = nbformat.read(path, as_version=4)
    absent = missing(notebook)
    if absent:
        return True, f"{path.stem}: skipped, no {', '.join(absent)}"
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=SECONDS,
            kernel_name="python3",
            extra_arguments=["--log-level=40"],
            resources={"metadata": {"path": folder}},
        )
        try:
            client.execute()
        except CellExecutionError as error:
            return False, f"{path.stem}: {error}"
    seconds = time.perf_counter() - start
    if write:
        strip(notebook)
        nbformat.write(notebook, path)
    found = faults(path)
    return not found, "\n    ".join([f"{path.stem}: {seconds:.1f} s", *found])


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the notebooks.")
    parser.add_argument(
        "numbers", nargs="*", metavar="NN", help="as 07; all if none"
    )
    parser.add_argument(
        "--write", action="store_true", help="store the outputs"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="how many at a time"
    )
    options = parser.parse_args()
    paths = sorted(FOLDER.glob("[0-9][0-9]-*.ipynb"))
    chosen = paths
    if options.numbers:
        chosen = [p for p in paths if p.stem[:2] in options.numbers]
    if not chosen:
        parser.error(
            f"no notebook {' '.join(options.numbers)} in {FOLDER.name}"
        )
    for name in (
        "RELPOS_NUM_THREADS",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
    ):
        os.environ[name] = "1"
    start = time.perf_counter()
    passed = True
    work = partial(run, write=options.write)
    with ThreadPoolExecutor(options.jobs) as pool:
        for good, report in pool.map(work, chosen):
            print("ok    " if good else "FAILED", report, flush=True)
            passed &= good
    size = sum(path.stat().st_size for path in paths)
    seconds = time.perf_counter() - start
    print(
        f"{len(chosen)} notebooks in {seconds:.0f} s; all have {size} bytes"
    )
    return 0 if passed and size <= LARGEST_OF_ALL else 1


if __name__ == "__main__":
    sys.exit(main())
