"""``python -m relpos bench``, and the harness that `benchmarks/` times with."""
