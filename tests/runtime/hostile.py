"""Read the arguments of random calls, most of which are hostile.

    python tests/runtime/hostile.py SEED COUNT [FIRST]

runs calls of the seed from number FIRST on. It prints each fault with the number of its
call, and how many calls were valid, refused, and compared with the definition. The exit
status is 1 if there was a fault. A fault is one of these:

* a valid call is refused, or a result differs from the definition;
* an error is of another type than those of `ALLOWED`, or names no argument;
* a call is accepted that csrc/problems.h does not allow;
* a call that raises, or only reads, changes an argument;
* a reference to an argument, or a block of memory, is lost or left.

A sanitizer and the assertions of RELPOS_BUILD=sanitize=.. see what happens in between.
`verbose` after FIRST prints the number of each call before it runs.
"""

from __future__ import annotations

import collections
import faulthandler
import gc
import random
import re
import sys
import warnings
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # as a script, from any folder
    sys.path[:0] = [str(TESTS / "cases"), str(TESTS / "oracles")]
    sys.path.append(str(TESTS.parent))

import numpy as np  # noqa: E402 - after the path
from hostile_calls import calls  # noqa: E402

from relpos import _core  # noqa: E402

ALLOWED = (TypeError, ValueError, IndexError)
#: Largest error, as a part of the largest number, by the bytes of a number.
TOLERANCES = {2: 5e-3, 4: 5e-5, 8: 1e-9}
#: Numbers beyond it make sums that differ by more than the tolerances.
LARGE = 30.0
HANGS_AFTER = 300  # seconds


class Fault(Exception):
    """The outcome of a call is wrong."""


# ---- what arguments hold -------------------------------------------------------------


def objects_of(call):
    """The arguments of a call, those of a dict among them."""
    found = [*call.args, *call.keywords.values()]
    for value in call.args:
        if type(value) is dict:
            found += value.values()
    return found


def counted(call):
    """Arguments to which references are counted: those that are nobody else's."""
    kinds = (np.ndarray, list, dict, set, bytearray, memoryview)
    return [x for x in objects_of(call) if isinstance(x, kinds)]


def state_of(value):
    """Return the bytes of an argument; None of an object that is not looked at."""
    if isinstance(value, np.ndarray) and value.dtype != object and value.size < 10**6:
        return value.shape, value.dtype, value.tobytes()
    return repr(value) if type(value) is list else None


#: References of the whole process, which a debug build of Python counts.
count_references = getattr(sys, "gettotalrefcount", None)


# ---- what comes of a call ------------------------------------------------------------


def numbers(value):
    """The arrays of a result, in order, with their names where they have any."""
    if isinstance(value, dict):
        return {name: np.asarray(x) for name, x in value.items() if x is not None}
    if hasattr(value, "_asdict"):
        fields = {n: x for n, x in value._asdict().items() if n != "context"}
        return numbers(fields)
    if isinstance(value, tuple | list):
        return numbers(dict(enumerate(value)))
    return {"result": np.asarray(value)}


def is_moderate(call):
    """Return True if all numbers of a call are of order 1: results can be compared."""
    for value in objects_of(call):
        if isinstance(value, float) and not 1e-3 < abs(value) < LARGE:
            return False
        try:
            array = np.asarray(getattr(value, "array", value))
        except Exception:  # it is no array
            continue
        if array.dtype.kind != "f" or not array.size:
            continue
        if array.size > 10**6 or not np.abs(array).max() < LARGE:
            return False
    return True


def compare(call, result):
    """Raise a Fault where a result differs from the definition; return if it was."""
    if call.define is None or not is_moderate(call):
        return False
    try:
        wanted = numbers(call.define())
    except Exception as error:
        if call.kind == "valid" and isinstance(error, ALLOWED):
            raise Fault(f"the definition refuses it: {error}") from None
        return False
    found = numbers(result)
    for name in found.keys() & wanted.keys():
        got, want = found[name], wanted[name]
        if want.dtype.kind not in "fiub" or not np.isfinite(want).all():
            continue
        if got.shape != want.shape:
            raise Fault(f"{name} has shape {got.shape}; expected {want.shape}")
        if got.size == 0:
            continue
        error = np.abs(got.astype(float) - want).max()
        limit = TOLERANCES.get(got.itemsize, 1e-9) * max(1.0, np.abs(want).max())
        if not error <= limit:
            raise Fault(f"{name} differs from the definition by {error}")
    return bool(found.keys() & wanted.keys())


def check_error(call, error):
    """Raise a Fault where an error does not say what is wrong."""
    text = str(error)
    if "hostile" in text:
        return
    if call.kind == "valid":
        raise Fault(f"a valid call is refused: {type(error).__name__}: {text}")
    if isinstance(error, MemoryError) and is_large(call):
        return
    if isinstance(error, OverflowError) and isinstance(call.function, np.ufunc):
        return  # NumPy's, of a number for int64
    if not isinstance(error, ALLOWED):
        raise Fault(f"{type(error).__name__}: {text}")
    # "query: got ..", "attention() got ..", "attention_forward: query .."
    first = re.findall(r"\w+", text.removeprefix("attention_"))[:2]
    if call.names and not set(first) & set(call.names):
        raise Fault(f"names no argument: {type(error).__name__}: {text}")


def is_large(call):
    """Return True if an argument asks for more memory than there is."""
    sizes = [getattr(value, "size", value) for value in objects_of(call)]
    return any(isinstance(size, int) and abs(size) > 2**24 for size in sizes)


def run(call, counts):
    """Run a call; raise a Fault where something is wrong."""
    held = counted(call)
    references = [sys.getrefcount(x) for x in held]
    states = [state_of(x) for x in held]
    blocks = _core.live_blocks()
    try:
        result = call.function(*call.args, **call.keywords)
    except BaseException as error:
        error.__traceback__ = None
        counts[f"refused by {type(error).__name__}"] += 1
        check_error(call, error)
        if call.kind != "changing" and states != [state_of(x) for x in held]:
            raise Fault("an argument is changed by a call that raises") from None
        del error
    else:
        counts["accepted"] += 1
        if call.forbidden:
            raise Fault(f"is accepted, but {call.forbidden}")
        if call.kind != "changing":
            counts["compared"] += compare(call, result)
        del result
    if [sys.getrefcount(x) for x in held] != references:
        gc.collect()
        if [sys.getrefcount(x) for x in held] != references and call.kind != "changing":
            raise Fault("references to arguments are lost or left")
    if _core.live_blocks() != blocks:
        raise Fault("a block of memory is left")


def check_references(call):
    """Raise a Fault where each repetition of a call leaves references."""
    left = []
    for _ in range(3):
        before = count_references()
        run(call, collections.Counter())
        left.append(count_references() - before)
    if min(left) > 0:
        raise Fault(f"each call leaves {min(left)} references")


def main(seed, count, first=0, *words):
    """Run the calls; return the exit status."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    counts, faults = collections.Counter(), 0
    for number in range(first, first + count):
        if number % 50 == 0:
            faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
        if words:
            print(number, file=sys.stderr, flush=True)
        rng = np.random.default_rng([seed, number])
        call = calls(random.Random(f"{seed} {number}"), rng)
        counts[call.kind] += 1
        name = getattr(call.function, "__name__", call.function)
        try:
            run(call, counts)
            if count_references and call.kind != "changing":
                check_references(call)
        except Fault as fault:
            faults += 1
            print(f"call {number}, {name}, {call.kind}: {fault}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    print(f"seed {seed}: {count} calls, {faults} faults")
    for name in sorted(counts):
        print(f"  {counts[name]} {name}")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:4]), *sys.argv[4:]))
