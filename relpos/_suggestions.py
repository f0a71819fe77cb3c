"""Public names: their packages and table, and the names that users try for them.

Names of functions elsewhere are here; schemes, their synonyms and models are those of
_schemes.py. `relpos` asks where an attribute is missing, and functions ask where they
know no such scheme. What is in a module of relpos is found by its own name, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from textwrap import wrap
from typing import Any, NoReturn

from relpos._checks import as_choice, hinted
from relpos._schemes import GENERAL, SCHEMES, Scheme, plain, same_name

#: Public names, as written after `relpos.`, and the names that users try for them, in
#: any case and with or without underscores.
TRIED = {
    # ---- attention
    "attention": """
        scaled_dot_product_attention sdpa dot_product_attention softmax_attention
        multi_head_attention multi_head_attention_forward mha self_attention
        cross_attention flash_attention flash_attn_func flex_attention
        memory_efficient_attention grouped_query_attention gqa relative_attention
        relative_position_attention sliding_window_attention""",
    "AttentionContext.backward": "grad gradients vjp attention_grad",
    "shaw_attention": """
        shaw_relative_attention relation_aware_attention
        relation_aware_self_attention relative_key_value""",
    "relative_global_attention": """
        music_attention music_relative_attention rga skewed_attention""",
    "transformer_xl_attention": """
        transfo_xl txl txl_attention rel_multi_head_attn
        rel_partial_learnable_multi_head""",
    "graph_attention": "sparse_attention edge_attention relation_aware_graph",
    "scores": """
        logits attention_logits attention_scores attention_terms score_terms explain""",
    "compare": "allclose assert_close gradcheck check_against side_by_side",
    "diagnose": """
        debug which_convention whats_wrong second_opinion explain_difference check
        check_implementation""",
    "indexer_top_k": """
        lightning_indexer indexer topk top_k_keys sparse_indexer
        deepseek_sparse_attention dsa""",
    "merge_attention": "merge merge_states merge_attn_states ring_attention",
    "KVCache": """
        kv_cache cache dynamic_cache static_cache past_key_values past_key_value
        key_value_cache""",
    # ---- positions inside attention
    "relative_positions": "relative_position relative_distance distances offsets",
    "grid_labels": "relative_position_index relative_coords grid_positions",
    "rel_shift": "relative_shift shift",
    "skew": "skewing skew_scores qe_masking",
    "alibi_bias": "alibi_attention build_alibi_tensor alibi_mask",
    "alibi_slopes": "get_slopes get_alibi_slopes slopes",
    "t5_bias": """
        t5_relative_bias t5_relative_position_bias relative_position_bias
        relative_attention_bias compute_bias rel_pos_bias position_bias""",
    "t5_bucket": "relative_position_bucket bucket buckets t5_buckets",
    "deberta_bucket": """
        make_log_bucket_position log_bucket_position build_relative_position""",
    "kerple_bias": "kerple_log kerple_power kerple_attention",
    "fire_bias": "fire_relative_position_bias functional_interpolation",
    # ---- rotary
    "apply_rotary": """
        rotary_encoding rotary_embedding rotary_emb rotary_pos_emb
        rotary_position_embedding apply_rope apply_rotary_emb apply_rotary_pos_emb
        apply_rotary_position_embedding rotate_half rotate_queries_and_keys llama2
        llama3 mistral mixtral qwen qwen2 qwen3 phi3""",
    "rotary_frequencies": """
        yarn ntk ntk_rope ntk_aware dynamic_ntk longrope llama3_rope linear_rope
        rope_scaling rope_frequencies rope_init inv_freq precompute_freqs_cis
        position_interpolation""",
    "rotary_magnitude": "attention_factor mscale yarn_magnitude",
    "rotary_from_config": """
        rope_parameters rope_from_config rope_init_functions rope_theta
        partial_rotary_factor proportional_rope p_rope gemma3 gemma4 modernbert""",
    "mrope_angles": """
        mrope mrope_section multimodal_rope interleaved_mrope
        apply_multimodal_rotary_pos_emb qwen2_vl qwen3_vl""",
    "axial_angles": """
        axial_rope axial_rotary rope_2d rotary_2d rope_3d vision_rotary_embedding
        dinov3 v_jepa2 pixtral""",
    "xpos_magnitude": "xpos xpos_scale",
    # ---- encodings that are added
    "sinusoidal": """
        sinusoidal_encoding sinusoidal_embedding sinusoidal_position_embedding
        sinusoidal_positional_encoding sincos sine_encoding position_encoding
        positional_embedding position_embedding timestep_embedding
        get_timestep_embedding""",
    "learned": "learned_encoding learned_embedding learnable absolute",
    "conv_encoding": """
        cpe pos_cnn conditional_positional_encoding conv_embedding
        positional_encoding_generator""",
    "audit_encoding": "audit evaluate_encoding",
    # ---- models, layers and the rest
    "recipes.bert": "relative_key",
    "recipes.deberta": "deberta_v3 deberta_bias",
    "recipes.deepseek_v4": "deepseek",
    "recipes.enformer": "borzoi",
    "recipes.enformer_positions": "get_positional_embed",
    "recipes.forgetting_transformer": "forget_gate forgetting_attention",
    "recipes.from_config": "from_pretrained",
    "recipes.gemma2": "gemma",
    "recipes.gemma3n_audio": "gemma3n",
    "recipes.gpt_oss": "softmax_off_by_one streaming_llm",
    "recipes.layoutlmv3": "layoutlm",
    "recipes.llama4": "chunked_attention irope",
    "recipes.llama4_temperature": "attn_temperature_tuning",
    "recipes.longformer": "sliding_chunks global_attention led",
    "recipes.longt5_local": "local_attention",
    "recipes.mistral_large4": "lerope learned_rope",
    "recipes.mistral_large4_temperature": "softmax_scaling",
    "recipes.moirai": "binary_attention_bias variate_bias any_variate_attention",
    "recipes.natten1d": "natten na1d neighborhood_attention neighborhood_attention1d",
    "recipes.parakeet": "fast_conformer",
    "recipes.pope": "polar_embedding apply_polar_pos_emb",
    "recipes.recurrent_gemma": "griffin",
    "recipes.rope_vit": "rope_mixed mixed_rope compute_mixed_cis",
    "recipes.sam": "segment_anything decomposed_rel_pos vitdet mvit",
    "recipes.swin": "swin_transformer swin_bias window_attention",
    "recipes.swin_v2": "continuous_position_bias",
    "recipes.t5": "t5_recipe",
    "recipes.wav2vec2_bert": "w2v_bert",
    "recipes.wavlm": "gated_relative_position_bias",
    "recipes.xlnet_segments": "segments",
    "recipes.zipformer_positions": "compact_relpos",
    "recipes": "models",
    "nn.ConformerRelPositionAttention": """
        conformer conformer_attention RelPositionMultiHeadAttention
        RelPositionMultiHeadedAttention""",
    "nn.ConvPositionEmbedding": "wav2vec2 pos_conv_embed",
    "nn.RelativeGlobalAttention": "RelativeGlobalAttention",
    "nn.ShawAttention": "ShawAttention",
    "nn.DynamicPositionBias": "dpb cpb",
    "nn.TransformerLayer": """
        TransformerEncoderLayer TransformerDecoderLayer TransformerEncoder
        TransformerBlock block""",
    "nn.FeedForward": "ffn PositionwiseFeedForward",
    "nn.update_memory": "mems",
    "nn.KVCaches": "caches",
    "nn.load_file": "load_state_dict load safetensors",
    "nn": "layers modules Module",
    "plot.attention_map": "heatmap plot_attention plot_weights",
    "plot.attention_heads": "plot_heads head_view",
    "plot.score_map": "plot_scores",
    "plot.score_terms": "plot_terms",
    "plot.skew_steps": "plot_skew",
    "plot.bias_by_distance": "plot_bias",
    "plot.grid_bias": "plot_grid",
    "plot.decay": "long_term_decay",
    "plot.edges": "arcs",
    "plot.plan_bars": "plot_plan",
    "plot.costs_over_length": "plot_costs",
    "plot.attention_graph": "plot_graph draw_graph",
    "plot.encoding_maps": "plot_encodings",
    "plot.length_generalisation": "length_generalization",
    "plot.encoding_map": "plot_encoding",
    "plot.loss_curves": "plot_losses",
    "data.chorales": "bach bach_chorales jsb_chorales",
    "reference": "definitions numpy ref",
    "torch": "pytorch tensors autograd",
    "torch.nn.RelativeMultiheadAttention": """
        RelativeMultiheadAttention RelativeSelfAttention MultiheadRelativeAttention""",
    "torch.register": "attn_implementation set_attn_implementation",
    "torch.replace_attention": "patch_model patch",
    "reference.brute_force_attention": "brute_force",
    "ufuncs": "gufuncs",
    "plan": "cost costs flops memory_usage estimate",
    "set_num_threads": "num_threads omp_num_threads",
    "show_config": "config info show_versions",
}
_WIDTH = 88  # of a line of the table
#: Names in a module of relpos for which no other name is tried.
ALONE = """
    recipes.Recipe nn.Sequential nn.Residual nn.ReLU nn.GELU nn.Position nn.Linear
    nn.LayerNorm nn.Dropout nn.Embedding nn.Memory plot.rotary_wheel plot.wavelengths
    plot.fingerprint plot.fingerprints plot.relative_position_map plot.buckets
    plot.audit"""


@cache
def _by_name() -> dict[str, str]:
    """Return the public name that each known name means, by the name as `plain`."""
    public_of: dict[str, str] = {}
    for name, public in _known_names():
        public_of.setdefault(plain(name), public)
    return public_of


def _known_names() -> Iterator[tuple[str, str]]:
    """Yield each known name and the public name that it means, preferred ones first."""
    # Names that were collected from users and other libraries are the most exact.
    for public, tried in TRIED.items():
        for name in tried.split():
            yield name, public
    # A scheme means the function that people should meet first.
    for scheme in SCHEMES:
        for name in scheme.names:
            yield name, scheme.functions[0]
    # A name in a module is known without the module, as `deberta` of relpos.recipes.
    functions = [name for scheme in SCHEMES for name in scheme.functions]
    in_modules = [x for x in [*ALONE.split(), *functions, *TRIED] if "." in x]
    for public in in_modules:
        yield public.rpartition(".")[2], public
    # A picture is also looked for as plot_*, and a recipe as *_attention.
    for public in in_modules:
        module, _, name = public.rpartition(".")
        if module == "plot":
            yield f"plot_{name}", public
        elif module == "recipes":
            yield f"{name}_attention", public
    # Models come last: some are called as a scheme that they do not use alone.
    for scheme in SCHEMES:
        for name in scheme.models:
            yield name, scheme.functions[0]


def suggestion(name: str) -> str | None:
    """Return the public name, from `relpos.` on, that `name` means; None if unknown."""
    public = _by_name().get(plain(name))
    return None if public is None else f"relpos.{public}"


def as_scheme(name: str, value: object, known: Collection[str]) -> str:
    """Return the one of `known` that an argument names; suggest one if it has none.

    A scheme that is not among them has nothing near: the error lists them all.
    """
    scheme = same_name(value, known)
    if isinstance(scheme, str) and scheme not in known:
        near = _scheme_near(scheme, known)
        if near is not None:
            raise ValueError(f"{name}: got {value!r}; did you mean {near!r}?")
    return as_choice(name, scheme, known)


def _scheme_near(name: str, known: Collection[str]) -> str | None:
    """Return the one of `known` whose scheme has the function that `name` means."""
    for scheme in SCHEMES:
        if name in scheme.names or name in scheme.variants:
            return None  # a scheme: it is not known here, and no other one is meant
    function = (suggestion(name) or "").removeprefix("relpos.")
    for scheme in SCHEMES:
        near = same_name(scheme.name, known)
        if function in scheme.functions and near in known:
            return str(near)
    return None


def scheme_of(name: str, value: object) -> Scheme:
    """Return the scheme that an argument names, by any of its names or a variant's."""
    schemes = {}
    for scheme in SCHEMES:
        for called in (scheme.name, *scheme.variants):
            schemes[called] = scheme
    return schemes[as_scheme(name, value, schemes)]


def absent(module: str, positions: Collection[str] = ()) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of a module, whose error says which name is meant.

    `positions` are the schemes that an attention of the module knows by name.
    """

    def __getattr__(name: str) -> NoReturn:
        problem = f"module {module!r} has no attribute {name!r}"
        is_private = name == "" or name.startswith("_")
        suggested = None if is_private else _meant(module, name, positions)
        if suggested is None:
            raise AttributeError(problem)
        # obj: else the interpreter would add a guess of its own
        raise AttributeError(f"{problem}; did you mean {suggested}?", obj=None)

    return __getattr__


def _meant(module: str, name: str, positions: Collection[str]) -> str | None:
    """Return the public name, preferably of the same module, that `name` means."""
    suggested, in_module = suggestion(name), sys.modules[module].__all__
    if module == "relpos":
        return suggested
    last = (suggested or "").rpartition(".")[2]
    if last in in_module:
        return f"{module}.{last}"
    for scheme in SCHEMES:
        if (suggested or "").removeprefix("relpos.") in scheme.functions:
            there = _scheme_in(module, scheme, plain(name), positions)
            if there is not None:
                return there
    for public in in_module:
        # A short name is also part of names that have nothing to do with it.
        is_part = len(name) > 4 and plain(name) in plain(public)
        if is_part or public.startswith(f"{name}_"):
            return f"{module}.{public}"
    if name in sys.modules["relpos"].__dir__():
        return f"relpos.{name}"
    return suggested


def _scheme_in(
    module: str, scheme: Scheme, name: str, positions: Collection[str]
) -> str | None:
    """Say what a module has for a scheme that is called `name`; None if nothing."""
    if module == "relpos.plot":
        return f"relpos.plot.{_picture_of(scheme)}"
    if module == "relpos.recipes" and scheme.name == "rotary":
        return "relpos.rotary_from_config and relpos.apply_rotary"
    if not positions:
        return None
    in_module = sys.modules[module].__all__
    if "attention" not in name:
        for function in scheme.functions:
            room, _, layer = function.rpartition(".")
            if room == "nn" and layer in in_module:
                return f"{module}.{layer}"
    (attention,) = (x for x in in_module if x.endswith("MultiheadAttention"))
    position = same_name(scheme.name, positions)
    if position in positions:
        return f'{module}.{attention}(position="{position}")'
    return f"{module}.{attention}" if scheme.name == "attention" else None


def _picture_of(scheme: Scheme) -> str:
    """Return the function of relpos.plot that shows a scheme."""
    if scheme.family in ("absolute", "convolutional"):
        return "encoding_map"
    if scheme.name == "rotary":
        return "rotary_wheel"
    if scheme.operands == ("rel_bias",):
        return "bias_by_distance"
    if scheme.name == "graph_attention":
        return "attention_graph"
    has_table_or_network = {"rel_key", "w1"} & {*scheme.operands}
    return "fingerprint" if has_table_or_network else "attention_map"


def absent_method(tried: Mapping[str, str]) -> Callable[[Any, str], NoReturn]:
    """Return the `__getattr__` of a class, whose error says which name is meant.

    `tried` has the attributes of the class, and the names that users try for them.
    """

    def __getattr__(self: Any, name: str) -> NoReturn:
        kind = type(self).__name__
        problem = f"{kind!r} object has no attribute {name!r}"
        for there, names in tried.items():
            if plain(name) in map(plain, names.split()):
                hint = f"did you mean {kind}.{there}?"
                raise AttributeError(f"{problem}; {hint}", obj=None)
        raise AttributeError(problem, name=name, obj=self)

    return __getattr__


def table(public: Iterable[str]) -> str:
    """Return the public names as a table: those of any scheme, by family, the rest."""
    rows = _rows_of_table(public)
    width = max(map(len, rows)) + 2
    edge = f"{'=' * (width - 2)}  {'=' * (_WIDTH - width)}"
    lines = [edge]
    for head, names in rows.items():
        first, *others = wrap(", ".join(names), _WIDTH - width)
        lines.append(head.ljust(width) + first)
        lines += [" " * width + line for line in others]
    return "\n".join([*lines, edge])


def _rows_of_table(public: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of each row by its head."""
    # The functions of any scheme are the first row; the other general ones come after
    # the schemes.
    (head, names), *others = GENERAL.items()
    rows: dict[str, list[str]] = {head: [*names]}
    listed = {name for names in GENERAL.values() for name in names}
    for scheme in SCHEMES:
        for name in scheme.functions:
            if "." not in name and name not in listed:
                rows.setdefault(scheme.family, []).append(name)
                listed.add(name)
    for head, names in others:
        rows[head] = [*names]
    rows["results"] = [x for x in public if x[0] != "_" and x not in listed]
    return rows


# ---- the public names of a package ---------------------------------------------------


def publish(namespace: dict[str, Any]) -> list[str]:
    """Return the public functions and classes among a package's globals, sorted.

    Each is named after the package from now on, not after the module that defines it:
    that is what its repr and its pickles say, so that modules may move. Each function
    is wrapped, so that errors of calls that do not fit suggest an argument.
    """
    public = {
        name: value
        for name, value in sorted(namespace.items())
        if not name.startswith("_") and callable(value)
    }
    for name, value in public.items():
        value.__module__ = namespace["__name__"]
        if not isinstance(value, type):
            namespace[name] = hinted(value)
        elif not issubclass(value, tuple):
            _hint_methods(value)
    return [*public]


def _hint_methods(owner: type[Any]) -> None:
    for name in ("__init__", "__call__", "forward"):
        method: Any = getattr(owner, name, None)
        if getattr(method, "__module__", "").startswith("relpos."):
            setattr(owner, name, hinted(method, owner))
