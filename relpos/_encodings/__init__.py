"""Encodings of positions: added, convolved, rotated, and their audit."""
