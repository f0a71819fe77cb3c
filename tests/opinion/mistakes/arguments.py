"""Arguments of a scheme that are unknown or missing.

The function is right. The message says which argument is unknown, and lists all that
the scheme wants.
"""

from __future__ import annotations

import numpy as np

from mistakes.row import DISTANCE, RNG, D, H, L, family, softmax

ROWS, mistake = family()
TABLE = RNG.standard_normal((2 * L - 1, D))
U, W = RNG.standard_normal((2, H, D))


@mistake(
    "'rel'",
    "rel_key",
    "pos_bias_u",
    "pos_bias_v",
    source="near: https://github.com/kimiyoung/transformer-xl/issues/118",
    scheme="transformer_xl_attention",
    rel=TABLE,
    u=U,
    v=W,
)
def names_of_the_article(query, key, value):
    position = np.einsum("bhid,ijd->bhij", query + W[:, None], TABLE[DISTANCE + L - 1])
    content = (query + U[:, None]) @ key.swapaxes(-1, -2)
    return softmax((content + position) / np.sqrt(D)) @ value
