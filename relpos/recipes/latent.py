"""Decoders whose keys come from one latent head: DeepSeek-V4, Mistral Large 4."""

from __future__ import annotations

from functools import partial
from typing import overload

import numpy as np

from relpos._checks import Array, ArrayLike, quiet
from relpos.recipes._recipe import (
    Arrays,
    Keywords,
    Recipe,
    as_positions,
    as_shaped,
    causal,
)
from relpos.recipes._tensors import AnyTensor, Tensor, doubles, like, on_tensors
from relpos.reference._xp import namespace

__all__ = ["deepseek_v4", "mistral_large4", "mistral_large4_temperature"]


@on_tensors
def deepseek_v4(sinks: ArrayLike, *, sliding_window: int | None = None) -> Keywords:
    r"""DeepSeek-V4's attention: the one key head is the value too, with a sink.

    .. math::

        p_{ij} = \frac{e^{s_{ij}}}{e^{\sigma_h} + \sum_t e^{s_{it}}}, \quad
        s_{ij} = \frac{(R_i q_i) (R_j k_j)}{\sqrt D}, \quad
        out_i = R_i^{-1} \sum_j p_{ij} R_j k_j

    Rotate the last columns of queries and of the key before, in neighbouring pairs,
    give the rotated key as key and as value, and rotate the last columns of the result
    back: ``apply_rotary(x, inverse=True, interleaved=True)``.

    Parameters
    ----------
    sinks : array_like, (H,)
        :math:`\sigma`; its gradient is that of sinks.
    sliding_window : int, optional
        Keys that are visible to a query, itself among them; None means all.

    Returns
    -------
    dict
        `sinks`, `is_causal`, `enable_gqa` and, if there is one, `window`.

    Notes
    -----
    Layers with a compressor have further keys behind those of the tokens. Such a call
    takes a mask of all keys as `attn_mask`, in place of `is_causal` and `window`.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> terms = recipes.deepseek_v4(np.zeros(64), sliding_window=128)
    >>> terms["window"], terms["is_causal"], terms["enable_gqa"]
    ((127, 0), True, True)
    """
    table = as_shaped("sinks", sinks, "H")
    return {"sinks": table, **causal("sliding_window", sliding_window)}


@on_tensors
@quiet
def mistral_large4(alpha: ArrayLike, inv_freq: ArrayLike) -> Recipe:
    r"""Mistral Large 4's rotation, LeRoPE: each frequency times a learned number.

    .. math:: \omega_n = inv\_freq_n \, e^{\alpha_n}, \quad
        \bar \alpha_n = \omega_n \bar \omega_n, \quad
        \overline{inv\_freq}_n = e^{\alpha_n} \bar \omega_n

    Parameters
    ----------
    alpha : array_like, (n,)
        ``rotary_emb.alpha``, for each pair of columns.
    inv_freq : array_like, (n,)
        The frequencies that the configuration says, as of
        `relpos.rotary_from_config`.

    Returns
    -------
    Recipe
        `inv_freq` of `relpos.apply_rotary`, which takes it with ``interleaved=True``.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from relpos import recipes
    >>> frequencies = relpos.rotary_frequencies(4)
    >>> recipes.mistral_large4(np.log([2.0, 3.0]), frequencies)["inv_freq"]
    array([2.  , 0.03])
    """
    exponents = as_shaped("alpha", alpha, "n")
    frequencies = as_shaped("inv_freq", inv_freq, exponents.shape[0])
    factors = namespace(exponents, frequencies).exp(doubles(exponents))
    keywords = {"inv_freq": like(doubles(frequencies) * factors, exponents)}
    return Recipe(
        keywords, partial(_mistral_large4_backward, exponents, frequencies, factors)
    )


def _mistral_large4_backward(
    alpha: Array, inv_freq: Array, factors: Array, grads: Arrays
) -> Arrays:
    by_factor = factors * grads["inv_freq"]
    return {
        "alpha": like(inv_freq * by_factor, alpha),
        "inv_freq": like(by_factor, inv_freq),
    }


@overload
def mistral_large4_temperature(
    scale: AnyTensor, bias: AnyTensor, positions: ArrayLike
) -> AnyTensor: ...
@overload
def mistral_large4_temperature(
    scale: ArrayLike, bias: ArrayLike, positions: ArrayLike
) -> Array: ...
@on_tensors
@quiet
def mistral_large4_temperature(
    scale: ArrayLike | Tensor, bias: ArrayLike | Tensor, positions: ArrayLike
) -> Array | Tensor:
    r"""Factor of Mistral Large 4's queries, a learned line of the logarithm.

    .. math:: \tau_{hn} = scale_h \log(n + 1) + bias_h

    Parameters
    ----------
    scale : array_like, (H,)
        ``softmax_scaling.scale``; its gradient is the sum of that of the factors times
        log(n + 1).
    bias : array_like, (H,)
        ``softmax_scaling.bias``; its gradient is the sum of that of the factors.
    positions : array_like, (L,)
        The absolute position of each query, n, from 0.

    Returns
    -------
    ndarray, (H, L)
        To multiply the queries by, as ``[..., None]``, of the dtype of `scale`.

    References
    ----------
    .. [1] Nakanishi, "Scalable-Softmax Is Superior for Attention", 2025,
       arXiv:2501.19399.

    Examples
    --------
    >>> from relpos import recipes
    >>> recipes.mistral_large4_temperature([0.5, 0.0], [1.0, 2.0], [0, 1]).round(3)
    array([[1.   , 1.347],
           [2.   , 2.   ]])
    """
    slopes = as_shaped("scale", scale, "H")
    offsets = as_shaped("bias", bias, slopes.shape[0])
    places = as_positions(positions)
    if places.ndim != 1:
        raise ValueError(f"positions: got shape {places.shape}; expected (L,)")
    if not (places >= 0).all():  # nan is not
        raise ValueError(
            f"positions: got {places[~(places >= 0)][0]}; expected numbers from 0 on"
        )
    xp = namespace(slopes)
    logarithms = xp.asarray(np.log1p(places))
    factors = doubles(slopes)[:, None] * logarithms + doubles(offsets)[:, None]
    result: Array | Tensor = like(factors, slopes)
    return result
