"""The steps of ``python -m relpos demo``, which programme.py runs in order."""
