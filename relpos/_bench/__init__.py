"""``python -m relpos bench``: how fast relpos is; what is wrong is never timed.

`harness.py` says how time is measured, `table.py` what a table is made of; `tables.py`
lists the tables, each a file beside it. `benchmarks/` of the source tree measures other
programs by the same means.
"""
