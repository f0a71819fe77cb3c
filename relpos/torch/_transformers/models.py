"""Models of transformers: relpos in their registry, and instead of their own code."""

from __future__ import annotations

import torch

from relpos._checks import as_flag
from relpos._tested import warn_of_newer

__all__ = ["register", "replace_attention"]


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


def replace_attention(
    model: torch.nn.Module, *, keep_positions: bool = True
) -> list[str]:
    """Swap the attention of a model for attention by relpos, without dense biases.

    It is for models whose attention does not ask transformers' registry, and for those
    that build a dense bias before they call it. Their positions are given as a table,
    and no array of Lq x Lk is made for each head.
    The model has the same results, and may be trained, saved and loaded as before.

    - Text: DeBERTa in all versions, MPNet, XLNet, BLOOM, MPT, T5, mT5, Inkling,
      Inkling 2, Inkling 2 Loop.
    - Speech: WavLM, SEW-D, Wav2Vec2-Conformer and FastSpeech2-Conformer with relative
      positions, VITS, the encoder of SpeechT5, the audio encoders of Gemma 3n and 4.
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
    modules raise ValueError. BLOOM, MPT, MPNet and VITS do not ask, and are set to it
    for its masks. ``output_attentions=True`` of a call or a configuration
    returns the weights that the model returns. A cache has the name of any version,
    ``cache`` or ``past_key_values``; a cache under another name, and an argument that
    relpos does not know, raise ValueError. Queries of padding are as in `register`; in
    Gemma's audio encoders, those on the left change the next frames.

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
            "relpos.torch.register and replace_attention need transformers, which is "
            "not installed; run `pip install transformers`, or "
            "in a checkout `pip install '.[transformers]'`",
            name="transformers",
        ) from exc
    warn_of_newer(torch=torch.__version__, transformers=transformers.__version__)
