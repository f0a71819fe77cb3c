"""docs/models.md: the call of every row runs, on small arrays of its shapes."""

from __future__ import annotations

import ast
import json
import re

import numpy as np
import pytest
from documents import ROOT, blocks, text

from relpos import recipes

PAGE = "docs/models.md"
if not (ROOT / PAGE).exists():
    pytest.skip("no docs/ in this tree", allow_module_level=True)

INTRODUCTION, _, TABLES = text(PAGE).partition("\n## ")
TABLES = TABLES.partition("\n## In PyTorch\n")[0]
LINES = re.findall(r"^\| (?!model \|)(.*) \|$", TABLES, re.MULTILINE)
CELLS = [[cell.strip() for cell in line.split(" |")] for line in LINES]
#: The lines of each call, and what they need.
CALLS = {model: re.findall(r"`([^`]*)`", call) for model, call, *_ in CELLS}
ROWS = {model: (stored, "\n".join(CALLS[model])) for model, _, stored, _ in CELLS}
#: The column that says what a row is compared with, by model.
SOURCES = {model: compared for model, *_, compared in CELLS}
SIZES = {
    "H": 4,
    "L": 6,
    "D": 12,
    "Dp": 6,
    "Dr": 6,
    "E": 10,
    "F": 5,
    "R": 16,
    "K": 2,
    "P": 8,
    "h": 2,
    "w": 3,
}
LARGE = {"head_dim": 12, "max_position_embeddings": 4096}
GEMMA = {**LARGE, "query_pre_attn_scalar": 8, "sliding_window": 4}

#: What config.json says where it matters here, with small heads, by words of the model.
CONFIGS = {
    "Llama 2": {
        "hidden_size": 48,
        "num_attention_heads": 4,
        "rope_theta": 5e5,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "Qwen2, ": {**LARGE, "rope_theta": 1e6},
    "YaRN": {
        **LARGE,
        "rope_theta": 1e6,
        "rope_scaling": {"type": "yarn", "factor": 4.0},
    },
    "Inkling": {"log_scaling_n_floor": 3, "log_scaling_alpha": 0.1},
    "Mistral": {**LARGE, "rope_theta": 1e4, "sliding_window": 4},
    "Phi-3": {
        **LARGE,
        "original_max_position_embeddings": 4,
        "rope_theta": 1e4,
        "rope_scaling": {
            "type": "su",
            "short_factor": [1.0] * 6,
            "long_factor": [2.0] * 6,
        },
    },
    "Llama 4": {
        "model_type": "llama4_text",
        **LARGE,
        "rope_theta": 5e5,
        "attention_chunk_size": 4,
    },
    "gpt-oss": {**LARGE, "rope_theta": 1.5e5, "sliding_window": 4},
    "Gemma 2": {**GEMMA, "rope_theta": 1e4},
    "GPT-NeoX": {**LARGE, "rotary_pct": 0.5, "rotary_emb_base": 10000},
    "GPT-J": {"model_type": "gptj", "n_embd": 48, "n_head": 4, "rotary_dim": 8},
    "Falcon": {"model_type": "falcon", "hidden_size": 48, "num_attention_heads": 4},
    "Command R": {"model_type": "cohere", **LARGE, "rope_theta": 8e6},
    "documents": {**LARGE, "rope_theta": 1e4},
    "Gemma": {**LARGE, "rope_theta": 1e4},
    "Gemma 3": {**GEMMA, "rope_theta": 1e6, "rope_local_base_freq": 1e4},
    "Gemma 4": {
        "head_dim": 8,
        "global_head_dim": 12,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {
                "rope_type": "proportional",
                "partial_rotary_factor": 0.25,
                "rope_theta": 1e6,
            },
        },
    },
    "OLMo 3": {"model_type": "olmo3", **GEMMA, "rope_theta": 5e5},
    "ModernBERT": {
        **LARGE,
        "global_rope_theta": 1.6e5,
        "local_rope_theta": 1e4,
        "local_attention": 4,
    },
    "DeepSeek-V4": {
        "model_type": "deepseek_v4",
        "head_dim": 12,
        "qk_rope_head_dim": 6,
        "rope_theta": 1e4,
        "compress_rope_theta": 1.6e5,
        "sliding_window": 4,
    },
    "Mistral Large 4": {
        "head_dim": 6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    },
    "DeepSeek": {
        "model_type": "deepseek_v3",
        "qk_rope_head_dim": 6,
        "hidden_size": 48,
        "num_attention_heads": 4,
        "rope_theta": 1e4,
    },
    "Qwen2-VL": {
        **LARGE,
        "rope_theta": 1e6,
        "rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 2]},
    },
    "Qwen3-VL": {
        **LARGE,
        "rope_theta": 5e6,
        "rope_scaling": {"rope_type": "default", "mrope_section": [2, 2, 2]},
    },
}


def config_of(model):
    """The configuration of the longest words among the model's."""
    words = [name for name in CONFIGS if name in model]
    return CONFIGS[max(words, key=len)]


def names_of(model, stored, call):
    """Return the names that a line may use: heads, parameters, sizes, the page's."""
    rng = np.random.default_rng(0)
    names = {**SIZES, "np": np}
    for block in blocks(text(PAGE), "python")[:1]:
        exec(re.sub(r"^(>>>|\.\.\.) ?", "", block, flags=re.MULTILINE), names)
    columns, length = SIZES["D"], SIZES["L"]
    few = 2 if "enable_gqa" in call else SIZES["H"]
    if "recurrent_gemma" in call or "deepseek_v4" in call:
        few = 1
    for name, heads in (("q", SIZES["H"]), ("k", few), ("v", few)):
        names[name] = rng.standard_normal((heads, length, columns), dtype=np.float32)
        names[f"{name}1"] = rng.standard_normal((SIZES["H"], length + 1, columns))
    for name, shape in re.findall(r"`(\w+)` \((.*?)\)(?=,? ?`|$)", stored):
        plain = shape.replace("\\", "")  # *, written for Markdown
        sizes = eval(f"({plain},)" if plain else "()", {**SIZES})
        names[name] = rng.standard_normal(sizes).astype(np.float32)
    for name in ("cells", "position_ids", "bbox", "time_id", "variate_id"):
        if name in names:
            names[name] = rng.integers(0, 5, names[name].shape)
    names["attention_mask"] = np.array([2, 1, 1, 2, 1, 1])
    names["documents"] = np.sort(rng.integers(0, 3, length))
    if "`config`" in stored:
        names["config"] = config_of(model)
    return names


def result_of(call, names):
    """Run the lines of a call, and return the value of the last one."""
    *before, last = ast.parse(call).body
    exec(ast.unparse(before), names)
    return eval(ast.unparse(last), names)


@pytest.mark.parametrize("model", ROWS)
def test_a_line_runs(model):
    stored, call = ROWS[model]
    names = names_of(model, stored, call)
    out = result_of(call, names)
    like = names[next((x for x in ("q1", "q") if re.search(rf"\b{x}\b", call)), "x")]
    assert out.shape == like.shape and np.isfinite(out).all()
    used = set(re.findall(r"\w+", call))
    assert {*re.findall(r"`(\w+)`", stored)} <= used, "stored and not used"


@pytest.mark.torch
@pytest.mark.parametrize("model", [m for m in ROWS if "np." not in ROWS[m][1]])
def test_a_line_runs_on_tensors(model):
    """With the functions of relpos.torch, and the recipes themselves."""
    torch = pytest.importorskip("torch")
    stored, call = ROWS[model]
    outs = []
    for functions in ("relpos", "relpos.torch"):
        names = names_of(model, stored, call)
        exec(f"from {functions} import *", names)
        if functions == "relpos.torch":
            for name, value in names.items():
                if isinstance(value, np.ndarray):
                    names[name] = torch.from_numpy(value)
        outs.append(result_of(call, names))
    want, got = outs
    assert type(got) is torch.Tensor and str(got.dtype) == f"torch.{want.dtype}"
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model", [m for m in ROWS if "size is None" in ROWS[m][1]])
def test_a_sliding_window_may_be_null(model):
    """A window hides the first keys from the last query; null hides none."""
    call, outs = ROWS[model][1], {}
    for size in (4, None, SIZES["L"]):
        names = names_of(model, *ROWS[model])
        names["config"] = names["config"] | {"sliding_window": size}
        outs[size] = result_of(call, names)
    assert np.array_equal(outs[None], outs[SIZES["L"]])
    assert not np.array_equal(outs[None], outs[4])


def test_there_are_lines_enough_and_each_has_its_call():
    """Every call is in its row, as one span of code for each of its lines."""
    assert len(ROWS) == len(LINES) >= 40
    for model, call, *_ in CELLS:
        assert call == "<br>".join(f"`{line}`" for line in CALLS[model]) != ""
    assert "<details>" not in text(PAGE)


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_a_decoder_of_t5_does_not_see_what_comes_later(part):
    stored, call = ROWS[f"T5, Flan-T5, mT5: {part}"]
    names = names_of("T5", stored, call)
    before = result_of(call, names)
    names["v"][:, -1] += 1
    changed = np.abs(result_of(call, names) - before).max(axis=(0, 2)) > 0
    assert changed[-1] and changed[:-1].any() == (part == "encoder")


def test_a_letter_has_one_meaning():
    """The page explains each letter of its shapes once, and no other letter."""
    rows = re.findall(r"^\| ([\w, ]+) \| ", INTRODUCTION, re.MULTILINE)
    letters = ", ".join(row for row in rows if row != "letter").split(", ")
    shapes = [re.findall(r"` \(([^`]*)\)", stored) for _, _, stored, _ in CELLS]
    used = set(re.findall(r"[A-Za-z]\w*", str(shapes)))
    assert letters == [*SIZES] and used == {*letters}


#: Upstreams of recorded cases that are the code of a model's authors.
AUTHORS = {
    "icefall_zipformer",
    "kimi_xl",
    "alibi_slopes_tables",
    "swin_window",
    "t2t_music",
    "t2t_shaw",
    "torchscale_xpos",
}
#: Those that are ports, or a notebook's module.
PORTS = {
    "botnet_relpos",
    "enformer_L9",
    "fire_flasht5",
    "fla_fox",
    "seed002_learned_ape",
    "sinusoid_interleaved",
}
#: Neither: an early implementation, and a file of the published model.
OTHERS = {"enformer_tf_gammas", "espnet_relpos_new", "onmt_shaw"}


@pytest.mark.parametrize("model", SOURCES)
def test_what_a_row_is_compared_with_is_there(model):
    """Each name is the beginning of a recorded file, or a test; the source is named."""
    cell = SOURCES[model]
    names = re.findall(r"`(\w+(?:\.py)?)`", cell)
    assert names or cell == "none"
    recorded = [path.name for path in (ROOT / "tests/recorded").iterdir()]
    for name in names:
        if name.endswith(".py"):
            assert len([*(ROOT / "tests").glob(f"*/{name}")]) == 1
            assert "transformers" in cell or "PyTorch" in cell
            continue
        assert any(file.startswith(name) for file in recorded)
        assert name.startswith("hf_") or name in AUTHORS | PORTS | OTHERS
        assert "transformers" in cell or not name.startswith("hf_")
        assert "authors" in cell or name not in AUTHORS
        assert re.search("a port|ports|notebook", cell) or name not in PORTS


def test_files_of_transformers_are_of_transformers():
    for path in (ROOT / "tests/recorded").glob("hf_*.npz"):
        with np.load(path) as file:
            flags = json.loads(str(file["flags_json"]))
        assert flags["upstream"] == "huggingface/transformers"


def test_every_recipe_has_a_row_that_says_it():
    used = {n for _, call in ROWS.values() for n in re.findall(r"recipes\.(\w+)", call)}
    parts = {"enformer_positions", "xlnet_segments", "zipformer_positions"}
    assert used | parts | {"Recipe", "from_config"} >= set(recipes.__all__)


def test_lines_of_calls_are_short():
    assert max(len(line) for lines in CALLS.values() for line in lines) <= 88


def test_the_readme_links_the_page():
    assert f"({PAGE})" in text("README.md")
