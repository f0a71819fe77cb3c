"""No call loads a module: a child forked while one is loading waits for it for ever."""

from __future__ import annotations

import ast
import doctest
from pathlib import Path

import relpos
from relpos import data, nn, recipes, reference, ufuncs

MODULES = [relpos, data, nn, recipes, reference, ufuncs]

# What the examples leave out: settings, ufuncs, dropout, gradients, printing, errors.
MORE = """\
relpos.show_config()
relpos.set_num_threads(2)
relpos.ufuncs.merge(x, x[..., 0], x, x[..., 0])
relpos.ufuncs.rel_shift(x)
relpos.attention(x, x, x, dropout_p=0.5)
relpos.attention(x, x, x, dropout_p=0.5, rng=3)
relpos.attention(x, x, x, return_context=True).context.backward(x)
relpos.random_encoding(3, 2, rng=None)
print(relpos.plan(1, 2, 3, 3, 4, scheme="shaw"))
refused(lambda: relpos.attention([[1.0]], x, x))
refused(lambda: relpos.attention(x, x, x, scale="1"))
refused(lambda: relpos.attention(x, x, x, labels=np.zeros((3, 3), int), buckets=[0]))
refused(lambda: relpos.random_encoding(3, 2, rng=0.5))
refused(lambda: relpos.learned(x, [99]))
refused(lambda: relpos.rotary_frequencies(8, scaling=("yarn", {"factor": -1})))
refused(lambda: relpos.set_num_threads(0))
refused(lambda: relpos.show_config("json"))
refused(lambda: relpos.nn.load_file("absent.npz"))
refused(lambda: relpos.nn.load_file("absent.safetensors"))
refused(lambda: relpos.nn.Linear(2, 2).load_state_dict({}))
refused(lambda: relpos.recipes.t5(x))
"""
PREPARE = """
import sys
import numpy as np
import relpos
import relpos.data, relpos.nn, relpos.recipes, relpos.reference, relpos.ufuncs

x = np.ones((2, 3, 4))

def refused(call):
    try:
        call()
    except Exception:
        return
    raise AssertionError("not refused")
"""
SCRIPT = (
    PREPARE
    + """
for _, _, sources in EXAMPLES:
    for source in sources:
        if source.startswith(("import ", "from ")):
            exec(source, {})

found = []
for name, home, sources in EXAMPLES:
    scope, before = {**globals(), **vars(sys.modules[home])}, set(sys.modules)
    for source in sources:
        exec(source, scope)
    found += [f"{name} loads {new}" for new in sorted(set(sys.modules) - before)]
assert not found, found
"""
)


def examples():
    """(name, module, sources) of each public docstring, those of members included."""
    parser = doctest.DocTestParser()
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            members = vars(value) if isinstance(value, type) else {}
            for key, entry in {"": value, **members}.items():
                text = getattr(entry, "__doc__", None)
                if isinstance(text, str) and ">>>" in text:
                    sources = [e.source for e in parser.get_examples(text)]
                    yield f"{module.__name__}.{name}.{key}", module.__name__, sources


def test_no_call_loads_a_module(child):
    """Every example of a docstring, and MORE."""
    more = [(line, "relpos", [line]) for line in MORE.splitlines()]
    calls = [*examples(), *more]
    assert len(calls) > 100
    child(f"EXAMPLES = {calls!r}\n" + SCRIPT)


# Functions that need what the package can do without.
OPTIONAL = {
    "lines.py": {"with_prefix"},
    "panel.py": {"axes_of", "colormap_of", "frame", "panels_of"},
    "schemes.py": {"audit"},
    "page.py": {"draw_missing"},
    "models.py": {
        "attention_interface",
        "register",
        "replace_attention",
        "_need_transformers",
    },
    "_pair_functions.py": {"_record"},
    "_tracing.py": {"is_differentiated"},
    "__main__.py": {"_torch_facts", "show_models"},
}


def test_no_function_has_an_import_in_it():
    for path in Path(relpos.__file__).parent.rglob("*.py"):
        found = {
            function.name
            for function in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
        assert found <= OPTIONAL.get(path.name, set()), path


FORK = """
import importlib.abc, os, signal, threading, time

class Slow(importlib.abc.MetaPathFinder):
    \"""Whatever is still to be loaded takes long.\"""
    def find_spec(self, *_):
        time.sleep(0.5)

sys.meta_path.insert(0, Slow())
for line in MORE.splitlines():
    run = lambda: exec(line, dict(globals()))
    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.02)  # the thread is inside the call, or done
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        run()
        os._exit(0)
    thread.join()
    assert os.waitpid(pid, 0)[1] == 0, line
"""


def test_a_child_forked_during_a_first_call_makes_it_too(child):
    options = ("-W", "ignore::DeprecationWarning")
    child(f"MORE = {MORE!r}\n" + PREPARE + FORK, *options)
