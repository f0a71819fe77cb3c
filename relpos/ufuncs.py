"""The kernels as NumPy generalized ufuncs: broadcasting, ``out=``, ``axes=``, dask.

These are `numpy.ufunc` objects with float32 and float64 loops, of the best instruction
set this CPU runs. They check only what NumPy checks and what would be unsafe to skip;
the functions of `relpos` of the same names check more. Scalars of a
signature, ``()``, may be arrays, one value per item.

====================================  ==================================================
ufunc                                 operands
====================================  ==================================================
sinusoidal                            positions (), frequencies as high (h) and low (h)
                                      part -> sines (h), cosines (h); float32 unless
                                      ``dtype=numpy.float64``
rotary                                x (l, d), positions (l), frequencies as high
                                      (l, h) and low (l, h) part, magnitude (l, h),
                                      interleaved () -> (l, d)
learned                               table (r, d), positions (n) -> (n, d)
learned_backward                      gradient (n, d), positions (n) -> ``out`` (r, d)
conv_encoding                         x (h, w, e), weight (i, j, e), bias (e), mask
                                      (h, w) of 0 and 1, taps before the own () and ()
                                      -> (h, w, e)
conv_encoding_backward                gradient, x, mask, () and () -> ``out``: weight
                                      (i, j, e), bias (e)
gelu                                  (n) -> values (n), derivatives (n)
skew, unskew                          (q, r) -> ``out`` (q, s), and back; r = q + s - 1
rel_shift, rel_unshift                (q, k) -> (q, k)
shaw_scores                           query (q, d), key (k, d), rel_key (r, d), scale
                                      (), query_offset () -> (q, k)
skewed_scores                         the same, then min_relative_position ()
transformer_xl_scores                 query, key, rel_key, pos_bias_u (d), pos_bias_v
                                      (d), scale (), query_offset ()
merge                                 out_a (v), lse_a (), out_b (v), lse_b () -> out
                                      (v), lse ()
shaw_attention                        query (q, d), key (k, d), value (k, v), rel_key
                                      (r, d), rel_value (r, v) -> (q, v); query_offset 0
relative_global_attention             query, key, value, rel_key -> (q, v); causal,
                                      query_offset 0, at least q rows
transformer_xl_attention              query, key, value, rel_key, pos_bias_u (d),
                                      pos_bias_v (d) -> (q, v); query_offset k - q;
                                      causal with r = k, else r = k + q - 1 or 2k - 1
====================================  ==================================================

Sizes that only an output has (``out`` above) come from ``out=``. The attention forms
scale by 1/sqrt(d). rotary rotates the first 2h <= d columns. ``out=`` may be an input
in rotary, gelu, merge, the scores (query), sinusoidal (frequencies), and skew and
unskew of one row, with the same ``axes=``; elsewhere that raises ValueError. NumPy
copies an input that ``out=`` overlaps as another view.

Examples
--------
>>> import numpy as np
>>> from relpos import ufuncs
>>> ufuncs.rel_shift.signature
'(q,k)->(q,k)'
>>> x = np.arange(24.0).reshape(2, 3, 4)
>>> ufuncs.rel_shift(x, axes=[(2, 0), (2, 0)]).shape
(2, 3, 4)
"""

import numpy as np

from relpos import _core

_best = _core.by_isa[_core.isa]

conv_encoding: np.ufunc = _best.conv_encoding
conv_encoding_backward: np.ufunc = _best.conv_encoding_backward
gelu: np.ufunc = _best.gelu
learned: np.ufunc = _best.learned
learned_backward: np.ufunc = _best.learned_backward
merge: np.ufunc = _best.merge
rel_shift: np.ufunc = _best.rel_shift
rel_unshift: np.ufunc = _best.rel_unshift
relative_global_attention: np.ufunc = _best.relative_global_attention
rotary: np.ufunc = _best.rotary
shaw_attention: np.ufunc = _best.shaw_attention
shaw_scores: np.ufunc = _best.shaw_scores
sinusoidal: np.ufunc = _best.sinusoidal
skew: np.ufunc = _best.skew
skewed_scores: np.ufunc = _best.skewed_scores
transformer_xl_attention: np.ufunc = _best.transformer_xl_attention
transformer_xl_scores: np.ufunc = _best.transformer_xl_scores
unskew: np.ufunc = _best.unskew

__all__ = [name for name, kind in globals().items() if isinstance(kind, np.ufunc)]


def __dir__() -> list[str]:
    return __all__
