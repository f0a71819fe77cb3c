""".ci/check_wheel: what it refuses in a wheel; here its extension is one line of C."""

import json
import shutil
import subprocess
import sys
import zipfile

import pytest
from documents import ROOT

CHECK = ROOT / ".ci" / "check_wheel"
missing = [tool for tool in ("gcc", "objdump", "nm") if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.skipif(not CHECK.exists(), reason="no source tree"),
    pytest.mark.skipif(bool(missing), reason=f"needs {missing}"),
]
BILL = {"metadata": {"component": {"version": "1.2"}}, "components": []}


def check(folder, source, *flags):
    """Return the output of check_wheel for a wheel with an extension of that source."""
    core, wheel = folder / "_core.so", folder / "relpos-1.2-py3-none-any.whl"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-xc", "-", "-o", core, *flags],
        input=source,
        text=True,
        check=True,
    )
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(core, "relpos/_core.so")
        bill = "relpos-1.2.dist-info/sboms/relpos.cdx.json"
        archive.writestr(bill, json.dumps(BILL))
    return subprocess.run(
        [sys.executable, CHECK, wheel], check=False, capture_output=True, text=True
    )


@pytest.mark.parametrize("kind", ["--enable-new-dtags", "--disable-new-dtags"])
@pytest.mark.parametrize(
    ("path", "status"),
    [
        (None, 0),
        ("$ORIGIN/../relpos.libs", 0),
        ("/home/someone/lib", 1),
        ("$ORIGIN:/home/someone/lib", 1),
    ],
)
def test_a_folder_of_the_building_machine(tmp_path, kind, path, status):
    flags = [] if path is None else [f"-Wl,{kind},-rpath,{path}"]
    done = check(tmp_path, "int PyInit__core;", *flags)
    assert done.returncode == status, done.stderr
    said = done.stderr if status else done.stdout
    assert ("/home/someone/lib" if status else "self-contained") in said


def test_another_exported_symbol(tmp_path):
    done = check(tmp_path, "int PyInit__core, other;")
    assert done.returncode == 1
    assert "exports" in done.stderr
