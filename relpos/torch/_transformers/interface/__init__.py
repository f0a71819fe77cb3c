"""The functions that models of transformers call: attention and masks, by name.

registry.py has the attention function, its masks and the search for attention that
never asks the registry, names.py the arguments of transformers that relpos knows.
"""
