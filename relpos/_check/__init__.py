"""``python -m relpos check``: relpos compared with its definitions under autograd.

`eager.py` has the formula in expressions of torch as models write it, `forms.py` the
rows of the catalogue that are compared with it as well, `check.py` the command.
"""
