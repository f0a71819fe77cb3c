"""Two implementations side by side: outputs and gradients, each with a verdict.

`sides.py` runs one of them, whatever it is, `compare.py` holds the two together.
"""
