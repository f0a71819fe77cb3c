"""Work of several Python threads at once."""

from __future__ import annotations

import threading


def at_once(work, count):
    """Run work(place, barrier) in so many threads, which may wait for each other."""
    barrier, wrong = threading.Barrier(count, timeout=120), []

    def guarded(place):
        try:
            work(place, barrier)
        except BaseException as error:
            wrong.append(error)
            barrier.abort()

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
        assert not thread.is_alive()
    assert not wrong
