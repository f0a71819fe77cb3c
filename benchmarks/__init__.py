"""Relpos beside what one could use instead; relpos alone: ``python -m relpos bench``.

`case.py` has what is asked of everybody, `peers/` who answers, each a file of its own.
"""
