"""config.json and the tensors of each family, with the names, shapes and initialisation of Hugging Face Transformers."""


T5 = {
    "t5": "T5ForConditionalGeneration",  # v1.1 and FLAN
    "t5_v1_0": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "umt5": "UMT5ForConditionalGeneration",
    "byt5": "T5ForConditionalGeneration",
}


def t5_config(args, vocab_size):
    """T5 v1.1 / FLAN (family t5), the original T5 (family t5_v1_0), mT5, UMT5 and ByT5."""
    original = args.family == "t5_v1_0"
    config = {
        "architectures": [T5[args.family]],
        "d_ff": args.intermediate_size,
        "d_kv": args.head_dim or args.hidden_size // args.heads,
        "d_model": args.hidden_size,
        "decoder_start_token_id": 0,
        "dropout_rate": args.dropout,
        "eos_token_id": 1,
        "feed_forward_proj": "relu" if original else "gated-gelu",
        "initializer_factor": args.initializer_factor,
        "is_encoder_decoder": True,
        "layer_norm_epsilon": 1e-06,
        "model_type": "t5" if original or args.family == "byt5" else args.family,
        "num_decoder_layers": args.decoder_layers or args.layers,
        "num_heads": args.heads,
        "num_layers": args.layers,
        "pad_token_id": 0,
        "relative_attention_max_distance": 128,
        "relative_attention_num_buckets": 32,
        "tie_word_embeddings": original,
        "torch_dtype": args.dtype,
        "use_cache": True,
        "vocab_size": vocab_size,
    }
    if args.family == "byt5":
        config["tokenizer_class"] = "ByT5Tokenizer"
    return config


def t5_tensors(tensors, config):
    """The standard deviations are those of T5PreTrainedModel._init_weights of transformers/models/t5/modeling_t5.py."""
    factor, width, inner = config["initializer_factor"], config["d_model"], config["num_heads"] * config["d_kv"]
    feed_forward = config["d_ff"]
    tensors.add_normal("shared.weight", (config["vocab_size"], width), factor)
    if not config["tie_word_embeddings"]:
        tensors.add_normal("lm_head.weight", (config["vocab_size"], width), factor)

    def attention(prefix, has_bias):
        tensors.add_normal(prefix + "q.weight", (inner, width), factor * (width * config["d_kv"]) ** -0.5)
        tensors.add_normal(prefix + "k.weight", (inner, width), factor * width ** -0.5)
        tensors.add_normal(prefix + "v.weight", (inner, width), factor * width ** -0.5)
        tensors.add_normal(prefix + "o.weight", (width, inner), factor * inner ** -0.5)
        if has_bias:
            shape = (config["relative_attention_num_buckets"], config["num_heads"])
            tensors.add_normal(prefix + "relative_attention_bias.weight", shape, factor * width ** -0.5)

    def dense(prefix):
        for name in ["wi"] if config["feed_forward_proj"] == "relu" else ["wi_0", "wi_1"]:
            tensors.add_normal(f"{prefix}{name}.weight", (feed_forward, width), factor * width ** -0.5)
        tensors.add_normal(prefix + "wo.weight", (width, feed_forward), factor * feed_forward ** -0.5)

    for stack, depth in (("encoder", config["num_layers"]), ("decoder", config["num_decoder_layers"])):
        for index in range(depth):
            block = f"{stack}.block.{index}.layer."
            attention(block + "0.SelfAttention.", index == 0 or config["model_type"] == "umt5")
            if stack == "decoder":
                attention(block + "1.EncDecAttention.", False)
            last = 2 if stack == "decoder" else 1
            dense(f"{block}{last}.DenseReluDense.")
            for layer in range(last + 1):
                tensors.add_constant(f"{block}{layer}.layer_norm.weight", (width,), factor)
        tensors.add_constant(stack + ".final_layer_norm.weight", (width,), factor)


def decoder_config(args, vocab_size, pad_id, end_id):
    """Qwen2, Qwen3, Qwen3.5, Llama, Mistral or Gemma 4."""
    names = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM"}
    names |= {"mistral": "MistralForCausalLM", "qwen3_5": "Qwen3_5ForCausalLM", "gemma4": "Gemma4ForCausalLM"}
    config = {
        "architectures": [names[args.family]],
        "attention_dropout": 0.0,
        "bos_token_id": pad_id,
        "eos_token_id": end_id,
        "head_dim": args.head_dim or args.hidden_size // args.heads,
        "hidden_act": "silu",
        "hidden_size": args.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": args.intermediate_size,
        "max_position_embeddings": 2048,
        "model_type": args.family,
        "num_attention_heads": args.heads,
        "num_hidden_layers": args.layers,
        "num_key_value_heads": args.kv_heads or args.heads,
        "pad_token_id": pad_id,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 10000.0 if args.family in ("llama", "mistral") else 1000000.0,
        "tie_word_embeddings": not args.untied,
        "torch_dtype": args.dtype,
        "use_cache": True,
        "vocab_size": vocab_size,
    }
    if args.family == "qwen2":
        del config["head_dim"]  # not in Qwen2's files; it is hidden_size / heads
    if args.family == "mistral":
        config.update(sliding_window=None)
    if args.family == "qwen3_5":
        return recurrent_config(args, config)
    if args.family == "gemma4":
        return wide_config(args, config)
    if args.family.startswith("qwen"):
        config.update(use_sliding_window=False, sliding_window=None, max_window_layers=args.layers)
    if args.family in ("qwen3", "llama"):
        config.update(attention_bias=False)
    if args.family == "llama":
        config.update(mlp_bias=False)
    return config


def recurrent_config(args, config):
    """Qwen3.5: the last of every two layers is attention, the others are Gated DeltaNet."""
    for key in ("rope_scaling", "rope_theta"):
        del config[key]
    rope = {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25}
    config.update(model_type="qwen3_5_text", attention_bias=False, full_attention_interval=2, rope_parameters=rope)
    heads, head_dim = args.heads, config["head_dim"]
    config.update(linear_conv_kernel_dim=4, linear_num_key_heads=max(heads // 2, 1), linear_num_value_heads=heads)
    config.update(linear_key_head_dim=head_dim, linear_value_head_dim=head_dim)
    return config


def wide_config(args, config):
    """Gemma 4: the last of every two layers has no window, twice as wide heads, half as many of keys, which are the values, too."""
    for key in ("rope_scaling", "rope_theta", "hidden_act"):
        del config[key]
    config.update(model_type="gemma4_text", hidden_activation="gelu_pytorch_tanh", sliding_window=16, attention_bias=False)
    config.update(layer_types=["full_attention" if i % 2 else "sliding_attention" for i in range(args.layers)])
    config.update(global_head_dim=2 * config["head_dim"], num_global_key_value_heads=max(config["num_key_value_heads"] // 2, 1))
    config.update(attention_k_eq_v=True, hidden_size_per_layer_input=0, final_logit_softcapping=30.0)
    full = {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25}
    config.update(rope_parameters={"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})
    return config


def wide_attention_tensors(tensors, config, block, full):
    width, deviation = config["hidden_size"], config["initializer_range"]
    head_dim = config["global_head_dim" if full else "head_dim"]
    queries = config["num_attention_heads"] * head_dim
    keys = config["num_global_key_value_heads" if full else "num_key_value_heads"] * head_dim
    for name, rows in (("q", queries), ("k", keys), ("v", keys)):
        if not (full and name == "v"):
            tensors.add_normal(f"{block}{name}_proj.weight", (rows, width), deviation)
    tensors.add_normal(block + "o_proj.weight", (width, queries), deviation)
    tensors.add_constant(block + "q_norm.weight", (head_dim,), head_dim**-0.5)
    tensors.add_constant(block + "k_norm.weight", (head_dim,), 1.0)


def recurrent_tensors(tensors, config, block):
    width, deviation = config["hidden_size"], config["initializer_range"]
    heads, value_dim = config["linear_num_value_heads"], config["linear_value_head_dim"]
    values = heads * value_dim
    mixed = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"] + values
    for name, rows in (("qkv", mixed), ("z", values), ("b", heads), ("a", heads)):
        tensors.add_normal(f"{block}in_proj_{name}.weight", (rows, width), deviation)
    tensors.add_normal(block + "conv1d.weight", (mixed, 1, config["linear_conv_kernel_dim"]), 0.3)
    tensors.add_normal(block + "A_log", (heads,), 1.0)
    tensors.add_constant(block + "dt_bias", (heads,), 1.0)
    tensors.add_constant(block + "norm.weight", (value_dim,), 1.0)
    tensors.add_normal(block + "out_proj.weight", (width, values), deviation)


def attention_tensors(tensors, config, block):
    width, deviation, kind = config["hidden_size"], config["initializer_range"], config["model_type"]
    head_dim = config.get("head_dim", width // config["num_attention_heads"])
    queries, keys = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    gated = 2 if kind == "qwen3_5_text" else 1  # q_proj computes a gate, too
    for name, rows in (("q", queries * gated), ("k", keys), ("v", keys)):
        tensors.add_normal(f"{block}{name}_proj.weight", (rows, width), deviation)
        if kind == "qwen2":
            tensors.add_constant(f"{block}{name}_proj.bias", (rows,), 0.0)
    tensors.add_normal(block + "o_proj.weight", (width, queries), deviation)
    if kind in ("qwen3", "qwen3_5_text"):
        tensors.add_constant(block + "q_norm.weight", (head_dim,), norm_weight(config))
        tensors.add_constant(block + "k_norm.weight", (head_dim,), norm_weight(config))


def norm_weight(config):
    """Qwen3.5's norms multiply by 1 + weight."""
    return 0.0 if config["model_type"] == "qwen3_5_text" else 1.0


def decoder_tensors(tensors, config):
    width, feed_forward, deviation = config["hidden_size"], config["intermediate_size"], config["initializer_range"]
    tensors.add_normal("model.embed_tokens.weight", (config["vocab_size"], width), deviation)
    if not config["tie_word_embeddings"]:
        tensors.add_normal("lm_head.weight", (config["vocab_size"], width), deviation)
    for index in range(config["num_hidden_layers"]):
        block = f"model.layers.{index}."
        if (index + 1) % config.get("full_attention_interval", 1):
            recurrent_tensors(tensors, config, block + "linear_attn.")
        elif config["model_type"] == "gemma4_text":
            wide_attention_tensors(tensors, config, block + "self_attn.", config["layer_types"][index] == "full_attention")
            tensors.add_constant(block + "layer_scalar", (1,), 0.75 + 0.25 * index)
            tensors.add_constant(block + "pre_feedforward_layernorm.weight", (width,), 1.0)
            tensors.add_constant(block + "post_feedforward_layernorm.weight", (width,), 1.0)
        else:
            attention_tensors(tensors, config, block + "self_attn.")
        tensors.add_normal(block + "mlp.gate_proj.weight", (feed_forward, width), deviation)
        tensors.add_normal(block + "mlp.up_proj.weight", (feed_forward, width), deviation)
        tensors.add_normal(block + "mlp.down_proj.weight", (width, feed_forward), deviation)
        tensors.add_constant(block + "input_layernorm.weight", (width,), norm_weight(config))
        tensors.add_constant(block + "post_attention_layernorm.weight", (width,), norm_weight(config))
    tensors.add_constant("model.norm.weight", (width,), norm_weight(config))
