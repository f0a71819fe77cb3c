"""Sizes of small models of transformers, by the names of their settings."""

from __future__ import annotations

from typing import Any

import transformers

_SIZES = {
    2: "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers "
    "num_decoder_layers num_encoder_layers encoder_num_hidden_layers depth "
    "decoder_num_hidden_layers num_key_value_heads encoder_num_key_value_heads "
    "decoder_num_key_value_heads num_experts_per_tok num_frames tubelet_size "
    "num_feat_extract_layers num_conv_pos_embedding_groups",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads "
    "decoder_attention_heads attention_heads encoder_num_attention_heads "
    "decoder_num_attention_heads num_experts num_local_experts n_routed_experts "
    "num_conv_pos_embeddings",
    8: "d_kv head_dim attention_head_dim patch_size qk_rope_head_dim mamba_d_state "
    "qk_nope_head_dim v_head_dim",
    16: "projection_dim image_size moe_intermediate_size num_mel_bins q_lora_rank "
    "shared_expert_intermediate_size kv_lora_rank qk_head_dim",
    32: "hidden_size d_model n_embd dim embed_dim embedding_size",
    40: "d_ff dim_ff ffn_dim intermediate_size encoder_ffn_dim decoder_ffn_dim n_inner",
    64: "max_position_embeddings n_positions max_source_positions max_target_positions",
}
#: A value for each setting that has one of these names.
SMALL: dict[str, Any] = {
    **{name: size for size, names in _SIZES.items() for name in names.split()},
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "conv_dim": (8, 8),
    "conv_kernel": (3, 3),
    "conv_stride": (2, 2),
    "decoder_start_token_id": 1,
    "eos_token_id": 2,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "n_shared_experts": 1,
    "num_channels": 3,
    "pad_token_id": 0,
    "sliding_window": 5,
    "topk_group": 1,
    "vocab_size": 99,
}
#: What else the configurations of a type need.
MORE: dict[str, dict[str, Any]] = {
    "bigbird_pegasus": {"attention_type": "original_full"},
    "bridgetower": {"hidden_size": 64},
    "bridgetower_text_model": {"hidden_size": 64},
    "bridgetower_vision_model": {"hidden_size": 64},
    "codegen": {"rotary_dim": 4},
    "esmc": {"num_key_value_heads": 4},
    "gptj": {"rotary_dim": 4},
    "inkling2_loop_text": {"layer_types": ["hybrid_sliding", "hybrid"]},
    "inkling2_text": {"layer_types": ["hybrid_sliding", "hybrid"]},
    "layoutlmv3": {"coordinate_size": 5, "shape_size": 6, "input_size": 16},
    "mllama_text_model": {"cross_attention_layers": [1]},
    "mllama_vision_model": {
        "intermediate_layers_indices": [0],
        "max_num_tiles": 1,
        "supported_aspect_ratios": [[1, 1]],
        "vision_output_dim": 64,
        "num_global_layers": 1,
    },
    "omniasr_audio": {"num_conv_pos_embeddings": 4},
    "lfm2_moe": {"layer_types": ["full_attention", "conv"]},
}

_VERSION = tuple(map(int, transformers.__version__.split(".")[:2]))


def _asking(names: str) -> tuple[str, ...]:
    """The names that ask the registry here: "name@5.24" from it on."""
    found = []
    for entry in names.split():
        name, _, since = entry.partition("@")
        if not since or tuple(map(int, since.split("."))) <= _VERSION:
            found.append(name)
    return tuple(found)


#: The models that are built, by folder and class; "+" is a decoder that attends across.
_BUILT = """
    afmoe.AfmoeModel aimv2.Aimv2VisionModel albert.AlbertModel
    align.AlignTextModel altclip.AltCLIPVisionModel altclip.AltRobertaModel
    apertus1p5.Apertus1p5TextModel@5.24 codegen.CodeGenModel@5.24 dory.DoryModel@5.24
    gptj.GPTJModel@5.24 inkling2_loop.Inkling2LoopTextModel@5.24
    lara_mini.LaraMiniModel@5.24 layoutlmv3.LayoutLMv3Model@5.24
    omniasr.OmniASRAudioModel@5.24 pp_doclayout_v2.PPDocLayoutV2ReadingOrder@5.24
    apertus.ApertusModel arcee.ArceeModel aria.AriaTextModel axk1.AXK1Model
    bart.BartModel beam.BeamModel beit.BeitBackbone bert.BertLMHeadModel+
    bert.BertModel bert.BertModel+ bert_generation.BertGenerationEncoder
    bert_generation.BertGenerationEncoder+ bigbird_pegasus.BigBirdPegasusDecoder
    bigbird_pegasus.BigBirdPegasusModel
    biogpt.BioGptModel bitnet.BitNetForCausalLM blenderbot.BlenderbotModel
    blenderbot_small.BlenderbotSmallModel blip_2.Blip2VisionModel
    blip_2.Blip2VisionModelWithProjection blt.BltPatcher
    bridgetower.BridgeTowerModel bridgetower.BridgeTowerTextModel
    camembert.CamembertModel+ canary.CanaryDecoder
    chinese_clip.ChineseCLIPTextModel chinese_clip.ChineseCLIPVisionModel
    clap.ClapTextModel clip.CLIPVisionModel clipseg.CLIPSegTextModel
    cohere.CohereModel cohere2.Cohere2Model cohere2_moe.Cohere2MoeModel
    conditional_detr.ConditionalDetrEncoder csm.CsmDepthDecoderModel
    ctrl.CTRLModel cwm.CwmModel data2vec.Data2VecAudioModel
    data2vec.Data2VecTextModel data2vec.Data2VecTextModel+
    decision_transformer.DecisionTransformerGPT2Model deepseek_v2.DeepseekV2Model
    deepseek_v3.DeepseekV3Model deepseek_v4.DeepseekV4ForCausalLM deit.DeiTModel
    detr.DetrDecoder detr.DetrEncoder dia.DiaEncoder diffllama.DiffLlamaModel
    dinov2.Dinov2Model dinov2_with_registers.Dinov2WithRegistersModel
    distilbert.DistilBertModel doge.DogeModel dots1.Dots1Model dpt.DPTModel
    electra.ElectraModel electra.ElectraModel+
    embedding_gemma2.EmbeddingGemma2TextModel emu3.Emu3TextModel ernie.ErnieModel+
    ernie4_5.Ernie4_5Model ernie4_5_moe.Ernie4_5_MoeModel esm.EsmModel
    esmc.EsmcModel eurobert.EuroBertModel evolla.EvollaModel
    evolla.EvollaSaProtProteinEncoder exaone4.Exaone4Model
    exaone_moe.ExaoneMoeModel flex_olmo.FlexOlmoForCausalLM flint.FlintModel
    gemma.GemmaForCausalLM gemma2.Gemma2Model gemma3.Gemma3TextModel
    gemma4_unified.Gemma4UnifiedTextModel git.GitVisionModel glm.GlmModel
    glm4.Glm4Model glm4_moe.Glm4MoeModel glm4_moe_lite.Glm4MoeLiteModel
    glmasr.GlmAsrEncoder gpt2.GPT2Model gpt_bigcode.GPTBigCodeModel
    gpt_neox.GPTNeoXModel gpt_oss.GptOssModel granite.GraniteModel
    granite4_vision.Granite4VisionTextModel
    granite_docling.GraniteDoclingTextModel granite_swa.GraniteSWAModel
    granitemoe.GraniteMoeModel granitemoe_swa.GraniteMoeSWAForCausalLM
    granitemoeshared.GraniteMoeSharedModel gte.GteModel helium.HeliumModel
    higgs_audio_v2.HiggsAudioV2Model hrm_text.HrmTextModel hubert.HubertForCTC
    hunyuan_v1_dense.HunYuanDenseV1Model hunyuan_v1_moe.HunYuanMoEV1Model
    hy_v3.HYV3ForCausalLM hyperclovax.HyperCLOVAXModel
    idefics2.Idefics2VisionTransformer idefics3.Idefics3VisionTransformer
    ijepa.IJepaModel inkling.InklingForCausalLM inkling2.Inkling2ForCausalLM
    instructblip.InstructBlipQFormerModel instructblip.InstructBlipVisionModel
    instructblipvideo.InstructBlipVideoQFormerModel
    instructblipvideo.InstructBlipVideoVisionModel internvl.InternVLVisionModel
    jais2.Jais2Model janus.JanusVisionModel jetmoe.JetMoeModel
    jina_embeddings_v3.JinaEmbeddingsV3Model kolibri1.Kolibri1Model
    kosmos2.Kosmos2TextTransformer kosmos2.Kosmos2VisionTransformer
    kosmos2_5.Kosmos2_5Model kosmos2_5.Kosmos2_5TextModel laguna.LagunaModel
    layoutlm.LayoutLMModel lfm2.Lfm2Model lfm2_moe.Lfm2MoeModel llama.LlamaModel
    llama4.Llama4TextModel longt5.LongT5ForConditionalGeneration
    m2m_100.M2M100Model marian.MarianModel markuplm.MarkupLMModel
    maskformer.MaskFormerDetrDecoder mbart.MBartModel mellum.MellumForCausalLM
    metaclip_2.MetaClip2TextModel mimo_v2_flash.MiMoV2FlashModel
    minicpm3.MiniCPM3Model minimax.MiniMaxModel minimax_m2.MiniMaxM2Model
    minimax_m3_vl.MiniMaxM3VLTextModel ministral.MinistralModel
    ministral3.Ministral3Model mistral.MistralModel mistral4.Mistral4Model
    mixtral.MixtralModel mlcd.MLCDVisionModel mllama.MllamaTextModel+
    mllama.MllamaVisionModel mobilebert.MobileBertForNextSentencePrediction
    modernbert.ModernBertModel modernbert_decoder.ModernBertDecoderModel
    molmo2.Molmo2TextModel mt5.MT5Model muse_glimmer.MuseGlimmerTextModel
    muse_spark.MuseSparkTextModel nanochat.NanoChatModel nemotron.NemotronModel
    nllb_moe.NllbMoeModel nomic_bert.NomicBertModel olmo.OlmoModel
    olmo2.Olmo2Model olmo3.Olmo3Model olmo_hybrid.OlmoHybridModel olmoe.OlmoeModel
    openai_privacy_filter.OpenAIPrivacyFilterModel opt.OPTDecoder
    ovis2.Ovis2VisionModel owlv2.Owlv2TextTransformer owlvit.OwlViTTextTransformer
    parakeet.ParakeetForCTC pegasus.PegasusModel pegasus_x.PegasusXDecoder
    pegasus_x.PegasusXModel
    persimmon.PersimmonModel phi.PhiModel phi3.Phi3ForCausalLM
    phi4_multimodal.Phi4MultimodalModel phi4_multimodal.Phi4MultimodalVisionModel
    phimoe.PhimoeModel pixio.PixioModel pixtral.PixtralVisionModel
    plbart.PLBartModel pop2piano.Pop2PianoStack
    pp_formulanet.PPFormulaNetTextModel qianfan_ocr.QianfanOCRVisionModel
    qwen2.Qwen2Model qwen2_moe.Qwen2MoeModel qwen3.Qwen3Model
    qwen3_5.Qwen3_5ForTokenClassification qwen3_moe.Qwen3MoeModel
    qwen3_omni_moe.Qwen3OmniMoeThinkerTextModel qwen3_vl.Qwen3VLTextModel
    qwen3_vl_moe.Qwen3VLMoeTextModel radio.RadioModel roberta.RobertaModel
    roberta.RobertaModel+ roberta_prelayernorm.RobertaPreLayerNormModel+
    roc_bert.RoCBertModel roc_bert.RoCBertModel+ sam3.Sam3ViTModel
    sapiens2.Sapiens2Model seamless_m4t.SeamlessM4TEncoder seed_oss.SeedOssModel
    sew.SEWModel siglip.SiglipTextModel siglip2.Siglip2TextModel
    smollm3.SmolLM3Model smolvlm.SmolVLMVisionTransformer
    solar_open.SolarOpenModel speech_to_text.Speech2TextDecoder
    splinter.SplinterModel stablelm.StableLmModel starcoder2.Starcoder2Model
    step3p7.Step3p7TextModel step3p7.Step3p7VisionModel swin.SwinBackbone
    switch_transformers.SwitchTransformersModel t5.T5Model t5gemma.T5GemmaModel
    tipsv2.Tipsv2TextModel tipsv2.Tipsv2VisionModel ultrabert.UltrabertModel
    umt5.UMT5Model unispeech.UniSpeechModel unispeech_sat.UniSpeechSatModel
    vaultgemma.VaultGemmaModel videoprism.VideoPrismTextModel vit.ViTModel
    vit_mae.ViTMAEModel vit_msn.ViTMSNModel
    voxtral_realtime.VoxtralRealtimeEncoder wav2vec2.Wav2Vec2Model
    wav2vec2_conformer.Wav2Vec2ConformerModel whisper.WhisperDecoder
    x_clip.XCLIPTextModel xlm_roberta.XLMRobertaModel xlm_roberta.XLMRobertaModel+
    xlm_roberta_xl.XLMRobertaXLModel xlm_roberta_xl.XLMRobertaXLModel+
    yolos.YolosModel youtu.YoutuModel
"""
MODELS = _asking(_BUILT)

#: The attention classes that no model above has, by the reason.
_NOT_BUILT = {
    "picks keys, and is compared in test_torch_transformers_picks.py": """
        AXK2Attention DeepseekV32Attention Dots3NoteTextAttention GlmMoeDsaAttention
        HYV4Attention HYV4VLAttention@5.24 MistralLarge4TextAttention
    """,
    "checks its settings against each other, or wants inputs of its own": """
        BailingHybridAttention BambaAttention BltCrossAttention CohereCompassAttention
        Cosmos3EdgeTextAttention DbrxAttention DeepseekOcr2TextAttention
        DiffusionGemmaDecoderTextAttention DiffusionGemmaEncoderTextAttention
        Ernie4_5_VLMoeTextAttention Exaone4_5_Attention
        FalconH1Attention
        Gemma3nTextAttention Gemma4TextAttention Glm4vMoeTextAttention
        Glm4vTextAttention Glm5NextTextAttention GlmImageTextAttention
        GlmOcrTextAttention GraniteMoeHybridAttention HunYuanVLDenseV1Attention
        InformerAttention JambaAttention KimiLinearAttention
        Lfm3Attention LongcatFlashMLA
        MuseGlimmerAssistantAttention NemotronHAttention NeoMMEAttention
        PatchTSMixerAttention PatchTSTAttention Qwen2VLAttention Qwen2_5OmniAttention
        Qwen2_5_VLAttention Qwen3NextAttention Qwen3_5Attention Qwen3_5MoeAttention
        Qwen4ExpTextAttention RecurrentGemmaAttention T5Gemma2MergedAttention
        T5Gemma2SelfAttention TimeSeriesTransformerAttention TimesFm2_5Attention
        TimesFmAttention UdopAttention UnlimitedOcrAttention UnlimitedOcrTextAttention
        XmodCrossAttention XmodSelfAttention Zamba2Attention ZambaAttention
        ZayaAttention
    """,
    "wants pictures as patches with their grid, or a backbone of fixed sizes": """
        ChameleonAttention CohereCompassVisionAttention
        ConditionalDetrDecoderCrossAttention ConditionalDetrDecoderSelfAttention
        Cosmos3EdgeVisionAttention DFineSelfAttention DINOv3ViTAttention
        DeepseekOcr2VisionAttention DeformableDetrSelfAttention Deimv2SelfAttention
        Dots3NoteVisionAttention EdgeTamAttention EdgeTamVideoAttention
        EdgeTamVideoPerceiverAttention EdgeTamVideoRoPECrossAttention
        EdgeTamVideoRoPESelfAttention EfficientLoFTRAttention Emu3VQVAEAttentionBlock
        EomtAttention EomtDinov3Attention Ernie4_5_VLMoeVisionAttention
        Exaone4_5_VisionAttention Florence2VisionChannelAttention
        Florence2VisionWindowAttention Gemma4VisionAttention Glm4vMoeVisionAttention
        Glm4vVisionAttention Glm5NextVisionAttention GlmImageVisionAttention
        GlmOcrVisionAttention GraniteDoclingVisionAttention HunYuanVLVisionAttention
        HYV4VLVisionAttention@5.24
        Idefics2PerceiverAttention IdeficsAttention Inkling2VisionAttention
        Kimi_K25VisionAttention Lfm3VlVisionAttention LightGlueAttention
        Llama4VisionAttention LwDetrAttention LwDetrViTAttention
        MiniCPMOcrVisionAttention MiniCPMV4_6VisionAttention
        MiniCPMV4_7VisionAttention MiniMaxM3VLVisionAttention Molmo2VisionAttention
        MuseGlimmerVisionAttention MuseSparkVisionAttention PPDocLayoutV2SelfAttention
        PPDocLayoutV3SelfAttention PPDocLayoutV4SelfAttention
        PPOCRV5MobileRecAttention PPOCRV5ServerRecAttention PPOCRV6SmallRecAttention
        PaddleOCRAttention PaddleOCRVisionAttention PeVideoEncoderAttention
        Pix2StructTextAttention Pix2StructVisionAttention Qwen2_5OmniVisionAttention
        Qwen2_5_VLVisionAttention Qwen3OmniMoeVisionAttention
        Qwen3VLMoeVisionAttention Qwen3VLVisionAttention Qwen3_5MoeVisionAttention
        Qwen4ExpVisionAttention RTDetrSelfAttention RTDetrV2SelfAttention
        RfDetrAttention RfDetrDinov2Attention Sam2Attention Sam2MultiScaleAttention
        Sam2VideoAttention Sam2VideoRoPEAttention Sam3Attention Sam3LiteTextAttention
        Sam3LiteTextTextAttention Sam3TrackerAttention Sam3TrackerVideoAttention
        Sam3TrackerVideoRoPEAttention SamAttention SamHQAttention SegformerAttention
        VJEPA2PoolerCrossAttention VJEPA2PoolerSelfAttention VJEPA2RopeAttention
        VideoLlama3VisionAttention VideoMAESelfAttention
        VideoPrismMultiheadAttentionPoolingHead VideomtAttention VisionAttention
        VitPoseBackboneSelfAttention VivitAttention XCLIPCrossAttention
    """,
    "wants sound in frames of sizes that its convolutions fix": """
        ASTAttention AudioFlamingo3Attention CohereAsrCrossAttention
        CohereAsrSelfAttention DiTAttention DiaCrossAttention Dots3NoteAudioAttention
        FunAsrNanoAttention GradiumPhononTTSAttention GraniteSpeech5EncoderAttention
        KyutaiSpeechToTextAttention LasrEncoderAttention MimiAttention
        MoonshineAttention MoonshineStreamingAttention
        MoonshineStreamingEncoderAttention MoshiAttention
        MossTranscribeDiarizeAudioAttention MusicgenAttention MusicgenMelodyAttention
        Nemotron3DiarizationAttention Nemotron3_5TranscribeAttention
        NemotronAsrStreamingEncoderAttention NeuCodecAttention PeAudioEncoderAttention
        PeAudioVideoEncoderAttention PocketTTSAttention
        PocketTTSAudioTokenizerAttention Qwen2AudioAttention Qwen2_5OmniAudioAttention
        Qwen3ASRAudioAttention Qwen3OmniMoeAudioAttention
        Qwen3OmniMoeCode2WavAttention Qwen3OmniMoeTalkerCodePredictorAttention
        SeamlessM4TConformerSelfAttention SeamlessM4Tv2Attention
        SeamlessM4Tv2ConformerSelfAttention VoxtralAttention
        VoxtralRealtimeTextAttention Wav2Vec2BertSelfAttention Xcodec2Attention
    """,
}
NOT_BUILT = {reason: _asking(names) for reason, names in _NOT_BUILT.items()}
