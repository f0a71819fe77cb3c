"""What explains a difference: the known conventions and mistakes, tried one by one.

`attempt.py` computes a call as someone may have written it, `known.py` lists what they
may have written, a file per family beside it, `search.py` tries it, `words.py` says it.
"""
