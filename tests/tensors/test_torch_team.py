"""Threads of PyTorch, which run calls unless these need more or are in a child."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time

import pytest
import torch
from forks import forked_inside
from many_threads import at_once

import relpos.torch
from relpos import __main__, _core
from relpos.torch import _team

pytestmark = pytest.mark.skipif(
    _team.REASON is not None, reason=f"PyTorch's threads: {_team.REASON}"
)

# A problem of many units: more than one block of queries in every head.
PROBLEM = """
import os, signal, time
import torch
import relpos.torch

torch.set_num_threads(2)
torch.manual_seed(7)
q, k, v = torch.randn(3, 2, 4, 160, 16)
table = torch.randn(4, 21, 16)
OPTIONS = {"rel_key": table, "rel_value": table, "is_causal": True}

def compute(**options):
    return relpos.torch.attention(q, k, v, **OPTIONS, **options)

def gradients(**options):
    leaves = [x.detach().requires_grad_() for x in (q, k, v, table)]
    tables = {"rel_key": leaves[3], "rel_value": leaves[3]}
    out = relpos.torch.attention(*leaves[:3], **tables, is_causal=True, **options)
    out.square().sum().backward()
    return [x.grad for x in leaves]

def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
"""


# ---- which threads -----------------------------------------------------------------

THREADS = f"""{PROBLEM}
def threads():
    return set(os.listdir("/proc/self/task"))

before = threads()
compute()  # starts the threads of PyTorch, and own ones if these are late
gradients()
with relpos.threads(2):
    relpos.attention(q.numpy(), k.numpy(), v.numpy())
started = threads() - before
assert started
large = torch.ones(512, 512)
large @ large + large
assert threads() - before == started
compute(num_threads=3)  # more than PyTorch has
assert len(threads() - before) == 3
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc lists threads")
def test_calls_start_the_threads_of_pytorch_unless_they_need_more(child):
    child(THREADS)


COUNTED = """
int regions;
int omp_get_max_threads(void) { return 2; }
void GOMP_parallel(void (*body)(void *), void *data, unsigned size, unsigned flags)
{
    (void)size, (void)flags;
    regions++;
    body(data); /* the other thread never comes */
}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is of Linux")
def test_a_library_that_is_loaded_before_pytorchs_runs_the_calls(tmp_path):
    """For example, LD_PRELOAD names libiomp5, whose functions PyTorch then calls."""
    source, library = tmp_path / "counted.c", tmp_path / "counted.so"
    source.write_text(COUNTED)
    compiler = os.environ.get("CC") or "cc"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True
    )
    script = f"""{PROBLEM}
import ctypes
regions = ctypes.c_int.in_dll(ctypes.CDLL({str(library)!r}), "regions")
torch.ones(1 << 20) + 1
of_pytorch = regions.value
assert of_pytorch
found = compute()
assert regions.value > of_pytorch
assert torch.equal(found, compute(num_threads=1))
"""
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=tmp_path, check=True
    )


@pytest.mark.skipif(sys.platform != "linux", reason="/proc lists threads")
def test_an_import_starts_no_thread(child):
    child("""
import os, torch
before = os.listdir("/proc/self/task")
import relpos.torch
from relpos.torch import _team
assert _team.REASON is None, _team.REASON
assert os.listdir("/proc/self/task") == before
""")


# ---- the same results --------------------------------------------------------------


def test_a_call_on_any_threads_gives_the_same_bits(child):
    child(f"""{PROBLEM}
for threads in (2, 3, 4):  # of PyTorch
    torch.set_num_threads(threads)
    for number in (2, 5):  # 5: own threads
        assert torch.equal(compute(num_threads=number), compute(num_threads=1))
        found = gradients(num_threads=number), gradients(num_threads=1)
        assert same(*found)
""")


ROUNDING = f"""{PROBLEM}
import ctypes
UPWARD = {{"x86_64": 0x800, "aarch64": 0x400000}}[__import__("platform").machine()]
libm = ctypes.CDLL("libm.so.6")
usual = compute()
assert libm.fesetround(UPWARD) == 0
one, two = compute(num_threads=1), compute()
libm.fesetround(0)
assert torch.equal(one, two) and not torch.equal(usual, two)
# PyTorch's threads have their own modes again
x = torch.full((1 << 20,), -3.0)
assert torch.equal((1 / x).unique(), torch.tensor([-1 / 3]))
print("right")
"""


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64") or sys.platform != "linux",
    reason="a number of glibc for the mode",
)
def test_threads_round_as_their_caller_does_and_then_as_before(child):
    assert child(ROUNDING).stdout == "right\n"


def test_many_python_threads_at_once():
    torch.manual_seed(3)
    q = torch.randn(2, 4, 160, 16)
    want = relpos.torch.attention(q, q, q, is_causal=True, num_threads=1)
    before = torch.get_num_threads()

    def work(place, barrier):
        torch.set_num_threads(2)
        barrier.wait()
        for _ in range(20):
            found = relpos.torch.attention(q, q, q, is_causal=True)
            assert torch.equal(found, want)
            assert float((q + 1).sum()) == total

    total = float((q + 1).sum())
    try:
        at_once(work, 4)
    finally:
        torch.set_num_threads(before)


# ---- forks and signals -------------------------------------------------------------

# The end of a script: its child `pid` ends, and found no fault.
WAIT = """for _ in range(3000):
    waited, status = os.waitpid(pid, os.WNOHANG)
    if waited:
        break
    time.sleep(0.01)
else:
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the child hangs")
assert status == 0, status
"""

FORK = f"""{PROBLEM}
want, gradients_want = compute(num_threads=1), gradients(num_threads=1)
(USE)()
pid = os.fork()
if pid == 0:  # PyTorch's own operations on its threads would hang here
    found = compute(num_threads=2)
    right = torch.equal(found, want)
    right = right and same(gradients(num_threads=2), gradients_want)
    os._exit(0 if right else 1)
{WAIT}
assert torch.equal(compute(), want)
"""


@pytest.mark.parametrize("use", ["compute", "lambda: torch.ones(1 << 20) + 1", "int"])
def test_a_forked_child_computes(child, use):
    child(FORK.replace("USE", use), "-W", "ignore::DeprecationWarning")


IMPORTED_LATER = f"""
import os, signal, time
import torch
PARENT
torch.set_num_threads(2)
torch.ones(1 << 20) + 1  # starts the threads of PyTorch
pid = os.fork()
if pid == 0:
    import relpos.torch
    from relpos.torch import _team
    x = torch.linspace(-1, 1, 4 * 160 * 16).view(4, 160, 16)
    found = relpos.torch.attention(x, x, x, num_threads=2)
    right = torch.equal(found, relpos.torch.attention(x, x, x, num_threads=1))
    os._exit(0 if right and "forked" in _team.REASON else 1)
{WAIT}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says who was forked")
@pytest.mark.parametrize("parent", ["", "import relpos"])
def test_an_import_in_a_forked_child_leaves_pytorchs_threads_alone(child, parent):
    script = IMPORTED_LATER.replace("PARENT", parent)
    child(script, "-W", "ignore::DeprecationWarning")


FORKED_INSIDE = forked_inside(
    """import torch
import relpos.torch

torch.set_num_threads(2)
x = torch.ones(8, 4000, 64)  # signals are looked for each 50 ms

def same(one, other):  # an operation of PyTorch would hang in the child
    return (one.numpy() == other.numpy()).all()""",
    call="relpos.torch.attention(x, x, x)",
    later="relpos.torch.attention(x, x, x, num_threads=2)",
    same="same",
)


def test_a_child_forked_inside_a_call_raises_and_computes_later(child):
    child(FORKED_INSIDE, "-W", "ignore::DeprecationWarning")


INTERRUPTED = f"""{PROBLEM}
signal.signal(signal.SIGINT, signal.default_int_handler)
want = compute()
x = torch.randn(8, 30000, 64)
for _ in range(3):
    print("ready", flush=True)
    try:
        relpos.torch.attention(x, x, x)
        print("finished", flush=True)
    except KeyboardInterrupt:
        print("interrupted", time.monotonic(), flush=True)
assert torch.equal(compute(), want)
print("right", flush=True)
"""


def test_ctrl_c_ends_a_long_call(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            delays = [delay_of(process) for _ in range(3)]
            assert process.stdout.readline() == "right\n"
            assert process.wait(60) == 0
        finally:
            process.kill()
    # the machine may stop a process for longer than the limit: once is allowed
    assert sorted(delays)[1] <= 0.2, delays


def delay_of(process):
    """Interrupt a call, and return the seconds until it ends."""
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.4)
    sent = time.monotonic()  # the same clock in every process
    process.send_signal(signal.SIGINT)
    word, ended = process.stdout.readline().split()
    assert word == "interrupted"
    return float(ended) - sent


# ---- where it cannot be done -------------------------------------------------------


def test_the_command_info_says_whose_threads_run_calls(capsys):
    __main__.main(["info"])
    text = "PyTorch's, unless a call needs more than there are"
    assert f"\ntorch threads: {text}\n" in capsys.readouterr().out


WITHOUT = """
import os, torch
CHANGE
import relpos.torch
from relpos import __main__
from relpos.torch import _team
assert EXPECTED in _team.REASON, _team.REASON
__main__.main(["info"])
torch.set_num_threads(2)
x = torch.linspace(-1, 1, 12000).view(2, 3, 500, 4)
out = relpos.torch.attention(x, x, x)
assert torch.equal(out, relpos.torch.attention(x, x, x, num_threads=1))
"""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("del torch._C.__file__", "__file__"),
        ("torch._C.__file__ = None", "NoneType"),
        ("torch._C.__file__ = '/no/such/library.so'", "OSError"),
        ("import relpos._core as c; torch._C.__file__ = c.__file__", "OSError"),
    ],
)
def test_own_threads_run_calls_where_pytorch_lends_none(child, change, reason):
    script = WITHOUT.replace("CHANGE", change).replace("EXPECTED", repr(reason))
    out = child(script).stdout
    assert "torch threads: relpos's, as PyTorch's cannot be used (" in out


def test_a_path_that_is_no_path():
    with pytest.raises(TypeError, match="int"):
        _core.use_team(3)
    with pytest.raises(ValueError, match="null"):
        _core.use_team("a\0b")
    with pytest.raises(OSError, match=r"no/such"):
        _core.use_team(os.fspath("/no/such/library.so"))
