"""Types of models, by ``model_type``, whose configurations need more than their keys.

The lists are those of transformers 5.23 and 5.24.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


GEMMA = "gemma3_text gemma3n_text t5gemma2_decoder t5gemma2_text"
#: Models with a base for sliding layers, whose scaling is of all layers.
MODERNBERT = "modernbert modernbert-decoder"
PART, APART = "partial_rotary_factor", "qk_rope_head_dim"
#: Values of transformers for keys that a configuration of these types may lack.
DEFAULTS = {
    ("rope_theta", 1e4): "codegen deepseek_v4 falcon gptj",
    ("compress_rope_theta", 1.6e5): "deepseek_v4",
    ("swa_rope_theta", 5e4): "dots3_note_text",
    ("rope_theta", 1e6): GEMMA,
    ("rope_local_base_freq", 1e4): GEMMA,
    ("global_rope_theta", 1.6e5): MODERNBERT,
    ("local_rope_theta", 1e4): MODERNBERT,
    ("rotary_dim", 64): "codegen gptj",
    ("rotary_pct", 0.25): "gpt_neox",
    (PART, 0.25): "qwen3_5_moe_text qwen3_5_text qwen3_next stablelm",
    (PART, 0.5): "bamba dots3_note_audio_encoder glm glm4 glm4_moe glm4v_moe_text "
    "glmasr_encoder nemotron persimmon phi recurrent_gemma",
    (PART, 0.9): "moonshine",
    (APART, 32): "axk2 minicpm3",
    (APART, 64): "axk1 bailing_hybrid deepseek_v2 deepseek_v3 deepseek_v32 "
    "deepseek_v4 dots3_note_text glm4_moe_lite glm_moe_dsa hy_v4 longcat_flash "
    "mistral4 mistral_large4_text youtu",
    ("head_dim", 64): "gpt_oss muse_spark_text neomme neucodec openai_privacy_filter "
    "qwen2_5_omni_dit voxtral_realtime_encoder xcodec2",
    ("head_dim", 80): "timesfm2_5",
    ("head_dim", 128): "afmoe beam cohere2_moe cosmos3_edge_text cwm dia_decoder "
    "dia_encoder ernie4_5 flint glm glm4 helium higgs_audio_v2 hrm_text hy_v3 "
    "internlm3 iquestcoder kolibri1 laguna lfm3 llama4_text mellum minimax_m2 "
    "minimax_m3_vl_text ministral3 molmo2_text muse_glimmer_assistant "
    "muse_glimmer_text paddleocr_vl_text pe_audio_encoder pe_audio_video_encoder "
    "pe_video_encoder qwen2_5_omni_talker qwen3 qwen3_omni_moe_talker_code_predictor "
    "qwen3_vl_text seed_oss solar_open step3p5 zaya",
    ("head_dim", 192): "mimo_v2_flash",
    ("head_dim", 512): "deepseek_v4",
    ("head_dim", 256): "diffusion_gemma_text embedding_gemma2_text gemma gemma2 "
    "gemma4_text gemma4_unified_text qwen3_5_moe_text qwen3_5_text qwen3_next "
    f"qwen4_exp_text t5_gemma_module vaultgemma {GEMMA}",
}
#: Models whose base is 10000 where a configuration does not say it.
BASE_10000 = _names(
    "afmoe arcee aria_text axk1 axk2 bamba blt_patcher chameleon codegen cohere2 "
    "cohere2_moe dbrx deepseek_ocr2_encoder deepseek_ocr2_text deepseek_v2 "
    "deepseek_v3 deepseek_v32 dia_decoder dia_encoder diffllama doge dots1 "
    "dots3_note_audio_encoder esmc eurobert exaone4 exaone_moe falcon falcon_h1 "
    "flint gemma gemma2 glm glm4 glm4_moe glm4_moe_lite glm4v_moe_text glm4v_text "
    "glm_image_text glm_moe_dsa glm_ocr_text glmasr_encoder gpt_neox "
    "gpt_neox_japanese gptj gradium_phonon_tts granite granite4_vision_text "
    "granite_docling_text granite_swa granitemoe granitemoe_swa granitemoehybrid "
    "granitemoeshared hrm_text hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text hy_v4 "
    "hyperclovax idefics internlm3 iquestcoder jais2 jetmoe kolibri1 "
    "kyutai_speech_to_text lasr_encoder llama mimi mimi_decoder mimi_encoder "
    "minicpm3 ministral mistral molmo2_text moonshine moshi muse_glimmer_text "
    "nanochat nemotron nemotron3_diarization_audio neucodec olmo olmo2 olmo_hybrid "
    "olmoe persimmon phi phi3 phi4_multimodal pocket_tts pocket_tts_audio_tokenizer "
    "pocket_tts_audio_tokenizer_decoder pocket_tts_audio_tokenizer_encoder qwen2 "
    "qwen2_5_omni_dit qwen2_moe qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe "
    "qwen3_next qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text "
    "qwen4_exp_text recurrent_gemma seed_oss stablelm starcoder2 t5_gemma_module "
    "timesfm2_5 unlimited_ocr_text vaultgemma voxtral_realtime_encoder "
    "voxtral_realtime_text xcodec2 youtu zamba2"
)
#: Other models with a rotary encoding: without a default, with another one, with one
#: for each type of layer, or new in transformers 5.24.
OTHER_BASE = _names(
    "apertus apertus1p5_text bailing_hybrid beam bitnet blt blt_global_transformer "
    "blt_local_decoder blt_local_encoder cohere cohere_compass_text "
    "cosmos3_edge_text csm csm_depth_decoder_model cwm deepseek_v4 "
    "diffusion_gemma_text dory dots3_note_text embedding_gemma2_text emu3_text_model "
    "ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text evolla exaone flex_olmo gemma3_text "
    "gemma3n_text gemma4_text gemma4_unified_text gpt_oss gte helium higgs_audio_v2 "
    "hy_v3 hy_v4_vl_text jina_embeddings_v3 laguna lara_mini lfm2 lfm2_moe lfm3 "
    "llama4_text longcat_flash mellum mimo_v2_flash minimax minimax_m2 "
    "minimax_m3_vl_text ministral3 mistral4 mistral_large4_text mixtral "
    "mllama_text_model modernbert modernbert-decoder moonshine_streaming "
    "muse_glimmer_assistant muse_spark_text musicflamingo "
    "nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_word_timestamp neomme "
    "nomic_bert olmo3 openai_privacy_filter paddleocr_vl_text pe_audio_encoder "
    "pe_audio_video_encoder pe_video_encoder phimoe qwen2_5_omni_talker "
    "qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text qwen3_omni_moe_text "
    "qwen3_vl_moe_text qwen3_vl_text sarvam_mla sarvam_moe smollm3 solar_open "
    "step3p5 t5gemma2_decoder t5gemma2_text ultrabert zaya"
)
#: Models of which all keys about the rotation are known.
KNOWN = BASE_10000 | OTHER_BASE
#: Encoders of images whose rotation is of a grid, with keys as of a sequence.
OF_GRIDS = _names(
    "cohere_compass_vision dinov3_vit dots3_note_vision_encoder edgetam_video "
    "efficientloftr eomt_dinov3 ernie4_5_vl_moe_vision exaone4_5_vision "
    "gemma4_vision glm4v_moe_vision glm4v_vision glm5_next_vision "
    "glm_ocr_vision inkling2_vision kimi_k25_vision lfm3_vl_vision "
    "llama4_vision_model minimax_m3_vl_vision mlcd_vision_model "
    "muse_glimmer_vision muse_spark_vision paddleocr_vl_vision pixtral "
    "qwen2_5_omni_vision_encoder qwen2_5_vl_vision qwen2_vl_vision "
    "qwen3_5_moe_vision qwen3_5_vision qwen3_omni_moe_vision_encoder "
    "qwen3_vl_moe_vision qwen3_vl_vision qwen4_exp_vision sam2_video "
    "sam3_tracker_video sam3_vit_model sapiens2 step3p5_vision "
    "video_llama_3_vision"
)
#: Models whose layers of full attention have no rotary encoding, unless, in the second
#: list, no layer has a window.
ROTATED_WHERE_SLIDING = _names("afmoe cohere2 flint lara_mini")
ROTATED_WITHOUT_WINDOW = _names("exaone4 exaone_moe kolibri1")
#: Models whose scaling is of the layers of full attention alone.
SCALED_WHERE_FULL = _names("olmo3")
#: Models with interleaved pairs: configurations rarely have a key for them.
INTERLEAVED = _names(
    "axk1 axk2 bailing_hybrid blt_global_transformer blt_local_decoder "
    "blt_local_encoder blt_patcher codegen cohere cohere2 cohere2_moe deepseek_v2 "
    "deepseek_v3 deepseek_v32 deepseek_v4 dots3_note_text ernie4_5 ernie4_5_moe "
    "ernie4_5_vl_moe_text glm glm4 glm4_moe_lite glm4v_text glm_moe_dsa glm_ocr_text "
    "gptj helium hy_v4_vl_text kimi_k2 llama4_text longcat_flash mistral4 "
    "mistral_large4_text moonshine moonshine_streaming openai_privacy_filter "
    "pe_audio_encoder pe_audio_video_encoder pe_video_encoder sarvam_mla youtu"
)

#: Parts of the names of keys that may decide a rotation.
ROTARY_WORDS = "theta", "base", "rope", "scaling"
#: Numeric keys with such a name that concern something else: routers, logits, losses,
#: vocabularies, channels, attention over memories, and which layers rotate at all.
UNRELATED = _names(
    "base_attn_unit_dims base_channels dim_model_base log_scaling_alpha "
    "log_scaling_n_floor logits_scaling memory_attention_rope_dropout "
    "memory_attention_rope_feat_sizes memory_attention_rope_k_sizes "
    "moe_routed_scaling_factor moe_router_scaling_factor mtp_loss_scaling_factor "
    "ngram_vocab_size_base no_rope_layer_interval no_rope_layers relation_bias_theta "
    "routed_scaling_factor router_scaling_factor "
    "suppress_overlapping_based_on_recent_occlusion_threshold"
)
#: Keys of ``rope_parameters`` that concern which positions there are, or the scale of
#: scores, or say how the model was trained.
UNRELATED_OF_ROPE = _names(
    "finetuned interleaved llama_4_scaling_beta mrope_interleaved mrope_section"
)
