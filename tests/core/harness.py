"""Build tests/core: the programs that run random problems through the C core.

    python tests/core/harness.py FOLDER [option ..]

writes FOLDER/core, whose switches core.c explains. With `--fuzz` it writes
FOLDER/fuzz, and with `--micro` a program for each object that runs its micro-kernels::

    python tests/core/harness.py build/core --object avx2_f32 --flags=-O1
    build/core/core all all 1 1000 guard nanfill
    python tests/core/harness.py build/fuzz --fuzz
    build/fuzz/fuzz -max_total_time=60 build/fuzz/inputs
    python tests/core/harness.py build/micro --micro --object avx2_f32
    build/micro/avx2_f32/micro 1 1000
    python tests/core/harness.py build/asan --object base_f32 \
        --flags="-O1 -g -fsanitize=address,undefined"
    build/asan/core all all 1 1000

tests/portable/driver.c runs problems without Python, too, but neither makes nor judges
them: the Python tests send them to another processor. Both share csrc/problems.h alone.

By default all objects are built; `--object` names some of one instruction set, of which
nothing else is needed. Objects that are compiled already, as those of setup.py, are
linked as they are (`--link`). `--cc` may name a cross compiler.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = "tests/core"
#: What wrapped.c stands in for.
WRAPPED = ("rp_alloc", "rp_free", "clock_gettime", "pthread_attr_setstacksize")
#: As setup.py compiles, but for the optimisation.
FLAGS = (
    "-std=gnu11 -fno-math-errno -fno-trapping-math -fopenmp-simd -pthread -Wno-psabi"
    " -Wall -Wextra -Werror -DRELPOS_ASSERTS"
)
SANITIZE = (
    "-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -O0 -g"
)
#: The problems and their definition, which would take most of the time otherwise.
PLAIN = "-fno-sanitize=all -O1"
#: Inputs that libFuzzer starts from, and the bytes of each: most problems have fewer
#: choices.
INPUTS, INPUT_BYTES = 200, 400


def compiler() -> str | None:
    """Return the compiler of this machine, or None."""
    names = (os.environ.get("CC"), "gcc", "clang")
    return next((name for name in names if name and found(name)), None)


def found(command: str) -> bool:
    """Return True if the program of a command is on the path."""
    return shutil.which(shlex.split(command)[0]) is not None


def objects_of(tree: Path) -> list[str]:
    """Return the names of all objects of a tree, such as avx2_f32."""
    return sorted(path.stem for path in tree.glob("csrc/isa/*_f[36][24].c"))


class Build:
    """A build of a tree in a folder: what is compiled, by which command."""

    def __init__(self, folder: Path, tree: Path, cc: str, flags: str) -> None:
        self.folder, self.tree = folder, tree
        self.cc = [*shlex.split(cc), *FLAGS.split(), *shlex.split(flags)]
        folder.mkdir(parents=True, exist_ok=True)
        # setup.py's file of the same name is not on the path
        (folder / "relpos_config.h").write_text("#define RELPOS_BLAS_NONE 1\n")

    def run(self, *words: str) -> None:
        """Run the compiler; its errors are the message of the exception."""
        done = subprocess.run(
            [*self.cc, *words, f"-I{self.folder}"],
            check=False, cwd=self.tree, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}:\n{done.stderr}")

    def compile(self, source: str, *more: str) -> str:
        """Compile one file of the tree; return the object."""
        made = str(self.folder / (source.replace("/", "-")[:-2] + ".o"))
        self.run(*more, "-c", source, "-o", made)
        return made

    def dispatch(self, objects: list[str]) -> str:
        """Compile the table of the instruction sets that are there."""
        if set(objects) == set(objects_of(self.tree)):
            return self.compile("csrc/isa/dispatch.c")
        names = {name.rpartition("_")[0] for name in objects}
        if len(names) != 1:
            raise ValueError(
                f"--object: {objects}; expected those of one instruction set"
            )
        more = [f"-DONLY={names.pop()}"]
        if len(objects) == 1:
            more += [f"-DONLY_{objects[0][-3:].upper()}"]
        return self.compile(f"{HERE}/one_object.c", *more)

    def objects(self, objects: list[str]) -> list[str]:
        """Compile the kernels."""
        return [self.compile(f"csrc/isa/{name}.c") for name in objects]

    def program(
        self,
        name: str,
        kernels: list[str],
        objects: list[str],
        compiling: str = "",
        linking: str = "",
    ) -> Path:
        """Link a program with compiled kernels, whose objects have these names."""
        runtime = sorted(
            str(x.relative_to(self.tree)) for x in self.tree.glob("csrc/runtime/*.c")
        )
        parts = [self.compile(x) for x in [*runtime, f"{HERE}/wrapped.c"]]
        parts += [self.dispatch(objects), *kernels]
        parts += [self.compile(f"{HERE}/{name}.c", *compiling.split())]
        wraps = [f"-Wl,--wrap={x}" for x in WRAPPED]
        made = self.folder / name
        self.run(*linking.split(), *parts, *wraps, "-lm", "-o", str(made))
        return made

    def inputs(self) -> None:
        """Write problems of any kind, from which libFuzzer starts."""
        folder = self.folder / "inputs"
        folder.mkdir(exist_ok=True)
        source = random.Random(1)
        for number in range(INPUTS):
            (folder / f"{number}").write_bytes(source.randbytes(INPUT_BYTES))

    def micro(self, name: str) -> Path:
        """Link the program of the micro-kernels of one object, which it has inside."""
        isa, _, number = name.rpartition("_")
        defined = f'-DMICRO_ISA="../../csrc/isa/{isa}.h" -DRP_OBJECT=rp_{name}'
        is_f32 = f"-DRP_IS_F32={int(number == 'f32')}"
        return self.program("micro", [], [name], f"{defined} {is_f32}")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--cc", help="the compiler; by default gcc, or clang of a fuzzer"
    )
    parser.add_argument("--flags", default="-O2 -g", help="what is added to its flags")
    parser.add_argument(
        "--object", action="append", help="such as base_f32; may be repeated"
    )
    parser.add_argument(
        "--link", type=Path, help="a folder with compiled objects of csrc/isa"
    )
    parser.add_argument("--tree", type=Path, default=ROOT, help="the sources")
    parser.add_argument("--fuzz", action="store_true", help="the target of libFuzzer")
    parser.add_argument(
        "--micro", action="store_true", help="FOLDER/OBJECT/micro of each object"
    )
    return parser.parse_args()


def main() -> None:
    """Build what the command line asks for."""
    asked = arguments()
    flags = SANITIZE if asked.fuzz else asked.flags
    cc = asked.cc or ("clang" if asked.fuzz else compiler() or "cc")
    objects = asked.object or (["base_f32"] if asked.fuzz else objects_of(asked.tree))
    if asked.micro:
        for name in objects:
            folder = asked.folder.resolve() / name
            print(Build(folder, asked.tree.resolve(), cc, flags).micro(name))
        return
    build = Build(asked.folder.resolve(), asked.tree.resolve(), cc, flags)
    if asked.link:
        kernels = [str(asked.link.resolve() / f"{name}.o") for name in objects]
    else:
        kernels = build.objects(objects)
    if asked.fuzz:
        build.inputs()
        print(build.program("fuzz", kernels, objects, PLAIN, "-fsanitize=fuzzer"))
    else:
        print(build.program("core", kernels, objects))


if __name__ == "__main__":
    main()
