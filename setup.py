"""Builds relpos._core: one extension, one list of flags, one generated config header.

Three environment variables choose what is built. RELPOS_BUILD: ``release`` (default),
``debug``, ``sanitize=address,undefined`` or ``sanitize=thread``. RELPOS_BLAS, who does
large matrix products: ``none`` (default: relpos's own code), ``bundled`` (a copy of the
OpenBLAS of the package scipy-openblas32 goes into relpos) or ``system`` (the OpenBLAS
that pkg-config finds). RELPOS_TABLES, for which instruction sets kernels are compiled:
all of the processor (default), or names with commas between them (``base``,
``base,avx2``). ``base`` runs everywhere and is always compiled; a name of another
processor adds nothing.

``build_ext --inplace`` compiles the files that a change reaches. All other commands
compile every file. build/compile_commands.json tells editors how to compile. With
SOURCE_DATE_EPOCH set, the same source and tools make the same bytes in any folder.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

try:
    import setuptools
except ImportError:  # newer Pythons make environments without it
    sys.exit(
        "setup.py needs setuptools, which is not installed; run `pip install "
        "'setuptools>=77'`, or build with `pip install -e .`"
    )

import numpy as np
from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext

# Python 3.11 makes environments with setuptools 65, which cannot read pyproject.toml:
# build_ext needs nothing of it, and is the one command that such a version may run.
IS_OLD = int(setuptools.__version__.partition(".")[0]) < 77
if IS_OLD:
    bdist_wheel = build_ext  # refused by OldDistribution
else:
    from setuptools.command.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent
LICENSE_NAME = "LICENSE-OpenBLAS.txt"
# OpenBLAS, the LAPACK in it, and the routines of libgfortran linked into both
BUNDLED_LICENSES = (
    "BSD-3-Clause AND BSD-3-Clause-Open-MPI AND GPL-3.0-or-later WITH GCC-exception-3.1"
)
CFLAGS = [
    "-std=gnu11",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp-simd",
    "-fvisibility=hidden",
    "-pthread",
]
ASSERTS = "-DRELPOS_ASSERTS"  # rp_assert of csrc/relpos.h looks
# -g compiles 1.6 times as long
SANITIZE = ["-O1", "-g1", "-fno-omit-frame-pointer", ASSERTS]
# per RELPOS_BUILD; what comes last counts, and these follow the interpreter's own flags
BUILDS = {
    "release": ["-O3", "-g0"],  # debug information would hold paths, and 7 MB
    "debug": ["-Og", "-g", ASSERTS],
    "sanitize=address,undefined": [*SANITIZE, "-fsanitize=address,undefined"],
    "sanitize=thread": [*SANITIZE, "-fsanitize=thread"],
}
CANNOT_COMPILE = (
    "relpos is compiled where it is installed, and there is no {}: "
    "apt install gcc libc6-dev python3-dev (Debian, Ubuntu), "
    "dnf install gcc python3-devel (Fedora), xcode-select --install (macOS)"
)


if sys.platform == "win32":
    sys.exit(
        "relpos has no threads for Windows (it uses those of POSIX): install it in the "
        "Windows Subsystem for Linux"
    )


def relative(pattern):
    """Files below csrc as setuptools wants them: relative to setup.py."""
    return sorted(str(p.relative_to(ROOT)) for p in (ROOT / "csrc").rglob(pattern))


def bundled_library():
    """The OpenBLAS library file of scipy-openblas32; stops the build without it."""
    try:
        import scipy_openblas32
    except ImportError:
        sys.exit(
            "RELPOS_BLAS=bundled: the package scipy-openblas32 is not installed where "
            "relpos is built (install it, and build with pip's --no-build-isolation)"
        )
    return next(Path(scipy_openblas32.get_lib_dir()).glob("libscipy_openblas.*"))


def bundled_license():
    """The licence text that has to go wherever the library goes."""
    files = metadata.files("scipy-openblas32") or []
    return next(str(f.locate()) for f in files if f.name.startswith("LICENSE"))


def component(name, version, licenses, package):
    """Return the entry of a bill of materials (CycloneDX 1.6) for one component."""
    purl = f"pkg:pypi/{package}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "licenses": [{"expression": licenses}],
        "purl": purl,
    }


def bill_of_materials(version, library):
    """Return the wheel's components: relpos, and a bundled library if there is one."""
    whole = component("relpos", version, "MIT", "relpos")
    parts = []
    if library is not None:
        package = "scipy-openblas32"
        known = metadata.version(package)
        part = component("OpenBLAS", known, BUNDLED_LICENSES, package)
        digest = hashlib.sha256(library.read_bytes()).hexdigest()
        part["hashes"] = [{"alg": "SHA-256", "content": digest}]
        parts.append(part)
    needs = {"ref": whole["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": whole},
        "components": parts,
        "dependencies": [needs, *({"ref": part["bom-ref"]} for part in parts)],
    }


def pkg_config(*options):
    """Return pkg-config's answer for openblas; stop the build if it knows none."""
    try:
        done = subprocess.run(
            ["pkg-config", *options, "openblas"],
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError) as exc:
        sys.exit(f"RELPOS_BLAS=system: pkg-config finds no openblas ({exc})")
    return done.stdout.split()


def choose(variable, *known):
    """The value of an environment variable, the first of the known ones by default."""
    asked = os.environ.get(variable) or known[0]
    if asked not in known:
        sys.exit(f"{variable}={asked!r}: expected one of {', '.join(known)}")
    return asked


def chosen_blas():
    """The value of RELPOS_BLAS, and the library file to be bundled or None."""
    blas = choose("RELPOS_BLAS", "none", "bundled", "system")
    return blas, bundled_library() if blas == "bundled" else None


def chosen_tables():
    """The names in RELPOS_TABLES; None where it is not set, which means all tables."""
    value = os.environ.get("RELPOS_TABLES")
    if not value:
        return None
    sources = sorted((ROOT / "csrc" / "isa").glob("*_f32.c"))
    known = [path.name[: -len("_f32.c")] for path in sources]
    names = value.split(",")
    for name in names:
        if name not in known:
            sys.exit(
                f"RELPOS_TABLES={value!r}: expected names of {', '.join(known)} with "
                f"commas between them; {name!r} is none of them"
            )
    return names


def write_if_changed(path, text):
    """Writes a text unless the file has it: what depends on it stays up to date."""
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_config(path, build, blas, library, tables):
    """Writes the config header, which csrc/config.h reads."""
    lines = [f"/* Written by setup.py for RELPOS_BUILD={build}. */"]
    lines.append(f"#define RELPOS_BLAS_{blas.upper()} 1")
    if library is not None:
        lines.append(f'#define RELPOS_BLAS_FILE "{library.name}"')
    if tables is not None:
        lines.append("#define RELPOS_TABLES 1")
        lines += [f"#define RELPOS_TABLE_{name.upper()} 1" for name in tables]
    write_if_changed(path, "\n".join(lines) + "\n")


def compile_side_by_side(compiler):
    """Lets a compiler of distutils, which takes source by source, use all CPUs."""
    compile_all = compiler.compile

    def compile_each(sources, **options):
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = pool.map(lambda name: compile_all([name], **options), sources)
            return [name for names in objects for name in names]

    compiler.compile = compile_each


def record_commands(compiler):
    """A list that gets a row of compile_commands.json for each file compiled."""
    compile_one, rows = compiler._compile, []

    def compile_and_record(target, file, ext, options, flags, macros):
        words = [*compiler.compiler_so, *options, file, "-o", target, *flags]
        rows.append({"directory": str(ROOT), "file": file, "arguments": words})
        compile_one(target, file, ext, options, flags, macros)

    compiler._compile = compile_and_record
    return rows


def is_up_to_date(target, notes, commands):
    """Return True if an object is not older than its commands and its files.

    `notes` is the rule for make that the compiler wrote: the object, a colon, and the
    files. A path with a space is cut in two, neither part exists, and the answer is no.
    """
    if not (target.is_file() and notes.is_file()):
        return False
    files = [Path(word) for word in notes.read_text().replace("\\\n", "").split()[1:]]
    if not all(file.is_file() for file in files):
        return False
    made = target.stat().st_mtime_ns
    return all(file.stat().st_mtime_ns <= made for file in [commands, *files])


def compile_what_changed(compiler, commands, force):
    """Lets a compiler leave out files whose objects are up to date, unless forced.

    The file `commands` is newer than the objects where a flag or the compiler changed.
    """
    compile_one = compiler._compile
    # With several -arch the notes are those of the last architecture alone.
    if compiler.compiler_so.count("-arch") > 1:
        return

    def compile_if_changed(target, file, ext, options, flags, macros):
        notes = Path(target).with_suffix(".d")
        if not force and is_up_to_date(Path(target), notes, commands):
            return
        # Notes exist only beside an object that the compiler finished, and the object
        # has the time at which it began: a file that is saved meanwhile is newer.
        notes.unlink(missing_ok=True)
        unfinished = notes.with_suffix(".d.part")
        begin = time.time_ns()
        noting = ["-MMD", "-MF", str(unfinished)]
        compile_one(target, file, ext, options, [*flags, *noting], macros)
        os.utime(target, ns=(begin, begin))
        if unfinished.is_file():
            unfinished.replace(notes)

    compiler._compile = compile_if_changed


def version_of(words):
    """Return what a compiler prints of its version, which an upgrade changes."""
    done = subprocess.run(
        [*words, "--version"], check=False, capture_output=True, text=True
    )
    return done.stdout


def forget_interpreter(linker):
    """Takes away the folders where the interpreter finds its library on this machine.

    Each such word once: those of the caller's LDFLAGS come after them and stay.
    """
    if "LDSHARED" in os.environ:
        return
    for word in (sysconfig.get_config_var("LDSHARED") or "").split():
        if word.startswith("-Wl,-rpath") and word in linker:
            linker.remove(word)


class BuildExt(build_ext):
    """Adds what the environment variables ask for, and compiles side by side."""

    def run(self):
        build = choose("RELPOS_BUILD", *BUILDS)
        blas, library = chosen_blas()
        tables = chosen_tables()
        # `inplace` is 0 while setuptools builds: it copies the result afterwards.
        self.is_in_place = bool(self.inplace)
        if self.is_in_place:  # no other command writes objects there, with other flags
            self.build_temp = str(Path(self.build_temp) / "inplace")
        config = Path(self.build_temp) / "relpos_config.h"
        write_config(config, build, blas, library, tables)
        for extension in self.extensions:
            extension.include_dirs.append(str(config.parent))
            extension.depends.append(str(config))
            extension.extra_compile_args += BUILDS[build]
            extension.extra_link_args += BUILDS[build]
            if blas == "system":
                extension.extra_compile_args += pkg_config("--cflags")
                extension.extra_link_args += pkg_config("--libs")
        super().run()
        self.place_library(library)

    def build_extensions(self):
        command = self.compiler.compiler_so[0]
        if shutil.which(command) is None:
            sys.exit(CANNOT_COMPILE.format(f"C compiler {command!r}"))
        if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
            sys.exit(CANNOT_COMPILE.format("Python.h"))
        if chosen_blas()[0] != "system":  # whose library may lie in that folder
            forget_interpreter(self.compiler.linker_so)
        if self.is_in_place:
            compile_what_changed(self.compiler, self.note_commands(), self.force)
        begin = time.time_ns()
        rows = record_commands(self.compiler)
        compile_side_by_side(self.compiler)
        super().build_extensions()
        if self.is_in_place:
            # What was saved during the build has to be newer, also for a version of
            # distutils that compares whole seconds.
            before = begin // 10**9 * 10**9 - 1
            for extension in self.extensions:
                os.utime(self.get_ext_fullpath(extension.name), ns=(before, before))
        if rows:
            folder = Path(self.get_finalized_command("build").build_base)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "compile_commands.json").write_text(json.dumps(rows, indent=2))

    def note_commands(self):
        """Returns the file that is newer than all objects if a command has changed."""
        path = Path(self.build_temp) / "commands.json"
        compiler = self.compiler
        parts = [version_of(compiler.compiler_so)]
        parts += [compiler.compiler_so, compiler.linker_so, compiler.include_dirs]
        for extension in self.extensions:
            parts += [extension.include_dirs, extension.libraries]
            parts += [extension.extra_compile_args, extension.extra_link_args]
            extension.depends.append(str(path))
        write_if_changed(path, json.dumps(parts, indent=2))
        return path

    def place_library(self, library):
        """Copies the library beside the extension; removes one of an earlier build."""
        folder = Path(self.get_ext_fullpath("relpos._core")).parent
        for old in [*folder.glob("libscipy_openblas.*"), folder / LICENSE_NAME]:
            old.unlink(missing_ok=True)
        if library is not None:
            shutil.copy2(library, folder / library.name)
            shutil.copy2(bundled_license(), folder / LICENSE_NAME)


class OldDistribution(Distribution):
    """Builds the extension, and refuses every other command."""

    def parse_config_files(self, *args, **options):
        """Leaves pyproject.toml alone."""

    def run_commands(self):
        if self.commands != ["build_ext"]:
            sys.exit(
                f"setup.py {' '.join(self.commands)}: got setuptools "
                f"{setuptools.__version__}; expected 77 or newer; run `pip install "
                "'setuptools>=77'`"
            )
        super().run_commands()


class BdistWheel(bdist_wheel):
    """Adds the bill of materials, in PEP 770's folder, and gives files one mode."""

    def write_wheelfile(self, wheelfile_base, *args, **options):
        super().write_wheelfile(wheelfile_base, *args, **options)
        bill = bill_of_materials(self.distribution.get_version(), chosen_blas()[1])
        folder = Path(wheelfile_base) / "sboms"
        folder.mkdir(exist_ok=True)
        (folder / "relpos.cdx.json").write_text(json.dumps(bill, indent=2) + "\n")
        held = Path(self.bdist_dir).rglob("*") if self.bdist_dir else ()
        for path in held:  # a checkout's umask is not to be seen in the wheel
            path.chmod(0o755 if path.is_dir() or path.suffix == ".so" else 0o644)


setup(
    distclass=OldDistribution if IS_OLD else Distribution,
    ext_modules=[
        Extension(
            "relpos._core",
            sources=relative("*.c"),
            depends=relative("*.h"),
            include_dirs=[np.get_include()],
            extra_compile_args=CFLAGS,
            extra_link_args=["-pthread"],
            libraries=["m", "dl"],
        )
    ],
    cmdclass={"build_ext": BuildExt, "bdist_wheel": BdistWheel},
)
