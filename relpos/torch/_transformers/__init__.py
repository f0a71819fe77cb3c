"""Models of transformers on relpos: what `relpos.torch.register` loads.

registry.py holds the attention function and registers it, masks.py says what becomes of
a dense bias beside a mask, causal.py what no mask means, eager.py finds attention that
never asks the registry, replace.py has the table of classes that are swapped, layers.py
what these share. Each other file is a family of models, imported when a model of it is
there: subclasses of the model's own classes, with the same parameters.
"""
