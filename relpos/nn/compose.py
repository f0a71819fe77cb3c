"""Layers made of layers: one after the other, and one with a way around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._checks import Array, as_array, as_flag, as_floating, kind_of, quiet
from relpos.nn._inputs import as_probability
from relpos.nn.dropout import Dropout
from relpos.nn.module import Module

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from relpos.nn.module import Seed

__all__ = ["Residual", "Sequential"]


def _check_layer(name: str, layer: object) -> Any:
    if not isinstance(layer, Module):
        raise TypeError(f"{name}: got {kind_of(layer)}; expected a layer (a Module)")
    return layer


def _call(layer: Any, x: Any, keywords: dict[str, Any]) -> Any:
    """Call a layer, with those of the keywords that it takes."""
    return layer(x, **{n: k for n, k in keywords.items() if n in layer.takes})


def _check_keywords(module: Module, keywords: dict[str, Any]) -> None:
    for name in keywords:
        if name not in module.takes:
            known = ", ".join(module.takes) or "no keyword"
            raise TypeError(
                f"{name}: got it for a {type(module).__name__} in which no layer takes "
                f"it; expected {known}"
            )


def _dtype_of(*layers: Module) -> np.dtype[Any]:
    """Return the dtype that layers compute in: that of the first parameter there is."""
    for layer in layers:
        for parameter in layer.parameters():
            return parameter.data.dtype
    return layers[0].dtype if layers else Module.dtype


class Sequential(Module):
    r"""Layers one after the other, as `torch.nn.Sequential`.

    .. math:: y = f_n(\dots f_2(f_1(x)))

    `backward` calls the layers' `backward` from the last to the first.

    .. math:: \bar x = f_1'(\dots f_n'(\bar y))

    Parameters
    ----------
    *layers : Module
        In the order of the call. Their names in `state_dict` are "0", "1", ...

    Raises
    ------
    TypeError
        One of `layers` is no `Module`.

    See Also
    --------
    Residual : A layer with a way around it.
    Module : Any other composition.

    References
    ----------
    .. [1] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762, section
       3.1.

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
        self.dtype = _dtype_of(*layers)

    def __len__(self) -> int:
        return len(self._layers())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._layers())

    def __getitem__(self, index: int) -> Any:
        return self._layers()[index]

    def _layers(self) -> list[Any]:
        return [part for part in vars(self).values() if isinstance(part, Module)]

    @quiet
    def __call__(self, x: ArrayLike, **keywords: Any) -> Array:
        """Call each layer with what the one before returned.

        Parameters
        ----------
        x : array_like
            What the first layer takes.
        **keywords
            Of attention, such as `key_lengths`: for every layer that takes them.

        Returns
        -------
        ndarray
            What the last layer returns.

        Raises
        ------
        TypeError, ValueError
            As the layers; TypeError for a keyword that no layer takes.

        See Also
        --------
        Module : Its `takes` has the names of a layer's keywords.
        """
        _check_keywords(self, keywords)
        result: Any = x
        for layer in self:
            result = _call(layer, result, keywords)
        return self._remember(as_array("x", result))

    def _backward(self, grad: Array) -> Any:
        for layer in reversed(self._layers()):
            grad = layer.backward(grad)
        return grad


class Residual(Module):
    r"""A layer with a way around it, and normalisation before or after.

    .. math::

        y = x + dropout(f(norm(x))) \;\text{ with } pre\_norm, \quad
        y = norm(x + dropout(f(x))) \;\text{ without}

    `backward` adds the parameters' gradients and returns that of x: both ways, added
    up.

    .. math:: \bar x = \bar y + norm'(f'(dropout'(\bar y)))

    with `pre_norm`; without, y's gradient first goes back through the norm.

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

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        `dropout` is not in [0, 1).

    See Also
    --------
    TransformerLayer : Two of them.
    Sequential : Without a way around.

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

    Learned vectors of absolute positions, added to tokens:

    >>> tokens = np.ones((8, 10, 16), np.float32)
    >>> nn.Residual(nn.LearnedAPE(10, 16))(tokens).shape
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
            Of attention, such as `key_lengths`, for a layer that takes them.

        Returns
        -------
        ndarray, shape of `x`
            The sum.

        Raises
        ------
        TypeError, ValueError
            As the layer; TypeError for a keyword that it does not take, ValueError if
            its output has another shape than x.

        See Also
        --------
        Module : Its `takes` has the names of a layer's keywords.
        """
        _check_keywords(self, keywords)
        array = as_floating("x", x)
        normed = self.norm(array) if self.norm and self.pre_norm else array
        branch = self.dropout(_call(self.layer, normed, keywords))
        if branch.shape != array.shape[array.ndim - branch.ndim :]:
            raise ValueError(
                f"x: got shape {array.shape}, of which the layer makes {branch.shape}; "
                "expected a layer that keeps the shape, or lacks its first axes"
            )
        out = array + branch
        if self.norm and not self.pre_norm:
            out = self.norm(out)
        return self._remember(out, branch.ndim)

    def _backward(self, grad: Array, ndim: Any) -> Any:
        if self.norm and not self.pre_norm:
            grad = self.norm.backward(grad)
        first = tuple(range(grad.ndim - ndim))  # along which the branch was repeated
        added = grad.sum(axis=first) if first else grad
        found = self.layer.backward(self.dropout.backward(added))
        if found is None:  # of a layer that only reads where x is
            return grad
        branch = found[0] if isinstance(found, tuple) else found
        if self.norm and self.pre_norm:
            branch = self.norm.backward(branch)
        total = grad + branch
        return type(found)(total, *found[1:]) if isinstance(found, tuple) else total
