"""Eight threads in every public entry at once get the bits that one thread gets.

Under a Python without the interpreter's lock these are eight calls at the same time,
and the extension must not have switched the lock back on.
"""

from __future__ import annotations

import dataclasses
import functools
import sysconfig
from collections.abc import Mapping
from operator import attrgetter

import numpy as np
import pytest
from good_calls import GOOD
from layer_calls import LAYERS, UNFED, run
from many_threads import at_once
from public_calls import NN, PUBLIC, call_ufunc
from recipe_calls import RECIPES

import relpos
from relpos import nn, recipes, ufuncs

THREADS = 8
SETTINGS = {"set_num_threads", "show_config", "threads"}
PYPLOT = "plot."  # is for one thread at a time


def numbers(*shape, dtype=np.float32):
    rng = np.random.default_rng(len(shape))
    return rng.uniform(0.1, 1.0, shape).astype(dtype)


def bits(value):
    """Return what a comparison of results needs: each bit of the numbers."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, relpos.EncodingAudit):
        value = value[:-1]  # without the one that is a time
    if dataclasses.is_dataclass(value):
        return [bits(getattr(value, each.name)) for each in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        return [(name, bits(each)) for name, each in value.items()]
    if isinstance(value, (list, tuple)):
        return [bits(each) for each in value]
    return repr(value) if isinstance(value, (float, int, str)) else type(value).__name__


def noted(call, function):
    """Return the results of a call, and the gradients if they have a context."""
    seen = []

    @functools.wraps(function)
    def noting(*args, **keywords):
        result = function(*args, **keywords)
        context = getattr(result, "context", None)
        gradients = context and context.backward(np.ones_like(result.out))
        seen.append(bits([result, gradients]))
        return result

    call(noting, numbers)
    return seen


def with_layer(make, inputs):
    return bits(run(make(dtype="float32"), inputs))


def with_ufunc(ufunc):
    outputs = []

    def noting(*args, out):
        outputs.extend(
            ufunc(*args, out=out) if len(out) > 1 else [ufunc(*args, out=out)]
        )

    for name in ("signature", "types", "nin"):
        setattr(noting, name, getattr(ufunc, name))
    for loop in range(len(ufunc.types)):
        call_ufunc(noting, loop, numbers)
    return bits(outputs)


def settings():
    relpos.set_num_threads(**GOOD["set_num_threads"])
    with relpos.threads(5):
        return bits(relpos.show_config(mode="dicts"))


def dropout_of_any_seed(generator):
    """Draws from one generator, which has a lock of its own, and from the system."""
    x = numbers(2, 40, 8)
    for rng in (generator, None):
        out = relpos.attention(x, x, x, dropout_p=0.5, rng=rng)
    return bits(out.shape)


def entries():
    """A small call of each entry, by name, which returns what is to be the same."""
    by_name = {"settings": settings}
    for module, calls in ((relpos, PUBLIC), (recipes, RECIPES), (nn, NN)):
        for name, call in calls.items():
            function = getattr(module, name)
            by_name[f"{module.__name__}.{name}"] = functools.partial(
                noted, call, function
            )
    for name in sorted(GOOD.keys() - SETTINGS - {"AttentionContext.backward"}):
        if not name.startswith(PYPLOT):
            call = functools.partial(attrgetter(name)(relpos), **GOOD[name])
            by_name[f"{name}, arrays shared"] = lambda call=call: bits(call())
    for name, (make, shapes) in LAYERS.items():
        inputs = [numbers(*shape) for shape in shapes]
        by_name[f"nn: {name}"] = functools.partial(with_layer, make, inputs)
    for name, (make, given) in UNFED.items():
        by_name[f"nn: {name}"] = functools.partial(with_layer, make, [given])
    for name in ufuncs.__all__:
        by_name[f"ufuncs.{name}"] = functools.partial(with_ufunc, getattr(ufuncs, name))
    q, table = numbers(2, 3, 150, 8), numbers(9, 8)
    options = {"rel_key": table, "rel_value": table, "return_context": True}
    result = relpos.attention(q, q, q, dropout_p=0.2, rng=3, **options)
    by_name["one context"] = lambda: bits(result.context.backward(q))
    generator = np.random.default_rng(0)
    by_name["rng"] = functools.partial(dropout_of_any_seed, generator)
    return by_name


@pytest.mark.sanitized
@pytest.mark.devmode
def test_every_entry_in_eight_threads_at_once():
    calls, results = entries(), [{} for _ in range(THREADS)]

    def work(place, barrier):
        with relpos.threads(1 + place % 3):  # of relpos's own, which only one can have
            for turn, (name, call) in enumerate(calls.items()):
                if turn % 8 == 0:  # all have to come for it, on however few CPUs
                    barrier.wait()
                results[place][name] = call()

    at_once(work, THREADS)  # first: what calls keep for later ones is not there yet
    for place in range(THREADS):
        with relpos.threads(1 + place % 3):
            want = {name: call() for name, call in calls.items()}
        assert [name for name in want if results[place][name] != want[name]] == []


IMPORT = """
import sys, threading
barrier, seen = threading.Barrier(8), []

def work(place):
    barrier.wait()
    import relpos
    seen.append((relpos.recipes.t5, relpos.compare, relpos.sinusoidal(4, 4).tobytes()))
    barrier.wait()
    for n in range(1, 200):
        relpos.set_num_threads(n + place)
        relpos._core.set_threads_hook(relpos._settings._number)
        relpos.sinusoidal(4, 4)

threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(seen), len(set(seen)))
print(getattr(sys, "_is_gil_enabled", lambda: True)())
"""


@pytest.mark.sanitized
@pytest.mark.devmode
def test_first_calls_and_settings_of_eight_threads(child):
    facts, locked = child(IMPORT, "-W", "error").stdout.splitlines()
    assert facts == "8 1"
    assert locked == str(not sysconfig.get_config_var("Py_GIL_DISABLED"))
