"""Builds relpos._core: one extension, one flag list, one generated config header.

The environment variable RELPOS_BLAS chooses who does large matrix products:
``bundled`` (default: a copy of OpenBLAS goes into the package), ``system`` (the
OpenBLAS that pkg-config finds) or ``none`` (relpos's own code).
"""

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
LICENSE_NAME = "LICENSE-OpenBLAS.txt"
CFLAGS = [
    "-O3",
    "-std=gnu11",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp-simd",
    "-fvisibility=hidden",
    "-pthread",
]


def relative(pattern):
    """Files below csrc as setuptools wants them: relative to setup.py."""
    return sorted(str(p.relative_to(ROOT)) for p in (ROOT / "csrc").rglob(pattern))


def bundled_library():
    """The OpenBLAS library file of the build requirement, or None without it."""
    try:
        import scipy_openblas32
    except ImportError:
        return None
    found = sorted(Path(scipy_openblas32.get_lib_dir()).glob("libscipy_openblas.*"))
    return found[0] if found else None


def bundled_license():
    """The licence text that has to go wherever the library goes."""
    files = metadata.files("scipy-openblas32") or []
    return next(str(f.locate()) for f in files if f.name.startswith("LICENSE"))


def pkg_config(*options):
    """What pkg-config says about openblas; stops the build when it knows none."""
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


def choose_blas():
    """(kind, library file to copy or None), as RELPOS_BLAS asks."""
    asked = os.environ.get("RELPOS_BLAS", "")
    if asked not in ("", "bundled", "system", "none"):
        sys.exit(f"RELPOS_BLAS={asked!r}: expected bundled, system or none")
    if asked in ("system", "none"):
        return asked, None
    library = bundled_library()
    if library is not None:
        return "bundled", library
    if asked == "bundled":
        sys.exit("RELPOS_BLAS=bundled: the package scipy-openblas32 is not installed")
    print("relpos: no scipy-openblas32 here, building with RELPOS_BLAS=none")
    return "none", None


def write_config(path, kind, library):
    """Writes the config header; only when it changed, so that make-like rules hold."""
    lines = [f"#define RELPOS_BLAS_{kind.upper()} 1"]
    if library is not None:
        lines.append(f'#define RELPOS_BLAS_FILE "{library.name}"')
    text = "/* Written by setup.py. */\n" + "\n".join(lines) + "\n"
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class BuildExt(build_ext):
    """Adds the chosen BLAS: a config header, and the bundled library file."""

    def run(self):
        kind, library = choose_blas()
        config = Path(self.build_temp) / "relpos_config.h"
        write_config(config, kind, library)
        for extension in self.extensions:
            extension.include_dirs.append(str(config.parent))
            extension.depends.append(str(config))
            if kind == "system":
                extension.extra_compile_args += pkg_config("--cflags")
                extension.extra_link_args += pkg_config("--libs")
        super().run()
        self.place_library(library)

    def place_library(self, library):
        """Copies the library beside the extension; removes one of an earlier build."""
        folder = Path(self.get_ext_fullpath("relpos._core")).parent
        for old in [*folder.glob("libscipy_openblas.*"), folder / LICENSE_NAME]:
            old.unlink(missing_ok=True)
        if library is not None:
            shutil.copy2(library, folder / library.name)
            shutil.copy2(bundled_license(), folder / LICENSE_NAME)


setup(
    ext_modules=[
        Extension(
            "relpos._core",
            sources=relative("*.c"),
            depends=relative("*.h"),
            include_dirs=[numpy.get_include()],
            extra_compile_args=CFLAGS,
            extra_link_args=["-pthread"],
            libraries=["m", "dl"],
        )
    ],
    cmdclass={"build_ext": BuildExt},
)
