r"""Published models as arguments of `attention`, one function a model.

Each takes parameters the way the model stores them and returns a dict of keywords:

>>> import numpy as np
>>> import relpos
>>> from relpos import recipes
>>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 5, 4))
>>> weight = np.zeros((32, 2))  # T5's relative_attention_bias
>>> relpos.attention(q, k, v, **recipes.t5(weight)).shape
(2, 5, 4)

Others go beside them, ``attention(q, k, v, is_causal=True, **recipes.t5(weight))``.
Parameters come in the order of the model's state_dict, with its names. Gradients come
back under the names of the keywords, in the model's own order of rows; the gradient of
a parameter that feeds several keywords is the sum of theirs. Where keywords are
computed there is a ``_backward`` beside the recipe: it takes their gradients, in the
order of the dict, then what the recipe was given, and returns those of the parameters.
Or the recipe returns a `Recipe`, a dict whose method `~Recipe.backward` takes what
`relpos.AttentionContext.backward` returned.

Shapes: B batch items, H heads, Lq and Lk lengths, D columns of query and key.

See Also
--------
relpos.attention : Takes the result as keywords.
relpos.nn : Layers, for what has projections of its own.
"""

from typing import TYPE_CHECKING

from relpos._names import publish as _publish
from relpos.recipes import _former
from relpos.recipes._recipe import Recipe as Recipe
from relpos.recipes.beit import (
    beit as beit,
    beit_backward as beit_backward,
)
from relpos.recipes.buckets import (
    longt5_local as longt5_local,
    mpnet as mpnet,
    umt5 as umt5,
)
from relpos.recipes.config import (
    from_config as from_config,
)
from relpos.recipes.decoders import (
    gemma2 as gemma2,
    gpt_oss as gpt_oss,
    recurrent_gemma as recurrent_gemma,
)
from relpos.recipes.documents import (
    layoutlmv3 as layoutlmv3,
    layoutlmv3_backward as layoutlmv3_backward,
)
from relpos.recipes.enformer import (
    enformer as enformer,
    enformer_backward as enformer_backward,
    enformer_positions as enformer_positions,
)
from relpos.recipes.forgetting import (
    forgetting_transformer as forgetting_transformer,
    forgetting_transformer_backward as forgetting_transformer_backward,
)
from relpos.recipes.gemma_audio import (
    gemma3n_audio as gemma3n_audio,
    gemma4_audio as gemma4_audio,
)
from relpos.recipes.grids import (
    botnet as botnet,
    swin as swin,
)
from relpos.recipes.inkling import (
    inkling as inkling,
    inkling_temperature as inkling_temperature,
)
from relpos.recipes.llama4 import (
    llama4 as llama4,
    llama4_temperature as llama4_temperature,
)
from relpos.recipes.rotary import (
    pope as pope,
    pope_backward as pope_backward,
    rope_vit as rope_vit,
    rope_vit_backward as rope_vit_backward,
)
from relpos.recipes.sam import (
    sam as sam,
    sam_backward as sam_backward,
)
from relpos.recipes.sequences import (
    bert as bert,
    deberta as deberta,
    t5 as t5,
)
from relpos.recipes.speech import (
    parakeet as parakeet,
    parakeet_backward as parakeet_backward,
    vits as vits,
    wav2vec2_bert as wav2vec2_bert,
)
from relpos.recipes.swin_v2 import (
    swin_v2 as swin_v2,
    swin_v2_backward as swin_v2_backward,
)
from relpos.recipes.wavlm import (
    wavlm as wavlm,
    wavlm_backward as wavlm_backward,
)
from relpos.recipes.xlnet import (
    xlnet as xlnet,
    xlnet_segments as xlnet_segments,
    xlnet_segments_backward as xlnet_segments_backward,
)
from relpos.recipes.zipformer import (
    zipformer as zipformer,
    zipformer_backward as zipformer_backward,
    zipformer_positions as zipformer_positions,
)

__all__ = _publish(globals())

# What is deprecated is found by its name and is listed nowhere.
if TYPE_CHECKING:
    from relpos.recipes._former import (
        gemma3n_audio_backward as gemma3n_audio_backward,
        gemma4_audio_backward as gemma4_audio_backward,
    )
else:

    def __getattr__(name):
        if name in _former.__all__:
            return getattr(_former, name)
        raise AttributeError(f"module 'relpos.recipes' has no attribute {name!r}")
