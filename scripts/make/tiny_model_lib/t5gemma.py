"""config.json and the tensors of T5Gemma and T5Gemma 2, with the names that Hugging Face Transformers writes."""

CLASSES = {"t5gemma": "T5GemmaForConditionalGeneration", "t5gemma2": "T5Gemma2ForConditionalGeneration"}
VISION = {"hidden_size": 8, "image_size": 28, "intermediate_size": 8, "model_type": "siglip_vision_model", "num_attention_heads": 2,
          "num_hidden_layers": 1, "patch_size": 14, "vision_use_head": False}


def stack_config(args, vocab_size, layers):
    """The layers are sliding and full by turns; texts are longer than the window."""
    kinds = ["sliding_attention", "full_attention"]
    config = {
        "attention_bias": False,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "head_dim": args.head_dim or args.hidden_size // args.heads,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": args.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": args.intermediate_size,
        "layer_types": [kinds[index % 2] for index in range(layers)],
        "max_position_embeddings": 2048,
        "num_attention_heads": args.heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": args.kv_heads or args.heads,
        "pad_token_id": 0,
        "query_pre_attn_scalar": 16,
        "rms_norm_eps": 1e-06,
        "sliding_window": 12,
        "vocab_size": vocab_size,
    }
    if args.family == "t5gemma":
        config.update(model_type="t5_gemma_module", rope_theta=10000.0, attn_logit_softcapping=50.0, final_logit_softcapping=30.0)
        return config
    ropes = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    return dict(config, rope_parameters=ropes)


def config_of(args, vocab_size):
    encoder = stack_config(args, vocab_size, args.layers)
    decoder = stack_config(args, vocab_size, args.decoder_layers or args.layers)
    if args.family == "t5gemma2":
        text = dict(encoder, model_type="t5gemma2_text")
        decoder["model_type"] = "t5gemma2_decoder"
        encoder = {"model_type": "t5gemma2_encoder", "text_config": text, "vision_config": VISION, "mm_tokens_per_image": 4}
        encoder.update(boi_token_index=vocab_size - 3, eoi_token_index=vocab_size - 2, image_token_index=vocab_size - 1)
    return {
        "architectures": [CLASSES[args.family]],
        "attention_dropout": 0.0,
        "bos_token_id": 2,
        "decoder": decoder,
        "dropout_rate": args.dropout,
        "encoder": encoder,
        "eos_token_id": 1,
        "is_encoder_decoder": True,
        "model_type": args.family,
        "pad_token_id": 0,
        "tie_word_embeddings": not args.untied,
        "torch_dtype": args.dtype,
        "vocab_size": vocab_size,
    }


def add_stack(tensors, prefix, stack, cross_size, has_norms):
    """`cross_size`: the width of the states that a separate cross-attention takes, if there is one."""
    width, head_dim, inner = stack["hidden_size"], stack["head_dim"], stack["intermediate_size"]
    queries, keys = stack["num_attention_heads"] * head_dim, stack["num_key_value_heads"] * head_dim

    def attention(name, source_size):
        for projection, rows, columns in (("q", queries, width), ("k", keys, source_size), ("v", keys, source_size), ("o", width, queries)):
            tensors.add_normal(f"{name}.{projection}_proj.weight", (rows, columns), stack["initializer_range"])
        for norm in ("q_norm", "k_norm") if has_norms else ():
            tensors.add_constant(f"{name}.{norm}.weight", (head_dim,), 0.0)

    for index in range(stack["num_hidden_layers"]):
        layer = f"{prefix}layers.{index}."
        parts = ["self_attn", "feedforward"] + (["cross_attn"] if cross_size else [])
        attention(layer + "self_attn", width)
        if cross_size:
            attention(layer + "cross_attn", cross_size)
        for projection, shape in (("gate", (inner, width)), ("up", (inner, width)), ("down", (width, inner))):
            tensors.add_normal(f"{layer}mlp.{projection}_proj.weight", shape, stack["initializer_range"])
        for part in parts:
            for place in ("pre", "post"):
                tensors.add_constant(f"{layer}{place}_{part}_layernorm.weight", (width,), 0.0)
    tensors.add_constant(prefix + "norm.weight", (width,), 0.0)


def add_vision(tensors, prefix, width):
    """A tower of one layer, and the projector."""
    size = VISION["hidden_size"]
    tower, layer = prefix + "vision_tower.", prefix + "vision_tower.encoder.layers.0."
    tensors.add_normal(tower + "embeddings.patch_embedding.weight", (size, 3, VISION["patch_size"], VISION["patch_size"]), 0.1)
    tensors.add_constant(tower + "embeddings.patch_embedding.bias", (size,), 0.0)
    tensors.add_normal(tower + "embeddings.position_embedding.weight", (4, size), 0.1)
    linears = ["self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj", "self_attn.out_proj", "mlp.fc1", "mlp.fc2"]
    for name in linears:
        tensors.add_normal(f"{layer}{name}.weight", (size, size), 0.1)
        tensors.add_constant(f"{layer}{name}.bias", (size,), 0.0)
    for norm in (layer + "layer_norm1", layer + "layer_norm2", tower + "post_layernorm"):
        tensors.add_constant(norm + ".weight", (size,), 1.0)
        tensors.add_constant(norm + ".bias", (size,), 0.0)
    tensors.add_normal(prefix + "multi_modal_projector.mm_input_projection_weight", (size, width), 0.1)
    tensors.add_constant(prefix + "multi_modal_projector.mm_soft_emb_norm.weight", (size,), 0.0)


def add_tensors(tensors, config):
    second = config["model_type"] == "t5gemma2"
    encoder = config["encoder"]["text_config"] if second else config["encoder"]
    decoder, deviation = config["decoder"], encoder["initializer_range"]
    tensors.add_normal("model.encoder.embed_tokens.weight", (encoder["vocab_size"], encoder["hidden_size"]), deviation)
    if second:
        tensors.add_constant("model.encoder.embed_tokens.eoi_embedding", (encoder["hidden_size"],), 0.0)
        add_vision(tensors, "model.encoder.", encoder["hidden_size"])
    if not second or not config["tie_word_embeddings"]:
        tensors.add_normal("model.decoder.embed_tokens.weight", (decoder["vocab_size"], decoder["hidden_size"]), deviation)
    if second and not config["tie_word_embeddings"]:
        tensors.add_constant("model.decoder.embed_tokens.eoi_embedding", (decoder["hidden_size"],), 0.0)
    add_stack(tensors, "model.encoder.", encoder, 0, second)
    add_stack(tensors, "model.decoder.", decoder, 0 if second else encoder["hidden_size"], second)
    if not config["tie_word_embeddings"]:
        tensors.add_normal("lm_head.out_proj.weight", (decoder["vocab_size"], decoder["hidden_size"]), deviation)
