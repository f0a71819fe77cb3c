"""Attention of transformers that relpos does not serve, with the reasons.

Classes are named `folder.Class`. Versions differ: a class need not be in the installed
one, and may ask the registry there.
"""

from __future__ import annotations

#: The reason of classes that only look like attention, and of those that also have the
#: word in their name, by which `register` takes them for attention that never asks.
NO_ATTENTION = "no attention, though it has a softmax and products"
BESIDE = "a part next to attention, whose name makes `register` leave the model eager"

#: Classes that do not ask the registry and have no adapter, by the reason.
REASONS = {
    "later": """
        big_bird.BigBirdBlockSparseAttention
        bros.BrosSelfAttention clap.ClapAudioSelfAttention
        clvp.ClvpSelfAttention cpmant.CpmAntAttention
        data2vec.Data2VecVisionSelfAttention data2vec.Data2VecVisionSdpaSelfAttention
        dinat.NeighborhoodAttention
        falcon.FalconAttention falcon.FalconFlashAttention2
        funnel.FunnelRelMultiheadAttention
        gpt_neox_japanese.GPTNeoXJapaneseAttention
        layoutlmv2.LayoutLMv2SelfAttention layoutlmv3.LayoutLMv3SelfAttention
        longt5.LongT5LocalAttention
        longt5.LongT5TransientGlobalAttention
        prophetnet.ProphetNetNgramSelfAttention roformer.RoFormerSelfAttention
        codegen.CodeGenAttention gptj.GPTJAttention gptj.GPTJFlashAttention2
        levit.LevitAttention
        levit.LevitAttentionSubsample
        pp_doclayout_v2.PPDocLayoutV2ReadingOrderSelfAttention
    """,
    "softmax over chosen blocks of pairs, without relative positions": """
        bigbird_pegasus.BigBirdPegasusBlockSparseAttention
        pegasus_x.PegasusXGlobalLocalAttention
    """,
    "no relative positions": """
        bark.BarkSelfAttention bark.BarkSelfFlashAttention2
        big_bird.BigBirdSelfAttention bigbird_pegasus.BigBirdPegasusSelfAttention
        blip.BlipAttention blip.BlipTextSelfAttention
        canine.CanineSelfAttention cvt.CvtSelfAttention
        dab_detr.DetrAttention dab_detr.DabDetrAttention
        evolla.EvollaSequenceCompressorAttention
        evolla.EvollaSequenceAlignerCrossAttention flaubert.MultiHeadAttention
        flava.FlavaSelfAttention fsmt.Attention git.GitSelfAttention
        glpn.GLPNEfficientSelfAttention gpt_neo.GPTNeoSelfAttention
        gpt_neo.GPTNeoFlashAttention2
        grounding_dino.GroundingDinoBiMultiHeadAttention
        grounding_dino.GroundingDinoMultiheadAttention groupvit.GroupViTAttention
        hiera.HieraMaskUnitAttention ibert.IBertSelfAttention
        imagegpt.ImageGPTAttention inkling2.Inkling2BlockAttentionResidual
        lilt.LiltSelfAttention luke.LukeSelfAttention
        lxmert.LxmertAttention mask2former.Mask2FormerAttention
        megatron_bert.MegatronBertSelfAttention mgp_str.MgpstrAttention
        mm_grounding_dino.MMGroundingDinoBiMultiHeadAttention
        mm_grounding_dino.MMGroundingDinoMultiheadAttention
        mobilevit.MobileViTSelfAttention mvp.MvpAttention
        omdet_turbo.OmDetTurboMultiheadAttention oneformer.OneFormerAttention
        oneformer.OneFormerTextMapperAttention openai.Attention
        perceiver.PerceiverSelfAttention prophetnet.ProphetNetAttention
        pvt.PvtEfficientSelfAttention
        pvt_v2.PvtV2SelfAttention reformer.LocalSelfAttention
        rembert.RemBertSelfAttention squeezebert.SqueezeBertSelfAttention
        superglue.SuperGlueSelfAttention table_transformer.TableTransformerAttention
        tapas.TapasSelfAttention timesformer.TimesformerSelfAttention
        trocr.TrOCRAttention tvp.TvpAttention vilt.ViltSelfAttention
        visual_bert.VisualBertSelfAttention xglm.XGLMAttention
        xlm.MultiHeadAttention zoedepth.ZoeDepthMultiheadAttention
    """,
    "another formula than softmax of scores": """
        autoformer.AutoformerAttention bailing_hybrid.BailingHybridDeltaAttention
        convbert.ConvBertSelfAttention d_fine.DFineMultiscaleDeformableAttention
        deformable_detr.MultiScaleDeformableAttention
        deimv2.Deimv2MultiscaleDeformableAttention
        esm.EsmFoldInvariantPointAttention esmfold2.EsmFold2MSAPairWeightedAveraging
        glm5_next.Glm5NextTextIndexer glm5_next.Glm5NextTextLinearAttention
        grounding_dino.MultiScaleDeformableAttention
        groupvit.GroupViTAssignAttention informer.InformerProbSparseAttention
        kimi_linear.KimiLinearDeltaAttention lw_detr.MultiScaleDeformableAttention
        mask2former.Mask2FormerPixelDecoderEncoderMultiscaleDeformableAttention
        minimax.MiniMaxLightningAttention
        mm_grounding_dino.MultiScaleDeformableAttention
        mobilevitv2.MobileViTV2LinearSelfAttention mra.MraSelfAttention
        nystromformer.NystromformerSelfAttention
        olmo_hybrid.OlmoHybridLinearAttentionDecoderLayer
        omdet_turbo.MultiScaleDeformableAttention
        oneformer.OneFormerPixelDecoderEncoderMultiscaleDeformableAttention
        pp_doclayout_v2.MultiScaleDeformableAttention
        pp_doclayout_v3.MultiScaleDeformableAttention
        pp_doclayout_v4.MultiScaleDeformableAttention
        reformer.LSHSelfAttention
        rf_detr.MultiScaleDeformableAttention rt_detr.MultiScaleDeformableAttention
        rt_detr_v2.RTDetrV2MultiscaleDeformableAttention rwkv.RwkvSelfAttention
        swiftformer.SwiftFormerEfficientAdditiveAttention yoso.YosoSelfAttention
    """,
    "a bias of pairs that a network computes": """
        esm.EsmFoldAttention esm.EsmFoldSelfAttention
    """,
    "a pooling or weights alone": """
        aimv2.Aimv2AttentionPoolingHead
        conditional_detr.ConditionalDetrMHAttentionMap
        dab_detr.DabDetrMHAttentionMap detr.DetrMHAttentionMap
        esmfold2.EsmFold2RowAttentionPooling
        maskformer.MaskFormerDetrMHAttentionMap
        mgp_str.MgpstrA3Module slanet.SLANetAttentionGRUCell
        slanext.SLANeXtAttentionGRUCell visual_bert.VisualBertRegionToPhraseAttention
    """,
    "one head among convolutions, without positions": """
        apertus1p5.Apertus1p5VisionTokenizerAttnBlock
        chameleon.ChameleonVQVAEEncoderAttnBlock
        janus.JanusVQVAEAttnBlock wavtokenizer.WavTokenizerVocosAttention
    """,
    NO_ATTENTION: """
        chmv2.CHMv2FeaturesToDepth diffusion_gemma.DiffusionGemmaDecoderModel
        doge.DogeCDMoE
        efficientloftr.EfficientLoFTRForKeypointMatching
        esm.EsmCategoricalMixture esm.EsmForProteinFolding
        esmfold2.EsmFold2LanguageModelEncoder esmfold2.EsmFold2ConfidenceHead
        flaubert.FlaubertSQuADHead
        xlm.XLMSQuADHead xlnet.XLNetForQuestionAnswering
    """,
    BESIDE: """
        cvt.CvtSelfAttentionConvProjection cvt.CvtSelfAttentionLinearProjection
        dinat.NeighborhoodAttentionOutput edgetam_video.EdgeTamVideoMemoryAttentionMLP
        funnel.FunnelAttentionStructure lxmert.LxmertAttentionOutput
        neomme.NeoMMEExclusiveSelfAttention patchtsmixer.PatchTSMixerGatedAttention
        phi4_multimodal.Phi4MultimodalVisionMultiheadAttentionPoolingHead
        speecht5.SpeechT5GuidedMultiheadAttentionLoss
    """,
}

#: Classes that ask the registry after their models have made a bias of every pair.
DENSE = """
    beit.BeitAttention doge.DogeAttention
    granite_speech5.GraniteSpeech5EncoderAttention inkling.InklingAttention
    inkling2.Inkling2FullAttention inkling2.Inkling2SlidingAttention
    inkling2_loop.Inkling2LoopFullAttention
    inkling2_loop.Inkling2LoopSlidingAttention layoutlmv3.LayoutLMv3SelfAttention
    longt5.LongT5Attention mt5.MT5Attention
    nemotron_asr_streaming.NemotronAsrStreamingEncoderAttention
    parakeet.ParakeetEncoderAttention
    phi4_multimodal.Phi4MultimodalAudioAttention pix2struct.Pix2StructTextAttention
    pop2piano.Pop2PianoAttention
    pp_doclayout_v2.PPDocLayoutV2ReadingOrderSelfAttention
    seamless_m4t.SeamlessM4TConformerSelfAttention
    seamless_m4t_v2.SeamlessM4Tv2ConformerSelfAttention swin.SwinAttention
    switch_transformers.SwitchTransformersAttention t5.T5Attention udop.UdopAttention
    umt5.UMT5Attention wav2vec2_bert.Wav2Vec2BertSelfAttention
    wav2vec2_conformer.Wav2Vec2ConformerSelfAttention
"""


def reasons_by_class(table: dict[str, str]) -> dict[str, str]:
    """Return the reason of each class that a table of reasons names."""
    return {name: reason for reason in table for name in table[reason].split()}
