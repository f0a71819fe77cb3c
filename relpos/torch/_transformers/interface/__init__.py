"""What models of transformers call: an attention function, masks, and their arguments.

registry.py has the attention function, its masks and the search for attention that
never asks the registry, names.py the arguments of transformers that relpos knows.
"""
