import numpy as np

conv_encoding: np.ufunc
conv_encoding_backward: np.ufunc
gelu: np.ufunc
learned: np.ufunc
learned_backward: np.ufunc
merge: np.ufunc
rel_shift: np.ufunc
rel_unshift: np.ufunc
relative_global_attention: np.ufunc
rotary: np.ufunc
shaw_attention: np.ufunc
shaw_scores: np.ufunc
sinusoidal: np.ufunc
skew: np.ufunc
skewed_scores: np.ufunc
transformer_xl_attention: np.ufunc
transformer_xl_scores: np.ufunc
unskew: np.ufunc
