"""Models of transformers: relpos in their registry, and instead of their own code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from relpos._checks import as_flag
from relpos._tested import warn_of_newer

if TYPE_CHECKING:
    from typing import Any

__all__ = ["attention_interface", "register", "replace_attention"]


def register() -> None:
    """Give the models of transformers an attention by the name "relpos".

    From then on ``attn_implementation="relpos"`` is an attention of every model that
    asks transformers' registry for one: scale, dropout, masks, windows, caps
    (``softcap``), sinks (``s_aux``, ``sinks``), fewer key heads, caches and the dense
    ``position_bias`` of T5, Wav2Vec2-Conformer and Inkling are those of `attention`. A
    function that makes masks is registered too, without which models would have none.

    A model whose attention never asks stays eager, with a warning when it is made or
    changed; `replace_attention` is for it. A model that chooses a class of attention by
    this name, such as SAM or Falcon, raises ValueError when it is made. A second call
    has no effect.

    Raises
    ------
    ImportError
        If transformers is not installed.

    Notes
    -----
    Weights under ``output_attentions=True`` have no gradient, are those before dropout,
    and leave the sink its share (Granite SWA's own do not). A query that sees no key
    gets 0, as by ``"sdpa"``; eager code gives it a mean. An argument that would change
    the result and has no counterpart raises ValueError, and so does a cache, whose keys
    are then unknown; another unknown argument is warned of.
    Three methods of ``PreTrainedModel`` are wrapped: ``__init__``, ``post_init`` and
    ``set_attn_implementation``.

    Examples
    --------
    >>> import torch
    >>> import transformers
    >>> import relpos.torch
    >>> relpos.torch.register()
    >>> config = transformers.T5Config(
    ...     d_model=16, d_kv=8, d_ff=16, num_heads=2, num_layers=1, vocab_size=8
    ... )
    >>> config._attn_implementation = "relpos"  # or to from_pretrained, by name
    >>> model = transformers.T5EncoderModel(config)
    >>> model(torch.tensor([[3, 1, 2]])).last_hidden_state.shape
    torch.Size([1, 3, 16])
    """
    _need_transformers()
    from relpos.torch._transformers.adapters.chosen import refuse_choices
    from relpos.torch._transformers.interface.registry import register as add

    add()
    refuse_choices()


def attention_interface(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **keywords: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    r"""Compute attention for a module of a model, as transformers calls it.

    It is the function that `register` registers by the name "relpos". Others may hand
    it on: a kernel of the Hub, or a library with a registry of its own. With the
    letters of `attention`,

    .. math::

        out_i = \sum_j p_{ij} v_j, \quad
        p_i = softmax_j \left(cap(scaling \; q_i k_j) + mask_{ij}\right)

    Parameters
    ----------
    module : torch.nn.Module
        The caller. Its ``is_causal`` counts where neither a mask nor the argument says
        what is hidden, and its ``config`` says whether weights are asked for.
    query, key, value : Tensor
        (B, H, Lq, D), (B, Hk, Lk, D) and (B, Hk, Lk, Dv); H is a multiple of Hk.
    attention_mask : Tensor, broadcasts to (B, H, Lq, Lk), or None
        A boolean mask is True where a query may attend; a floating one is added.
    dropout : float, default 0
        Probability in [0, 1) that a weight is dropped. Pass 0 in evaluation.
    scaling : float, optional
        Default 1 / sqrt(D).
    **keywords
        ``is_causal`` (bool), ``softcap`` (float), ``sinks`` or ``s_aux`` (H,),
        ``position_bias`` (..., H, Lq, Lk), ``sliding_window`` (int, the query's own key
        included), ``query_offset`` (int), ``cu_seq_lens_q`` and ``cu_seq_lens_k``
        (n + 1,), ``indices`` (B, Lq, k), keys that an indexer picked, ``block_indices``
        (B, G, Lq, n), blocks of keys, and ``output_attentions`` (bool). What has no
        effect on the result is ignored.

    Returns
    -------
    tuple
        `out`, (B, Lq, H, Dv), with gradients, and the weights (B, H, Lq, Lk) where the
        model asks for them, without; else None.

    Raises
    ------
    ImportError
        If transformers is not installed.
    TypeError
        `module` is no Module, or `query`, `key` or `value` is no Tensor.
    ValueError
        An argument would change the result and has no counterpart in `attention`, or a
        shape does not fit.

    Warns
    -----
    UserWarning
        An argument is unknown.

    See Also
    --------
    register : Gives it to transformers, with the function that makes masks.

    References
    ----------
    .. [1] Wolf et al., "Transformers: State-of-the-Art Natural Language Processing",
       2020, arXiv:1910.03771.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> module = torch.nn.Module()
    >>> x = torch.zeros(1, 2, 3, 4)
    >>> value = torch.arange(3.0).expand(1, 2, 1, 3).mT
    >>> out, weights = relpos.torch.attention_interface(
    ...     module, x, x, value, None, is_causal=True
    ... )
    >>> out[0, :, 0, 0], weights
    (tensor([0.0000, 0.5000, 1.0000]), None)
    """
    try:
        from relpos.torch._transformers.interface.registry import attention_function
    except ImportError:
        _need_transformers()
        raise
    return attention_function(
        module, query, key, value, attention_mask, dropout, scaling, **keywords
    )


def replace_attention(
    model: torch.nn.Module, *, keep_positions: bool = True
) -> list[str]:
    """Swap the attention of a model for attention by relpos, without dense biases.

    It is for models whose attention does not ask transformers' registry, and for those
    that build a dense bias before they call it. Their positions are given as a table,
    and no array of Lq x Lk is made for each head.
    The model has the same results, and may be trained, saved and loaded as before.

    - Text: DeBERTa in all versions, MPNet, XLNet, BLOOM, MPT, T5, mT5, Inkling,
      Inkling 2, Inkling 2 Loop, Longformer, LED.
    - Speech: WavLM, SEW-D, Wav2Vec2-Conformer and FastSpeech2-Conformer with relative
      positions, VITS, the encoder of SpeechT5, the audio encoders of Gemma 3n and 4,
      and of Granite Speech, Granite Speech Plus and Granite Speech 5.
    - Vision: SAM, SAM-HQ, ViTDet, SegGPT, SLANeXt, GOT-OCR2, DeepSeek-OCR2,
      Unlimited-OCR, PP-FormulaNet; in windows, whose biases stay one array for each
      head, Swin V2, Swin2SR, and the Swin of Donut and of MaskFormer.
    - Indexers alone, which pick keys for the attention around them (`indexer_top_k`):
      DeepSeek V3.2, GLM-MoE-DSA, HY V4, HY V4 VL, A.X K2, Mistral Large 4, dots3.

    Parameters
    ----------
    model : torch.nn.Module
        A model of transformers, or any module that has such parts. It is changed in
        place: modules get another class, of the same parameters, buffers and name.
    keep_positions : bool, default True
        In inference, keep the projections of position embeddings of DeBERTa, SEW-D and
        both Conformers from one call to the next; see Notes.

    Returns
    -------
    list of str
        The names of the attention modules and indexers replaced, as of
        ``named_modules``.

    Raises
    ------
    ImportError
        If transformers is not installed.
    TypeError
        If ``model`` is no module of PyTorch.
    ValueError
        If there is no such module, all were replaced, one has its own ``forward`` or a
        subclass, a model keeps another attention, or the installed transformers gives a
        method other arguments than relpos knows. The model is then not changed.

    See Also
    --------
    relpos.recipes : The same models' parameters as arguments of `relpos.attention`.

    Notes
    -----
    Models that ask are set to ``attn_implementation="relpos"``; with another one their
    modules raise ValueError. BLOOM, MPT, MPNet, VITS and LED do not ask, and are set to
    it for its masks. ``output_attentions=True`` of a call or a configuration returns
    the weights that the model returns; the encoders of Longformer and LED then run
    their own code. A cache has the name of any version, ``cache`` or
    ``past_key_values``; a cache under another name, and an argument that relpos does
    not know, raise ValueError. Queries of padding are as in `register`; in Gemma's
    audio encoders, those on the left change the next frames.

    A module in evaluation mode without gradients keeps the projections of its last
    positions, and uses them again while the bits of weights, biases and embeddings are
    the same: each call compares a checksum of 128 bits. They take 38 MB in DeBERTa V3
    base, and are freed by ``train()``. Nothing is kept in training, where a projection
    is not exactly ``torch.nn.Linear`` or has hooks, in a traced call, or off the CPU.

    Examples
    --------
    >>> import transformers
    >>> import relpos.torch
    >>> config = transformers.DebertaV2Config(
    ...     hidden_size=16, num_hidden_layers=2, num_attention_heads=2, vocab_size=8,
    ...     intermediate_size=16, relative_attention=True, pos_att_type=["c2p", "p2c"],
    ... )
    >>> model = transformers.DebertaV2Model(config)
    >>> relpos.torch.replace_attention(model)
    ['encoder.layer.0.attention.self', 'encoder.layer.1.attention.self']
    """
    _need_transformers()
    from relpos.torch._transformers.adapters.swap import replace

    return replace(model, as_flag("keep_positions", keep_positions))


def _need_transformers() -> None:
    try:
        import transformers
    except ImportError as exc:
        if exc.name != "transformers":
            raise
        raise ImportError(
            "relpos.torch.register, replace_attention and attention_interface need "
            "transformers, which is not installed; run `pip install transformers`, or "
            "in a checkout `pip install '.[transformers]'`",
            name="transformers",
        ) from exc
    warn_of_newer(torch=torch.__version__, transformers=transformers.__version__)
