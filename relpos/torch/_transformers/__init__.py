"""Models of transformers on relpos: what `relpos.torch.register` loads.

models.py has the public functions, registry.py the attention function, its masks and
the search for attention that never asks the registry, adapters.py the classes that
replace those of models, names.py the arguments of transformers that relpos knows.
"""
