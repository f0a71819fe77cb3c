"""Decoders, whose attention has a window, a cap or sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relpos.recipes._settings import as_positive, causal
from relpos.recipes._tables import Keywords, as_shaped

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["gemma2", "gpt_oss", "recurrent_gemma"]


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


def gemma2(
    *,
    query_pre_attn_scalar: float = 256.0,
    attn_logit_softcapping: float | None = 50.0,
    sliding_window: int | None = None,
) -> Keywords:
    r"""Gemma 2's attention: scores under a soft cap, before the mask.

    .. math:: s_{ij} = c \tanh\frac{q_i k_j}{c \sqrt S}, \quad j \le i

    Parameters
    ----------
    query_pre_attn_scalar : float, default 256.0
        S, which need not be the width of a head.
    attn_logit_softcapping : float or None, default 50.0
        The cap, c; None has none.
    sliding_window : int, optional
        Keys that a query of a sliding layer sees, itself among them; None sees all.

    Returns
    -------
    dict
        `scale`, `is_causal`, `enable_gqa` and, if there is one, `softcap` and `window`.

    Raises
    ------
    TypeError, ValueError
        If a number is of another kind or not positive.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    relpos.apply_rotary : What queries and keys go through before.

    Notes
    -----
    Nothing of it is stored. Where ``use_bidirectional_attention`` is set, give
    ``is_causal=False`` in its place.

    References
    ----------
    .. [1] Gemma Team, "Gemma 2: Improving Open Language Models at a Practical Size",
       2024, arXiv:2408.00118, section 2.

    Examples
    --------
    >>> from relpos import recipes
    >>> recipes.gemma2()
    {'scale': 0.0625, 'softcap': 50.0, 'is_causal': True, 'enable_gqa': True}
    """
    keywords: Keywords = {
        "scale": as_positive("query_pre_attn_scalar", query_pre_attn_scalar) ** -0.5
    }
    if attn_logit_softcapping is not None:
        cap = as_positive("attn_logit_softcapping", attn_logit_softcapping)
        keywords["softcap"] = cap
    return keywords | causal("sliding_window", sliding_window)
