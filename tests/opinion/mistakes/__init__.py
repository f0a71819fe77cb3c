"""Mistakes in attention, each after a bug report of a public project.

A file holds one family. `ROWS` of each file lists its mistakes.
"""
