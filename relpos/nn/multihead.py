"""Multi-head attention by any scheme of relative positions, alone and in a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict

import numpy as np

from relpos._attention.cache import as_lengths
from relpos._checks import Array, ArrayLike, DTypeLike, as_flag, kind_of, quiet
from relpos._hints import meant
from relpos._schemes import same_name
from relpos._suggestions import as_scheme
from relpos._text import amount
from relpos._twins import twin
from relpos._undo import put
from relpos.nn._inputs import check_offset, check_shape, xavier_uniform
from relpos.nn.attention import AttentionLayer, MultiheadGradients, check_batch
from relpos.nn.basic import LayerNorm, Linear, affine, affine_gradients
from relpos.nn.composed import FeedForward, Residual
from relpos.nn.decoding import KVCaches, Memory, as_state, check_state_batch
from relpos.nn.module import LayerOptions, Module, Parameter, Seed
from relpos.nn.position import (
    FIRE,
    KERPLE,
    ALiBi,
    Music,
    Rotary,
    Shaw,
    T5Bias,
    TransformerXL,
)
from relpos.nn.position_base import Position

__all__ = ["MultiheadAttention", "TransformerLayer"]

if TYPE_CHECKING:
    #: Every name that `position` takes, written out for editors and type checkers.
    PositionName: TypeAlias = Literal[
        "shaw", "shaw_attention", "music", "relative_global_attention",
        "relative_global", "music_transformer", "transformer_xl",
        "transformer_xl_attention", "xl", "conformer", "t5", "alibi", "kerple", "rope",
        "rotary", "fire", "fire_attention",
    ]  # fmt: skip

#: Keys of `AttentionSizes`.
SizeName: TypeAlias = Literal["num_heads", "head_dim", "is_causal"]


# ---- positions by name -------------------------------------------------------------

#: name -> (layer, which sizes of an attention it takes first). Its other arguments are
#: those of `position` by this name, here and in relpos.torch.nn. A scheme's other names
#: are accepted as well; layers store this one.
SCHEMES: dict[str, tuple[Callable[..., Position], tuple[SizeName, ...]]] = {
    "shaw": (Shaw, ("num_heads", "head_dim")),
    "music": (Music, ("num_heads", "head_dim", "is_causal")),
    "transformer_xl": (TransformerXL, ("num_heads", "head_dim")),
    "t5": (T5Bias, ("num_heads",)),
    "alibi": (ALiBi, ("num_heads",)),
    "kerple": (KERPLE, ("num_heads",)),
    "rope": (Rotary, ("head_dim",)),
    "fire": (FIRE, ("num_heads",)),
}

#: Arguments and defaults of what relpos.torch.nn alone has.
TORCH_ONLY = {"deberta": {"max_relative_position": 512, "num_buckets": 256}}


def default_sizes(position: str) -> dict[str, Any]:
    """Return the arguments that belong to a scheme by name, with their defaults."""
    if position not in SCHEMES:
        return dict(TORCH_ONLY[position])
    make, first = SCHEMES[position]
    # The first arguments come from the attention; the last two are rng and dtype.
    parameters = [*signature(make).parameters.values()][len(first) : -2]
    return {parameter.name: parameter.default for parameter in parameters}


class AttentionSizes(TypedDict):
    """Arguments of an attention that the layers of positions take."""

    num_heads: int
    head_dim: int
    is_causal: bool


def as_position(
    position: str | Position | None,
    sizes: Mapping[str, Any],
    attention: AttentionSizes,
    options: LayerOptions,
) -> Position:
    """Return the layer of a name, or of None; a layer is returned as it is.

    sizes: further arguments of the name's layer.
    """
    if isinstance(position, str):
        as_scheme("position", position, SCHEMES)
    elif position is not None and not isinstance(position, Position):
        raise TypeError(
            f"position: got {kind_of(position)}; expected None, a layer that is a "
            f"Position, or one of {', '.join(map(repr, SCHEMES))}"
        )
    known = [*default_sizes(position)] if isinstance(position, str) else []
    for name, value in sizes.items():
        if name not in known:
            called = f"position={position!r}"
            hint = meant(name, known, called, MultiheadAttention)
            raise TypeError(f"{name}: got {value!r} with {called}; {hint}")
    if position is None:
        return Position()
    if isinstance(position, str):
        make, first = SCHEMES[position]
        return make(*(attention[name] for name in first), **sizes, **options)
    _check_position(position, attention, options["dtype"])
    return position


def _check_position(
    position: Position, attention: AttentionSizes, dtype: np.dtype[Any]
) -> None:
    """Raise for a layer that does not fit an attention."""
    dtypes = {parameter.data.dtype for parameter in position.parameters()}
    if position._settings is not None:  # else it is of a user's class
        dtypes.add(position.dtype)
    for other in dtypes - {dtype}:
        raise TypeError(
            f"position: got a {type(position).__name__} of {other} for a layer of "
            f"{dtype}; expected the same dtype"
        )
    settings, heads = position._settings or {}, attention["num_heads"]
    its_heads = settings.get("num_heads", settings.get("heads", heads))
    # A table that all heads share fits any number of them.
    if its_heads != heads and settings.get("per_head", True):
        raise ValueError(
            f"position: got {type(position).__name__} of {amount(its_heads, 'head')}; "
            f"expected {heads}"
        )
    knows_the_past_alone = isinstance(position, Music) and position.is_causal
    if knows_the_past_alone and not attention["is_causal"]:
        raise ValueError(
            "is_causal: got False (or None) with a position whose table has rows for "
            "the past alone; expected True, or the position of a layer with "
            "is_causal=False"
        )


def as_causal(is_causal: bool | None) -> bool:
    """Return whether a layer hides the future: None means False."""
    return False if is_causal is None else as_flag("is_causal", is_causal)


# ---- the layers ---------------------------------------------------------------------


class Part(NamedTuple):
    """Input, and its use: it becomes query, key or value number `first` to `last` - 1.

    Where one array serves as several of them, it is one part: the fewer parts, the
    larger the products.
    """

    x: Array
    first: int
    last: int


class MultiheadAttention(AttentionLayer):
    r"""Multi-head attention, by any scheme of relative positions.

    .. math::

        out = W_o \, softmax(s) \, V + b_o, \quad
        s_{ij} = \frac{q_i k_j}{\sqrt D} + position_{ij}

    The positions of tokens come from a layer, `position`, which gives the attention its
    keywords and takes back their gradients. It may be a layer of your own, and several
    attentions may share one. A name means the layer of a published scheme, made for
    these heads, with further arguments by keyword:

    ================  ============================================  ====================
    `position`        arguments and defaults                        in the state
    ================  ============================================  ====================
    None                                                            nothing
    "shaw"            max_relative_position=16, per_head=False,     rel_key, rel_value
                      use_keys=True, use_values=True
    "music"           max_len=1024, per_head=False; an IndexError   rel_key
                      beyond max_len
    "transformer_xl"                                                pos_bias_u,
                                                                    pos_bias_v,
                                                                    pos_proj.weight
    "t5"              those of `T5Bias`                             rel_bias
    "alibi"           those of `ALiBi`                              slopes, if learned
    "kerple"                                                        r1, r2
    "rope"            those of `Rotary`                             nothing
    "fire"            those of `FIRE`                               w1, b1, w2, b2, c,
                                                                    threshold
    ================  ============================================  ====================

    Parameters
    ----------
    embed_dim, num_heads : int
        Width of inputs and output, and number of heads, which divides it.
    dropout : float, default 0
        On the attention weights.
    bias : bool, default True
        Whether the projections have biases.
    is_causal : bool, optional
        Whether the future is hidden; None means False. The table of "music" has
        max_len rows for the past alone, 2 max_len - 1 for both directions. A state does
        not say which it is.
    window : (int or None, int or None), optional
        Hide what is farther to the left or right, as in `relpos.attention`.
    position : str or Position, optional
        The scheme, of the table above or by another of its names, such as "rotary",
        "xl" or "relative_global"; or a layer.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.
    **sizes
        Arguments of the layer, where `position` is a name.

    Attributes
    ----------
    in_proj_weight : Parameter, (3 embed_dim, embed_dim)
        Projections of query, key and value, one below the other.
    in_proj_bias : Parameter, (3 embed_dim,), or None
    out_proj : Linear
    position : Position
        The layer; in `state_dict` its parameters have no further prefix.

    Raises
    ------
    TypeError
        One of `sizes` is no argument of the layer of `position`.

    Notes
    -----
    Names and shapes in `state_dict` are those of ``torch.nn.MultiheadAttention``, and
    with a position those of `relpos.torch.nn.RelativeMultiheadAttention`. What belongs
    to the model is an argument of the constructor, what belongs to the data one of the
    call. A query that sees no key gets the output's bias, where PyTorch gives nan.

    References
    ----------
    .. [1] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762; each
       scheme's paper is listed with its function.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.MultiheadAttention(
    ...     16, 2, is_causal=True, position="shaw", max_relative_position=4, rng=0
    ... )
    >>> x = np.random.default_rng(1).standard_normal((2, 10, 16), np.float32)
    >>> out = layer(x)
    >>> layer.backward(np.ones_like(out)).shape
    (2, 10, 16)
    >>> print(*layer.state_dict(), sep=", ")
    in_proj_weight, in_proj_bias, out_proj.weight, out_proj.bias, rel_key, rel_value
    """

    takes = (
        "key",
        "value",
        "attn_mask",
        "key_lengths",
        "query_offset",
        "memory",
        "cache",
    )
    _prefixes = MappingProxyType({"position": ""})

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        is_causal: bool | None = None,
        window: tuple[int | None, int | None] | None = None,
        position: PositionName | Position | None = None,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
        **sizes: Any,
    ) -> None:
        position = same_name(position, SCHEMES)
        self.is_causal = is_causal = as_causal(is_causal)
        self.window = window
        settings = self._set_up(
            rng,
            dtype,
            embed_dim=embed_dim,
            num_heads=num_heads,
            dropout=dropout,
            bias=bias,
            is_causal=is_causal,
            others={"window": window, "position": position, **sizes},
        )
        self.embed_dim, self.num_heads = settings.embed_dim, settings.num_heads
        self.dropout: float = settings.dropout
        width = self.embed_dim
        shape = 3 * width, width
        self.in_proj_weight = self._start(xavier_uniform(self._rng, shape))
        self.in_proj_bias: Parameter | None = None
        self.out_proj = Linear(width, width, bias, **self._options)
        if self.out_proj.bias is not None:
            self.in_proj_bias = Parameter(np.zeros(3 * width, self.dtype))
            self.out_proj.bias.data[...] = 0  # as torch.nn.MultiheadAttention
        attention: AttentionSizes = {
            "num_heads": self.num_heads,
            "head_dim": width // self.num_heads,
            "is_causal": self.is_causal,
        }
        self.position = as_position(position, sizes, attention, self._options)

    def __setattr__(self, name: str, value: object) -> None:
        is_none = name == "position" and value is None
        super().__setattr__(name, Position() if is_none else value)

    @quiet
    def __call__(
        self,
        query: ArrayLike,
        key: ArrayLike | None = None,
        value: ArrayLike | None = None,
        attn_mask: ArrayLike | None = None,
        *,
        key_lengths: ArrayLike | None = None,
        query_offset: int | None = None,
        memory: Memory | None = None,
        cache: KVCaches | None = None,
    ) -> Array:
        """Attend from query (batch, Lq, embed_dim) to key and value (batch, Lk, ...).

        Parameters
        ----------
        query : array_like, (batch, Lq, embed_dim)
            The tokens that attend.
        key, value : array_like, (batch, Lk, embed_dim), optional
            Without `value` the key is the value; without `key` the query is both.
        attn_mask : array_like, broadcasts to (batch, num_heads, Lq, Lk), optional
            True = may attend, or scores to add, as in `relpos.attention`.
        key_lengths : int or array_like of int, (batch,), optional
            Keys at and past it are padding: those of a memory count, those of a cache
            do not.
        query_offset : int, optional
            Position of query 0 minus that of key 0. Default 0 where Lq and Lk are
            equal, or `position` is None.
        memory : Memory, optional
            What is remembered of earlier calls comes before the tokens, which then are
            remembered, too.
        cache : KVCaches, optional
            The tokens go on where those of earlier calls ended. No gradient comes back.

        Returns
        -------
        ndarray, (batch, Lq, embed_dim)
            What each query found, projected.

        Raises
        ------
        ValueError
            A value is given without a key, Lq and Lk differ and `query_offset` is not
            given, a memory or a cache comes with one of these or is refused (see
            `KVCaches`), or the layer of a cache is not causal.
        """
        previous = as_state(memory, cache, key=key, query_offset=query_offset)
        inputs = self._read(query, key, value, self.embed_dim)
        parts = _parts_of(inputs, key is not None, value is not None)
        keywords = {"attn_mask": attn_mask, "key_lengths": key_lengths}
        if isinstance(previous, KVCaches):
            return self._decode(parts, previous, attn_mask, key_lengths)
        if isinstance(previous, Memory):
            parts, query_offset = self._remembering(parts, previous)
        q, k, v = self._project(parts)
        length, total = q.shape[-2], k.shape[-2]
        offset = 0 if query_offset is None else query_offset
        has_positions = type(self.position) is not Position
        if has_positions and query_offset is None and length != total:
            raise ValueError(
                f"query_offset: got None for {amount(length, 'query')} and "
                f"{amount(total, 'key')}; expected an integer, as the position asks "
                "where query 0 is"
            )
        if has_positions and previous is None and query_offset is not None:
            # The position reads the offset first, and its errors would not name it.
            # Attention of one query to one key of one head checks it at little cost.
            first = [x[:, :1, :1] for x in (q, k, v)]
            result = Position._function(*first, query_offset=offset)
            check_batch(q, result, {"query_offset": offset})
            check_offset(offset, length, total, self.position._limit)
        heads = q, self.position.rotate(k), v
        out, context = self._attend_by_position(heads, offset, keywords)
        place = length, total, offset
        return self._remember(out, context, parts, place, key is not None)

    def _remembering(self, parts: list[Part], memory: Memory) -> tuple[list[Part], int]:
        """Put what is remembered before the keys; return how many these are."""
        x = parts[0].x  # the only one: with a memory there is no key and no value
        memory._enter(self)
        before = memory.of(self)
        if before is not None:
            check_state_batch("query", len(x), "memory", before.shape[:1])
        memory.update(self, x)
        memory._check_start(self)
        if before is None:
            return parts, 0
        both = np.concatenate([before, x], axis=1)
        queries = Part(x, first=0, last=1)
        keys_and_values = Part(both, first=1, last=3)
        return [queries, keys_and_values], before.shape[1]

    def _decode(
        self,
        parts: list[Part],
        caches: KVCaches,
        attn_mask: ArrayLike | None,
        key_lengths: ArrayLike | None,
    ) -> Array:
        """Attend from the tokens that come next; `key_lengths` counts these alone."""
        caches._enter(self)
        q, k, v = self._project(parts)
        cache = caches.of(self)
        check_state_batch("query", len(q), "cache", cache._batch())
        if key_lengths is not None:  # whose errors `append` would word as `lengths`
            as_lengths("key_lengths", key_lengths, q.shape[:1], np.array(q.shape[-2]))
        k = self.position.rotate(k, cache.lengths)
        cache.append(k, v, lengths=key_lengths)
        caches._check_start(self)
        keywords = {"attn_mask": attn_mask} | cache.arguments(q)
        heads = q, keywords.pop("key"), keywords.pop("value")
        offset = keywords.pop("query_offset")
        put(self, "_last_call", None)  # no gradient passes through a cache
        out, _ = self._attend_by_position(heads, offset, keywords, from_cache=True)
        return out

    def _attend_by_position(
        self,
        heads: tuple[Array, Array, Array],
        offset: Any,
        keywords: dict[str, Any],
        from_cache: bool = False,
    ) -> tuple[Array, Any]:
        """Attend with keywords of the call, the layer and the position."""
        query, key, value = heads
        query = self.position.rotate(query, offset)
        # The position has the last word, then the call, then the layer.
        settings = {
            "is_causal": self.is_causal,
            "window": self.window,
            "query_offset": offset,
            **keywords,
            **self.position.arguments(query.shape[-2], key.shape[-2], offset),
        }
        if from_cache and not (
            settings["is_causal"] or _hides_the_future(settings["window"])
        ):
            raise ValueError(
                "cache: got it for an attention that is not causal, whose rows change "
                "with tokens that come later; expected a layer with is_causal=True"
            )
        function = self.position._function
        try:
            return self._attend(function, (query, key, value), self.dropout, **settings)
        except IndexError as error:
            raise self.position._in_own_words(error) from None

    def _project(self, inputs: Any) -> list[Array]:
        """Return query, key and value in heads, by one product for each part."""
        projected: list[Array] = []
        weight, width = self.in_proj_weight.data, self.embed_dim
        check_shape("in_proj_weight", weight, (3 * width, width))
        for x, first, last in inputs:
            rows = slice(first * width, last * width)
            bias = None
            if self.in_proj_bias is not None:
                bias = self.in_proj_bias.data[rows]
            packed = affine(x, weight[rows], bias)
            projected += np.split(packed, last - first, axis=-1)
        return [self._split(x) for x in projected]

    def _project_back(self, gradients: Any, parts: Any = ()) -> list[Array]:
        """Return the gradient of the input of each part."""
        in_heads = gradients.query, gradients.key, gradients.value
        weight, width = self.in_proj_weight.data, self.embed_dim
        grad_weight, grad_bias = np.empty_like(weight), np.empty_like(weight[:, 0])
        inputs = []
        for x, first, last in parts:
            # The heads are joined where one product reads all of them: `_split` of a
            # piece is a view, so that the assignment writes into `packed`.
            packed = np.empty((*x.shape[:-1], (last - first) * width), x.dtype)
            pieces = np.split(packed, last - first, axis=-1)
            for piece, grad in zip(pieces, in_heads[first:last], strict=True):
                self._split(piece)[...] = grad
            rows = slice(first * width, last * width)
            grad_x, grad_weight[rows], grad_bias[rows] = affine_gradients(
                packed, x, weight[rows]
            )
            inputs.append(grad_x)
        self.in_proj_weight.add_grad(grad_weight)
        if self.in_proj_bias is not None:
            self.in_proj_bias.add_grad(grad_bias)
        return inputs

    def _backward(
        self, grad: Array, context: Any, parts: Any, place: Any, key_given: Any
    ) -> Array | MultiheadGradients:
        gradients = self._attend_back(grad, context)
        length, total, offset = place
        self.position.add_gradients(gradients, length, total, offset)
        rotated = gradients._replace(
            query=self.position.rotate(gradients.query, offset, inverse=True),
            key=self.position.rotate(gradients.key, inverse=True),
        )
        query, *others = self._project_back(rotated, parts)
        if key_given:
            key = others[0]
            value = others[1] if len(others) > 1 else None
            return MultiheadGradients(query, key, value)
        # Without a key there is another part only with a memory, whose tokens come
        # first and are as many as the offset. No gradient passes into them.
        for both in others:
            query += both[:, offset:]
        return query


def _parts_of(
    inputs: tuple[Array, Array, Array], key_given: bool, value_given: bool
) -> list[Part]:
    """Return the parts of query, key and value: one for each array that was given."""
    query, key, value = inputs
    if value_given:
        return [
            Part(query, first=0, last=1),
            Part(key, first=1, last=2),
            Part(value, first=2, last=3),
        ]
    if key_given:
        return [Part(query, first=0, last=1), Part(key, first=1, last=3)]
    return [Part(query, first=0, last=3)]


def _hides_the_future(window: Any) -> bool:
    """Tell whether a window is (n, 0), in which no key comes after the query."""
    return isinstance(window, tuple | list) and len(window) == 2 and window[1] == 0


@twin(MultiheadAttention, titles=("Raises",))
class TransformerLayer(Module):
    r"""Block of a Transformer: attention, then a network, each added to its input.

    .. math::

        x' = x + attention(norm_1(x)), \quad y = x' + feed\_forward(norm_2(x'))

    with `pre_norm`; without, :math:`x' = norm_1(x + attention(x))` and the same for y.
    Dropout acts on the weights, on what comes out of both, and inside the network.

    Parameters
    ----------
    d_model, num_heads : int
        Width, and number of heads, which divides it.
    dim_feedforward : int, optional
        Width inside the network; 4 d_model by default.
    dropout : float, default 0
        Everywhere.
    activation : {"relu", "gelu"}
        The activation of the network.
    pre_norm : bool, default True
        Normalise what goes into attention and network, not the sums.
    is_causal, window, position : as in `MultiheadAttention`
        Arguments of the attention.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.
    **sizes
        Arguments of the layer, where `position` is a name.

    Attributes
    ----------
    attention : Residual
        It has a `MultiheadAttention` and a `LayerNorm`.
    feed_forward : Residual
        It has a `FeedForward` and a `LayerNorm`.

    Notes
    -----
    With `pre_norm` the last of several blocks is to be followed by a `LayerNorm`.

    References
    ----------
    .. [1] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762, section
       3.1.
    .. [2] Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020,
       arXiv:2002.04745 (before or after).

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> block = nn.TransformerLayer(16, 2, is_causal=True, position="alibi", rng=0)
    >>> x = np.random.default_rng(1).standard_normal((2, 10, 16), np.float32)
    >>> block.backward(np.ones_like(block(x))).shape
    (2, 10, 16)
    """

    takes = MultiheadAttention.takes

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dim_feedforward: int | None = None,
        dropout: float = 0.0,
        activation: str = "relu",
        pre_norm: bool = True,
        *,
        is_causal: bool | None = None,
        window: tuple[int | None, int | None] | None = None,
        position: PositionName | Position | None = None,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
        **sizes: Any,
    ) -> None:
        self._set_up(rng, dtype, d_model=d_model, num_heads=num_heads)
        self._settings = None  # so that the repr shows the parts, which say it all
        options = self._options
        attention = MultiheadAttention(
            d_model,
            num_heads,
            dropout,
            is_causal=is_causal,
            window=window,
            position=position,
            **options,
            **sizes,
        )
        network = FeedForward(d_model, dim_feedforward, dropout, activation, **options)
        norms = [LayerNorm(d_model, **options) for _ in range(2)]
        self.attention = Residual(attention, norms[0], pre_norm, dropout, rng=self._rng)
        self.feed_forward = Residual(
            network, norms[1], pre_norm, dropout, rng=self._rng
        )

    @quiet
    def __call__(self, x: ArrayLike, **keywords: Any) -> Array:
        """Attend, then map each row.

        Parameters
        ----------
        x : array_like, (batch, L, d_model)
            The tokens.
        **keywords
            Keywords of `MultiheadAttention`'s call, such as `key_lengths`.

        Returns
        -------
        ndarray, shape of `x`
            The tokens after both.
        """
        return self._remember(self.feed_forward(self.attention(x, **keywords)))

    def _backward(self, grad: Array) -> Any:
        return self.attention.backward(self.feed_forward.backward(grad))
