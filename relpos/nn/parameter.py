"""What is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import Array, as_floating, quiet
from relpos._undo import put

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Parameter"]


class Parameter:
    """An array that is trained, and its gradient.

    Parameters
    ----------
    data : array_like of float32 or float64
        The values; kept, not copied.

    Attributes
    ----------
    data : ndarray
        The values, changed in place by optimisers and `Module.load_state_dict`.
    grad : ndarray or None
        Sum of the gradients since the last `Module.zero_grad`; None without any.

    Raises
    ------
    TypeError
        `data` is no array of float32 or float64; or, assigned later, of another dtype.
    ValueError
        `data` is no rectangular array.

    See Also
    --------
    Module.named_parameters : Those of a layer or a model.
    SGD, Adam : What changes `data` by `grad`.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> weight = nn.Parameter(np.zeros((2, 3)))
    >>> weight.add_grad(np.ones((2, 3)))
    >>> weight.add_grad(np.ones((2, 3)))
    >>> weight.grad
    array([[2., 2., 2.],
           [2., 2., 2.]])
    """

    __slots__ = ("_data", "grad")
    #: What an array of another shape is told besides.
    _hint = ""

    def __init__(self, data: ArrayLike) -> None:
        array = as_floating("data", data)
        if array.dtype not in (np.float32, np.float64):
            raise TypeError(
                f"data: got dtype {array.dtype}; expected float32 or float64"
            )
        self._data: Array = array
        self.grad: Array | None = None

    @property
    def data(self) -> Array:
        """The values.

        See Also
        --------
        Parameter.grad : The sum of its gradients.
        """
        return self._data

    @data.setter
    def data(self, data: ArrayLike) -> None:
        array = as_floating("data", data)
        if array.dtype != self._data.dtype:
            raise TypeError(
                f"data: got dtype {array.dtype}; expected {self._data.dtype}, as so far"
            )
        self._data = array

    @quiet
    def add_grad(self, grad: ArrayLike) -> None:
        """Add to the gradient so far.

        Parameters
        ----------
        grad : array_like, shape of `data`
            What to add.

        Raises
        ------
        TypeError
            `grad` is not floating.
        ValueError
            `grad` is of another shape.

        See Also
        --------
        Module.zero_grad : Starts the sum anew.
        """
        grad = as_floating("grad", grad)
        if grad.shape != self.data.shape:
            raise ValueError(
                f"grad: got shape {grad.shape}; expected that of the parameter, "
                f"{self.data.shape}"
            )
        if self.grad is None:
            put(self, "grad", np.array(grad, self.data.dtype))
        else:
            room = np.empty_like(self.grad)  # what was there stays, if the call raises
            put(self, "grad", np.add(self.grad, grad, out=room, casting="same_kind"))

    def __repr__(self) -> str:
        return f"Parameter(shape={self.data.shape}, dtype={self.data.dtype})"
