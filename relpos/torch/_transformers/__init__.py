"""Models of transformers on relpos: what `relpos.torch.register` loads.

models.py has the public functions. registry.py holds the attention function and
registers it, masks.py converts a dense bias next to a mask, causal.py handles calls
without a mask, eager.py finds attention that never asks the registry, replace.py has
the table of classes that are replaced, layers.py has code that these share. Each other
file is a family of models, imported when a model of it is there: subclasses of the
model's own classes, with the same parameters.
"""
