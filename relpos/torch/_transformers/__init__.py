"""Models of transformers on relpos: what `relpos.torch.register` loads.

registry.py holds the attention function and registers it, masks.py the mask function
and what becomes of a dense bias beside a mask, eager.py finds attention that never
reaches the registry, replace.py has the table of classes that are swapped. Each other
file is one family of models, imported when a model of it is there: subclasses of the
model's own classes, with the same parameters.
"""
