"""Calls that do not fit a signature: the error says which argument was meant.

`hinted` of `relpos._checks` asks when a call has failed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any

from relpos._schemes import Scheme, scheme_spelt
from relpos._text import amount

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_ANY = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)

#: Parameters of relpos, and what torch, transformers, flash-attn, xformers, JAX and
#: Keras call them. A name may have several rows, of which the first ones come first.
KEYWORDS = {
    "query": "q queries query_states query_layer",
    "key": "k keys key_states key_layer",
    "value": "v values value_states value_layer",
    "is_causal": "causal use_causal_mask causal_mask autoregressive",
    "attn_mask": """
        mask attention_mask attn_bias bias attention_bias additive_mask src_mask
        tgt_mask causal_mask pos_bias position_bias rel_pos_bias dense_bias score_mod
        block_mask key_padding_mask src_key_padding_mask""",
    "mask": "attn_mask attention_mask padding_mask key_padding_mask",
    "dropout_p": """
        dropout dropout_rate p attn_dropout attention_dropout attn_drop attn_pdrop
        attention_probs_dropout_prob""",
    "dropout": """
        dropout_p dropout_rate p attn_dropout attention_dropout attn_drop attn_pdrop
        attention_probs_dropout_prob""",
    "p": "dropout dropout_p dropout_rate rate",
    "scale": """
        softmax_scale sm_scale scaling scale_factor logits_scale query_pre_attn_scalar
        temperature qk_scale""",
    "softcap": """
        logit_cap logits_soft_cap soft_cap softcapping attn_logit_softcapping
        logit_softcapping""",
    "window": """
        window_size sliding_window local_window_size attention_window window_left
        left_window_size""",
    "sinks": "s_aux sink attention_sink attention_sinks learnable_sink",
    "key_lengths": """
        key_padding_mask src_key_padding_mask padding_mask key_value_seq_lengths
        kv_seqlens seqlens_k seq_lens cache_seqlens valid_lengths seqused_k""",
    "key_blocks": "block_mask block_sparse_mask sparse_layout block_indices",
    "key_ranges": "segment_ids block_mask",
    "cu_seqlens": """
        cu_seqlens_q cu_seqlens_k cu_seq_lens cu_seq_lens_q cu_seq_lens_k
        cumulative_sequence_length_q q_seq_offsets""",
    "query_offset": """
        offset past_length past_key_values_length cache_position q_offset
        position_offset position_ids""",
    "offset": "query_offset past_length past_key_values_length position_offset start",
    "positions": "position_ids pos position input_positions timesteps",
    "angles": "freqs freqs_cis emb theta",
    "rel_bias": """
        bias pos_bias position_bias rel_pos_bias relative_position_bias rpb alibi
        alibi_slopes relative_attention_bias""",
    "rel_key": """
        pos rel pos_emb rel_pos rel_emb rel_pos_emb position_embeddings rel_k relative_k
        rel_embeddings er table""",
    "rel_value": "rel_v relative_v rel_pos_v",
    "pos_bias_u": "u r_w_bias content_bias",
    "pos_bias_v": "v r_r_bias",
    "position": "pos scheme position_type positional_encoding position_embedding_type",
    "scheme": "position pos kind",
    "enable_gqa": "gqa use_gqa grouped_query_attention",
    "return_weights": """
        need_weights output_attentions return_attention_scores return_attn_probs
        return_attention_weights""",
    "need_weights": "return_weights output_attentions return_attention_scores",
    "return_lse": "softmax_lse return_softmax_lse return_residual",
    "rng": "seed dropout_rng dropout_seed random_state generator",
    "num_threads": "n_jobs threads num_workers n_threads",
    "num_heads": "heads n_heads n_head nhead nheads num_attention_heads",
    "heads": "num_heads n_heads n_head nhead nheads num_attention_heads",
    "n_head": "num_heads heads n_heads nhead num_attention_heads",
    "embed_dim": "d_model dim hidden_size embed_size embedding_dim model_dim n_embd",
    "d_model": "embed_dim dim hidden_size embedding_dim model_dim n_embd",
    "embed_size": "embed_dim d_model dim hidden_size embedding_dim model_dim n_embd",
    "dim": "d_model embed_dim hidden_size embedding_dim model_dim n_embd num_hiddens",
    "head_dim": "d_head dim_head head_size key_dim",
    "rotary_dim": "rot_dim partial_rotary_factor dim",
    "base": "theta rope_theta rotary_base",
    "max_len": "max_length max_seq_len seq_len max_position_embeddings block_size",
    "max_seq_len": "max_len max_length seq_len max_position_embeddings block_size",
    "length": "seq_len seq_length sequence_length seqlen max_len n_positions",
    "query_length": "q_len tgt_len length seq_len",
    "key_length": "k_len src_len kv_len",
    "bidirectional": "is_decoder is_causal causal",
    "max_relative_position": "k clip max_distance max_position window_size",
    "x": "input inputs hidden_states src",
    "cache": "past_key_values past_key_value kv_cache layer_past use_cache",
    "memory": "mems past_key_values past_key_value",
    "batch_first": "layout",
}


#: Keywords of other libraries whose value is a scheme.
_SCHEME_WORDS = {"scheme", "position", *KEYWORDS["scheme"].split()}
_SCHEME_WORDS |= {*KEYWORDS["position"].split()}
#: Arguments of functions that make a bias, as docstrings have them in formulas.
_LETTERS = {"num_heads_or_slopes": "H", "length": "L"}


def misfit(
    function: Callable[..., Any],
    owner: type[Any] | None,
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
) -> str | None:
    """Say why a call does not fit the signature that `help` shows; None if it does."""
    parameters = signature(function).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    called = _called(function, owner)
    if Parameter.VAR_KEYWORD not in kinds:
        for name in keywords:
            if name not in parameters:
                hint = None
                if name in _SCHEME_WORDS and "query" in parameters:
                    hint = _use_of_scheme(keywords[name], function.__module__)
                hint = hint or meant(name, [*parameters], called, owner)
                return f"{name}: got an unexpected keyword argument {name!r}; {hint}"
    ordered = [name for name, x in parameters.items() if x.kind in _BY_POSITION]
    if len(args) > len(ordered) and Parameter.VAR_POSITIONAL not in kinds:
        uncounted = 1 if owner else 0  # self, which the caller does not write
        count, most = len(args) - uncounted, len(ordered) - uncounted
        takes = f"at most {amount(most, 'positional argument')}"
        if most == 0:
            takes = "no positional argument"
        named = [name for name in parameters if name not in ordered]
        by_name = ""
        if named:
            goes = "goes" if len(named) == 1 else "go"
            by_name = f" ({', '.join(named)} {goes} by name)"
        return f"{called}() takes {takes}, but got {count}{by_name}"
    by_position = ordered[: len(args)]
    for name in by_position:
        if name in keywords:
            return f"{name}: got one argument by position, one by name; expected one"
    for name, parameter in parameters.items():
        has_default = parameter.default is not Parameter.empty
        is_needed = not has_default and parameter.kind not in _ANY
        if is_needed and name not in by_position and name not in keywords:
            return f"{called}() needs an argument {name!r}"
    return None


def _called(function: Callable[..., Any], owner: type[Any] | None) -> str:
    """Return what is called, as a traceback names it; a constructor by its class."""
    if owner is None:
        return function.__name__
    if function.__name__ == "__init__":
        return owner.__name__
    return f"{owner.__name__}.{function.__name__}"


def _use_of_scheme(value: object, module: str) -> str | None:
    """Say how functions of `module` are called for a scheme; None if it is none."""
    scheme = scheme_spelt(value)
    if scheme is None:
        return None
    return f"for {value!r}, {_use(scheme, module)}"


def _use(scheme: Scheme, module: str) -> str:
    """Say what to call for a scheme, or what to pass to attention."""
    name = scheme.functions[0] if scheme.call == "attention" else scheme.call
    if name == "attention":
        operands = " and ".join(scheme.operands)
        return f"pass {operands}" if operands else "leave it out"
    function = getattr(sys.modules["relpos"], name.partition(".")[0])
    shown = f"relpos.{name}"
    if name in getattr(sys.modules[module], "__all__", ()):
        shown = f"{module}.{name}"
    if name.endswith("_attention"):
        return f"call {shown}"
    for part in name.split(".")[1:]:
        function = getattr(function, part)
    parameters = signature(function).parameters.values()
    needed = [x for x in parameters if x.default is Parameter.empty]
    if not needed:  # as of DeBERTa, whose tables may be left out one by one
        needed = [x for x in parameters if x.kind in _BY_POSITION]
    letters = [_LETTERS.get(x.name, x.name) for x in needed]
    call = f"{shown}({', '.join(letters)})"
    if name.startswith("recipes."):
        return f"pass **{call}"
    if name.endswith("_bias"):
        return f"pass rel_bias={call}"
    if "rotary" in scheme.names:
        return f"pass query and key through {shown}"
    return f"add {call} to the tokens"


def meant(
    name: str, known: list[str], called: str, owner: type[Any] | None = None
) -> str:
    """Say which of the known names an unknown one means, or list them."""
    parameters = _tried(name, known)
    if parameters:
        return f"did you mean {' or '.join(parameters)}?"
    if owner is not None:
        parameters = _tried(name, [*signature(owner).parameters])
        if parameters:
            return f"did you mean {' or '.join(parameters)} of the constructor?"
    near = _nearest(name, known)
    if near is not None:
        return f"did you mean {near}?"
    names = [x for x in known if x != "self"]
    if not names:
        return f"expected none, as {called} has none"
    return f"expected one of {', '.join(names)}"


def _tried(name: str, known: list[str]) -> list[str]:
    """Return those of the known names for which people try another one."""
    if name in known:
        return [name]
    return [x for x in KEYWORDS if x in known and name in KEYWORDS[x].split()]


def _nearest(name: str, known: list[str]) -> str | None:
    """Return the known name that a name misspells, or None."""
    plain = name.replace("_", "").lower()
    candidates = []
    for parameter in known:
        # The name as a whole, and its words: `mask` is near `attn_mask`.
        forms = [parameter.replace("_", ""), *parameter.split("_")]
        for number, form in enumerate(forms):
            # Of equal distances, letters in another order come first, then the words
            # in their order.
            other_letters = sorted(form) != sorted(plain)
            distance = _distance(plain, form)
            candidates.append((distance, other_letters, number, parameter))
    if not candidates:
        return None
    least, _, _, nearest = min(candidates)
    # More than a third of wrong letters is another word, not a misspelling.
    if least <= (len(plain) + 1) // 3 or sorted(nearest) == sorted(name):
        return nearest
    return None


def _distance(a: str, b: str) -> int:
    """Return how many letters have to be inserted, dropped or replaced (Levenshtein).

    Entry n of a row is the distance of what was read of `a` to the first n letters of
    `b`.
    """
    row: list[int] = [*range(len(b) + 1)]
    for x in a:
        above = row
        row = [above[0] + 1]
        for n, y in enumerate(b):
            replaced = above[n] + (x != y)
            row.append(min(row[n] + 1, above[n + 1] + 1, replaced))
    return row[-1]
