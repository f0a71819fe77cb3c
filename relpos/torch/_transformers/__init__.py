"""Models of transformers on relpos: what `relpos.torch.register` loads.

models.py has the public functions, interface/ what models call, adapters/ the classes
that replace those of models, one file a family.
"""
