"""The build: the package, its symbols, its settings and the cost of importing."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import pkgutil
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import relpos
from relpos import _core

PACKAGE = Path(relpos.__file__).parent


@pytest.mark.devmode
def test_show_config_returns_every_fact():
    config = relpos.show_config(mode="dicts")
    assert config["version"] == relpos.__version__
    assert re.match(r"(gcc|.*[Cc]lang) ?\d*", config["compiler"])
    assert config["blas"].split()[0] in ("bundled", "system", "none")
    assert config["isa_tables"] == list(_core.by_isa)
    assert config["isa_tables"][0] == "base"
    assert config["isa"] == config["isa_tables"][-1]
    assert config["threads"] == relpos.get_num_threads()
    assert isinstance(config["threads_from"], str)
    assert config["numpy"] == np.__version__


@pytest.mark.devmode
def test_show_config_prints_every_fact(capsys):
    assert relpos.show_config() is None
    lines = capsys.readouterr().out.splitlines()
    config = relpos.show_config(mode="dicts")
    assert len(lines) == len(config)
    for line, value in zip(lines, config.values(), strict=True):
        text = ", ".join(value) if isinstance(value, list) else str(value)
        assert line.endswith(text)


@pytest.mark.devmode
def test_show_config_refuses_another_mode():
    with pytest.raises(ValueError, match=r"^mode: got 'json'; expected one of"):
        relpos.show_config(mode="json")
    for mode in (np.array(["dicts", "stdout"]), ["dicts"], None):
        with pytest.raises(TypeError, match=r"^mode: got .*; expected one of"):
            relpos.show_config(mode=mode)


def public_modules():
    """The modules of the package whose names have no underscore before them."""
    names = {module.name for module in pkgutil.iter_modules([PACKAGE])}
    return {name for name in names if not name.startswith("_")}


def test_dir_lists_the_public_names():
    later = {"compare", "demo", "diagnose"}  # functions that load what they need
    absent = {"torch"} if find_spec("torch") is None else set()
    public = public_modules() | later | set(relpos.__all__)
    assert set(dir(relpos)) == public - absent
    assert all(getattr(relpos, name) is not None for name in dir(relpos))


def modules_that_dir_shows(module):
    """A public module, and those that its `dir` shows, and theirs."""
    found = {module.__name__: module}
    for name in dir(module):
        if inspect.ismodule(getattr(module, name)):
            found |= modules_that_dir_shows(getattr(module, name))
    return found


def test_dir_of_every_public_module_lists_its_public_names_alone():
    """Tab completion then offers no import of the module, as numpy or TYPE_CHECKING."""
    found = modules_that_dir_shows(relpos)
    for name in {*found} - {"relpos"}:  # which has a test of its own
        shown = {x for x in dir(found[name]) if not re.fullmatch("__.*__", x)}
        modules = {"nn"} if name == "relpos.torch" else set()
        assert shown == {*found[name].__all__} | modules, name
    expected = {f"relpos.{name}" for name in public_modules()}
    if find_spec("torch") is None:
        expected -= {"relpos.torch"}
    else:
        expected |= {"relpos.torch.nn"}
    assert {*found} - {"relpos"} == expected


def test_type_checkers_are_told_of_what_is_loaded_later():
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    told = [alias.asname for line in block.body for alias in line.names]
    assert sorted(told) == sorted({*relpos._LATER, *relpos._FUNCTIONS})


def test_no_function_hides_a_module():
    assert not public_modules() & set(relpos.__all__)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("relpos.attention")


@pytest.mark.parametrize("package", [relpos, relpos.nn, relpos.recipes])
def test_a_public_name_says_and_pickles_where_it_is_imported_from(package):
    for name in set(package.__all__) - {"__version__"}:
        value = getattr(package, name)
        assert (value.__module__, value.__name__) == (package.__name__, name)
        said = f"c{package.__name__}\n{name}\n".encode()
        assert said in pickle.dumps(value, protocol=0)
        assert pickle.loads(pickle.dumps(value)) is value


def test_the_tables_are_complete_and_alike():
    base = vars(_core.by_isa["base"])
    for name, table in _core.by_isa.items():
        assert list(vars(table)) == list(base), name
        for entry, value in vars(table).items():
            assert type(value) is type(base[entry])
            if isinstance(value, np.ufunc):
                assert value.__name__ == entry
                assert value.signature == base[entry].signature
                assert len(value.types) == 2


def test_fma_loop_counts_its_flops():
    for table in _core.by_isa.values():
        # two flops a lane and chain; float64 has half the lanes of float32
        assert table.fma_loop("f", 100) == 2 * table.fma_loop("d", 100) > 0
        assert table.fma_loop("f", 0) == 0
        with pytest.raises(ValueError, match="dtype must be 'f' or 'd'"):
            table.fma_loop("g", 1)


def test_one_exported_symbol():
    if shutil.which("nm") is None:
        pytest.skip("needs nm")
    done = subprocess.run(
        ["nm", "-D", "--defined-only", _core.__file__],
        check=True,
        capture_output=True,
        text=True,
    )
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["PyInit__core"]


def test_a_bundled_library_is_beside_the_extension():
    info = relpos.show_config(mode="dicts")["blas"]
    libraries = sorted(PACKAGE.glob("libscipy_openblas.*"))
    if info.startswith("bundled"):
        assert [str(path) for path in libraries] == [info.rsplit(", ", 1)[1]]
    else:
        assert libraries == []


# ---- import ------------------------------------------------------------------------


def test_import_brings_the_families_and_little_else(child):
    script = """
import sys
import numpy.random  # a part that NumPy may load later, and relpos uses
import pathlib, tomllib  # imported with relpos, to read models.toml at the first call
before = set(sys.modules)
import relpos
print(*sorted(set(sys.modules) - before))
"""
    loaded = set(child(script).stdout.split())
    others = {name for name in loaded if name.split(".")[0] != "relpos"}
    finds = {"importlib.util", "importlib._abc"}  # by which it sees if torch is there
    assert others <= {"__future__", "decimal", "_decimal", *finds}
    lazy = ("_catalogue", "_demo", "_opinion", "data", "nn", "plot", "recipes")
    lazy += ("reference", "torch", "ufuncs")
    assert not loaded & {f"relpos.{name}" for name in lazy}
    families = ("_attention.attention", "_encodings.rotary", "_attention.schemes")
    assert {f"relpos.{name}" for name in families} <= loaded


def test_import_starts_no_thread_and_prints_nothing(child):
    if not Path("/proc/self/task").is_dir():
        pytest.skip("needs /proc")
    script = """
import os, sys
import numpy
before = os.listdir("/proc/self/task")
import relpos
assert os.listdir("/proc/self/task") == before
"""
    done = child(script)
    assert (done.stdout, done.stderr) == ("", "")


def copy_sources(folder):
    """The package as a source tree has it: without its extension."""
    shutil.copytree(
        PACKAGE, folder, ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )


def test_import_of_a_source_tree_names_the_command(tmp_path):
    copy_sources(tmp_path / "relpos")
    # -S: no site-packages, so nothing else answers to the name; NumPy by its own path
    numpy_home = str(Path(np.__file__).parents[1])
    script = f"import sys; sys.path.append({numpy_home!r}); import relpos"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "ImportError" in done.stderr
    assert "python -m pip install -e ." in done.stderr.splitlines()[-1]


def test_setup_says_what_windows_users_do():
    script = PACKAGE.parent / "setup.py"
    if not script.exists():
        pytest.skip("not a source tree")
    pytest.importorskip("setuptools")
    lines = f"""
        import runpy, setuptools.command.build_ext, sys
        sys.platform = "win32"
        runpy.run_path({str(script)!r}, run_name="__main__")
    """
    code = "\n".join(line.strip() for line in lines.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, stderr=subprocess.PIPE
    )
    assert done.returncode == 1
    assert b"install it in the Windows Subsystem for Linux" in done.stderr


def test_another_missing_module_is_not_blamed_on_the_build(tmp_path):
    copy_sources(tmp_path / "relpos")
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import relpos"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "No module named 'numpy'" in done.stderr.splitlines()[-1]


def test_a_subinterpreter_gets_an_import_error(child):
    script = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
other = interpreters.create()
code = '''
try:
    import relpos
except ImportError:
    pass
else:
    raise SystemExit("imported")
'''
run = getattr(interpreters, "exec", None) or interpreters.run_string
assert run(other, code) is None
"""
    child(script, "-W", "ignore")


def test_reimport_works(child):
    script = """
import sys, numpy as np, relpos
q = np.ones((1, 3, 4))
want = relpos.attention(q, q, q)
for name in [name for name in sys.modules if name.startswith("relpos")]:
    del sys.modules[name]
import relpos
assert np.array_equal(relpos.attention(q, q, q), want)
"""
    child(script)
