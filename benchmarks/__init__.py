"""relpos compared with what one could use instead, and tables of relpos alone.

`timing.py` has the harness, `problems.py` the calls, `peers/` a file for each entrant,
`tables/` a file for each table of relpos alone.
"""
