"""The second opinion: relpos and other implementations compared.

`check.py` is ``python -m relpos check``, which compares the catalogue's rows with their
definitions under autograd, and with eager torch (`eager.py`). `compare.py` compares
outputs and gradients of two implementations, and `diagnose.py` reports what `search.py`
finds among the rows of `differences.py`. An attempt (`attempt.py`) is a call as someone
may have written it, and `evaluate.py` computes its result. `rounding.py` has the limits
of both.
"""
