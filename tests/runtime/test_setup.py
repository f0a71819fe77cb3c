"""setup.py: builds that variables name, what is compiled again, and what is refused.

A script takes the compiler's place: it writes down its arguments and an empty file. If
it is asked for the files that an object is made from, gcc lists them.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from documents import ROOT

BUILDS = ("release", "debug", "sanitize=address,undefined", "sanitize=thread")
COMPILER = """#!/bin/sh
folder=$(dirname "$0")
case "$*" in
*--version) cat "$folder/version"; exit ;;
esac
echo "$@" >> "$folder/calls"
while [ $# -gt 0 ]; do
    case $1 in
    -o) object=$2; shift ;;
    -MF) notes=$2; shift ;;
    -c | -MMD) ;;
    *) words="$words $1" ;;
    esac
    shift
done
if [ -e "$folder/fail" ]; then exit 1; fi
if [ -n "$notes" ]; then gcc -MM $words -MF "$notes"; fi
echo > "$object"
"""
#: Files that the quick run does not compile. Others of each folder and table are left.
LEFT_OUT = ("isa/[an]*_f64.c", "python/[!m]*.c", "runtime/[!em]*.c")
pytestmark = [
    pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="no source tree"),
    pytest.mark.skipif(
        importlib.util.find_spec("setuptools") is None, reason="needs setuptools"
    ),
]


@pytest.fixture
def tree(tmp_path, sized):
    """A copy of what setup.py reads, with a compiler that does nothing."""
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    for pattern in sized(LEFT_OUT, ()):
        for path in (tmp_path / "csrc").glob(pattern):
            path.unlink()
    shutil.copy(ROOT / "setup.py", tmp_path)
    compiler = tmp_path / "cc"
    compiler.write_text(COMPILER)
    (tmp_path / "version").write_text("cc 1.0\n")
    (tmp_path / "relpos").mkdir()
    compiler.chmod(0o755)
    return tmp_path


def build(tree, *command, **environment):
    """Runs build_ext or a command with a tree's compiler: (process, its calls)."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RELPOS_")}
    calls = tree / "calls"
    calls.unlink(missing_ok=True)
    compiler = str(tree / "cc")
    environment = {**clean, "CC": compiler, "LDSHARED": compiler, **environment}
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", *(command or ("build_ext",))],
        check=False,
        cwd=tree,
        env={name: value for name, value in environment.items() if value is not None},
        capture_output=True,
        text=True,
    )
    lines = calls.read_text().splitlines() if calls.exists() else []
    return done, [line.split() for line in lines]


def level(words):
    """The -O that counts: the last one."""
    return [word for word in words if word.startswith("-O")][-1]


def sources(tree):
    return sorted(str(path.relative_to(tree)) for path in tree.glob("csrc/**/*.c"))


def compiled_files(calls):
    """Names of the files that were compiled, in order."""
    return sorted(words[words.index("-c") + 1] for words in calls if "-c" in words)


def build_in_place(tree, **environment):
    """Builds the extension in a tree; the names of the files that were compiled."""
    done, calls = build(tree, "build_ext", "--inplace", **environment)
    assert done.returncode == 0, done.stderr
    linked = [words for words in calls if "-c" not in words]
    assert len(linked) == bool(calls)
    return compiled_files(calls)


def change(path):
    """Adds a line to a file, which is then newer than everything that was built."""
    path.write_text(path.read_text() + "\n")


@pytest.mark.parametrize("name", BUILDS)
def test_every_file_is_compiled_and_linked_with_the_flags_of_its_build(tree, name):
    done, calls = build(tree, RELPOS_BUILD=name)
    assert done.returncode == 0, done.stderr
    compiled = [words for words in calls if "-c" in words]
    assert compiled_files(calls) == sources(tree)
    assert len(calls) == len(compiled) + 1
    assert "-MMD" not in " ".join(" ".join(words) for words in calls)
    for words in compiled:  # what rp_assert of csrc/relpos.h looks at
        assert ("-DRELPOS_ASSERTS" in words) == (name != "release")
    kinds = name.partition("=")[2]
    for words in calls:
        debug = [word for word in words if word.startswith("-g")][-1]
        assert debug == {"r": "-g0", "d": "-g", "s": "-g1"}[name[0]]
        assert level(words) == {"r": "-O3", "d": "-Og", "s": "-O1"}[name[0]]
        assert [w for w in words if w.startswith("-fsanitize")] == (
            [f"-fsanitize={kinds}"] if kinds else []
        )


def test_release_is_the_default_and_a_change_of_build_compiles_all_again(tree):
    files = len(sources(tree))
    done, first = build(tree)
    assert done.returncode == 0, done.stderr
    assert {level(words) for words in first} == {"-O3"}
    assert build(tree, RELPOS_BUILD="release")[1] == []
    _, other = build(tree, RELPOS_BUILD="debug")
    assert len(other) == files + 1
    assert {level(words) for words in other} == {"-Og"}
    assert len(build(tree)[1]) == files + 1


def test_a_newer_header_compiles_all_again(tree):
    build(tree)
    os.utime(tree / "csrc" / "relpos.h", (2**32, 2**32))
    assert len(build(tree)[1]) == len(sources(tree)) + 1


needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@needs_gcc
def test_in_place_a_change_compiles_the_files_that_it_reaches(tree):
    assert build_in_place(tree) == sources(tree)
    assert build_in_place(tree) == []
    kernels = [f"csrc/isa/base_f{bits}.c" for bits in (32, 64)]
    change(tree / "csrc" / "isa" / "base.h")
    assert build_in_place(tree) == kernels
    change(tree / "csrc" / "kernels" / "graph" / "forward.h")
    reached = build_in_place(tree)
    assert set(kernels) < set(reached)
    assert {name.rpartition("/")[0] for name in reached} == {"csrc/isa"}
    change(tree / "csrc" / "runtime" / "errors.c")
    assert build_in_place(tree) == ["csrc/runtime/errors.c"]
    change(tree / "csrc" / "relpos.h")
    assert set(build_in_place(tree)) > {"csrc/isa/base_f32.c", "csrc/python/module.c"}
    (row,) = [
        row
        for row in json.loads((tree / "build" / "compile_commands.json").read_text())
        if row["file"] == "csrc/runtime/errors.c"
    ]
    assert "-MMD" not in row["arguments"]
    assert build_in_place(tree) == []


@pytest.mark.few(2)
@needs_gcc
@pytest.mark.parametrize("changed", ["build", "flags", "compiler", "tables"])
def test_in_place_other_commands_compile_all_files_again(tree, changed):
    build_in_place(tree)
    environment = {
        "build": {"RELPOS_BUILD": "debug"},
        "flags": {"CFLAGS": "-DOTHER"},
        "compiler": {},
        "tables": {"RELPOS_TABLES": "base"},
    }[changed]
    if changed == "compiler":
        (tree / "version").write_text("cc 2.0\n")
    again = build_in_place(tree, **environment)
    if changed == "tables":  # the config header, which is not in all files
        assert {f"csrc/isa/{name}.c" for name in ("base_f32", "dispatch")} < set(again)
        assert set(again) < set(sources(tree))
    else:
        assert again == sources(tree)
    assert build_in_place(tree, **environment) == []


@needs_gcc
def test_in_place_an_object_without_its_list_of_files_is_compiled_again(tree):
    build_in_place(tree)
    path = tree / "csrc" / "runtime" / "memory.c"
    before = path.stat().st_mtime_ns
    change(path)
    (tree / "fail").touch()
    assert build(tree, "build_ext", "--inplace")[0].returncode == 1
    (tree / "fail").unlink()
    os.utime(path, ns=(before, before))
    change(tree / "csrc" / "runtime" / "errors.c")
    assert build_in_place(tree) == ["csrc/runtime/errors.c", "csrc/runtime/memory.c"]


@needs_gcc
def test_in_place_force_compiles_all_files(tree):
    build_in_place(tree)
    _, calls = build(tree, "build_ext", "--inplace", "--force")
    assert compiled_files(calls) == sources(tree)


@needs_gcc
def test_in_place_objects_of_other_commands_are_not_used(tree):
    build_in_place(tree, RELPOS_BUILD="debug")
    _, calls = build(tree)
    assert compiled_files(calls) == sources(tree)
    assert build_in_place(tree, RELPOS_BUILD="debug") == []
    change(tree / "csrc" / "runtime" / "errors.c")
    assert build_in_place(tree, RELPOS_BUILD="debug") == ["csrc/runtime/errors.c"]


def test_in_place_for_several_architectures_everything_is_compiled(tree):
    """A compiler lists the files of the last architecture only."""
    flags = {"CFLAGS": "-arch x86_64 -arch arm64"}
    assert build_in_place(tree, **flags) == sources(tree)
    change(tree / "csrc" / "isa" / "neon.h")
    _, calls = build(tree, "build_ext", "--inplace", **flags)
    assert compiled_files(calls) == sources(tree)
    assert not any("-MMD" in words for words in calls)


def tables_of(tree):
    """Names of the kernel tables that dispatch.c has with a tree's config header."""
    (config,) = tree.glob("build/temp.*/relpos_config.h")
    words = ["gcc", "-E", "-P", f"-I{config.parent}", "csrc/isa/dispatch.c"]
    done = subprocess.run(words, cwd=tree, capture_output=True, text=True, check=True)
    return re.findall(r'\{"(\w+)", ', done.stdout)


@pytest.mark.few(2)
@needs_gcc
@pytest.mark.parametrize("names", ["base", "avx512", "avx512,avx2", "neon"])
def test_tables_that_are_named_are_those_that_are_compiled(tree, names):
    build(tree)
    every = tables_of(tree)
    assert every[0] == "base"
    build(tree, RELPOS_TABLES="")
    assert tables_of(tree) == every
    done, calls = build(tree, RELPOS_TABLES=names)
    assert done.returncode == 0, done.stderr
    assert compiled_files(calls) == sources(tree)
    chosen = {"base", *names.split(",")}
    assert tables_of(tree) == [name for name in every if name in chosen]


@pytest.mark.few(2)
@pytest.mark.parametrize("names", ["sse", "base,", "base, avx2", "AVX2", "all"])
def test_an_unknown_table_is_refused_by_name(tree, names):
    done, calls = build(tree, RELPOS_TABLES=names)
    known = "avx2, avx512, base, neon"
    unknown = next(name for name in names.split(",") if name not in known.split(", "))
    assert last_line(done) == (
        f"RELPOS_TABLES={names!r}: expected names of {known} with commas between them; "
        f"{unknown!r} is none of them"
    )
    assert calls == []


def test_editors_are_told_how_each_file_is_compiled(tree):
    _, calls = build(tree, RELPOS_BUILD="debug")
    rows = json.loads((tree / "build" / "compile_commands.json").read_text())
    assert sorted(row["file"] for row in rows) == sources(tree)
    assert {row["directory"] for row in rows} == {str(tree)}
    compiled = sorted(words for words in calls if "-c" in words)
    assert sorted(row["arguments"][1:] for row in rows) == compiled


@pytest.mark.parametrize("blas", ["none", "system"])
def test_the_interpreters_own_folder_is_not_looked_in_and_the_callers_is(tree, blas):
    linker = f"{tree / 'cc'} -shared" + " -Wl,-rpath,/interpreter" * 2
    (tree / "sitecustomize.py").write_text(
        f"import sysconfig\nsysconfig.get_config_vars()['LDSHARED'] = {linker!r}\n"
    )
    (tree / "pkg-config").write_text("#!/bin/sh\n")
    (tree / "pkg-config").chmod(0o755)
    done, calls = build(
        tree,
        PATH=f"{tree}:{os.environ['PATH']}",
        PYTHONPATH=str(tree),
        LDSHARED=None,
        LDFLAGS="-Wl,-rpath,/interpreter -Wl,-rpath,/callers",
        RELPOS_BLAS=blas,
    )
    assert done.returncode == 0, done.stderr
    places = [word for word in calls[-1] if word.startswith("-Wl,-rpath")]
    kept = 3 if blas == "system" else 1  # where the system's OpenBLAS may be
    assert places == ["-Wl,-rpath,/interpreter"] * kept + ["-Wl,-rpath,/callers"]


PROJECT = """
[project]
name = "relpos"
version = "1.2"
[tool.setuptools]
packages = ["package"]
package-data = { package = ["py.typed"] }
"""


def test_a_wheel_lists_its_parts_and_has_the_same_bytes_in_another_folder(tree):
    (tree / "pyproject.toml").write_text(PROJECT)
    (tree / "package").mkdir()
    (tree / "package" / "py.typed").touch(0o644)
    files = shutil.ignore_patterns("other")
    other = shutil.copytree(tree, tree / "other", ignore=files)
    (other / "package" / "py.typed").chmod(0o664)
    wheels = []
    for folder in (tree, other):
        done, _ = build(folder, "bdist_wheel", SOURCE_DATE_EPOCH="1700000000")
        assert done.returncode == 0, done.stderr
        wheels += (folder / "dist").glob("relpos-1.2-*.whl")
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[0]) as archive:
        bill = json.loads(archive.read("relpos-1.2.dist-info/sboms/relpos.cdx.json"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/relpos@1.2"
    assert bill["components"] == []


def test_an_editable_install_writes_a_path_file_and_no_import_hook(tree):
    """Type checkers and editors follow the first alone."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    compiled = shutil.ignore_patterns("*.so", "__pycache__", "*.npz")
    shutil.copytree(
        ROOT / "relpos", tree / "relpos", ignore=compiled, dirs_exist_ok=True
    )
    done, _ = build(tree, "editable_wheel", "--dist-dir", "dist")
    assert done.returncode == 0, done.stderr
    (wheel,) = (tree / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [n for n in archive.namelist() if ".dist-info/" not in n]
        assert path.endswith(".pth")
        assert archive.read(path).decode() == f"{tree}\n"


def last_line(done):
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


#: How sitecustomize.py makes setuptools look: of Python 3.11's venv, of 3.12's.
OLD = """
import sys, setuptools
setuptools.__version__ = "65.5.0"
sys.modules["setuptools.command.bdist_wheel"] = None
"""
ABSENT = "import sys; sys.modules['setuptools'] = None"


def test_an_old_setuptools_builds_the_extension_in_place(tree):
    (tree / "pyproject.toml").write_text("[project]\nname = 3\n")  # not to be read
    (tree / "sitecustomize.py").write_text(OLD)
    done, calls = build(tree, "build_ext", "--inplace", PYTHONPATH=str(tree))
    assert done.returncode == 0, done.stderr
    assert len(calls) == len(sources(tree)) + 1
    assert [*(tree / "relpos").glob("_core.*.so")]


@pytest.mark.parametrize("commands", [["bdist_wheel"], ["build_ext", "install"]])
def test_an_old_setuptools_makes_nothing_else(tree, commands):
    (tree / "sitecustomize.py").write_text(OLD)
    done, calls = build(tree, *commands, PYTHONPATH=str(tree))
    assert last_line(done) == (
        f"setup.py {' '.join(commands)}: got setuptools 65.5.0; expected 77 or newer; "
        "run `pip install 'setuptools>=77'`"
    )
    assert calls == []


def test_without_setuptools_one_line_says_what_to_install(tree):
    (tree / "sitecustomize.py").write_text(ABSENT)
    line = last_line(build(tree, PYTHONPATH=str(tree))[0])
    assert line.startswith("setup.py needs setuptools, which is not installed")
    assert "pip install 'setuptools>=77'" in line


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["fast", "Release", "sanitize", "sanitize=address"])
def test_an_unknown_build_is_refused_in_one_line(tree, name):
    done, calls = build(tree, RELPOS_BUILD=name)
    want = f"RELPOS_BUILD={name!r}: expected one of {', '.join(BUILDS)}"
    assert last_line(done) == want
    assert calls == []


def test_an_unknown_blas_is_refused_in_one_line(tree):
    want = "RELPOS_BLAS='mkl': expected one of none, bundled, system"
    assert last_line(build(tree, RELPOS_BLAS="mkl")[0]) == want


@pytest.mark.parametrize(
    "missing", [{"CC": "no-such-compiler"}, {"CC": "gcc", "PATH": "/nonexistent"}]
)
def test_without_a_compiler_one_line_says_what_to_install(tree, missing):
    line = last_line(build(tree, **missing)[0])
    assert f"there is no C compiler {missing['CC']!r}" in line
    for command in ("apt install gcc", "dnf install gcc", "xcode-select --install"):
        assert command in line


PROMISE = """
#include "relpos.h"
int main(int count, char **words) { (void)words; rp_assert(count > 1); return 0; }
"""


@needs_gcc
@pytest.mark.parametrize(("flags", "status"), [([], 0), (["-DRELPOS_ASSERTS"], -6)])
def test_a_build_for_debugging_ends_where_a_promise_is_broken(flags, status, tmp_path):
    """With the flags of Python, too, which switches assert off."""
    (tmp_path / "main.c").write_text(PROMISE)
    words = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-DNDEBUG", *flags]
    command = ["gcc", *words, f"-I{ROOT / 'csrc'}", "main.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(
        ["./main"], check=False, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == status
    assert ("count > 1" in done.stderr) == bool(status)
