"""Enformer: three kinds of features of a distance, projected to each head."""

from __future__ import annotations

import math

import numpy as np

from relpos._checks import (
    Array,
    ArrayLike,
    DTypeLike,
    as_choice,
    as_float_dtype,
    check_memory,
    check_shape,
    quiet,
)
from relpos._twins import twin
from relpos.recipes._recipe import (
    Recipe,
    as_length,
    as_shaped,
    check_rows,
    transformer_xl,
)
from relpos.recipes._tensors import on_tensors

__all__ = ["enformer", "enformer_positions"]

#: Exponential, central mask, gamma; each as it is and times the sign.
_BLOCKS = 6
#: The axis over which each choice of `gamma_maximum` takes the largest density.
_MAXIMUM = {"positions": 0, "features": -1}


@on_tensors
@quiet
def enformer_positions(
    length: int,
    dim: int,
    *,
    gamma_maximum: str = "positions",
    dtype: DTypeLike = np.float32,
) -> Array:
    r"""Enformer's features of every relative position n of a sequence of length L.

    With c = 1 .. F, F = dim / 6: three blocks of F columns, then these times sign(n).

    .. math::

        2^{-|n| / h_c}, \; h_c = 2^{linspace(3, \log_2 L)_c}, \qquad
        [\, |n| < 2^c - 1 \,], \qquad
        \frac{\Gamma(|n|; \mu_c, \sigma) + 10^{-8}}
        {\max_m (\Gamma(|m|; \mu_c, \sigma) + 10^{-8})}

    with :math:`\Gamma` the density of the gamma distribution of mean
    :math:`\mu_c = linspace(L / F, L)_c` and deviation :math:`\sigma = L / 2F`, and m
    all relative positions, -(L - 1) to L - 1.

    Parameters
    ----------
    length : int
        L, at least 1.
    dim : int
        Columns, a multiple of 6.
    gamma_maximum : {"positions", "features"}
        What a density is divided by: the largest one of its column over all relative
        positions, as in the published model, or the largest one of its row over the F
        columns, as in the port enformer-pytorch where ``use_tf_gamma`` is False.
    dtype : {float32, float64}
        Dtype of the result; the features are computed in float64.

    Returns
    -------
    ndarray, (2 L - 1, dim)
        Rows -(L - 1) to L - 1.

    Notes
    -----
    The attention of the published model has 1536 positions and 192 features.
    enformer-pytorch 0.8.12 has its gamma features as a file, which was recorded from
    TensorFlow in float32; those of "positions" differ from it by up to 0.0025. At any
    other L all blocks follow the formula, as in the port. L sets the half-lives, the
    means, the deviation, and the positions over which the maximum is taken, so that the
    row of a relative position is not the same for two lengths.

    References
    ----------
    .. [1] Avsec et al., "Effective gene expression prediction from sequence by
       integrating long-range interactions", 2021, doi:10.1038/s41592-021-01252-x.

    Examples
    --------
    >>> from relpos import recipes
    >>> recipes.enformer_positions(3, 6, dtype="float64").round(2)[2:]
    array([[1.  , 1.  , 0.  , 0.  , 0.  , 0.  ],
           [0.92, 0.  , 0.47, 0.92, 0.  , 0.47],
           [0.84, 0.  , 1.  , 0.84, 0.  , 1.  ]])
    """
    reach = as_length("length", length)
    columns = as_length("dim", dim, _BLOCKS)
    maximum = as_choice("gamma_maximum", gamma_maximum, _MAXIMUM)
    kind = as_float_dtype(dtype)
    if columns % _BLOCKS:
        raise ValueError(f"dim: got {columns}; expected a multiple of {_BLOCKS}")
    check_memory("length", (2 * reach - 1, columns), np.dtype(np.float64))
    return _features(reach, columns, maximum).astype(kind)


def _features(length: int, dim: int, maximum: str) -> Array:
    # Columns of each block; the six blocks have the same number.
    count = dim // _BLOCKS
    # One row for each relative position, so that columns broadcast against it.
    offset = np.arange(1 - length, length, dtype=np.float64)[:, None]
    distance = np.abs(offset)
    half_life = 2.0 ** np.linspace(3, math.log2(length), count)
    width = 2.0 ** np.arange(1, count + 1) - 1
    means = np.linspace(length / count, length, count)
    gamma = _gamma(distance, means, length / (2 * count))
    blocks = [
        np.exp(-math.log(2) / half_life * distance),
        (width > distance).astype(np.float64),
        gamma / gamma.max(axis=_MAXIMUM[maximum], keepdims=True),
    ]
    # The second half of the blocks tells the past from the future. It is 0 at offset 0.
    blocks += [np.sign(offset) * block for block in blocks]
    return np.concatenate(blocks, axis=-1)


def _gamma(x: Array, mean: Array, deviation: float) -> Array:
    """Return the density of the gamma distribution at x, plus 1e-8."""
    # Shape and rate of a gamma distribution from its mean and deviation.
    shape, rate = (mean / deviation) ** 2, mean / deviation**2
    # In logarithms, because the gamma function of a large shape overflows.
    norm = np.array([math.lgamma(s) for s in shape]) - shape * np.log(rate)
    power = np.where(shape == 1, 0.0, (shape - 1) * np.log(x))  # 0 log 0 = 0
    return np.asarray(np.exp(power - rate * x - norm) + 1e-8)


@twin(enformer_positions, titles=("References",))
@on_tensors
@quiet
def enformer(
    rel_content_bias: ArrayLike,
    rel_pos_bias: ArrayLike,
    to_rel_k: ArrayLike,
    length: int,
    *,
    gamma_maximum: str = "positions",
) -> Recipe:
    r"""Enformer's attention: Transformer-XL's, with features of its own.

    .. math::

        s_{ij} = (q_i / \sqrt D + u) k_j + (q_i / \sqrt D + v) r_{j-i}, \quad
        r_n = W f_n, \qquad \overline{W} = \sum_n \bar r_n f_n^T

    with f of `enformer_positions`. u and v come after the scale, so that they are given
    to attention times sqrt(D).

    Parameters
    ----------
    rel_content_bias, rel_pos_bias : array_like, (1, H, 1, D)
        Biases u and v of the content term and the position term.
    to_rel_k : array_like, (H * D, F)
        ``to_rel_k.weight``: W, the projection of the features; F a multiple of 6.
    length : int
        Lq = Lk, at least 1.
    gamma_maximum : {"positions", "features"}
        As in `enformer_positions`.

    Returns
    -------
    Recipe
        `rel_key`, of 2 length - 1 rows, `pos_bias_u`, `pos_bias_v` and
        ``beyond="raise"``.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> biases = np.zeros((2, 1, 8, 1, 64))
    >>> recipes.enformer(*biases, np.zeros((512, 192)), 50)["rel_key"].shape
    (8, 99, 64)
    """
    u = as_shaped("rel_content_bias", rel_content_bias, 1, "H", 1, "D")
    v = as_shaped("rel_pos_bias", rel_pos_bias, *u.shape)
    weight = as_shaped("to_rel_k", to_rel_k, math.prod(u.shape), "F")
    fits = 0 not in weight.shape and weight.shape[1] % _BLOCKS == 0
    check_shape("to_rel_k", weight, fits, f"F a multiple of {_BLOCKS}")
    count = as_length("length", length)
    maximum = as_choice("gamma_maximum", gamma_maximum, _MAXIMUM)
    check_rows("length", 2 * count - 1, weight)
    rows = _features(count, weight.shape[1], maximum)
    parameters = {"rel_content_bias": u, "rel_pos_bias": v, "to_rel_k": weight}
    # The biases come after the scale in this model, so that they are given times
    # sqrt(D).
    return transformer_xl(parameters, rows, u.shape[-1] ** 0.5)
