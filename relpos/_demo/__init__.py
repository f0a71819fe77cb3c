"""The steps of ``python -m relpos demo``; programme.py runs them in order."""
