"""Decoders whose attention has settings and no parameters of positions."""

from __future__ import annotations

from relpos._checks import POSITION_LIMIT, as_int
from relpos.recipes._tables import Keywords

__all__ = ["recurrent_gemma"]


def recurrent_gemma(attention_window_size: int = 2048) -> Keywords:
    r"""RecurrentGemma's (Griffin's) local attention: one key head, a causal window.

    .. math:: s_{ij} = \frac{q_i k_j}{\sqrt D}, \quad 0 \le i - j < window

    Parameters
    ----------
    attention_window_size : int, default 2048
        Keys that a query sees, itself among them.

    Returns
    -------
    dict
        `is_causal`, `window` and `enable_gqa`.

    Raises
    ------
    TypeError, ValueError
        If the window is no integer of at least 1.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    relpos.apply_rotary : What queries and keys go through before.

    Notes
    -----
    Nothing of it is stored. Queries and keys are rotated in the first half of their
    columns: ``apply_rotary(x, rotary_dim=D // 2)``.

    References
    ----------
    .. [1] Botev et al., "RecurrentGemma: Moving Past Transformers for Efficient Open
       Language Models", 2024, arXiv:2404.07839.

    Examples
    --------
    >>> from relpos import recipes
    >>> recipes.recurrent_gemma(2048)
    {'is_causal': True, 'window': (2047, 0), 'enable_gqa': True}
    """
    seen = as_int("attention_window_size", attention_window_size, 1, POSITION_LIMIT)
    return {"is_causal": True, "window": (seen - 1, 0), "enable_gqa": True}
