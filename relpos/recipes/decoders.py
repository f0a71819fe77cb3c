"""Decoders, whose attention has a window, a cap or sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relpos.recipes._settings import causal
from relpos.recipes._tables import Keywords, as_shaped

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["gpt_oss", "recurrent_gemma"]


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
    {'is_causal': True, 'enable_gqa': True, 'window': (2047, 0)}
    """
    if attention_window_size is None:
        raise TypeError("attention_window_size: got NoneType; expected an integer")
    return causal("attention_window_size", attention_window_size)


def gpt_oss(sinks: ArrayLike, *, sliding_window: int | None = None) -> Keywords:
    r"""Attention of gpt-oss: a learned logit of each head has a share of every row.

    .. math:: p_{ij} = \frac{e^{s_{ij}}}{e^{\sigma_h} + \sum_t e^{s_{it}}}, \quad
        s_{ij} = \frac{q_i k_j}{\sqrt D}, \quad j \le i

    Parameters
    ----------
    sinks : array_like, (H,)
        :math:`\sigma`; its gradient is that of sinks.
    sliding_window : int, optional
        Keys that a query of a sliding layer sees, itself among them; None sees all.

    Returns
    -------
    dict
        `sinks`, `is_causal`, `enable_gqa` and, if there is one, `window`.

    Raises
    ------
    TypeError, ValueError
        If `sinks` is not one number for each head, or the window less than 1.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    relpos.apply_rotary : What queries and keys go through before.

    Notes
    -----
    ===================  ======  =======
    ``GptOssAttention``  shape   here
    ===================  ======  =======
    sinks                (H,)    `sinks`
    ===================  ======  =======

    References
    ----------
    .. [1] OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025, arXiv:2508.10925.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.gpt_oss(np.zeros(64), sliding_window=128)["window"]
    (127, 0)
    """
    table = as_shaped("sinks", sinks, "H")
    return {"sinks": table, **causal("sliding_window", sliding_window)}
