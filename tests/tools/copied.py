"""Copies the tree to where it can be built otherwise, or changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def copy_tree(folder: Path, with_core: bool) -> Path:
    """Copy what git tracks, or would, below a folder; the compiled core where asked."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    cores = [str(p.relative_to(ROOT)) for p in ROOT.glob("relpos/_core*.so")]
    for name in [*listed, *(cores if with_core else [])]:
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def build_plainest(tree: Path, **environment: str) -> None:
    """Build what changed of a copy's core, for the plainest instruction set alone."""
    chosen = {"RELPOS_BUILD": "debug", "RELPOS_TABLES": "base"}
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=tree,
        env=os.environ | chosen | environment,
        check=True,
    )
