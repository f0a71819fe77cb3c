r"""Published models as arguments of `attention`, one function a model.

Each takes parameters the way the model stores them and returns a dict of keywords:

>>> import numpy as np
>>> import relpos
>>> from relpos import recipes
>>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 5, 4))
>>> weight = np.zeros((32, 2))  # T5's relative_attention_bias
>>> relpos.attention(q, k, v, **recipes.t5(weight)).shape
(2, 5, 4)

Other arguments go with them, as ``is_causal=True`` in a decoder. Parameters come in the
order of the model's state_dict, with its names.

A recipe that computes its arguments returns a `Recipe`, a dict whose method
`~Recipe.backward` turns the result of `relpos.AttentionContext.backward` into gradients
of the parameters. Of all others the gradients are under the names of the arguments, in
the model's own order of rows; the gradient of a parameter that feeds several arguments
is the sum of theirs.

Shapes: B batch items, H heads, Lq and Lk lengths, D columns of query and key.

See Also
--------
relpos.nn : Layers, for models with projections of their own.
"""

from typing import TYPE_CHECKING

from relpos._names import publish as _publish
from relpos._suggestions import absent as _absent
from relpos.recipes import _former
from relpos.recipes._recipe import Recipe as Recipe
from relpos.recipes.config import from_config as from_config
from relpos.recipes.decoders import (
    forgetting_transformer as forgetting_transformer,
    gemma2 as gemma2,
    gpt_oss as gpt_oss,
    inkling as inkling,
    inkling_temperature as inkling_temperature,
    llama4 as llama4,
    llama4_temperature as llama4_temperature,
    pope as pope,
    recurrent_gemma as recurrent_gemma,
)
from relpos.recipes.genomes import (
    enformer as enformer,
    enformer_positions as enformer_positions,
)
from relpos.recipes.images import (
    beit as beit,
    botnet as botnet,
    rope_vit as rope_vit,
    sam as sam,
    swin as swin,
    swin_v2 as swin_v2,
)
from relpos.recipes.speech import (
    gemma3n_audio as gemma3n_audio,
    gemma4_audio as gemma4_audio,
    parakeet as parakeet,
    vits as vits,
    wav2vec2_bert as wav2vec2_bert,
    wavlm as wavlm,
    zipformer as zipformer,
    zipformer_positions as zipformer_positions,
)
from relpos.recipes.text import (
    bert as bert,
    deberta as deberta,
    layoutlmv3 as layoutlmv3,
    longt5_local as longt5_local,
    mpnet as mpnet,
    t5 as t5,
    umt5 as umt5,
    xlnet as xlnet,
    xlnet_segments as xlnet_segments,
)

__all__ = _publish(globals())

# Deprecated functions are found by their names and are listed nowhere.
if TYPE_CHECKING:
    from relpos.recipes._former import *  # noqa: F403
else:

    def __getattr__(name):
        if name.endswith("_backward") and hasattr(_former, name):
            return getattr(_former, name)
        return _absent(__name__)(name)
