"""The steps of ``python -m relpos demo``; relpos.demo runs them in order."""
