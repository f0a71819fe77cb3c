"""Builds relpos._core: one extension, one flag list, one generated config header.

The environment variable RELPOS_BLAS chooses who does large matrix products: ``none``
(default: relpos's own code), ``bundled`` (a copy of the OpenBLAS of the package
scipy-openblas32 goes into relpos) or ``system`` (the OpenBLAS that pkg-config finds).
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
    asked = os.environ.get("RELPOS_BLAS") or "none"
    if asked not in ("none", "bundled", "system"):
        sys.exit(f"RELPOS_BLAS={asked!r}: expected none, bundled or system")
    return asked, bundled_library() if asked == "bundled" else None


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
