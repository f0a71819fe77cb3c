"""Each call of docs/which-scheme.md's table of schemes equals a loop of its scheme."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from documents import ROOT, text

import relpos
from relpos import reference

PAGE = "docs/which-scheme.md"
if not (ROOT / PAGE).exists():
    pytest.skip("no docs/ in this tree", allow_module_level=True)

_, _, SECTION = text(PAGE).partition("\n## Schemes without a function of their own\n")
ROWS = [line.split(" |")[:2] for line in SECTION.split("\n") if "`attention(" in line]
CALLS = {
    name.removeprefix("| ").partition("<br>")[0]: "\n".join(
        re.findall(r"`([^`]*)`", call)
    )
    for name, call in ROWS
}
H, L, D, A = 2, 7, 6, 3
rng = np.random.default_rng(0)
ARRAYS = {
    "q": rng.standard_normal((H, L, D)),
    "k": rng.standard_normal((H, L, D)),
    "v": rng.standard_normal((H, L, D)),
    "log_freq": rng.standard_normal(D // 2),
    "omega": rng.random((H, 1)),
    "u": rng.standard_normal((H, D)),
    "cells": rng.standard_normal((L, A)),
    "generators": rng.standard_normal((A, D, D)) / 3,
    "shift": rng.standard_normal(D),
    "width": rng.random(D) + 0.5,
    "s": rng.random((H, 1)),
}
Score = Callable[[int, int, int], float]


def turned(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Rotate pairs of columns half a head apart by `angles`."""
    a, b = x[: D // 2], x[D // 2 :]
    cosine, sine = np.cos(angles), np.sin(angles)
    return np.concatenate([a * cosine - b * sine, b * cosine + a * sine])


def loop(score: Score, heads: int, is_causal: bool = True) -> np.ndarray:
    """Softmax attention of a score for each head, query and key."""
    out = np.zeros((heads, L, D))
    for h in range(heads):
        value = ARRAYS["v"][h * H // heads]
        for i in range(L):
            keys = i + 1 if is_causal else L
            weights = [math.exp(score(h, i, j)) for j in range(keys)]
            for j, weight in enumerate(weights):
                out[h, i] += weight / sum(weights) * value[j]
    return out


def of_rope_plus_plus() -> np.ndarray:
    frequencies = 10000.0 ** (-np.arange(D // 2) * 2 / D)

    def score(h: int, i: int, j: int) -> float:
        pairs = [x[: D // 2] + 1j * x[D // 2 :] for x in (q[h // 2, i], k[h // 2, j])]
        product = (
            pairs[0] * pairs[1].conj() * np.exp(1j * frequencies * (i - j))
        ).sum()
        # an even head has the real part, and an odd one minus the imaginary part
        quarter = product.imag if h % 2 else product.real
        return float(quarter) / math.sqrt(D)

    q, k = ARRAYS["q"], ARRAYS["k"]
    return loop(score, 2 * H)


def of_grape_m() -> np.ndarray:
    frequencies = np.exp(ARRAYS["log_freq"])

    def score(h: int, i: int, j: int) -> float:
        query = turned(ARRAYS["q"][h, i], -i * frequencies)
        key = turned(ARRAYS["k"][h, j], -j * frequencies)
        return float(query @ key) / math.sqrt(D)

    return loop(score, H)


def of_grape_a() -> np.ndarray:
    def score(h: int, i: int, j: int) -> float:
        query = ARRAYS["q"][h, i]
        softplus = math.log(1 + math.exp(query @ ARRAYS["u"][h] / math.sqrt(D)))
        slope = ARRAYS["omega"][h, 0] * softplus
        return float(query @ ARRAYS["k"][h, j]) / math.sqrt(D) - (i - j) * slope

    return loop(score, H)


def of_liere() -> np.ndarray:
    def rotation(cell: np.ndarray) -> np.ndarray:
        """Return the exponential of a skew matrix, by its power series."""
        skew = np.zeros((D, D))
        for x, matrix in zip(cell, ARRAYS["generators"], strict=True):
            for row in range(D):
                for column in range(row):
                    skew[row, column] += x * matrix[row, column]
                    skew[column, row] -= x * matrix[row, column]
        total = term = np.eye(D)
        for n in range(1, 120):
            term = term @ skew / n
            total = total + term
        return total

    rotations = [rotation(cell) for cell in ARRAYS["cells"]]

    def score(h: int, i: int, j: int) -> float:
        query = rotations[i] @ ARRAYS["q"][h, i]
        key = rotations[j] @ ARRAYS["k"][h, j]
        return float(query @ key) / math.sqrt(D)

    return loop(score, H, is_causal=False)


def of_wavelets() -> np.ndarray:
    def score(h: int, i: int, j: int) -> float:
        t = (j - i - ARRAYS["shift"]) / ARRAYS["width"]
        wavelet = (1 - t**2) * np.exp(-(t**2) / 2)
        return float(ARRAYS["q"][h, i] @ (ARRAYS["k"][h, j] + wavelet)) / math.sqrt(D)

    return loop(score, H, is_causal=False)


def of_ssmax() -> np.ndarray:
    def score(h: int, i: int, j: int) -> float:
        content = float(ARRAYS["q"][h, i] @ ARRAYS["k"][h, j]) / math.sqrt(D)
        return ARRAYS["s"][h, 0] * math.log(i + 1) * content

    return loop(score, H)


LOOPS = {
    "RoPE++": of_rope_plus_plus,
    "GRAPE-M": of_grape_m,
    "GRAPE-A": of_grape_a,
    "LieRE": of_liere,
    "wavelet positions": of_wavelets,
    "SSMax": of_ssmax,
}


def test_the_table_has_each_scheme_of_the_loops() -> None:
    assert CALLS.keys() == LOOPS.keys()


@pytest.mark.parametrize("scheme", LOOPS)
def test_the_call_of_a_scheme_equals_its_loop(scheme: str) -> None:
    names = {name: getattr(relpos, name) for name in relpos.__all__}
    names |= {"np": np, "reference": reference, "H": H, "L": L, "D": D, **ARRAYS}
    *before, last = CALLS[scheme].split("\n")
    exec("\n".join(before), names)
    result = eval(last, names)
    expected = LOOPS[scheme]()
    assert np.abs(result - expected).max() < 1e-14


def test_the_page_says_which_schemes_are_another_algorithm() -> None:
    for name in ("KDA", "Gated DeltaNet", "RetNet"):
        assert name in SECTION
