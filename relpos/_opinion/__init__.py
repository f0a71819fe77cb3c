"""The second opinion: two implementations compared, and known differences searched.

`compare.py` compares outputs and gradients of two implementations, and `diagnose.py`
reports what `search.py` finds among the rows of `differences.py`. `attempt.py` computes
a call as someone may have written it. `rounding.py` has the limits of both.
"""
