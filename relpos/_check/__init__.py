"""``python -m relpos check``: this relpos against this machine's PyTorch.

`eager.py` has the formula in expressions of torch, `forms.py` what each row of the
catalogue is in it, `check.py` the command.
"""
