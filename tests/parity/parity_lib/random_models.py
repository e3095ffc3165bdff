"""Random config.json files of every family, with all settings that they can have, and weights for them. (over 400 lines: one
function for each family, which share their helpers)"""

import json

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForSeq2SeqLM

from . import tiny_models

DECODERS = ["llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma2", "gemma3_text", "phi3", "granite", "qwen3_5_text"]
DECODERS += ["cwm", "ernie4_5", "gemma", "helium", "internlm3", "iquestcoder", "ministral"]
DECODERS += ["gemma4_text", "gemma4_unified_text"]
DECODERS += ["granitemoehybrid", "ministral3", "olmo2", "olmo3", "glm", "glm4", "lfm2"]
ENCODER_DECODERS = ["t5", "mt5", "umt5", "t5gemma", "t5gemma2"]
# Models of texts and images, and the families that their text halves may be of.
WHOLES = {"gemma3": ["gemma3_text"], "mistral3": ["mistral", "ministral3"], "qwen2_vl": ["qwen2_vl_text"]}
WHOLES |= {"gemma4": ["gemma4_text"], "gemma4_unified": ["gemma4_unified_text"]}
WHOLES |= {"qwen2_5_vl": ["qwen2_5_vl_text"], "qwen3_vl": ["qwen3_vl_text"], "qwen3_5": ["qwen3_5_text"]}
FAMILIES = DECODERS + ENCODER_DECODERS + list(WHOLES)
VOCABULARY = 61
ACTIVATIONS = ["silu", "swish", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python", "gelu_accurate"]
ACTIVATIONS += ["quick_gelu", "relu", "relu2", "relu6", "leaky_relu", "tanh", "sigmoid", "mish", "hardswish", "linear"]


def sometimes(draw, config, key, values, probability=0.5):
    if draw.random() < probability:
        config[key] = draw.choice(values)


def rope_of(draw, positions):
    """The settings of the rotary embedding, without rope_theta."""
    kind = draw.choice(["none", "default", "linear", "dynamic", "yarn", "yarn", "llama3"])
    if kind in ("none", "default"):
        return {"rope_type": "default"} if kind == "default" else {}
    rope = {"rope_type": kind, "factor": draw.choice([2, 2.0, 1.5, 4.0, 8.0])}
    if kind == "llama3":
        rope |= {"low_freq_factor": draw.choice([1, 1.0, 0.5]), "high_freq_factor": draw.choice([4.0, 3, 8.0])}
        rope["original_max_position_embeddings"] = draw.choice([8, 16, positions // 2])
    if kind == "yarn":
        sometimes(draw, rope, "original_max_position_embeddings", [8, 16, 12], 0.8)
        sometimes(draw, rope, "attention_factor", [1.0, 0.8, 1.3, None], 0.3)
        sometimes(draw, rope, "beta_fast", [32, 8.0, 4], 0.4)
        sometimes(draw, rope, "beta_slow", [1, 0.5, 2.0], 0.4)
        sometimes(draw, rope, "truncate", [True, False], 0.4)
        if draw.random() < 0.4:
            rope |= {"mscale": draw.choice([1.0, 0.7]), "mscale_all_dim": draw.choice([1.0, 0.9, 0.0])}
        if "original_max_position_embeddings" in rope and draw.random() < 0.15:
            rope["factor"] = None
    return rope


def spell_rope(draw, config, rope, theta):
    """Adds them to `config` in the form of one of the versions of Transformers."""
    style = draw.choice(["v5", "v4", "v4 type", "v4 theta inside"])
    if style == "v5":
        config["rope_parameters"] = rope | {"rope_type": rope.get("rope_type", "default")}
        if theta is not None:
            config["rope_parameters"]["rope_theta"] = theta
        return
    if theta is not None and style != "v4 theta inside":
        config["rope_theta"] = theta
    if style == "v4 type" and rope:
        rope = {"type": rope["rope_type"]} | {key: value for key, value in rope.items() if key != "rope_type"}
    if style == "v4 theta inside" and theta is not None:
        rope = {"rope_type": "default"} | rope | {"rope_theta": theta}
    config["rope_scaling"] = rope or None
    original = rope.get("original_max_position_embeddings")
    if original is not None and draw.random() < 0.2:
        config["original_max_position_embeddings"] = draw.choice([original, 10])


def spell_rope_by_layer_type(draw, config, thetas):
    """Gemma 3: one for the layers with a window and one for the others."""
    full = rope_of(draw, config["max_position_embeddings"])
    full.pop("truncate", None)  # of YaRN: trainer reads it, Transformers 5.23 does not if settings are by type of layer
    full_theta, sliding_theta = draw.choice(thetas), draw.choice(thetas)
    if draw.random() < 0.5:
        sliding = draw.choice([{"rope_type": "default"}, {"rope_type": "linear", "factor": 2.0}])
        ropes = {"full_attention": {"rope_type": "default"} | full, "sliding_attention": sliding}
        for rope, theta in zip(ropes.values(), (full_theta, sliding_theta)):
            if theta is not None:
                rope["rope_theta"] = theta
        config["rope_parameters"] = ropes
        return
    if full_theta is not None:
        config["rope_theta"] = full_theta
    if sliding_theta is not None:
        config["rope_local_base_freq"] = sliding_theta
    config["rope_scaling"] = full or None


def add_gemma(draw, config, family):
    """Settings that only Gemma's config.json has."""
    config["hidden_activation"] = config.pop("hidden_act", "gelu_pytorch_tanh")
    config["sliding_window"] = draw.choice([3, 8, 20])
    config["query_pre_attn_scalar"] = draw.choice([8, 20, 256])
    sometimes(draw, config, "attention_bias", [True, False])
    sometimes(draw, config, "attn_logit_softcapping", [None, 1.0, 5.0], 0.9)
    sometimes(draw, config, "final_logit_softcapping", [None, 2.0, 30.0], 0.9)
    if draw.random() < 0.4:
        kinds = ["full_attention", "sliding_attention"]
        config["layer_types"] = [draw.choice(kinds) for _ in range(config["num_hidden_layers"])]
    elif family == "gemma3_text":
        sometimes(draw, config, "sliding_window_pattern", [1, 2, 3])


def gemma4_rope(draw):
    """One for each type of layer, always with its base."""
    rope = {"rope_type": draw.choice(["proportional", "proportional", "default", "linear", "yarn"])}
    rope["rope_theta"] = draw.choice([100.0, 10000, 1e6])
    if rope["rope_type"] in ("proportional", "default"):
        sometimes(draw, rope, "partial_rotary_factor", [0.25, 0.5, 1.0, 0.6, 0.0], 0.8)
    if rope["rope_type"] in ("linear", "yarn") or draw.random() < 0.3:
        rope["factor"] = draw.choice([2.0, 4.0])
    if rope["rope_type"] == "yarn":
        rope["original_max_position_embeddings"] = draw.choice([8, 16])
    return rope


def add_gemma4(draw, config, family):
    """Layers without a window have heads of their own, and their values may be those that the keys are made of."""
    config["hidden_activation"] = config.pop("hidden_act", "gelu_pytorch_tanh")
    config["sliding_window"] = draw.choice([3, 8, 20])
    config["head_dim"] = draw.choice([8, 10, 16])
    config["pad_token_id"] = draw.choice([0, None, 3])
    heads, own = config["num_attention_heads"], config["num_hidden_layers"]
    sharing = draw.choice([0, 0, 1, 2])
    if family == "gemma4_text":  # Transformers cannot generate with shared keys and without embeddings for each layer
        sizes = [6, 10] if sharing else [0, 0, 6, 10]
        config |= {"hidden_size_per_layer_input": draw.choice(sizes), "vocab_size_per_layer_input": VOCABULARY}
    layers = config["num_hidden_layers"] = own + sharing
    sometimes(draw, config, "attention_bias", [True, False])
    sometimes(draw, config, "final_logit_softcapping", [None, 2.0, 30.0], 0.9)
    sometimes(draw, config, "use_bidirectional_attention", [None, "vision"], 0.6)
    config["attention_k_eq_v"] = draw.random() < 0.6
    config["layer_types"] = [draw.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
    config["layer_types"][draw.randrange(layers - 1)] = "sliding_attention"  # without one, Transformers fails
    if sharing:
        config |= {"num_kv_shared_layers": sharing, "use_double_wide_mlp": draw.random() < 0.5}
        config["layer_types"][:2] = draw.sample(["full_attention", "sliding_attention"], 2)
    full = {"head_dim": draw.choice([12, 16, 24]), "num_key_value_heads": draw.choice([1, 2, heads])}
    if draw.random() < 0.4:  # as Transformers saves it
        kinds = config["layer_types"][:-1] + ["full_attention"]
        config["per_layer_config"] = {str(i): full for i, kind in enumerate(kinds) if kind == "full_attention"}
    else:
        config["global_head_dim"] = full["head_dim"]
        sometimes(draw, config, "num_global_key_value_heads", [full["num_key_value_heads"], None], 0.8)
    if draw.random() < 0.8:
        config["rope_parameters"] = {kind: gemma4_rope(draw) for kind in ("full_attention", "sliding_attention")}


def add_phi3(draw, config):
    """Its window, and its rotary embedding, which rotates a part of each head (an even number of dimensions)."""
    sometimes(draw, config, "sliding_window", [None, 3, 8, 20, 4096], 0.6)
    config["pad_token_id"] = draw.choice([0, None, 3])
    config.pop("head_dim", None)  # Transformers counts LongRoPE's factors without it
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    share = draw.choice([share for share in (1.0, 0.75, 0.5) if int(head_dim * share) % 2 == 0])
    if share != 1.0 or draw.random() < 0.5:
        config["partial_rotary_factor"] = share
    sometimes(draw, config, "original_max_position_embeddings", [8, 12, 16, 64], 0.9)
    if draw.random() < 0.3:
        return {}
    pairs = int(head_dim * share) // 2
    factors = lambda most: [draw.choice([1, 1.0, round(draw.uniform(1, most), 3)]) for _ in range(pairs)]
    rope = {"rope_type": draw.choice(["longrope", "longrope", "su", "yarn"])}
    rope |= {"short_factor": factors(2.0), "long_factor": factors(20.0)}
    sometimes(draw, rope, "attention_factor", [1.0, 0.8, 1.3, None], 0.3)
    sometimes(draw, rope, "factor", [2, 4.0, None], 0.3)
    return rope


def add_granite(draw, config):
    sometimes(draw, config, "attention_bias", [True, False])
    sometimes(draw, config, "mlp_bias", [True, False])
    sometimes(draw, config, "embedding_multiplier", [3, 1.7], 0.8)
    sometimes(draw, config, "attention_multiplier", [0.3, 0.125], 0.8)
    sometimes(draw, config, "residual_multiplier", [0.22, 0.7], 0.8)
    sometimes(draw, config, "logits_scaling", [2, 0.7, 8.0], 0.8)


def add_qwen3_5(draw, config):
    """Sizes and order of its recurrent layers, and its rotary embedding, which has the three axes of an image."""
    config["hidden_act"] = "silu"
    config["head_dim"] = draw.choice([8, 16, 24])
    config["linear_num_key_heads"] = draw.choice([1, 2])
    config["linear_num_value_heads"] = config["linear_num_key_heads"] * draw.choice([1, 2, 3])
    config["linear_key_head_dim"] = draw.choice([6, 8, 16, 20])
    config["linear_value_head_dim"] = draw.choice([6, 8, 16, 24])
    sometimes(draw, config, "linear_conv_kernel_dim", [2, 3, 4, 5])
    sometimes(draw, config, "attention_bias", [True, False])
    layers = config["num_hidden_layers"]
    if draw.random() < 0.5:
        config["layer_types"] = [draw.choice(["full_attention", "linear_attention"]) for _ in range(layers)]
        config["layer_types"][draw.randrange(layers)] = "full_attention"  # without one, Transformers cannot generate
    else:
        config["full_attention_interval"] = draw.choice([1, 2, layers])
    rope = {"rope_type": "default", "rope_theta": draw.choice([100.0, 10000, 1e6])}
    sometimes(draw, rope, "partial_rotary_factor", [0.5, 1.0, 0.25])
    if draw.random() < 0.5:
        rope |= {"mrope_section": [11, 11, 10], "mrope_interleaved": True}
    config["rope_parameters"] = rope


def add_lfm2(draw, config):
    """Which layers are convolutions, of which width, and how the width of the feed-forward is said."""
    for key in ("hidden_act", "rms_norm_eps"):
        config.pop(key, None)
    config["pad_token_id"] = draw.choice([0, None, 3])
    sometimes(draw, config, "norm_eps", [1e-5, 1e-3])
    sometimes(draw, config, "conv_L_cache", [2, 3, 4])
    sometimes(draw, config, "conv_bias", [True, False])
    sometimes(draw, config, "block_multiple_of", [4, 8], 1.0)
    sometimes(draw, config, "block_auto_adjust_ff_dim", [True, False])
    sometimes(draw, config, "block_ffn_dim_multiplier", [1.0, 1.3])
    if draw.random() < 0.4:
        config["block_ff_dim"] = config.pop("intermediate_size")
    layers = config["num_hidden_layers"]
    attention = [i for i in range(layers) if draw.random() < 0.5] or [layers - 1]  # without one, Transformers cannot generate
    if draw.random() < 0.5:
        config["layer_types"] = ["full_attention" if i in attention else "conv" for i in range(layers)]
    else:
        config["full_attn_idxs"] = attention


def add_granite_hybrid(draw, config):
    """Granite 4 without experts and Mamba layers."""
    config |= {"num_local_experts": 0, "shared_intermediate_size": config["intermediate_size"], "mamba_n_heads": 4}
    key, name = draw.choice([("layer_types", "attention"), ("layer_types", "full_attention"), ("layers_block_type", "attention")])
    config[key] = [name] * config["num_hidden_layers"]
    sometimes(draw, config, "position_embedding_type", ["rope", None, "nope"], 0.9)


def add_glm(draw, config):
    config["pad_token_id"] = draw.choice([0, None, 3])
    config["head_dim"] = draw.choice([8, 16])
    sometimes(draw, config, "attention_bias", [True, False])
    sometimes(draw, config, "partial_rotary_factor", [0.5, 1.0, 0.75], 0.7)


def ministral3_rope(draw, config):
    rope = {"rope_type": draw.choice(["yarn", "yarn", "linear", "default"]), "llama_4_scaling_beta": draw.choice([0.1, 0.5])}
    rope["original_max_position_embeddings"] = draw.choice([6, 8, 12])
    if rope["rope_type"] != "default":
        rope["factor"] = draw.choice([2.0, 16.0])
    if rope["rope_type"] == "yarn":
        sometimes(draw, rope, "beta_fast", [32.0, 4.0])
        if draw.random() < 0.7:
            rope |= {"mscale": 1.0, "mscale_all_dim": draw.choice([1.0, 0.8])}
    sometimes(draw, config, "sliding_window", [None, 8], 0.4)
    if draw.random() < 0.6:
        config["rope_parameters"] = rope | {"rope_theta": draw.choice([100.0, 1e6])}
    else:
        config |= {"rope_scaling": rope, "rope_theta": draw.choice([100.0, 1e6])}


def qwen_vl_rope(draw, config, family):
    """Three coordinates for the positions of images; those of texts are all the same."""
    pairs = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"]) // 2
    sections = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]
    rope = {"mrope_section": sections, "rope_type": draw.choice(["default", "default", "yarn"])}
    if family == "qwen3_vl_text":
        rope["mrope_interleaved"] = True
    if rope["rope_type"] == "yarn":
        rope |= {"factor": 2.0, "original_max_position_embeddings": 8}
    elif family != "qwen3_vl_text" and draw.random() < 0.5:
        rope = {"type": "mrope", "mrope_section": sections}
    theta = draw.choice([100.0, 1e6])
    if draw.random() < 0.5 and "rope_type" in rope:
        config["rope_parameters"] = rope | {"rope_theta": theta}
    else:
        config |= {"rope_scaling": rope, "rope_theta": theta}


def decoder_config(draw, family):
    heads = draw.choice([2, 4])
    config = {
        "model_type": family,
        "vocab_size": VOCABULARY,
        "hidden_size": draw.choice([24, 32, 40]),
        "intermediate_size": draw.choice([20, 36]),
        "num_hidden_layers": draw.choice([2, 3]),
        "num_attention_heads": heads,
        "num_key_value_heads": draw.choice([1, 2, heads]),
        "max_position_embeddings": draw.choice([16, 24, 64]),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": draw.random() < 0.5,
    }
    head_dims = [6, 8, 10, 16] if family == "qwen3" else [8, 10, 16]
    if family in ("llama", "mistral"):
        head_dims = [None, *head_dims]
    if family in ("qwen2_vl_text", "qwen2_5_vl_text"):
        head_dims = [config["hidden_size"] // heads]  # Transformers does not read it
    sometimes(draw, config, "head_dim", head_dims, 1.0 if family == "qwen3" else 0.6)
    if config["hidden_size"] // heads % 2 and not config.get("head_dim"):
        config["head_dim"] = 6
    sometimes(draw, config, "hidden_act", ACTIVATIONS, 0.7)
    sometimes(draw, config, "rms_norm_eps", [1e-5, 1e-3])
    sometimes(draw, config, "pad_token_id", [0, None, 3])
    if family == "smollm3":
        config["pad_token_id"] = draw.choice([0, None, 3])
        sometimes(draw, config, "no_rope_layer_interval", [2, 3])
        if draw.random() < 0.3:
            config["no_rope_layers"] = [draw.choice([0, 1]) for _ in range(config["num_hidden_layers"])]
        if draw.random() < 0.4:
            config |= {"use_sliding_window": True, "sliding_window": draw.choice([3, 8, 20])}
    if family in ("llama", "qwen3", "smollm3"):
        sometimes(draw, config, "attention_bias", [True, False])
    if family in ("llama", "smollm3"):
        sometimes(draw, config, "mlp_bias", [True, False])
        sometimes(draw, config, "pretraining_tp", [1, 2])
    if family == "mistral":
        sometimes(draw, config, "sliding_window", [None, 3, 8, 20, 4096], 0.9)
    if family in ("qwen2", "qwen3"):
        sometimes(draw, config, "use_sliding_window", [True, True, False], 0.8)
        sometimes(draw, config, "sliding_window", [None, 3, 8, 20], 0.9)
        sometimes(draw, config, "max_window_layers", [0, 1, 2, 28], 0.8)
        if config.get("use_sliding_window") and config.get("sliding_window") and draw.random() < 0.4:
            kinds = ["full_attention", "sliding_attention"]
            config["layer_types"] = [draw.choice(kinds) for _ in range(config["num_hidden_layers"])]
    if family in ("ernie4_5", "gemma", "helium", "internlm3"):
        config["pad_token_id"] = draw.choice([0, None, 3])
    if family in ("cwm", "ernie4_5", "gemma", "internlm3", "iquestcoder", "ministral"):
        config["head_dim"] = draw.choice([8, 10, 16])
    if family == "helium":  # its o_proj is a square
        config["head_dim"] = config["hidden_size"] // heads
    if family in ("helium", "iquestcoder"):
        sometimes(draw, config, "attention_bias", [True, False])
        sometimes(draw, config, "mlp_bias", [True, False])
    if family == "internlm3" and draw.random() < 0.5:
        config |= {"attention_bias": True, "mlp_bias": True} if draw.random() < 0.5 else {"qkv_bias": True, "bias": True}
    if family == "ernie4_5":
        sometimes(draw, config, "use_bias", [True, False])
    if family == "gemma":
        sometimes(draw, config, "attention_bias", [True, False])
        config["hidden_act"] = draw.choice(["gelu", "gelu_pytorch_tanh", "silu"])
    if family in ("cwm", "ministral"):
        sometimes(draw, config, "sliding_window", [3, 8, 20], 0.9)
        if draw.random() < 0.5:
            kinds = ["full_attention", "sliding_attention"]
            config["layer_types"] = [draw.choice(kinds) for _ in range(config["num_hidden_layers"])]
    if family in ("olmo2", "olmo3"):
        sometimes(draw, config, "attention_bias", [True, False])
        config["pad_token_id"] = draw.choice([0, None, 3])
    if family == "qwen3_vl_text":
        config["head_dim"] = draw.choice([8, 12, 16])
        sometimes(draw, config, "attention_bias", [True, False])
    if family in ("ministral3", "glm", "glm4"):
        config["pad_token_id"] = draw.choice([0, None, 3])
    if family == "ministral3":
        config["head_dim"] = draw.choice([8, 10, 16])
        ministral3_rope(draw, config)
        return config
    if family in ("qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"):
        qwen_vl_rope(draw, config, family)
        return config
    if family.startswith("gemma4"):
        add_gemma4(draw, config, family)
        return config
    thetas = [None, 100.0, 10000, 1e6]
    if family == "olmo3":
        sometimes(draw, config, "sliding_window", [3, 8, 20], 0.9)
        if draw.random() < 0.5:
            kinds = ["full_attention", "sliding_attention"]
            config["layer_types"] = [draw.choice(kinds) for _ in range(config["num_hidden_layers"])]
        spell_rope_by_layer_type(draw, config, thetas)
        config.pop("rope_local_base_freq", None)
        return config
    if family in ("glm", "glm4"):
        add_glm(draw, config)
    if family == "granitemoehybrid":
        add_granite_hybrid(draw, config)
    if family in ("gemma2", "gemma3_text"):
        add_gemma(draw, config, family)
    if family == "gemma3_text":
        spell_rope_by_layer_type(draw, config, thetas)
        return config
    if family in ("granite", "granitemoehybrid"):
        add_granite(draw, config)
        if family == "granitemoehybrid":
            config.pop("mlp_bias", None)
    if family == "qwen3_5_text":
        add_qwen3_5(draw, config)
        return config
    if family == "lfm2":
        add_lfm2(draw, config)
    rope = add_phi3(draw, config) if family == "phi3" else rope_of(draw, config["max_position_embeddings"])
    spell_rope(draw, config, rope, draw.choice(thetas))
    return config


def t5_config(draw, family):
    config = {
        "model_type": family,
        "is_encoder_decoder": True,
        "vocab_size": VOCABULARY,
        "d_model": draw.choice([24, 32]),
        "d_ff": draw.choice([20, 36]),
        "d_kv": draw.choice([6, 8, 10]),
        "num_heads": draw.choice([2, 3]),
        "num_layers": draw.choice([1, 2]),
        "decoder_start_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "dropout_rate": 0.0,
    }
    sometimes(draw, config, "num_decoder_layers", [1, 2, 3, None])
    sometimes(draw, config, "relative_attention_num_buckets", [8, 16, 32])
    sometimes(draw, config, "relative_attention_max_distance", [20, 64, 128])
    projections = [prefix + name for name in ("relu", "gelu", "silu", "gelu_new", "tanh") for prefix in ("", "gated-")]
    sometimes(draw, config, "feed_forward_proj", projections, 0.8)
    if draw.random() < 0.3:
        config |= {"dense_act_fn": draw.choice(ACTIVATIONS), "is_gated_act": draw.random() < 0.5}
    sometimes(draw, config, "tie_word_embeddings", [True, False], 0.7)
    sometimes(draw, config, "scale_decoder_outputs", [True, False], 0.3)
    sometimes(draw, config, "layer_norm_epsilon", [1e-5, 1e-3], 0.3)
    return config


def t5gemma_config(draw, family):
    """Stacks of Gemma 2's and Gemma 3's layers, each with sizes of its own."""
    second = family == "t5gemma2"
    stacks = [decoder_config(draw, "gemma3_text" if second else "gemma2") for _ in range(2)]
    for stack in stacks:
        for key in ("model_type", "tie_word_embeddings"):
            stack.pop(key)
        stack["pad_token_id"] = draw.choice([0, 3]) if second else 0  # T5Gemma in Transformers hides what equals it
        ropes = [stack, *stack.values(), *stack.get("rope_parameters", {}).values()]
        for rope in (rope for rope in ropes if isinstance(rope, dict)):
            for key in ("rope_type", "type"):
                if rope.get(key) == "dynamic":  # by the length of the batch in Transformers
                    rope[key] = "linear"
    encoder, decoder = stacks
    config = {"model_type": family, "is_encoder_decoder": True, "tie_word_embeddings": draw.random() < 0.7}
    if second:
        decoder["hidden_size"] = encoder["hidden_size"]
        encoder = {"text_config": encoder, "vision_config": VISION["gemma3"], "mm_tokens_per_image": 4}
        encoder["eoi_token_index"] = draw.choice([7, 256000])
    return config | {"dropout_rate": 0.0, "encoder": encoder, "decoder": decoder}


VISION = {
    "gemma3": {"model_type": "siglip_vision_model", "intermediate_size": 16, "num_hidden_layers": 1}
    | {"num_attention_heads": 2, "image_size": 28, "patch_size": 14, "hidden_size": 16},
    "gemma4": {"intermediate_size": 16, "num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2}
    | {"num_key_value_heads": 2, "head_dim": 8, "patch_size": 4, "position_embedding_size": 8},
    "gemma4_unified": {"patch_size": 2, "mm_embed_dim": 16, "mm_posemb_size": 8, "output_proj_dims": 16},
    "mistral3": {"model_type": "pixtral", "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8}
    | {"num_attention_heads": 2, "image_size": 28, "patch_size": 14, "hidden_size": 16},
    "qwen2_vl": {"depth": 1, "embed_dim": 16, "num_heads": 2, "mlp_ratio": 1, "patch_size": 14},
    "qwen2_5_vl": {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "patch_size": 14},
    "qwen3_vl": {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "deepstack_visual_indexes": [0]},
    "qwen3_5": {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "patch_size": 14},
}


def whole_config(draw, family):
    text = decoder_config(draw, draw.choice(WHOLES[family]))
    vision = dict(VISION[family])
    if family.startswith("qwen"):
        vision["hidden_size" if family == "qwen2_vl" else "out_hidden_size"] = text["hidden_size"]
    config = {"model_type": family, "vision_config": vision, "tie_word_embeddings": text.pop("tie_word_embeddings")}
    if family.startswith("gemma4"):
        text["pad_token_id"] = text["pad_token_id"] or 0  # with none Transformers fails
        others = {f"{kind}_token_id": VOCABULARY + i for i, kind in enumerate(("image", "video", "audio"))}
        return config | others | {"text_config": text}
    if family in ("qwen2_vl", "qwen2_5_vl") and draw.random() < 0.5:  # as the first files
        text.pop("model_type")
        return text | config | {"image_token_id": 5, "video_token_id": 6}
    tokens = {"image_token_index": 5} if family in ("gemma3", "mistral3") else {"image_token_id": 5, "video_token_id": 6}
    if family == "gemma3":
        tokens |= {"mm_tokens_per_image": 4, "boi_token_index": 6, "eoi_token_index": 7}
    return config | tokens | {"text_config": text}


def stored_names(draw, family, names):
    """The names in the files of one of the versions of Transformers, by those of the modules."""
    if family in ("qwen3_vl", "qwen3_5") or family.startswith("gemma4") or draw.random() < 0.5:
        return {name: name for name in names}
    if family == "t5gemma2":  # as save_pretrained writes them
        return {name: name.replace("model.encoder.text_model.", "model.encoder.") for name in names}
    if family.startswith("qwen"):
        old = lambda name: name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")
    else:
        head = lambda name: "language_model." + name if name.startswith("lm_head") else name.removeprefix("model.")
        old = lambda name: head(name.replace("model.language_model.", "language_model.model."))
    return {name: old(name) for name in names}


def make(draw, family, folder):
    """Writes folder/config.json, drawn at random, and model.safetensors. Returns the config."""
    gemma = family.startswith("t5gemma")
    config = t5_config if family in ENCODER_DECODERS else whole_config if family in WHOLES else decoder_config
    config = (t5gemma_config if gemma else config)(draw, family)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    kind = AutoModelForSeq2SeqLM if family in ENCODER_DECODERS else AutoModelForCausalLM
    kind = AutoModelForImageTextToText if family in WHOLES else kind
    torch.manual_seed(draw.randrange(2**31))
    model = kind.from_config(AutoConfig.from_pretrained(folder))
    tensors = {}
    t5 = family in ENCODER_DECODERS and not gemma
    scale = 0.5 if t5 else 0.3 if config["tie_word_embeddings"] else 1.0
    gemma = gemma or family.startswith("gemma")
    plus_one = gemma and not family.startswith("gemma4") or family.startswith("qwen3_5")
    if gemma:
        scale *= 0.5  # the embedding is multiplied by the root of hidden_size
    for name, parameter in model.named_parameters():
        other = ".vision_tower." in name or ".multi_modal_projector." in name
        if other or family in WHOLES and not name.startswith(("model.language_model.", "lm_head.")):
            tensors[name] = 0.3 * torch.randn(parameter.shape)
            continue
        tensors[name] = tiny_models.spread(name, parameter, scale, norm_offset=float(plus_one)).detach().contiguous()
    stored = model.state_dict()
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):
            tensors[name] = torch.tensor([draw.uniform(0.5, 1.5)])
        elif name in stored:
            tensors[name] = buffer.clone()
    if t5 and draw.random() < 0.5:
        tensors["lm_head.weight"] = torch.randn(tensors["shared.weight"].shape) / config["d_model"] ** 0.5
    if family in WHOLES or family == "t5gemma2":
        names = stored_names(draw, family, tensors)
        tensors = {names[name]: tensor for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return config
