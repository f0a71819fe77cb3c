"""The catalogue of schemes: names, functions, models and operands.

A scheme is one row of SCHEMES, of which `relpos.plan`, the tables of `rows.py`, the
names that are suggested, the demo, lists of functions in the documentation and calls of
tests are made. Nothing of relpos is imported here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

FIRE_WIDTH = 32  # units of the network, as in the paper
POSITION_WIDTH = 16  # columns of a position query, as Inkling's

if TYPE_CHECKING:
    #: Every name of SCHEMES, written out for editors and type checkers.
    SchemeName: TypeAlias = Literal[
        "sinusoidal", "sinusoids", "positional_encoding", "naive", "learned", "ape",
        "attention", "plain", "nope", "sinks", "attention_sinks", "softcap",
        "logit_softcapping", "rotary", "rope", "xpos", "shaw_keys", "relative_key",
        "shaw_attention", "shaw", "relative_global_attention", "music",
        "relative_global", "music_transformer", "transformer_xl_attention",
        "transformer_xl", "xl", "conformer", "position_query", "bert",
        "relative_key_query", "rel_bias", "bias", "relative_position_bias", "alibi",
        "forgetting", "fox", "data_dependent_alibi", "t5", "kerple", "deberta",
        "disentangled_attention", "graph_attention", "graph", "conv_encoding", "peg",
        "fire_attention", "fire",
    ]  # fmt: skip

#: (Lq, Lk, k, is_causal) to the rows of a table.
Rows = Callable[[int, int, int, bool], int]


def centred(lq: int, lk: int, k: int, is_causal: bool) -> int:
    """Count every distance in both directions, 0 in the middle."""
    return 2 * max(lq, lk) - 1


def clipped(lq: int, lk: int, k: int, is_causal: bool) -> int:
    """Count -k to k."""
    return 2 * k + 1


def in_reach(lq: int, lk: int, k: int, is_causal: bool) -> int:
    """Count -k to k, but no more than lq queries and lk keys can have."""
    return min(2 * k + 1, lq + lk - 1)


def buckets(lq: int, lk: int, k: int, is_causal: bool) -> int:
    """Count k for each direction."""
    return 2 * k


def up_to_the_query(lq: int, lk: int, k: int, is_causal: bool) -> int:
    """Count the distances up to 0 alone with a causal mask."""
    return lk if is_causal else centred(lq, lk, k, is_causal)


def seen(lq: int, lk: int, k: int, is_causal: bool) -> int:
    """Count what occurs where the last query is at the last key."""
    return lk if is_causal else lk + lq - 1


class Scheme(NamedTuple):
    """A scheme: one way to use positions.

    Attributes
    ----------
    name : str
        That of its function; where it is arguments of `attention`, the model's.
    functions : tuple of str
        All that compute it or a part of it, as written after ``relpos.``; the one that
        people should meet first comes first.
    family : str
        One of `relpos.data.families`.
    models : tuple of str
        Some that use it.
    synonyms : tuple of str
        Other names of it, which are accepted wherever it is named.
    variants : tuple of str
        Names of forms that further arguments make of it. `plan` and `diagnose` accept
        them; a layer, which would leave out those arguments, does not.
    operands : tuple of str
        Arguments of `call` besides query, key and value; none where positions are in
        the tokens before it.
    rows : callable
        (Lq, Lk, k, is_causal) to the rows of the tables among them.
    listed : callable, optional
        The same arguments to the relative positions of pairs, for which buckets list
        those rows; None where there are no buckets.
    settings : tuple of (str, object)
        Plain arguments of `call` that make it this scheme, by name.
    title : str
        Title in tables, where it is one call with its operands; other schemes have
        their rows in `rows.py`.
    """

    name: str
    functions: tuple[str, ...]
    family: str
    models: tuple[str, ...] = ()
    synonyms: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    rows: Rows = centred
    listed: Rows | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    title: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.synonyms)

    @property
    def hides_future(self) -> bool:
        """Return True where every call is causal: later keys have no formula."""
        return ("is_causal", True) in self.settings

    @property
    def own_width(self) -> int | None:
        """Return the columns of its tables, where they are not those of the query."""
        return POSITION_WIDTH if "position_query" in self.operands else None

    @property
    def call(self) -> str:
        """Return the function that takes its operands: its own attention, if any."""
        for name in self.functions:
            if name.endswith("attention"):
                return name
        return "attention"


SCHEMES = (
    Scheme(
        "sinusoidal",
        ("sinusoidal", "sinusoidal_shift_matrix", "nn.SinusoidalEncoding"),
        "absolute",
        models=("Transformer",),
        synonyms=("sinusoids", "positional_encoding"),
    ),
    Scheme(
        "naive",
        ("index_encoding", "normalized_index_encoding", "random_encoding"),
        "absolute",
    ),
    Scheme(
        "learned",
        ("learned", "learned_backward", "nn.LearnedAPE"),
        "absolute",
        models=("BERT", "GPT-2", "ConvS2S"),
        synonyms=("ape",),
    ),
    Scheme(
        "attention",
        (
            "attention",
            "recipes.llama4",
            "recipes.llama4_temperature",
            "recipes.recurrent_gemma",
            "recipes.longformer",
        ),
        "none (NoPE)",
        models=("Llama 4, every fourth layer",),
        synonyms=("plain", "nope"),
    ),
    Scheme(
        "sinks",
        ("recipes.gpt_oss", "recipes.deepseek_v4"),
        "none (NoPE)",
        models=("gpt-oss",),
        synonyms=("attention_sinks",),
        operands=("sinks",),
        title="attention sinks",
    ),
    Scheme(
        "softcap",
        ("recipes.gemma2",),
        "none (NoPE)",
        models=("Gemma 2",),
        synonyms=("logit_softcapping",),
        settings=(("softcap", 50.0),),
        title="capped scores (Gemma 2)",
    ),
    Scheme(
        "rotary",
        (
            "apply_rotary",
            "apply_rotary_backward",
            "nn.Rotary",
            "rotary_frequencies",
            "rotary_magnitude",
            "xpos_magnitude",
            "rotary_from_config",
            "mrope_angles",
            "axial_angles",
            "recipes.pope",
            "recipes.rope_vit",
            "recipes.mistral_large4",
            "recipes.mistral_large4_temperature",
        ),
        "rotary (RoPE)",
        models=("RoFormer", "GPT-J", "GPT-NeoX", "Llama", "TorchScale (xPos)"),
        synonyms=("rope",),
        variants=("xpos",),
    ),
    Scheme(
        "shaw_keys",
        (
            "shaw_attention",
            "recipes.botnet",
            "recipes.wav2vec2_bert",
            "recipes.sam",
        ),
        "relative",
        models=("BERT with relative_key", "BoTNet", "Wav2Vec2-BERT", "SAM"),
        synonyms=("relative_key",),
        operands=("rel_key",),
        rows=clipped,
        title="Shaw, keys",
    ),
    Scheme(
        "shaw_attention",
        ("shaw_attention", "shaw_scores", "recipes.vits", "nn.ShawAttention"),
        "relative",
        models=("Transformer with relative positions", "OpenNMT", "VITS"),
        synonyms=("shaw",),
        operands=("rel_key", "rel_value"),
        rows=clipped,
        title="Shaw, keys and values",
    ),
    Scheme(
        "relative_global_attention",
        (
            "relative_global_attention",
            "skewed_scores",
            "skew",
            "unskew",
            "nn.RelativeGlobalAttention",
        ),
        "relative",
        models=("Music Transformer",),
        synonyms=("music", "relative_global", "music_transformer"),
        operands=("rel_key",),
        rows=up_to_the_query,
    ),
    Scheme(
        "transformer_xl_attention",
        (
            "transformer_xl_attention",
            "transformer_xl_scores",
            "rel_shift",
            "recipes.xlnet",
            "recipes.xlnet_segments",
            "recipes.parakeet",
            "recipes.gemma3n_audio",
            "recipes.gemma4_audio",
            "recipes.enformer",
            "recipes.enformer_positions",
            "nn.RelPartialLearnableMultiHeadAttn",
            "nn.ConformerRelPositionAttention",
        ),
        "relative",
        models=("Transformer-XL", "XLNet", "Conformer", "Parakeet", "Enformer"),
        synonyms=("transformer_xl", "xl", "conformer"),
        operands=("rel_key", "pos_bias_u", "pos_bias_v"),
        rows=seen,
        title="Transformer-XL, both ways",
    ),
    Scheme(
        "position_query",
        (
            "recipes.inkling",
            "recipes.inkling_temperature",
            "recipes.zipformer",
            "recipes.zipformer_positions",
        ),
        "relative",
        models=("Inkling", "Zipformer"),
        operands=("position_query", "rel_key"),
        title="position query (Inkling)",
    ),
    Scheme(
        "bert",
        ("recipes.bert",),
        "relative",
        models=("BERT with relative_key_query",),
        synonyms=("relative_key_query",),
        operands=("rel_key", "rel_query"),
        title="BERT, keys and queries",
    ),
    Scheme(
        "rel_bias",
        (
            "attention",
            "recipes.swin",
            "recipes.swin_v2",
            "recipes.beit",
            "recipes.moirai",
            "recipes.natten1d",
            "nn.LearnedBias",
            "nn.DynamicPositionBias",
        ),
        "relative",
        models=("Swin Transformer", "Swin Transformer V2", "BEiT", "x-transformers"),
        synonyms=("bias", "relative_position_bias"),
        operands=("rel_bias",),
        title="rel_bias per head",
    ),
    Scheme(
        "alibi",
        ("alibi_bias", "alibi_bias_backward", "alibi_slopes", "nn.ALiBi"),
        "linear biases (ALiBi)",
        models=("BLOOM", "MPT"),
        operands=("rel_bias",),
    ),
    Scheme(
        "forgetting",
        ("recipes.forgetting_transformer",),
        "linear biases (ALiBi)",
        models=("Forgetting Transformer",),
        synonyms=("fox", "data_dependent_alibi"),
        operands=("log_decay",),
        settings=(("is_causal", True),),
        title="Forgetting Transformer",
    ),
    Scheme(
        "t5",
        (
            "recipes.t5",
            "t5_bias",
            "t5_bias_backward",
            "t5_bucket",
            "nn.T5Bias",
            "recipes.mpnet",
            "recipes.umt5",
            "recipes.longt5_local",
            "recipes.wavlm",
            "recipes.layoutlmv3",
        ),
        "relative",
        models=("T5", "Flan-T5", "mT5", "UMT5", "LongT5", "MPNet", "LayoutLMv3"),
        operands=("rel_bias",),
    ),
    Scheme(
        "kerple",
        ("kerple_bias", "kerple_bias_backward", "nn.KERPLE"),
        "relative",
        models=("KERPLE",),
        operands=("rel_bias",),
    ),
    Scheme(
        "deberta",
        ("recipes.deberta", "deberta_bucket"),
        "relative",
        models=("DeBERTa", "DeBERTa-v2"),
        synonyms=("disentangled_attention",),
        operands=("rel_key", "rel_query"),
        rows=buckets,
        listed=in_reach,
    ),
    Scheme(
        "graph_attention",
        ("graph_attention",),
        "relative",
        models=("Shaw's relations of graphs",),
        synonyms=("graph",),
        operands=("indptr", "indices", "labels", "rel_key", "rel_value"),
        rows=clipped,
    ),
    Scheme(
        "conv_encoding",
        ("conv_encoding", "conv_encoding_backward", "nn.ConvPositionEmbedding"),
        "convolutional",
        models=("CPVT", "wav2vec 2.0"),
        synonyms=("peg",),
    ),
    Scheme(
        "fire_attention",
        ("fire_attention", "fire_bias", "fire_bias_backward", "nn.FIRE"),
        "learned function (FIRE)",
        models=("FIRE",),
        synonyms=("fire",),
        operands=("w1", "b1", "w2", "b2", "c", "threshold"),
    ),
)


#: Functions and classes that serve every scheme or none, by the heads of lists.
GENERAL = {
    "any scheme": (
        "attention",
        "merge_attention",
        "attention_forward",
        "attention_backward",
        "scores",
    ),
    "positions": ("relative_positions", "grid_labels", "segment_ranges"),
    "choice of keys": ("indexer_top_k",),
    "decoding": ("KVCache",),
    "before a call": ("plan", "audit_encoding"),
    "second opinion": ("compare", "diagnose"),
    "the process": (
        "set_num_threads",
        "get_num_threads",
        "threads",
        "show_config",
        "demo",
    ),
}


def scheme_called(name: str) -> Scheme:
    for scheme in SCHEMES:
        if name in (*scheme.names, *scheme.variants):
            return scheme
    raise KeyError(name)


def plain(name: str) -> str:
    """Return `name` as all its spellings have it."""
    return re.sub(r"[\W_]", "", name).lower()


def scheme_spelt(name: object) -> Scheme | None:
    """Return the scheme of a name or of a variant, in any spelling; None if unknown."""
    if not isinstance(name, str):
        return None
    for scheme in SCHEMES:
        if plain(name) in map(plain, (*scheme.names, *scheme.variants)):
            return scheme
    return None


def same_name(name: Any, known: Iterable[str | None]) -> Any:
    """Return the one of `known` that names the scheme of `name`, else `name` itself."""
    if not isinstance(name, str):
        return name
    for scheme in SCHEMES:
        if name in scheme.names:
            for other in known:
                if other in scheme.names:
                    return other
    return name
