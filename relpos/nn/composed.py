"""Layers made of other layers: a network, a sequence, and a residual connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from relpos._checks import (
    Array,
    ArrayLike,
    DTypeLike,
    as_array,
    as_choice,
    as_flag,
    check_keywords,
    kind_of,
    quiet,
)
from relpos.nn._inputs import as_input, as_probability, as_size
from relpos.nn.basic import GELU, Dropout, Linear, Plain, ReLU
from relpos.nn.module import Module, Seed, check_alone

__all__ = ["FeedForward", "Residual", "Sequential"]

_ACTIVATIONS: dict[str, type[ReLU | GELU]] = {"relu": ReLU, "gelu": GELU}


class FeedForward(Plain):
    r"""Two affine maps with an activation between: the network of a block.

    .. math:: y = W_2 \, dropout(f(W_1 x + b_1)) + b_2

    x and y are (..., d_model). `backward` returns the gradient of x.

    Parameters
    ----------
    d_model : int
        Width of x and y.
    dim_feedforward : int, optional
        Width between them; 4 d_model by default.
    dropout : float, default 0
        On what is between.
    activation : {"relu", "gelu"}
        The f: `ReLU` or `GELU`.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    linear1, linear2 : Linear
    activation : ReLU or GELU
    dropout : Dropout

    References
    ----------
    .. [1] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762, section
       3.3.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.FeedForward(4, activation="gelu", rng=0)
    >>> layer.linear1.weight.data.shape
    (16, 4)
    >>> layer.backward(np.ones_like(layer(np.ones((2, 3, 4), np.float32)))).shape
    (2, 3, 4)
    """

    def __init__(
        self,
        d_model: int,
        dim_feedforward: int | None = None,
        dropout: float = 0.0,
        activation: str = "relu",
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        if dim_feedforward is None:
            dim_feedforward = 4 * as_size("d_model", d_model)
        as_choice("activation", activation, _ACTIVATIONS)
        self._set_up(
            rng,
            dtype,
            d_model=d_model,
            dim_feedforward=dim_feedforward,
            dropout=dropout,
            others={"activation": activation},
        )
        self.linear1 = Linear(d_model, dim_feedforward, **self._options)
        self.activation = _ACTIVATIONS[activation](**self._options)
        self.dropout = Dropout(dropout, **self._options)
        self.linear2 = Linear(dim_feedforward, d_model, **self._options)

    def _shape(self) -> tuple[int | str, ...]:
        return self.linear1._shape()

    def _map(self, x: Array) -> tuple[Any, ...]:
        inner = self.dropout(self.activation(self.linear1(x)))
        return (self.linear2(inner),)

    def _backward(self, grad: Array) -> Any:
        inner = self.dropout.backward(self.linear2.backward(grad))
        return self.linear1.backward(self.activation.backward(inner))


def _check_layer(name: str, layer: object) -> Any:
    if not isinstance(layer, Module):
        raise TypeError(f"{name}: got {kind_of(layer)}; expected a layer (a Module)")
    return layer


def _call(layer: Any, x: Any, keywords: dict[str, Any]) -> Any:
    """Call a layer, with those of the keywords that it takes."""
    if keywords.get("cache") is not None and "cache" not in layer.takes:
        check_alone(layer)
    accepted = {name: keywords[name] for name in keywords if name in layer.takes}
    return layer(x, **accepted)


def _dtype_of(*layers: Module) -> np.dtype[Any]:
    """Return the dtype that layers compute in: that of the first parameter there is."""
    for layer in layers:
        for parameter in layer.parameters():
            return parameter.data.dtype
    return layers[0].dtype if layers else Module.dtype


class Sequential(Module):
    r"""Layers one after the other, as `torch.nn.Sequential`.

    .. math:: y = f_n(\dots f_2(f_1(x)))

    `backward` calls the layers' `backward` from the last to the first, and returns what
    that of the first returns.

    Parameters
    ----------
    *layers : Module
        In the order of the call. Their names in `state_dict` are "0", "1", ...

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> model = nn.Sequential(nn.Linear(2, 3, rng=0), nn.ReLU(), nn.Linear(3, 1, rng=1))
    >>> x = np.ones((4, 2), np.float32)
    >>> model.backward(np.ones_like(model(x))).shape
    (4, 2)
    >>> len(model), model[0]
    (3, Linear(in_features=2, out_features=3, bias=True, dtype=float32))
    """

    def __init__(self, *layers: Module) -> None:
        for index, layer in enumerate(layers):
            setattr(self, str(index), _check_layer("layers", layer))
        names = [name for layer in layers for name in layer.takes]
        self.takes = tuple(dict.fromkeys(names))
        self.dtype = _dtype_of(*layers[::-1])  # of the output

    def __len__(self) -> int:
        return sum(1 for _ in self)  # a list of self would ask for this

    def __iter__(self) -> Iterator[Any]:
        return (part for part in vars(self).values() if isinstance(part, Module))

    def __getitem__(self, index: int) -> Any:
        return [*self][index]

    @quiet
    def __call__(self, x: ArrayLike, **keywords: Any) -> Array:
        """Call each layer with what the one before returned.

        Parameters
        ----------
        x : array_like
            What the first layer takes.
        **keywords
            Keywords of attention, such as `key_lengths`. Each layer gets those that it
            has in `takes`.

        Returns
        -------
        ndarray
            What the last layer returns.

        Raises
        ------
        TypeError
            No layer takes a keyword.
        """
        check_keywords("Sequential", keywords, self.takes)
        result: Any = x
        for layer in self:
            result = _call(layer, result, keywords)
        return self._remember(as_array("x", result))

    def _backward(self, grad: Array) -> Any:
        for layer in reversed([*self]):
            grad = layer.backward(grad)
        return grad


class Residual(Module):
    r"""Layer to whose output its input is added, with a norm before or after.

    .. math::

        y = x + dropout(f(norm(x))) \;\text{ with } pre\_norm, \quad
        y = norm(x + dropout(f(x))) \;\text{ without}

    `backward` returns the gradient of x. Where that of the layer returns a named tuple,
    it is one with the gradient of x in the first place.

    Parameters
    ----------
    layer : Module
        The f: its output has the shape of its input, or lacks the first axes of it, as
        that of `LearnedAPE`, and then is added to every item.
    norm : Module, optional
        Such as a `LayerNorm`; None leaves it out.
    pre_norm : bool, default True
        Normalise what goes into the layer, not the sum.
    dropout : float, default 0
        On what comes out of the layer.
    rng : int, numpy.random.Generator or None, optional
        Source of dropout.

    Attributes
    ----------
    layer, norm : Module
    dropout : Dropout

    References
    ----------
    .. [1] Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020,
       arXiv:2002.04745 (before or after).

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.Residual(nn.ReLU())
    >>> layer(np.array([-1.0, 2.0], np.float32))
    array([-1.,  4.], dtype=float32)
    >>> layer.backward(np.ones(2))
    array([1., 2.], dtype=float32)
    >>> tokens = np.ones((8, 10, 16), np.float32)
    >>> nn.Residual(nn.LearnedAPE(10, 16))(tokens).shape  # vectors of positions, added
    (8, 10, 16)
    """

    def __init__(
        self,
        layer: Module,
        norm: Module | None = None,
        pre_norm: bool = True,
        dropout: float = 0.0,
        *,
        rng: Seed = None,
    ) -> None:
        self.layer: Any = _check_layer("layer", layer)
        self.norm: Any = None if norm is None else _check_layer("norm", norm)
        self.pre_norm = as_flag("pre_norm", pre_norm)
        self.takes, self.dtype = layer.takes, _dtype_of(layer)
        rate = as_probability("dropout", dropout)
        self.dropout = Dropout(rate, rng=rng, dtype=self.dtype)

    def __repr__(self) -> str:
        return super().__repr__()[:-1] + f"  pre_norm={self.pre_norm}\n)"

    @quiet
    def __call__(self, x: ArrayLike, **keywords: Any) -> Array:
        """Add to x what the layer makes of it.

        Parameters
        ----------
        x : array_like
            What the layer takes.
        **keywords
            Keywords of attention, such as `key_lengths`, if the layer has them in
            `takes`.

        Returns
        -------
        ndarray, shape of `x`
            The sum.

        Raises
        ------
        TypeError
            The layer does not take a keyword.
        ValueError
            The output of the layer has another shape than x.
        """
        check_keywords("Residual", keywords, self.takes)
        array = as_input("x", x, self.dtype, "...")
        normed = array
        if self.norm and self.pre_norm:
            normed = _call(self.norm, array, {})
        branch = self.dropout(_call(self.layer, normed, keywords))
        if branch.shape != array.shape[array.ndim - branch.ndim :]:
            raise ValueError(
                f"x: got shape {array.shape}, of which the layer makes {branch.shape}; "
                "expected a layer that keeps the shape, or lacks its first axes"
            )
        out = array + branch
        if self.norm and not self.pre_norm:
            out = _call(self.norm, out, {})
        return self._remember(out, branch.ndim)

    def _backward(self, grad: Array, ndim: Any) -> Any:
        if self.norm and not self.pre_norm:
            grad = self.norm.backward(grad)
        # The branch may lack the first axes of x, and was added to each item of them.
        first_axes = tuple(range(grad.ndim - ndim))
        grad_branch = grad.sum(axis=first_axes) if first_axes else grad
        gradients = self.layer.backward(self.dropout.backward(grad_branch))
        if gradients is None:  # the layer reads only the shape of x
            return grad
        # A layer that was given several inputs returns a named tuple, x's first.
        has_several = isinstance(gradients, tuple)
        grad_normed = gradients[0] if has_several else gradients
        if self.norm and self.pre_norm:
            grad_normed = self.norm.backward(grad_normed)
        grad_x = grad + grad_normed
        if has_several:
            return type(gradients)(grad_x, *gradients[1:])
        return grad_x
