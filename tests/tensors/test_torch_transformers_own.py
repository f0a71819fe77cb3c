"""Attention outside of transformers' registry: served, or listed with a reason."""

from __future__ import annotations

import ast
import functools
import math
import re
from pathlib import Path

import hugging_families as families
import hugging_models as models
import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

import relpos.torch as rt
from relpos.torch._transformers.adapters import table

ROOT = Path(transformers.__file__).parent / "models"

_SOFTMAX = {"softmax", "Softmax", "XSoftmax", "multi_head_attention_forward"}
_SDPA = "scaled_dot_product_attention"
_PRODUCTS = {"matmul", "bmm", "baddbmm", "einsum"}
#: One call that has both.
_BOTH = {_SDPA, "multi_head_attention_forward"}

_WORDS = re.compile("|".join([*_SOFTMAX, *_BOTH]))

#: Why relpos does not replace a class, by `folder.Class`. Versions differ: a class need
#: not be in the installed one, or asks the registry there.
REASONS = {
    "later": """
        big_bird.BigBirdSelfAttention big_bird.BigBirdBlockSparseAttention
        bros.BrosSelfAttention clap.ClapAudioSelfAttention
        clvp.ClvpSelfAttention cpmant.CpmAntAttention
        data2vec.Data2VecVisionSelfAttention data2vec.Data2VecVisionSdpaSelfAttention
        falcon.FalconAttention funnel.FunnelRelMultiheadAttention
        gpt_neox_japanese.GPTNeoXJapaneseAttention
        granite_speech.GraniteSpeechConformerAttention
        granite_speech_plus.GraniteSpeechPlusConformerAttention
        layoutlmv2.LayoutLMv2SelfAttention layoutlmv3.LayoutLMv3SelfAttention
        led.LEDEncoderSelfAttention led.LEDDecoderAttention
        longformer.LongformerSelfAttention longt5.LongT5LocalAttention
        longt5.LongT5TransientGlobalAttention prophetnet.ProphetNetAttention
        prophetnet.ProphetNetNgramSelfAttention roformer.RoFormerSelfAttention
        codegen.CodeGenAttention gptj.GPTJAttention levit.LevitAttention
        levit.LevitAttentionSubsample
        pp_doclayout_v2.PPDocLayoutV2ReadingOrderSelfAttention
    """,
    "no relative positions": """
        bark.BarkSelfAttention blip.BlipAttention blip.BlipTextSelfAttention
        canine.CanineSelfAttention
        dab_detr.DetrAttention dab_detr.DabDetrAttention
        evolla.EvollaSequenceCompressorAttention
        evolla.EvollaSequenceAlignerCrossAttention flaubert.MultiHeadAttention
        flava.FlavaSelfAttention fsmt.Attention git.GitSelfAttention
        glpn.GLPNEfficientSelfAttention gpt_neo.GPTNeoSelfAttention
        grounding_dino.GroundingDinoBiMultiHeadAttention
        grounding_dino.GroundingDinoMultiheadAttention groupvit.GroupViTAttention
        hiera.HieraMaskUnitAttention ibert.IBertSelfAttention
        imagegpt.ImageGPTAttention lilt.LiltSelfAttention luke.LukeSelfAttention
        lxmert.LxmertAttention mask2former.Mask2FormerAttention
        megatron_bert.MegatronBertSelfAttention mgp_str.MgpstrAttention
        mm_grounding_dino.MMGroundingDinoBiMultiHeadAttention
        mm_grounding_dino.MMGroundingDinoMultiheadAttention
        mobilevit.MobileViTSelfAttention mvp.MvpAttention
        omdet_turbo.OmDetTurboMultiheadAttention oneformer.OneFormerAttention
        oneformer.OneFormerTextMapperAttention openai.Attention
        perceiver.PerceiverSelfAttention pvt.PvtEfficientSelfAttention
        pvt_v2.PvtV2SelfAttention rembert.RemBertSelfAttention
        superglue.SuperGlueSelfAttention table_transformer.TableTransformerAttention
        tapas.TapasSelfAttention timesformer.TimesformerSelfAttention
        trocr.TrOCRAttention tvp.TvpAttention vilt.ViltSelfAttention
        visual_bert.VisualBertSelfAttention xglm.XGLMAttention
        xlm.MultiHeadAttention zoedepth.ZoeDepthMultiheadAttention
    """,
    "another formula than softmax of scores": """
        bigbird_pegasus.BigBirdPegasusSelfAttention
        bigbird_pegasus.BigBirdPegasusBlockSparseAttention
        convbert.ConvBertSelfAttention cvt.CvtSelfAttention
        groupvit.GroupViTAssignAttention informer.InformerProbSparseAttention
        nystromformer.NystromformerSelfAttention
        pegasus_x.PegasusXGlobalLocalAttention
        swiftformer.SwiftFormerEfficientAdditiveAttention
    """,
    "a part of a larger formula": """
        esm.EsmFoldSelfAttention esm.EsmFoldInvariantPointAttention
        esmfold2.EsmFold2RowAttentionPooling
        esmfold2.EsmFold2MSAPairWeightedAveraging
        inkling2.Inkling2BlockAttentionResidual glm5_next.Glm5NextTextIndexer
    """,
    "convolutions, pooling or weights alone, in one head": """
        aimv2.Aimv2AttentionPoolingHead apertus1p5.Apertus1p5VisionTokenizerAttnBlock
        chameleon.ChameleonVQVAEEncoderAttnBlock
        conditional_detr.ConditionalDetrMHAttentionMap
        dab_detr.DabDetrMHAttentionMap detr.DetrMHAttentionMap
        janus.JanusVQVAEAttnBlock maskformer.MaskFormerDetrMHAttentionMap
        mgp_str.MgpstrA3Module slanet.SLANetAttentionGRUCell
        slanext.SLANeXtAttentionGRUCell wavtokenizer.WavTokenizerVocosAttention
    """,
    "no attention, though it has a softmax and products": """
        chmv2.CHMv2FeaturesToDepth diffusion_gemma.DiffusionGemmaDecoderModel
        doge.DogeCDMoE efficientloftr.EfficientLoFTRForKeypointMatching
        esm.EsmCategoricalMixture esm.EsmForProteinFolding
        esmfold2.EsmFold2LanguageModelEncoder esmfold2.EsmFold2ConfidenceHead
        flaubert.FlaubertSQuADHead xlm.XLMSQuADHead xlnet.XLNetForQuestionAnswering
    """,
}


@functools.cache
def computing():
    """The classes of transformers that compute attention, and ask no registry."""
    found = set()
    for path in sorted(ROOT.glob("*/modeling_*.py")):
        for text in classes(path.read_text("utf-8")):
            if _WORDS.search(text):
                (part,) = ast.parse(text).body
                if computes(part):
                    found.add(f"{path.parent.name}.{part.name}")
    return frozenset(found)


def classes(source):
    """The texts of the classes of a file, which takes less time than to parse it."""
    for text in re.split(r"^(?=class )", source, flags=re.MULTILINE)[1:]:
        yield re.split(r"\n(?=[@\w])", text)[0]


def computes(part):
    """Return True for a class with a softmax and products, or PyTorch's attention."""
    names = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(part) if isinstance(node, ast.Attribute)}
    if "ALL_ATTENTION_FUNCTIONS" in names:
        return False
    multiplies = any(isinstance(node, ast.MatMult) for node in ast.walk(part))
    multiplies |= bool(names & _PRODUCTS)
    return bool(names & _BOTH) or (bool(names & _SOFTMAX) and multiplies)


def test_every_class_is_served_or_listed():
    served = {f"{x.home.split('.')[2]}.{x.kind}" for x in table.ADAPTERS.values()}
    listed = [name for names in REASONS.values() for name in names.split()]
    assert len(listed) == len({*listed})
    assert not served & {*listed}
    assert computing() - served - {*listed} == set()


def test_what_computes_attention():
    """A new file is found: with a softmax over products, or by PyTorch's function."""
    for code, expected in {
        "x = softmax(q @ k)": True,
        "x = nn.functional.scaled_dot_product_attention(q, k, v)": True,
        "x = nn.functional.softmax(router(x))": False,
        "x = ALL_ATTENTION_FUNCTIONS[name](softmax, q @ k)": False,
    }.items():
        (part,) = ast.parse(f"class New:\n    {code}").body
        assert computes(part) == expected


def test_classes_that_relpos_serves_are_found():
    """But for those that hand on to others, or ask the registry."""
    found = computing()
    for name in ("mpnet.MPNetSelfAttention", "wavlm.WavLMAttention"):
        assert name in found
    assert len(found) > 130


# ---- arrays of all pairs -------------------------------------------------------------


class Pairs(TorchDispatchMode):
    """Notes the shapes of tensors with two axes of a text's length."""

    def __init__(self):
        super().__init__()
        self.shapes = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for x in tree_flatten(result)[0]:
            if isinstance(x, torch.Tensor) and [*x.shape].count(models.LENGTH) > 1:
                self.shapes.add(tuple(x.shape))
        return result


@pytest.mark.parametrize("name", families.CASES)
def test_no_array_of_all_pairs_and_heads_is_made(name):
    """Forward and backward: masks have no axis of heads, and no other array is left."""
    case = families.CASES[name]
    seen = []
    for replaces in (False, True):
        model = models.build(case, "eager")
        if replaces:
            rt.replace_attention(model)
        with Pairs() as pairs:
            models.run(case, model)
        pairs = [math.prod(shape) // models.LENGTH**2 for shape in pairs.shapes]
        seen.append(max(pairs, default=0))
    own, mine = seen
    assert own >= 3 * models.BATCH
    assert mine <= models.BATCH
