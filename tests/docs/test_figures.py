"""Figures of speed, memory and experiments in the text are those that are stored."""

from __future__ import annotations

import numpy as np
import pytest
from documents import ROOT, text

from relpos import data

if not (ROOT / "docs").exists() or not (ROOT / "benchmarks").exists():
    pytest.skip("no docs/ or benchmarks/ in this tree", allow_module_level=True)

#: Rows of docs/replace-attention.md, and of what layer their figures are.
GAINS = {
    "T5, mT5": "T5, encoder",
    "Inkling": "Inkling, full layer",
    "Wav2Vec2-Conformer with relative positions": "Wav2Vec2-Conformer",
    "DeBERTa V2 and V3": "DeBERTa V3",
    "WavLM": "WavLM",
    "Gemma 3n, audio encoder": "Gemma 3n, audio",
    "Gemma 4, audio encoder": "Gemma 4, audio",
    "DeBERTa V1": "DeBERTa V1 base",
    "SEW-D": "SEW-D base",
    "MPNet (all-mpnet-base-v2)": "MPNet base, encoder",
    "BLOOM": "BLOOM 560M",
    "MPT": "MPT 1B",
    "XLNet, with both streams, memory and types of tokens": "XLNet base",
    "FastSpeech2-Conformer": "FastSpeech2-Conformer",
    "SpeechT5's encoder": "SpeechT5, encoder",
    "VITS and MMS-TTS": "VITS, text encoder",
    "gpt-oss, full layers": "gpt-oss, full layer",
    "Gemma 2, full layers": "Gemma 2, full layer",
    "Gemma 3, sliding layers": "Gemma 3, sliding layer",
}

#: Layers that have one length of their own, whose figures are in a sentence.
OF_PICTURES = {"SAM ViT-B, 64 x 64 cells": 4096, "Swin V2 tiny, 64 windows": 64}


def table(page, after, begin="| "):
    """The rows of the first table whose header begins so: cells by their titles."""
    found = text(page).partition(after)[2].partition(f"\n{begin}")[2]
    lines = f"{begin}{found}".partition("\n\n")[0].splitlines()
    titles, _, *rows = (
        [x.strip(" *") for x in line.split("|")[1:-1]] for line in lines
    )
    return [dict(zip(titles, row, strict=True)) for row in rows]


def layers(title):
    """A table of benchmarks/transformers.md: figures by model, length and batch."""
    rows = table("benchmarks/transformers.md", f"\n## {title}\n")
    return {(row["model"], int(row["L"]), int(row["B"])): row for row in rows}


def of_one(figures):
    """Return the figures of a batch of one, by model and length."""
    return {at[:2]: row for at, row in figures.items() if at[2] == 1}


ALL = layers("Forward"), layers("Training step")
FORWARD, TRAINING = map(of_one, ALL)


def test_gains_of_layers_are_those_of_the_benchmark():
    """All that were measured, and a dash for each row that was not."""
    shown = table("docs/replace-attention.md", "# Replace attention in my model")
    measured = [row["model"] for row in shown if "-" not in row.values()]
    assert measured == [row["model"] for row in shown if row["model"] in GAINS]
    models = {model for model, _ in FORWARD}
    assert {*GAINS.values(), *OF_PICTURES} == models and len(shown) > 15
    for row in shown:
        for length in (512, 2048):
            expected = "-", "-"
            if row["model"] in GAINS:
                at = GAINS[row["model"]], length
                expected = FORWARD[at]["gain"], TRAINING[at]["gain"]
            both = f"L = {length}, forward", f"L = {length}, forward and backward"
            assert tuple(row[title] for title in both) == expected


def test_gains_of_deberta_at_each_length_are_those_of_the_benchmark():
    rows = table("docs/replace-attention.md", "gains at more lengths", "| batch | L |")
    shown = {(int(row["L"]), int(row["batch"])): row for row in rows}
    assert [*shown] == [at[1:] for at in ALL[0] if at[0] == "DeBERTa V3"]
    for at, row in shown.items():
        gains = [figures["DeBERTa V3", *at]["gain"] for figures in ALL]
        assert [row["forward"], row["forward and backward"]] == gains


def test_the_line_of_a_row_is_the_faster_way():
    """A row by `replace_attention` has figures of it, and so has one by `register`."""
    for row in table("docs/replace-attention.md", "# Replace attention in my model"):
        if row["model"] in GAINS:
            of_layer = FORWARD[GAINS[row["model"]], 2048]
            replaces = row["line"] == "`replace_attention(model)`"
            assert bool(of_layer["replaced, ms"]) == replaces


# ---- sentences -----------------------------------------------------------------------


def price(schemes, columns):
    """Times over plain attention, of whatever direction."""
    lines = text("benchmarks/README.md").splitlines()
    cells = [[x.strip() for x in line.split("|")[1:-1]] for line in lines]
    (titles,) = (row for row in cells if row[2:3] == ["L = 32, forward and backward"])
    names = [f"{scheme} / plain" for scheme in schemes]
    rows = [row for row in cells if row and row[0] in names]
    found = [dict(zip(titles, row, strict=True)) for row in rows]
    return [float(row[n].split()[0]) for row in found for n in columns if row[n]]


def ends(numbers):
    """The least and the largest, as a text has them."""
    return f"{min(numbers):.2f} to {max(numbers):.2f}"


def right(task, scheme, length):
    """The share of right answers of an experiment, as a mean over its seeds."""
    found = data.experiment("length").results
    shares = np.mean(found["tasks"][task][scheme]["right"], axis=0)
    return f"{shares[found['lengths'].index(length)]:.2f}"


def bits(name, model, column, digits=2):
    """Bits on text or music that was held out, as a mean over seeds."""
    found = np.mean(data.experiment(name).results["bits"][model][column])
    return f"{found:.{digits}f}"


def cost(length):
    """Time of Shaw's scheme over that without, forward and backward, one sequence."""
    shapes = data.experiment("cost").results["shapes"]
    (found,) = (x for x in shapes if (x["batch"], x["length"]) == (1, length))
    return f"{np.mean(found['attention']):.2f} times"


def of_speed():
    """Yield pages and what they say of time and memory."""
    t5 = FORWARD["T5, encoder", 2048], TRAINING["T5, encoder", 2048]
    mb = [row[f"{way}, MB"] for row in t5 for way in ("replaced", "eager")]
    sentence = (
        "{} MB forward (before: {} MB), and {} MB forward and backward (before: {}"
    )
    yield "replace-attention", sentence.format(*mb)
    gains = [x[at]["gain"] for at in OF_PICTURES.items() for x in (FORWARD, TRAINING)]
    sentence = (
        "cells gains {} forward, and {} forward and backward; one of Swin V2 over 64 "
        "windows of 64 tokens gains {} and {}."
    )
    yield "replace-attention", sentence.format(*gains)
    both = "forward and backward"
    short = ["L = 1024, forward", f"L = 1024, {both}"]
    long = [f"L = 2048, {both}", "L = 4096, forward", f"L = 4096, {both}"]
    sentence = (
        f"takes {ends(price(['Music'], short + long))} times as long as attention"
    )
    yield "guide/skew", sentence
    cheap = ends(price(["RoPE", "ALiBi", "T5", "Shaw"], short))
    yield "which-scheme", f"{cheap} times the time of attention without positions"
    two = [price([name], short)[1] for name in ("DeBERTa V3", "BERT")]
    sentence = "DeBERTa V3 takes {:.2f} and BERT {:.2f} times as long as attention"
    yield "which-scheme", sentence.format(*two)
    sentence = f"takes {cost(32)} as long as attention without positions at 32 tokens"
    yield "which-scheme", f"{sentence}, and {cost(128)} at 128"
    yield "limits", f"{sentence}, and {cost(1024)} at 1,024"
    speech = data.experiment("speech").results
    times = [speech[f"seconds_{way}"] for way in ("forward", "backward")]
    names = "peak_bytes", "bytes_of_inputs_and_results", "bytes_of_position_scores"
    peak, inputs, scores = (speech[name] / 2**30 for name in names)
    sentence = f"forward and backward took {sum(times):.0f} s of processor time"
    yield "guide/long", sentence
    yield "guide/long", f"a peak of {peak:.2f} GiB, of which {inputs:.2f} GiB are"
    yield "guide/long", f"query and distance would need {scores:.1f} GiB"
    sentence = "forward {:.0f} s, backward {:.0f} s of processor time, {:.2f} GiB"
    yield "which-scheme", sentence.format(*times, peak)


def of_experiments():
    """Yield pages and what they say of right answers and bits."""
    sines, xl = "sinusoids", "Transformer-XL"
    at = [100 * float(right("two back", sines, length)) for length in (24, 32)]
    sentence = (
        "{:.0f} % of the answers were right at length 24 and {:.0f} % at length 32"
    )
    yield "guide/absolute", sentence.format(*at)
    before, after = (
        float(bits("chorales", sines, slice(*part))) for part in ((2, 4), (4, 8))
    )
    yield "guide/absolute", f"needed {after - before:.1f} more bits per event beyond"
    k2 = data.experiment("shaw-tables").results["variants"]["k = 2"]["right"]
    yield "guide/relative", f"with k = 2 in {100 * np.mean(k2):.0f} % of the cases"
    sentence = f"{bits('text', xl, 3)} bits per character with a memory of 64"
    without = bits("text", "Transformer-XL, no memory", 0)
    yield "guide/memory", f"{sentence} characters, and {without} when it was trained"
    yield "which-scheme", f"{sentence}, {without} trained without one"
    sentence = f"{bits('text', 'sinusoids, memory', 3, 1)} bits against"
    yield "guide/memory", f"{sentence} {bits('text', 'no positions', 0)}"
    models = xl, "Music Transformer, clipped", "rotary", sines
    sentence = "{}, {} and {} bits per event; sinusoids {}"
    music = [bits("chorales", model, slice(4, 8)) for model in models]
    yield "which-scheme", sentence.format(*music)
    rotary, t5 = (right("two back", x, 128) for x in ("rotary", "T5, 32 to 128"))
    yield "which-scheme", f"rotary {rotary}, T5 {t5}"
    last = [right("after the last", x, 128) for x in ("FIRE", xl, "Shaw, k = 4")]
    sentence = "{} and {} right at eight times the length; Shaw with k = 4 has {}"
    yield "which-scheme", sentence.format(*last)


@pytest.mark.parametrize(("page", "sentence"), [*of_speed(), *of_experiments()])
def test_a_sentence_has_the_stored_figures(page, sentence):
    assert sentence in " ".join(text(f"docs/{page}.md").split())
