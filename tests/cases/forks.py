"""Children that are forked while a call runs."""

from __future__ import annotations

_SCRIPT = """
import os, signal, time
PREPARE

def fork(*_):
    global pid
    pid = os.fork()

def child_of(seconds):
    global pid
    pid = None
    signal.setitimer(signal.ITIMER_REAL, seconds)
    raised = ""
    try:
        found = CALL
    except RuntimeError as error:
        raised = str(error)
    while pid is None:
        time.sleep(0.001)
    if pid == 0:
        if raised:  # a later call computes
            found = LATER
        right = "forked inside" in raised or not raised
        os._exit(bool(raised) if right and SAME(found, want) else 2)
    assert not raised and SAME(found, want)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

signal.signal(signal.SIGALRM, fork)
want, took, codes = CALL, 1, []
while 1 not in codes and len(codes) < 1000:
    start = time.monotonic()
    CALL
    took = min(took, time.monotonic() - start)
    codes.append(child_of(took * (len(codes) % 20 + 1) / 20))
assert 1 in codes and set(codes) <= {0, 1}, codes
"""


def forked_inside(prepare, *, call, later, same):
    """Return a script: a signal's handler forks inside `call`, whose child raises.

    The child then computes `later`; `same` compares two results. The script forks at
    other times until a fork met the call while threads shared its work.
    """
    names = {"PREPARE": prepare, "CALL": call, "LATER": later, "SAME": same}
    script = _SCRIPT
    for name, value in names.items():
        script = script.replace(name, value)
    return script
