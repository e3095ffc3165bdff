"""Tiny random models of every family, in which no weight or setting is trivially zero or one."""

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import (
    Ernie4_5Config,
    Ernie4_5ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    Glm4Config,
    Glm4ForCausalLM,
    GlmConfig,
    GlmForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Ministral3Config,
    Ministral3ForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MT5Config,
    MT5ForConditionalGeneration,
    Olmo2Config,
    Olmo2ForCausalLM,
    Olmo3Config,
    Olmo3ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5TextConfig,
    SmolLM3Config,
    SmolLM3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    T5Gemma2Config,
    T5Gemma2ForConditionalGeneration,
    T5GemmaConfig,
    T5GemmaForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

DECODER_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
# Inner width num_heads * d_kv differs from d_model, and the depth of the encoder from that of the decoder.
T5_SIZES = {"d_model": 32, "d_ff": 28, "num_heads": 2, "decoder_start_token_id": 0}


def rope(theta):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}


def model_config(family, vocab_size, **changes):
    if family in ("t5_v1_1", "mt5"):  # gated-gelu; few buckets, so that short texts meet the logarithmic ones
        sizes = {"num_layers": 2, "num_decoder_layers": 1, "d_kv": 10, "relative_attention_num_buckets": 8}
        sizes |= {"relative_attention_max_distance": 20, "feed_forward_proj": "gated-gelu"}
        kind = MT5Config if family == "mt5" else T5Config
        return kind(vocab_size=vocab_size, **T5_SIZES | sizes | {"tie_word_embeddings": False} | changes)
    if family == "t5_v1_0":  # relu, tied, scaled output
        sizes = {"num_layers": 1, "num_decoder_layers": 2, "d_kv": 12, "feed_forward_proj": "relu"}
        return T5Config(vocab_size=vocab_size, **T5_SIZES | sizes | {"tie_word_embeddings": True} | changes)
    if family == "umt5":  # a bias in every block; another activation than its name says; scaled output
        sizes = {"num_layers": 2, "num_decoder_layers": 1, "d_kv": 10, "relative_attention_num_buckets": 8}
        sizes |= {"relative_attention_max_distance": 20, "feed_forward_proj": "gated-gelu", "dense_act_fn": "silu"}
        return UMT5Config(vocab_size=vocab_size, **T5_SIZES | sizes | changes)
    sizes = {"vocab_size": vocab_size, **DECODER_SIZES}
    if family == "qwen2":
        # With the usual 1e6 the slow rotations hardly turn in a short text. The softmax then cancels their part of
        # k_proj.bias, and its gradient is only rounding.
        return Qwen2Config(**sizes | rope(100.0) | {"tie_word_embeddings": True} | changes)
    if family == "qwen3":  # head_dim differs from hidden_size / num_attention_heads
        sizes |= {"head_dim": 12, "intermediate_size": 28, "num_key_value_heads": 1}
        return Qwen3Config(**sizes | rope(1e6) | {"tie_word_embeddings": True} | changes)
    if family == "llama":
        return LlamaConfig(**sizes | rope(1e4) | {"tie_word_embeddings": False, "rms_norm_eps": 1e-5} | changes)
    if family == "llama_31":  # llama3's rotary embedding, biases everywhere, tied, another activation
        scaled = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16}
        sizes |= {"rope_parameters": scaled | {"low_freq_factor": 1.0, "high_freq_factor": 4.0}, "head_dim": 12}
        sizes |= {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu_pytorch_tanh"}
        return LlamaConfig(**sizes | {"tie_word_embeddings": True} | changes)
    if family == "mistral":  # texts are longer than the window
        return MistralConfig(**sizes | rope(100.0) | {"sliding_window": 6} | changes)
    if family == "qwen2_yarn":  # a window in one of the layers
        stretched = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16}
        sizes |= {"rope_parameters": stretched, "max_position_embeddings": 64}
        sizes |= {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
        return Qwen2Config(**sizes | {"tie_word_embeddings": False} | changes)
    if family == "qwen3_dynamic":  # some texts are longer than max_position_embeddings
        stretched = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0}
        sizes |= {"rope_parameters": stretched, "max_position_embeddings": 16, "head_dim": 12, "attention_bias": True}
        return Qwen3Config(**sizes | {"tie_word_embeddings": True} | changes)
    if family == "qwen3_5":  # a recurrent layer and one of attention; twice as many value heads; a part of heads rotated
        sizes |= {"head_dim": 12, "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2}
        sizes |= {"linear_num_value_heads": 4, "linear_key_head_dim": 12, "linear_value_head_dim": 10}
        rotated = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
        return Qwen3_5TextConfig(**sizes | {"rope_parameters": rotated, "tie_word_embeddings": True} | changes)
    if family == "qwen3_5_whole":  # the official checkpoints: a model of texts and images
        vision = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "patch_size": 14, "out_hidden_size": 32}
        text = model_config("qwen3_5", vocab_size, **changes)
        tokens = {"image_token_id": 92, "video_token_id": 93, "vision_start_token_id": 90, "vision_end_token_id": 91}
        return Qwen3_5Config(text_config=text.to_dict(), vision_config=vision, tie_word_embeddings=True, **tokens)
    if family == "phi3":  # a part of each head is rotated, by the long factors in the texts of more than 16 tokens
        longrope = {"rope_type": "longrope", "rope_theta": 100.0, "partial_rotary_factor": 0.75}
        pairs = (sizes | changes)["hidden_size"] // sizes["num_attention_heads"] * 3 // 4 // 2
        longrope |= {"short_factor": [1.0, 1.2, 1.5, 1.6, 1.8, 2.0][:pairs]}
        longrope |= {"long_factor": [1.0, 2.5, 4.0, 5.0, 6.5, 8.0][:pairs]}
        sizes |= {"rope_parameters": longrope, "original_max_position_embeddings": 16, "max_position_embeddings": 64}
        return Phi3Config(**sizes | {"tie_word_embeddings": True} | changes)
    if family == "phi3_window":  # as Phi-3-mini: whole heads, and texts that are longer than the window
        return Phi3Config(**sizes | rope(100.0) | {"sliding_window": 6} | changes)
    if family == "granite":
        sizes |= {"embedding_multiplier": 3.7, "residual_multiplier": 0.6, "attention_multiplier": 0.25}
        return GraniteConfig(**sizes | rope(100.0) | {"logits_scaling": 0.7, "tie_word_embeddings": True} | changes)
    if family == "granite_hybrid":  # Granite 4 without Mamba layers and experts
        sizes |= {"embedding_multiplier": 3.7, "residual_multiplier": 0.6, "attention_multiplier": 0.25, "logits_scaling": 0.7}
        sizes |= {"num_local_experts": 0, "layer_types": ["attention"] * 2, "position_embedding_type": "rope", "mamba_n_heads": 4}
        sizes |= rope(100.0) | {"shared_intermediate_size": 40, "tie_word_embeddings": True}
        return GraniteMoeHybridConfig(**sizes | changes)
    if family == "ministral3":  # queries grow, most texts are longer than the original length
        stretched = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 8}
        stretched |= {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5}
        sizes |= {"rope_parameters": stretched, "head_dim": 12, "max_position_embeddings": 32}
        return Ministral3Config(**sizes | {"tie_word_embeddings": False} | changes)
    if family == "smollm3":  # every fourth layer without a rotary embedding
        return SmolLM3Config(**sizes | rope(100.0) | {"tie_word_embeddings": True, "use_sliding_window": False} | changes)
    if family == "lfm2":  # a convolution and a layer of attention
        sizes |= {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False, "norm_eps": 1e-5}
        return Lfm2Config(**sizes | rope(100.0) | {"tie_word_embeddings": True} | changes)
    if family == "olmo2":
        return Olmo2Config(**sizes | rope(100.0) | {"tie_word_embeddings": False} | changes)
    if family == "olmo3":  # texts are longer than the window; only the layers without one have a scaled rotary embedding
        full = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16}
        sizes |= {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"], "max_position_embeddings": 64}
        sizes |= {"rope_parameters": {"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}
        return Olmo3Config(**sizes | {"tie_word_embeddings": False} | changes)
    if family == "gemma":
        return GemmaConfig(**sizes | rope(100.0) | {"head_dim": 12, "hidden_act": "gelu_pytorch_tanh"} | changes)
    if family == "ernie4_5":
        return Ernie4_5Config(**sizes | rope(100.0) | {"head_dim": 12, "tie_word_embeddings": True} | changes)
    if family == "glm":
        sizes |= {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}}
        return GlmConfig(**sizes | {"head_dim": 8, "tie_word_embeddings": False, "attention_bias": True} | changes)
    if family == "glm4":  # half of each head is rotated, in pairs of neighbours; k_proj.bias has no effect in the other half
        sizes |= {"head_dim": 12, "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}}
        return Glm4Config(**sizes | {"tie_word_embeddings": False, "attention_bias": False} | changes)
    if family.startswith("t5gemma"):  # windows that are no wider than texts; stacks of several sizes
        stack = sizes | {"head_dim": 12, "sliding_window": 6, "query_pre_attn_scalar": 20}
        stack |= {"layer_types": ["sliding_attention", "full_attention"]}
        encoder = stack | {"intermediate_size": 28, "layer_types": ["full_attention", "sliding_attention"]}
        if family == "t5gemma":  # caps that logits and attention scores come near to
            capped = rope(100.0) | {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0}
            encoder |= {"num_hidden_layers": 3, "layer_types": [*stack["layer_types"], "sliding_attention"]}
            encoder |= {"hidden_size": 24, "num_attention_heads": 2}
            return T5GemmaConfig(encoder=encoder | capped, decoder=stack | capped, vocab_size=vocab_size, **changes)
        full = {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}
        ropes = {"rope_parameters": {"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}
        vision = {"model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
        vision |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14, "vision_use_head": False}
        whole = {"text_config": encoder | ropes, "vision_config": vision, "mm_tokens_per_image": 4, "eoi_token_index": 40}
        return T5Gemma2Config(encoder=whole, decoder=stack | ropes | {"final_logit_softcapping": 3.0}, **changes)
    if family == "gemma3_whole":  # a model of texts and images with one tiny layer for these
        vision = {"model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
        vision |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14, "vision_use_head": False}
        text = model_config("gemma3", vocab_size, **changes)
        tokens = {"boi_token_index": 90, "eoi_token_index": 91, "image_token_index": 92, "mm_tokens_per_image": 4}
        return Gemma3Config(text_config=text, vision_config=vision, **tokens)
    if family in ("gemma2", "gemma3"):  # texts are longer than the window; all kinds of norms; scaled embedding
        sizes |= {"num_hidden_layers": 3, "head_dim": 12, "sliding_window": 6, "query_pre_attn_scalar": 20}
    if family == "gemma2":  # caps that logits and attention scores come near to
        sizes |= rope(100.0) | {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0}
        return Gemma2Config(**sizes | changes)
    if family == "gemma3":  # another rotary embedding in the layers with a window
        full = {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}
        sliding = {"rope_type": "default", "rope_theta": 100.0}
        sizes |= {"rope_parameters": {"full_attention": full, "sliding_attention": sliding}}
        sizes |= {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
        return Gemma3TextConfig(**sizes | changes)
    if family == "gemma4":  # full layers have wider heads, less of them, and values that are their keys
        sizes |= {"num_hidden_layers": 3, "head_dim": 12, "global_head_dim": 20, "num_global_key_value_heads": 1}
        sizes |= {"attention_k_eq_v": True, "sliding_window": 6, "final_logit_softcapping": 2.0, "hidden_size_per_layer_input": 0}
        full = {"rope_type": "proportional", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
        sliding = {"rope_type": "default", "rope_theta": 100.0}
        sizes |= {"rope_parameters": {"full_attention": full, "sliding_attention": sliding}}
        sizes |= {"layer_types": ["sliding_attention", "full_attention", "full_attention"]}
        return Gemma4TextConfig(**sizes | changes)
    if family == "gemma4_small":  # embeddings for each layer; the last layers use the keys of others, and are wider
        sizes |= {"num_hidden_layers": 4, "head_dim": 12, "global_head_dim": 20, "sliding_window": 6, "num_kv_shared_layers": 2}
        sizes |= {"hidden_size_per_layer_input": 10, "vocab_size_per_layer_input": vocab_size, "use_double_wide_mlp": True}
        full = {"rope_type": "proportional", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
        sliding = {"rope_type": "default", "rope_theta": 100.0}
        sizes |= {"rope_parameters": {"full_attention": full, "sliding_attention": sliding}, "final_logit_softcapping": 2.0}
        sizes |= {"layer_types": ["sliding_attention", "full_attention"] * 2}
        return Gemma4TextConfig(**sizes | changes)
    raise ValueError(f"unknown family {family}")


MODEL_CLASSES = {
    "t5_v1_1": T5ForConditionalGeneration,
    "t5_v1_0": T5ForConditionalGeneration,
    "mt5": MT5ForConditionalGeneration,
    "qwen2": Qwen2ForCausalLM,
    "qwen3": Qwen3ForCausalLM,
    "llama": LlamaForCausalLM,
    "llama_31": LlamaForCausalLM,
    "mistral": MistralForCausalLM,
    "qwen2_yarn": Qwen2ForCausalLM,
    "qwen3_dynamic": Qwen3ForCausalLM,
    "qwen3_5": Qwen3_5ForCausalLM,
    "qwen3_5_whole": Qwen3_5ForConditionalGeneration,
    "umt5": UMT5ForConditionalGeneration,
    "gemma2": Gemma2ForCausalLM,
    "gemma3": Gemma3ForCausalLM,
    "gemma4": Gemma4ForCausalLM,
    "gemma4_small": Gemma4ForCausalLM,
    "phi3": Phi3ForCausalLM,
    "phi3_window": Phi3ForCausalLM,
    "granite": GraniteForCausalLM,
    "granite_hybrid": GraniteMoeHybridForCausalLM,
    "ministral3": Ministral3ForCausalLM,
    "smollm3": SmolLM3ForCausalLM,
    "lfm2": Lfm2ForCausalLM,
    "olmo2": Olmo2ForCausalLM,
    "olmo3": Olmo3ForCausalLM,
    "glm4": Glm4ForCausalLM,
    "gemma": GemmaForCausalLM,
    "ernie4_5": Ernie4_5ForCausalLM,
    "glm": GlmForCausalLM,
    "gemma3_whole": Gemma3ForConditionalGeneration,
    "t5gemma": T5GemmaForConditionalGeneration,
    "t5gemma2": T5Gemma2ForConditionalGeneration,
}


def spread(name, parameter, embedding_scale, norm_offset=0.0):
    """Random values that keep activations near 1: norms around 1 (minus the offset that the model adds), biases not 0."""
    shape = parameter.shape
    if "vision_tower" in name or "multi_modal_projector" in name or "model.visual." in name:
        return 0.3 * torch.randn(shape)
    if "relative_attention_bias" in name:
        return 0.7 * torch.randn(shape)
    if name.endswith("A_log"):  # the logarithm of a rate
        return 0.7 * torch.randn(shape) - 1
    if "conv1d" in name:
        return torch.randn(shape) / shape[-1] ** 0.5
    if "linear_attn.norm" in name:  # plain, where the model's other norms are not
        norm_offset = 0.0
    if "norm" in name:
        return 1 - norm_offset + 0.3 * torch.randn(shape)
    if name.endswith("bias"):
        return 0.3 * torch.randn(shape)
    if "embed_tokens" in name or "shared" in name:
        return embedding_scale * torch.randn(shape)
    scale = 1.5 if name.startswith("lm_head") else 1.0
    if name.split(".")[-2] in ("o", "wo", "o_proj", "out_proj", "down_proj", "output_linear"):
        scale = 2.0  # otherwise a tied head repeats its input token
    if "SelfAttention.q." in name or "EncDecAttention.q." in name:
        scale = 0.4  # T5 does not divide by the root of the head's width
    return scale * torch.randn(shape) / shape[1] ** 0.5


def random_model(family, vocab_size, **changes):
    """A float32 model of `family`; the caller seeds torch."""
    config = model_config(family, vocab_size, **changes)
    model = MODEL_CLASSES[family](config)
    gemma = "gemma" in family
    plus_one = gemma and not family.startswith("gemma4") or family.startswith("qwen3_5")
    small = ("qwen2", "qwen3", "qwen3_5", "qwen3_5_whole", "llama_31", "qwen3_dynamic", "phi3", "smollm3", "lfm2")
    smaller = gemma or family.startswith("granite")  # the embedding is multiplied
    embedding_scale = 0.5 if family == "t5_v1_0" else 0.3 if family in small else 0.15 if smaller else 1.0
    if family in ("t5_v1_1", "mt5", "umt5"):  # Transformers 5 ties every T5 until the head holds something else
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(spread(name, parameter, embedding_scale, norm_offset=float(plus_one)))
            if family.startswith("gemma4") and "q_norm" in name:  # it does not divide by the root of the head's width
                parameter.mul_(0.3 if family == "gemma4" else 0.2)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.copy_(1 + 0.3 * torch.randn(buffer.shape))
    return model.eval()


def random_adapter(model, task, **options):
    """`model` with a LoRA adapter whose B is not zero, so that A has a gradient."""
    config = LoraConfig(task_type=task, **{"lora_dropout": 0.0} | options)
    peft_model = get_peft_model(model, config)
    scaling = config.lora_alpha / (config.r**0.5 if config.use_rslora else config.r)
    with torch.no_grad():
        for name, parameter in peft_model.named_parameters():
            if "lora_A" in name:
                parameter.copy_(torch.randn(parameter.shape) / parameter.shape[1] ** 0.5)
            elif "lora_B" in name and name.endswith("weight"):
                parameter.copy_(0.2 * torch.randn(parameter.shape) / (scaling * config.r**0.5))
            elif "lora_embedding_A" in name:
                parameter.copy_(torch.randn(parameter.shape))
            elif "lora_embedding_B" in name:
                parameter.copy_(0.2 * torch.randn(parameter.shape) / (scaling * config.r**0.5))
            elif "lora_magnitude_vector" in name:
                parameter.mul_(1 + 0.1 * torch.randn(parameter.shape))
            elif parameter.requires_grad:  # saved modules and biases
                parameter.add_(0.1 * torch.randn(parameter.shape))
    return peft_model.eval()
