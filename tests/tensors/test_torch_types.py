"""Types that checkers find in README.md and in calls of relpos.torch."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from documents import ROOT, blocks, section

PUBLIC_TYPES = Path(__file__).with_name("public_torch_types.py")


def readme():
    """Return the code of README's examples in PyTorch."""
    (shown,) = blocks(section("README.md", "In PyTorch"), "pycon")
    lines = [line[4:] for line in shown.splitlines() if line[:4] in (">>> ", "... ")]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_checkers_find_nothing_wrong(checker, tmp_path):
    pytest.importorskip(checker)
    files = tmp_path / "readme.py", tmp_path / PUBLIC_TYPES.name
    # PyTorch gives no types to the method `step` of its optimizers.
    settings_of_file = "# pyright: reportUnknownMemberType=false\n"
    files[0].write_text(settings_of_file + readme(), "utf-8")
    files[1].write_text(PUBLIC_TYPES.read_text("utf-8"), "utf-8")
    settings = {
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": "error",
        "enableTypeIgnoreComments": False,
        "extraPaths": [str(ROOT)],
        "include": [path.name for path in files],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    arguments = {
        "mypy": [
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "--cache-dir",
            str(tmp_path / "cache"),
            "--strict",
            *map(str, files),
        ],
        "pyright": ["--project", str(tmp_path), "--pythonpath", sys.executable],
    }
    done = subprocess.run(
        [sys.executable, "-m", checker, *arguments[checker]],
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_calls_give_the_types_that_are_told(monkeypatch):
    seen = []

    def assert_type(value, kind):
        seen.append(kind)
        kinds = typing.get_args(kind) or (kind,)
        kinds = (dict,) if typing.get_origin(kind) is dict else kinds
        assert typing.Any in kinds or isinstance(value, kinds)
        return value

    monkeypatch.setattr(typing, "assert_type", assert_type)
    made = runpy.run_path(str(PUBLIC_TYPES))
    assert len(seen) >= PUBLIC_TYPES.read_text("utf-8").count("assert_type(")
    for name in ("layer", "decoder"):
        assert made[name].self_attn.batch_first
