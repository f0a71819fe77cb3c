"""Multi-head attention with relative positions, instead of PyTorch's."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from relpos._checks import as_flag, kind_of
from relpos._schemes import same_name
from relpos._text import amount
from relpos.nn._inputs import as_probability, as_settings, as_size, check_offset
from relpos.nn.multihead import as_causal
from relpos.nn.position import MUSIC_ROWS
from relpos.torch._causal import as_causal_bias, causal_terms, check_size
from relpos.torch._kept import forget
from relpos.torch._tensors import check_kinds, check_type
from relpos.torch.nn._layer import (
    Layer,
    Options,
    as_int,
    check_shape,
    join_heads,
    split_heads,
)
from relpos.torch.nn._positions import SCHEMES, projections, sizes_of

__all__ = ["RelativeMultiheadAttention"]

if TYPE_CHECKING:
    from relpos.torch._causal import CausalTerms
    from relpos.torch.nn._positions import PositionName


class Extent(NamedTuple):
    """Sizes of the scores of a call, (N, heads, L, S)."""

    batch: int
    heads: int
    length: int
    total: int


class Hiding(NamedTuple):
    """Keywords of attention that hide keys, and the mask that is to be read."""

    terms: CausalTerms
    mask: Tensor | None


class RelativeMultiheadAttention(Layer, nn.MultiheadAttention):
    r"""``torch.nn.MultiheadAttention`` with relative positions: same call, same names.

    .. math::

        out = W_o \, softmax(s) \, V + b_o, \quad
        s_{ij} = \frac{q_i k_j}{\sqrt D} + position_{ij}

    where the term of `position` is that of

    ==================  =============================================  ================
    `position`          its function                                   in the state
    ==================  =============================================  ================
    None                none: PyTorch's numbers                        nothing
    "shaw"              `relpos.torch.shaw_attention`                  rel_key,
                                                                       rel_value
    "music"             `relpos.torch.relative_global_attention`       rel_key
    "transformer_xl"    `relpos.torch.transformer_xl_attention` over   pos_bias_u,
                        projected sinusoids                            pos_bias_v,
                                                                       pos_proj.weight
    "t5"                `relpos.torch.t5_bias`, added to scores that   rel_bias
                        are scaled
    "alibi"             `relpos.torch.alibi_bias`                      nothing
    "kerple"            `relpos.torch.kerple_bias`, r1 and r2 of at    r1, r2
                        least 0.01 as in `relpos.nn.KERPLE`
    "rope"              `relpos.torch.apply_rotary`                    nothing
    "fire"              `relpos.torch.fire_attention`                  w1, b1, w2, b2,
                                                                       c, threshold
    "deberta"           `relpos.recipes.deberta`, positions projected  rel_embeddings
                        by the weights of queries and keys
    ==================  =============================================  ================

    Parameters
    ----------
    embed_dim, num_heads, dropout, bias : as in ``torch.nn.MultiheadAttention``
        Width, heads, dropout of the weights, and whether projections have a bias.
    add_bias_kv, add_zero_attn : bool
        Only False: a row that is added to the keys has no position.
    kdim, vdim, batch_first, device, dtype : as in ``torch.nn.MultiheadAttention``
        Widths of key and value, and order of axes.
    is_causal : bool, optional
        Whether every call hides the future; where this is False, a call may. None means
        False. The table of "music" has max_len rows for the past alone, 2 max_len - 1
        for both directions. A state does not say which it is.
    position : str, optional
        The scheme, of the table above or by another of its names, such as "rotary",
        "xl" or "relative_global".
    max_relative_position : int, optional
        Of "shaw" (default 16) the distance from which on rows are the same; of
        "deberta" (512) the distance to which its buckets grow.
    max_len : int, optional
        Of "music" (1024): the longest sequence.
    num_buckets : int, optional
        Of "t5" (32); of "deberta" (256) on each side.
    max_distance : int, optional
        Of "t5" (128) where the last bucket begins; of "fire" (512) the threshold that
        its training starts from.
    bidirectional : bool, optional
        Of "t5" (True): whether the future has buckets of its own.
    base : float, optional
        Of "rope" (10000).
    width : int, optional
        Of "fire" (32): units of its network.

    Attributes
    ----------
    in_proj_weight, in_proj_bias, out_proj : as in ``torch.nn.MultiheadAttention``
        And `q_proj_weight`, `k_proj_weight`, `v_proj_weight` where widths differ.

    Raises
    ------
    ValueError
        A size belongs to another `position`.

    Notes
    -----
    It is a subclass of ``torch.nn.MultiheadAttention``, so that it may replace
    ``self_attn`` of ``torch.nn.TransformerEncoderLayer``, for type checkers too. It
    keeps that layer off PyTorch's fused path, which knows no positions. Three things
    differ from PyTorch's module: a query that sees no key gets the output's bias, not
    nan; weights are those before dropout, and have no gradient; ``is_causal`` needs no
    `attn_mask`.

    In evaluation mode without gradients, "deberta" and "transformer_xl" keep the
    projections of their last positions, which are used again while the bits of all that
    they were made of are the same. ``train()`` frees them, and ``keep_positions =
    False`` of a module switches this off.

    References
    ----------
    .. [1] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762; each
       scheme's paper is listed with its function.

    Examples
    --------
    >>> import torch
    >>> from relpos.torch import nn
    >>> x = torch.ones(2, 5, 16)
    >>> layer = nn.RelativeMultiheadAttention(16, 4, batch_first=True, position="shaw")
    >>> out, weights = layer(x, x, x)
    >>> out.shape, weights.shape
    (torch.Size([2, 5, 16]), torch.Size([2, 5, 5]))

    In a layer of PyTorch's:

    >>> encoder = torch.nn.TransformerEncoderLayer(16, 4, batch_first=True)
    >>> encoder.self_attn = layer
    >>> encoder(x).shape
    torch.Size([2, 5, 16])
    """

    #: See Notes.
    keep_positions = True
    #: PyTorch's layers read it, and then do not take their fused path.
    _qkv_same_embed_dim = False
    bias_k = bias_v = None
    add_zero_attn = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        is_causal: bool | None = None,
        position: PositionName | None = None,
        max_relative_position: int | None = None,
        max_len: int | None = None,
        num_buckets: int | None = None,
        max_distance: int | None = None,
        bidirectional: bool | None = None,
        base: float | None = None,
        width: int | None = None,
    ) -> None:
        nn.Module.__init__(self)  # PyTorch's own __init__ would draw other weights
        added = {"add_bias_kv": add_bias_kv, "add_zero_attn": add_zero_attn}
        for name, flag in added.items():
            if flag:
                raise ValueError(
                    f"{name}: got {flag!r}; expected False, as a row that is added to "
                    "the keys has no position"
                )
        position = same_name(position, SCHEMES)
        heads = as_settings({"embed_dim": embed_dim, "num_heads": num_heads})
        self.embed_dim, self.num_heads = heads.embed_dim, heads.num_heads
        self.head_dim = self.embed_dim // self.num_heads
        # These attributes have the names that PyTorch's module gives them.
        self.kdim = embed_dim if kdim is None else as_size("kdim", kdim)
        self.vdim = embed_dim if vdim is None else as_size("vdim", vdim)
        self.dropout = as_probability("dropout", dropout)
        self.batch_first = as_flag("batch_first", batch_first)
        self.is_causal = as_causal(is_causal)
        options: Options = {"device": device, "dtype": dtype}
        self._make_projections(as_flag("bias", bias), options)
        self.position = position
        self.sizes = sizes_of(
            position,
            {
                "max_relative_position": max_relative_position,
                "max_len": max_len,
                "num_buckets": num_buckets,
                "max_distance": max_distance,
                "bidirectional": bidirectional,
                "base": base,
                "width": width,
            },
        )
        SCHEMES[position].start(self, options)

    def _make_projections(self, bias: bool, options: Options) -> None:
        """Make what PyTorch's module has, by its names and with its initial values."""
        width = self.embed_dim
        # One matrix of three times the width is what PyTorch's state has where all
        # inputs have one width.
        packed = self.kdim == self.vdim == width
        if packed:
            shapes = {"in_proj_weight": (3 * width, width)}
        else:
            shapes = {
                "q_proj_weight": (width, width),
                "k_proj_weight": (width, self.kdim),
                "v_proj_weight": (width, self.vdim),
            }
        # as in PyTorch's module, all four are there, those without a shape as None
        for part in ("in", "q", "k", "v"):
            name = f"{part}_proj_weight"
            weight = None
            if name in shapes:
                weight = nn.Parameter(torch.empty(shapes[name], **options))
            self.register_parameter(name, weight)
        self._draw_projections()
        start = nn.Parameter(torch.zeros(3 * width, **options)) if bias else None
        self.register_parameter("in_proj_bias", start)
        self.add_module("out_proj", nn.Linear(width, width, bias=bias, **options))
        if bias:
            nn.init.zeros_(self.out_proj.bias)

    def _draw_projections(self) -> None:
        for name in ("in", "q", "k", "v"):
            weight = getattr(self, f"{name}_proj_weight")
            if weight is not None:
                nn.init.xavier_uniform_(weight)

    def train(self, mode: bool = True) -> Self:
        """Set the module to training or evaluation, as PyTorch's own method does.

        Parameters
        ----------
        mode : bool, default True
            True for training, which frees the projections that the module keeps.

        Returns
        -------
        RelativeMultiheadAttention
            The module itself.
        """
        if mode:
            forget(self)
        return super().train(mode)

    def _reset_parameters(self) -> None:
        """Draw the projections again, as transformers asks of PyTorch's module."""
        self._draw_projections()
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                nn.init.zeros_(bias)

    def extra_repr(self) -> str:
        """Return the arguments that its repr shows.

        Returns
        -------
        str
            Width, heads, `is_causal`, position and sizes.
        """
        shown = {"is_causal": self.is_causal, "position": self.position, **self.sizes}
        keywords = [f"{name}={value!r}" for name, value in shown.items()]
        return ", ".join([str(self.embed_dim), str(self.num_heads), *keywords])

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what was pickled. PyTorch's own method would allow its fused path."""
        nn.Module.__setstate__(self, state)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        # torch reports sizes that differ; this says what the two sizes mean
        shape = getattr(state_dict.get(f"{prefix}rel_key"), "shape", None)
        if self.position == "music" and shape not in (None, self.rel_key.shape):
            args[-1].append(f"{prefix}rel_key: {MUSIC_ROWS}")

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        query_offset: int | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend, as ``torch.nn.MultiheadAttention`` is called.

        Parameters
        ----------
        query, key, value : Tensor
            (L, N, E), with `batch_first` (N, L, E), or (L, E). With `batch_first` they
            may be one nested tensor, as PyTorch's encoders pass where they are given
            padding: then the output is nested, and the weights are padded.
        key_padding_mask : Tensor, (N, S) or (S,), optional
            A boolean mask is True where a key is **hidden**. A floating mask is added
            to the scores.
        need_weights : bool, default True
            Also return the weights, which take O(L S) memory.
        attn_mask : Tensor, (L, S) or (N * num_heads, L, S), optional
            A boolean mask is True where a key is **hidden**. A floating mask is added
            to the scores. A `CausalBias` of ``torch.nn.attention.bias`` hides what it
            says, and is the `query_offset` of a call without one, except for
            "transformer_xl".
        average_attn_weights : bool, default True
            Return the mean of the weights over the heads, not those of each.
        is_causal : bool, default False
            Says that `attn_mask` is the causal one, which then is not read, unless it
            is a `CausalBias`. The future is hidden too where the module's own
            `is_causal` is True.
        query_offset : int, optional
            Position of query 0 minus that of key 0, where their numbers differ.

        Returns
        -------
        tuple of Tensor and (Tensor or None)
            The output, of the layout of `query`; and the weights, (N, L, S) or
            (N, num_heads, L, S), unbatched without N.

        Raises
        ------
        ValueError
            Lengths differ without a `query_offset` where the scheme asks for one.
        """
        as_flag("need_weights", need_weights)
        as_flag("average_attn_weights", average_attn_weights)
        no_mask = key_padding_mask is None
        if self.batch_first and no_mask and is_one_nested(query, key, value):
            # The call is repeated with a padded tensor, and its result is made nested
            # again.
            x, padding = padded(query)
            out, weights = self.forward(
                x,
                x,
                x,
                key_padding_mask=padding,
                need_weights=need_weights,
                attn_mask=attn_mask,
                average_attn_weights=average_attn_weights,
                is_causal=is_causal,
                query_offset=query_offset,
            )
            return nested(out, padding), weights
        projected, unbatched = self._project(query, key, value)
        dtype = query.dtype  # of the input: masks of bool become numbers in it
        query, key, value = projected
        batch, heads, length, _ = query.shape
        extent = Extent(batch, heads, length, key.shape[-2])
        causal = as_flag("is_causal", is_causal)
        hiding = self._hiding(attn_mask, causal, query_offset, extent, query.device)
        offset = hiding.terms["query_offset"]
        mask = _merged(hiding.mask, key_padding_mask, extent, dtype)
        scheme = SCHEMES[self.position]
        terms = scheme.arguments(self, query, key, offset)
        result: Any = scheme.attend(
            self,
            scheme.rotate(self, query, offset),
            scheme.rotate(self, key),
            value,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            return_weights=need_weights,
            **hiding.terms,
            **terms,
        )
        # attention returns a tensor, and a named tuple where weights are asked for
        weights = None
        if need_weights:
            result, weights = result.out, result.weights
            if average_attn_weights:
                weights = weights.mean(dim=1)
        out = self.out_proj(join_heads(result))
        if unbatched:
            return out[0], None if weights is None else weights[0]
        return out if self.batch_first else out.transpose(0, 1), weights

    def _project(
        self, query: Tensor, key: Tensor, value: Tensor
    ) -> tuple[tuple[Tensor, Tensor, Tensor], bool]:
        """Return (N, H, L, D) of each of the three, and whether there was no N."""
        unbatched = isinstance(query, Tensor) and query.dim() == 2
        check_shape("query", query, self._axes("L", "N", self.embed_dim, unbatched))
        if query is key is value and self.in_proj_weight is not None:
            return self._project_packed(query, unbatched), unbatched
        batch = query.shape[0 if self.batch_first else 1]
        check_shape("key", key, self._axes("S", batch, self.kdim, unbatched))
        check_shape("value", value, (*key.shape[:-1], self.vdim))
        weights, biases = projections(self)
        inputs = zip((query, key, value), weights, biases, strict=True)
        parts = tuple(
            nn.functional.linear(x, weight, bias) for x, weight, bias in inputs
        )
        if unbatched:
            parts = tuple(part[None] for part in parts)
        elif not self.batch_first:
            # (L, N, E) becomes (N, L, E), the order of attention.
            parts = tuple(part.transpose(0, 1) for part in parts)
        q, k, v = (split_heads(part, self.num_heads) for part in parts)
        return (q, k, v), unbatched

    def _project_packed(
        self, x: Tensor, unbatched: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return (N, H, L, D) of query, key and value, of which `x` is each."""
        # one product, and one view of it, instead of three
        packed = nn.functional.linear(x, self.in_proj_weight, self.in_proj_bias)
        rows = (1, *packed.shape[:-1]) if unbatched else packed.shape[:-1]
        heads = packed.view(*rows, 3, self.num_heads, self.head_dim)
        # (N, L, 3, H, D) or (L, N, 3, H, D) becomes (3, N, H, L, D).
        axes = (2, 0, 3, 1, 4) if unbatched or self.batch_first else (2, 1, 3, 0, 4)
        query, key, value = heads.permute(axes).unbind()
        return query, key, value

    def _axes(
        self, length: int | str, batch: int | str, width: int, unbatched: bool
    ) -> tuple[int | str, ...]:
        """Return the shape of an input in the module's order of axes."""
        if unbatched:
            return length, width
        if self.batch_first:
            return batch, length, width
        return length, batch, width

    def _hiding(
        self,
        mask: Tensor | None,
        is_causal: bool,
        offset: Any,
        extent: Extent,
        device: torch.device,
    ) -> Hiding:
        """Return what is hidden, without the padding."""
        length, total = extent.length, extent.total
        terms: CausalTerms
        bias = as_causal_bias(mask)
        if bias is None:
            offset = self._offset(offset, length, total)
            terms = {"is_causal": is_causal, "query_offset": offset}
        else:
            check_size(bias, length, total)
            # The mask may say the offset of a call that does not.
            offset = self._offset(offset, length, total, bias.shift)
            terms = causal_terms(bias, device, offset)
            mask = None
        terms["is_causal"] = self.is_causal or terms.get("is_causal", False)
        # `is_causal` of the call says that the mask is the causal one
        return Hiding(terms, None if is_causal else mask)

    def _offset(
        self, offset: Any, length: int, total: int, shift: int | None = None
    ) -> Any:
        """Return the position of query 0, that of key 0 being 0.

        `shift` is what the mask says of it.
        """
        scheme = SCHEMES[self.position]
        if offset is None:
            offset = scheme.default_offset(length, total, shift)
        elif scheme.has_one_offset and not isinstance(offset, torch.SymInt):
            if isinstance(offset, Tensor):
                if offset.numel() != 1:
                    raise ValueError(
                        f"query_offset: got shape {(*offset.shape,)}; expected one "
                        f"integer, as position={self.position!r} asks"
                    )
                offset = offset.item()
            # tables are made for one offset of all items
            offset = as_int("query_offset", offset)
            if not torch.compiler.is_compiling():  # where it would bound the lengths
                check_offset(offset, length, total, scheme.limit)
        if offset is None:
            raise ValueError(
                f"query_offset: got None for {amount(length, 'query')} and "
                f"{amount(total, 'key')}; expected an integer, as "
                f"position={self.position!r} asks where query 0 is"
            )
        return offset


def _merged(
    attn_mask: Tensor | None,
    padding: Tensor | None,
    extent: Extent,
    dtype: torch.dtype,
) -> Tensor | None:
    """Return both masks as one of `relpos.torch.attention`: True = may attend."""
    batch, heads, length, total = extent
    masks = []
    if attn_mask is not None:
        _check_kind("attn_mask", attn_mask)
        if attn_mask.dim() == 3:
            check_shape("attn_mask", attn_mask, (batch * heads, length, total))
            # PyTorch's first axis has the heads of an item next to each other.
            attn_mask = attn_mask.unflatten(0, (batch, heads))
        else:
            check_shape("attn_mask", attn_mask, (length, total))
        masks.append(attn_mask)
    if padding is not None:
        _check_kind("key_padding_mask", padding)
        if padding.dim() == 1:
            padding = padding[None]
        check_shape("key_padding_mask", padding, (batch, total))
        # Padding is the same for all heads and queries.
        masks.append(padding[:, None, None])
    if not masks:
        return None
    # PyTorch's masks have True where a key is hidden, those of attention where not
    if all(mask.dtype == torch.bool for mask in masks):
        return ~reduce(torch.logical_or, masks)
    # One floating mask is enough to make all of them numbers, which add up.
    return reduce(torch.add, [_as_scores(mask, dtype) for mask in masks])


def _check_kind(name: str, mask: Any) -> None:
    check_kinds({name: mask})
    if not isinstance(mask, Tensor) or not (
        mask.dtype == torch.bool or mask.is_floating_point()
    ):
        kind = mask.dtype if isinstance(mask, Tensor) else kind_of(mask)
        raise TypeError(
            f"{name}: got {kind}; expected a tensor of bool (True = hidden) or floats"
        )


def _as_scores(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask as numbers to add to the scores: -inf where it is hidden."""
    if mask.dtype != torch.bool:
        return mask
    zeros = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return zeros.masked_fill(mask, -torch.inf)


# ---- nested tensors, which PyTorch makes of padded ones ------------------------------


def is_one_nested(*inputs: Tensor) -> bool:
    """Tell whether all inputs are one nested tensor, of the layout of encoders."""
    first = inputs[0]
    check_type("query", type(first))  # before it is asked for anything
    return (
        isinstance(first, Tensor)
        and first.is_nested
        and first.layout == torch.strided
        and all(each is first for each in inputs)
    )


def padded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return (N, L, E) of a nested tensor, and a mask (N, L): True = padding."""
    lengths = torch.tensor([len(item) for item in x.unbind()], device=x.device)
    dense = x.to_padded_tensor(0.0)
    return dense, torch.arange(dense.shape[1], device=x.device) >= lengths[:, None]


def nested(x: Tensor, padding: Tensor) -> Tensor:
    """Return the nested tensor that `padded` was given, with the numbers of `x`."""
    lengths = (~padding).sum(dim=1).tolist()
    items = zip(x.unbind(), lengths, strict=True)
    return torch.nested.as_nested_tensor([item[:length] for item, length in items])
