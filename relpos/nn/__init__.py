"""Layers that train: twins of the field's PyTorch modules, in NumPy.

A layer takes the constructor arguments of the module it mirrors, has its names and
shapes of parameters, and gives its numbers. `load_state_dict` takes the module's
weights, calling the layer is the forward pass, and `backward(grad_out)` the gradient:
it returns that of the inputs and adds those of the parameters to their `.grad`. The
attention itself is done by the functions of `relpos`.

A token that no query sees has no part in a gradient, not even where it is nan: the mask
hides it as a key, and its own row of `grad_out` is zero where no loss counts that row.
In PyTorch the nan reaches the parameters, as 0 * nan.

See Also
--------
relpos.attention : The attention inside, as a function.
relpos.recipes : Weights of published models as arguments of that function.
"""

from relpos.nn.absolute import LearnedAPE, SinusoidalEncoding
from relpos.nn.bias import DynamicPositionBias
from relpos.nn.conformer import ConformerGradients, ConformerRelPositionAttention
from relpos.nn.conv import ConvPositionEmbedding
from relpos.nn.dropout import Dropout
from relpos.nn.embedding import Embedding
from relpos.nn.files import load_file
from relpos.nn.linear import LayerNorm, Linear
from relpos.nn.loss import Loss, cross_entropy
from relpos.nn.memory import update_memory
from relpos.nn.module import LoadResult, Module
from relpos.nn.music import RelativeGlobalAttention
from relpos.nn.optim import SGD, Adam, warmup_rate
from relpos.nn.parameter import Parameter
from relpos.nn.shaw import ShawAttention, ShawGradients
from relpos.nn.transformer_xl import (
    RelPartialLearnableMultiHeadAttn,
    SharedBiasGradients,
    TransformerXLGradients,
)

__all__ = [
    "SGD",
    "Adam",
    "ConformerGradients",
    "ConformerRelPositionAttention",
    "ConvPositionEmbedding",
    "Dropout",
    "DynamicPositionBias",
    "Embedding",
    "LayerNorm",
    "LearnedAPE",
    "Linear",
    "LoadResult",
    "Loss",
    "Module",
    "Parameter",
    "RelPartialLearnableMultiHeadAttn",
    "RelativeGlobalAttention",
    "SharedBiasGradients",
    "ShawAttention",
    "ShawGradients",
    "SinusoidalEncoding",
    "TransformerXLGradients",
    "cross_entropy",
    "load_file",
    "update_memory",
    "warmup_rate",
]
