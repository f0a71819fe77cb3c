"""Inkling: scores by distance that each query mixes from a bank of curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import POSITION_LIMIT, Array, as_int, as_real, quiet
from relpos.recipes._settings import as_positions, as_positive, causal
from relpos.recipes._tables import Keywords, as_table

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["inkling", "inkling_temperature"]


def inkling(proj: ArrayLike, head_dim: int, *, window: int | None = None) -> Keywords:
    r"""Inkling's attention: a bank of curves over the distance, mixed by each query.

    .. math::

        s_{ij} = \tau_i \left(\frac{q_i k_j}{D} +
        \sum_m r_{i,m} \, proj_{m, i-j}\right), \quad 0 \le i - j

    where the curves end, at a distance of their extent, they are 0.

    Parameters
    ----------
    proj : array_like, (d_rel, extent)
        Curves; column 0 is distance 0.
    head_dim : int
        D.
    window : int, optional
        Keys that a query of a sliding layer sees, itself among them; None sees all.

    Returns
    -------
    dict
        `rel_key`, `min_relative_position`, `beyond`, `scale`, `is_causal`, `enable_gqa`
        and, if there is one, `window`. Beside them goes ``position_query=r``, the heads
        of ``r_proj`` (B, H, Lq, d_rel). With g the gradient of rel_key, that of proj is
        ``g[::-1].T``.

    Raises
    ------
    TypeError, ValueError
        If `proj` is of another kind or shape, or a size less than 1.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    inkling_temperature : The factor of a query, where the model has one.
    zipformer : Another narrow query of positions.

    Notes
    -----
    =====================  ================  ======
    ``InklingAttention``   shape             here
    =====================  ================  ======
    rel_logits_proj.proj   (d_rel, extent)   `proj`
    =====================  ================  ======

    Queries and keys are normalised before (``q_norm``, ``k_norm``), keys and values go
    through a short convolution (``k_sconv``, ``v_sconv``). No distance is encoded in
    any other way.

    References
    ----------
    .. [1] Thinking Machines, "Inkling", a model card, 2026.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> keywords = recipes.inkling(np.zeros((16, 1024)), 128)
    >>> keywords["rel_key"].shape, keywords["min_relative_position"]
    ((1024, 16), -1023)
    """
    bank = as_table("proj", proj, "(d_rel, extent)")
    if bank.ndim != 2 or not bank.shape[1]:
        raise ValueError(f"proj: got shape {bank.shape}; expected (d_rel, extent)")
    return {
        "rel_key": bank.T[::-1],
        "min_relative_position": 1 - bank.shape[1],
        "beyond": "zero",
        "scale": 1 / as_int("head_dim", head_dim, 1, POSITION_LIMIT),
        **causal("window", window),
    }


@quiet
def inkling_temperature(
    positions: ArrayLike,
    log_scaling_n_floor: float,
    *,
    log_scaling_alpha: float = 0.1,
) -> Array:
    r"""Factor of Inkling's queries, and of their position queries, on full layers.

    .. math:: \tau_n = 1 + \alpha \log \max\left(1, \frac{n + 1}{floor}\right)

    Parameters
    ----------
    positions : array_like, any shape
        The absolute position of each query, n, from 0.
    log_scaling_n_floor : float
        The length from which on it counts; a model without has no factor.
    log_scaling_alpha : float, default 0.1
        Its strength.

    Returns
    -------
    ndarray of float64, shape of `positions`
        To multiply both queries by, as ``[:, None]``.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind, or the length not positive.

    See Also
    --------
    inkling : The attention.
    llama4_temperature : Steps instead of a curve.

    References
    ----------
    .. [1] Thinking Machines, "Inkling", a model card, 2026.

    Examples
    --------
    >>> from relpos import recipes
    >>> recipes.inkling_temperature([0, 9, 99], 10).round(3)
    array([1.  , 1.  , 1.23])
    """
    n = as_positions(positions)
    floor = as_positive("log_scaling_n_floor", log_scaling_n_floor)
    alpha = as_real("log_scaling_alpha", log_scaling_alpha)
    return np.asarray(1 + alpha * np.log(np.maximum((n + 1) / floor, 1)))
