"""A new scheme touches five files, and is everywhere: tried in a copy of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from documents import ROOT

PAGES = ROOT / "docs" / "schemes"
pytestmark = [
    pytest.mark.skipif(not PAGES.exists(), reason="no docs/ in this tree"),
    pytest.mark.torch,
]
#: What is copied: the package, its documentation, and the tests of the catalogue.
FOLDERS = ("relpos", "docs", "tests")

FUNCTION = '''

@scheme
def mirrored_attention(query, key, value, rel_key, **keywords):
    r"""Attention with a vector for each distance, the same on both sides.

    .. math:: s_{ij} = scale \\; q_i (k_j + a_{\\min(|j - i|, k)})

    Parameters
    ----------
    query, key, value : array_like
        As in `attention`.
    rel_key : array_like, (k+1, D)
        The a, by distance.

    Returns
    -------
    ndarray or AttentionOutput
        As `attention`.

    References
    ----------
    .. [1] A paper about mirrors.
    """
    k = np.shape(rel_key)[-2] - 1
    return {"rel_key": rel_key, "buckets": abs(np.arange(-k, k + 1)), **keywords}
'''
DEFINITION = '''

def mirrored_attention(query, key, value, rel_key, **keywords):
    """s_ij = scale · q_i·(k_j + a_min(|j - i|, k)): Shaw's table has each row twice."""
    k = rel_key.shape[-2] - 1
    sides = rel_key[..., np.abs(np.arange(-k, k + 1)), :]
    return shaw_attention(query, key, value, sides, **keywords)
'''
ROW = """    Scheme(
        "mirrored_attention",
        ("mirrored_attention",),
        "relative",
        synonyms=("mirror",),
        operands=("rel_key",),
        rows=lambda lq, lk, k, is_causal: k + 1,
        listed=clipped,
        title="mirrored keys",
    ),
"""
PAGE = """# Mirrored keys

A vector for each distance is the same on both sides.

## Formula

$$
s_{ij} = q_i (k_j + a_{|j - i|}) / \\sqrt D
$$

## Call

```python
>>> out = relpos.mirrored_attention(q, k, v, rng.standard_normal((5, D)))
```

```pycon
>>> out = relpos.torch.mirrored_attention(q, k, v, torch.randn(5, D))
```

## Picture

```{picture} a mirror
plot.relative_position_map(abs(relpos.relative_positions(9)))
```

## Traps

- It cannot tell before from after.
"""
#: File -> what is added, and the text that it comes before; None is the end.
ADDED = {
    "relpos/_attention/schemes.py": (FUNCTION, None),
    "relpos/_schemes.py": (ROW, '    Scheme(\n        "bert"'),
    "relpos/reference/schemes.py": (DEFINITION, None),
    "docs/schemes/mirrored_attention.md": (PAGE, None),
}
#: In the lists of names, and in the imports, of the same files.
NAMED = {
    "relpos/_schemes.py": (
        '"fire_attention", "fire",',
        '"fire_attention", "fire", "mirrored_attention", "mirror",',
    ),
    "relpos/_attention/schemes.py": (
        '__all__ = ["graph_attention",',
        'import numpy as np\n\n__all__ = ["graph_attention", "mirrored_attention",',
    ),
    "relpos/reference/schemes.py": (
        "__all__ = [",
        '__all__ = [\n    "mirrored_attention",',
    ),
}
WORKS = """
import numpy as np
import relpos
import relpos.torch
import torch
from relpos import reference
from relpos._catalogue.rows import errors, gradient_errors
from relpos._catalogue.rows import ROWS
from relpos._opinion.check import check_row

q, k, v = np.random.default_rng(0).standard_normal((3, 2, 7, 4))
table = np.random.default_rng(1).standard_normal((4, 4))
result = relpos.mirrored_attention(q, k, v, table, is_causal=True, return_context=True)
wanted = reference.mirrored_attention(q, k, v, table, is_causal=True)
np.testing.assert_allclose(result.out, wanted, atol=1e-14)
tensors = [torch.from_numpy(x).requires_grad_() for x in (q, k, v, table)]
out = relpos.torch.mirrored_attention(*tensors, is_causal=True)
np.testing.assert_array_equal(out.detach(), result.out)
out.sum().backward()
gradients = result.context.backward(np.ones_like(q))
for tensor, name in zip(tensors, ("query", "key", "value", "rel_key"), strict=True):
    np.testing.assert_array_equal(tensor.grad, getattr(gradients, name))

(row,) = [row for row in ROWS if row.scheme == "mirrored_attention"]
assert all(errors(row)[dtype] <= limit for dtype, limit in row.limits.items())
limits = row.gradients.limits
assert all(gradient_errors(row)[dtype] <= limit for dtype, limit in limits.items())
assert check_row(row).passed
assert "mirrored_attention" in relpos.__doc__
for module in (relpos, relpos.torch, reference):
    assert "mirrored_attention" in module.__all__
assert relpos.plan(1, 2, 9, 9, 4, scheme="mirror").table
"""


def files_of(root):
    paths = [path for folder in FOLDERS for path in (root / folder).rglob("*")]
    kept = [path for path in paths if path.is_file() and path.suffix != ".pyc"]
    return {str(path.relative_to(root)): path.read_bytes() for path in kept}


def run(root, *command):
    paths = os.pathsep.join([str(root), *sys.path[1:]])  # where torch is installed
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *command],
        check=False,
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_new_scheme_touches_five_files_and_is_everywhere(tmp_path):
    pytest.importorskip("torch")
    skipped = shutil.ignore_patterns("__pycache__", "*.ipynb", "_made", "api")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=skipped)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    before = files_of(tmp_path)
    for name, (text, anchor) in ADDED.items():
        path = tmp_path / name
        old = path.read_text("utf-8") if path.exists() else ""
        at = len(old) if anchor is None else old.index(anchor)
        path.write_text(old[:at] + text + old[at:], "utf-8")
    for name, (old, new) in NAMED.items():
        text = (tmp_path / name).read_text("utf-8")
        assert old in text
        (tmp_path / name).write_text(text.replace(old, new, 1), "utf-8")
    run(tmp_path, "docs/_extensions/functions.py")

    after = files_of(tmp_path)
    touched = {name for name, text in after.items() if before.get(name) != text}
    assert touched == {*ADDED, "docs/functions.md"}
    assert len(touched) <= 5
    listed = "| [Mirrored keys](schemes/mirrored_attention.md) | A vector for each"
    assert listed in after["docs/functions.md"].decode()
    run(tmp_path, "-c", WORKS)
    tests = ("test_every_scheme_once", "test_catalogue", "test_scheme_pages")
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "mirror or once"]
    run(tmp_path, *command, *(f"tests/docs/{name}.py" for name in tests))
