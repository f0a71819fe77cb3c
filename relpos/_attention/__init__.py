"""Attention: its door, its operands, and the schemes that are arguments of it."""
