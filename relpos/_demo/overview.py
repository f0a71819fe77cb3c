"""Step 8: claims of an overview of encodings, measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import relpos
from relpos._checks import Array
from relpos._demo.report import Report

LENGTHS, DIM = (32, 64, 128, 256), 32  # of the encodings that are audited
ROWS = 128  # of the learned table: the longest length is beyond it
WIDE = 64  # columns where directions and rotations are looked at

PHRASE = ("smoking", "kills")
_LONG = "it was commonly believed by most adult Americans in the 90s that smoking kills"
SENTENCES = (PHRASE, ("kim", "said", *PHRASE), tuple(_LONG.split()))


def overview(report: Report) -> None:
    """Measure five requirements, random directions, RoPE, and words that move."""
    report.begin("overview")
    report.covers()
    requirements(report)
    directions(report)
    rotary_decay(report)
    moved_words(report)


# ---- the five requirements -----------------------------------------------------------


@cache
def trained_table() -> Array:
    """Return a table that learned which of two positions comes first."""
    rng = np.random.default_rng(2)
    table, readout = rng.standard_normal((ROWS, DIM)) / 50, rng.standard_normal(DIM) / 8
    # Steps of gradient ascent of log sigmoid(readout . (second - first)).
    for _ in range(100):
        # Sorted, so that the first of two is the earlier position.
        pairs = np.sort(rng.choice(ROWS, (256, 2)), axis=1)
        first, second = np.moveaxis(relpos.learned(table, pairs), 1, 0)
        # The probability of the wrong answer is the factor of the gradient.
        doubt = 1 / (1 + np.exp((second - first) @ readout))
        push = doubt[:, None] * readout
        # The later position moves along the readout, the earlier one against it.
        grad = relpos.learned_backward(np.stack([-push, push], axis=1), pairs, ROWS)
        readout = readout + 0.01 * doubt @ (second - first)
        table = table + 0.01 * grad
    return table.astype(np.float32)


def _learned(length: int, dim: int) -> Array:
    return relpos.learned(trained_table()[:, :dim], length)


def _random(length: int, dim: int) -> Array:
    return relpos.random_encoding(length, dim, rng=3)


#: Encodings, and if they are known to meet a requirement: unique, consistent, order,
#: extrapolation, small, scalable.
ENCODINGS: dict[str, tuple[Callable[[int, int], Array], str]] = {
    "index": (relpos.index_encoding, "yes yes yes yes no yes"),
    "normalized index": (relpos.normalized_index_encoding, "yes no yes no yes yes"),
    "random": (_random, "yes yes no no yes yes"),
    "learned table": (_learned, "yes yes yes no yes yes"),
    "sinusoidal": (relpos.sinusoidal, "yes yes yes yes yes yes"),
}


def requirements(report: Report) -> None:
    """Audit the encodings; each verdict must be the one that is known."""
    report.say("requirements")
    rows = []
    for name, (encode, known) in ENCODINGS.items():
        audit = relpos.audit_encoding(encode, lengths=LENGTHS, dim=DIM)
        verdicts = ["yes" if finding.met else "no" for finding in audit]
        cells = [f"{v} {f.value:.2g}" for v, f in zip(verdicts, audit, strict=True)]
        rows.append([name, *cells])
        others = sum(a != b for a, b in zip(verdicts, known.split(), strict=True))
        report.check(f"{name}: other verdicts than known", others, 0)
    header = ["", *relpos.EncodingAudit._fields]
    sizes = {"lengths": LENGTHS, "dim": DIM, "rows": ROWS}
    report.table("table_requirements", header, rows, sizes)


# ---- directions ----------------------------------------------------------------------


def directions(report: Report) -> None:
    """Measure cosines between random directions, which fall as dimensions are added."""
    rng, rows = np.random.default_rng(5), []
    for dim in (8, 64, 512, 4096):
        unit = rng.standard_normal((200, dim))
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        # Each pair of directions once, without those of a direction with itself.
        cosines = (unit @ unit.T)[np.triu_indices(200, 1)]
        # The mean of cosines is 0, so that their root mean square is their spread.
        spread = float(np.sqrt((cosines**2).mean()))
        rows.append([f"{dim}", f"{spread:.4f}", f"{dim**-0.5:.4f}"])
        gap = abs(spread * dim**0.5 - 1)
        # 19,900 cosines: the relative error of their spread is about 1 / sqrt(39,800).
        report.check(f"cosines in {dim} dimensions", gap, 0.02)
    report.say("directions")
    header = ["dim", "root mean square", "1 / sqrt(dim)"]
    report.table("table_directions", header, rows)


# ---- rotary --------------------------------------------------------------------------


def rotary_decay(report: Report) -> None:
    """Measure the product of a vector and its rotation by each distance."""
    rng, reach = np.random.default_rng(6), 2048
    query, other = rng.standard_normal((2, 16, 1, WIDE))
    # One vector at every position: the product with its rotation by the distance.
    rotated = relpos.apply_rotary(
        np.repeat(query, reach, axis=1), np.arange(reach, dtype=np.float64)
    )
    # The product at distance 0, over which the others are shares.
    size = (query**2).sum(axis=-1)
    same = ((rotated * query).sum(axis=-1) / size).mean(axis=0)
    unlike = ((rotated * other).sum(axis=-1) / size).std(axis=0)
    # Single distances rise and fall; means of octaves show the decay.
    octaves = [(2**n, 2 ** (n + 1)) for n in range(11)]
    means = [float(same[low:high].mean()) for low, high in octaves]
    rises = int((np.diff(same) > 0).sum())
    report.say("rotary", rises=rises, steps=reach - 1)
    report.picture("rotary", same=same, octaves=octaves, means=means)
    report.table(
        "table_rotary",
        ["r", *(f"{low}..{high - 1}" for low, high in octaves[::2])],
        [["mean", *(f"{mean:.2f}" for mean in means[::2])]],
    )
    # The least fall is the largest difference of neighbours, with the sign changed.
    falls = float(np.diff(means).max())
    report.check("octave to octave, the mean falls", -falls, 0.01, at_least=True)
    kept = float(unlike[reach // 2 :].mean() / unlike[: reach // 2].mean())
    report.check("unrelated: far over near", abs(kept - 1), 0.1)


# ---- words that move -----------------------------------------------------------------


def moved_words(report: Report) -> None:
    """Compute attention between two words at positions 0, 2 and 12."""
    report.say("moved", phrase=" ".join(PHRASE))
    rng = np.random.default_rng(7)
    words = sorted({word for sentence in SENTENCES for word in sentence})
    vectors = dict(zip(words, rng.standard_normal((len(words), WIDE)), strict=True))
    table = rng.standard_normal((2 * max(map(len, SENTENCES)) - 1, WIDE))

    # Other words are hidden, so that only the positions of the two change.
    def added(x: Array, visible: Array) -> Any:
        x = x + relpos.sinusoidal(x.shape[-2], WIDE, dtype=x.dtype)
        return relpos.attention(x, x, x, visible)

    def relative(x: Array, visible: Array) -> Any:
        return relpos.shaw_attention(x, x, x, table, table, attn_mask=visible)

    def rotary(x: Array, visible: Array) -> Any:
        rotated = relpos.apply_rotary(x)
        return relpos.attention(rotated, rotated, x, visible)

    ways = {
        "sinusoids added": added,
        "relative keys and values": relative,
        "rotary": rotary,
    }
    changes = {}
    for way, run in ways.items():
        outputs = []
        for sentence in SENTENCES:
            x = np.array([[vectors[word] for word in sentence]])
            visible = np.array([word in PHRASE for word in sentence])
            outputs.append(run(x, visible)[:, visible])
        changes[way] = [float(np.abs(y - outputs[0]).max()) for y in outputs[1:]]
    report.table(
        "table_moved",
        ["", "from 0 to 2", "from 0 to 12"],
        [[way, *(f"{x:.1e}" for x in sizes)] for way, sizes in changes.items()],
    )
    # Additions of absolute positions must change the output, and all other ways must
    # not.
    absolute = min(changes.pop("sinusoids added"))
    report.check("sinusoids added: least change", absolute, 0.01, at_least=True)
    for way, sizes in changes.items():
        report.check(f"{way}: most change", max(sizes), 1e-13)
