"""The second opinion: two implementations compared, and known differences searched.

`compare.py` runs two implementations and compares their outputs and gradients.
`attempt.py` computes a call as someone may have written it, `known.py` lists what they
may have written, a file per family beside it, `search.py` tries it, `words.py` says it.
`rounding.py` has the error model and its table of limits, which `relpos.compare` uses
too; `reach.py` computes what rounded scores make of it. `kept.py` puts state back.
"""
