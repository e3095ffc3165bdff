"""Large models of zeros, which take no time to make, and the memory that a command needs for them."""
import json
import math
import os
import struct
import subprocess

from support import TRAINER


def write_zeros(path, shapes, dtype, size):
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + math.prod(shape) * size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def write_llama(directory, hidden, layers):
    """Writes a complete Llama in bf16; a layer has 32 * hidden^2 bytes."""
    inner, vocabulary = 4 * hidden, 1000
    directory.mkdir()
    config = {"model_type": "llama", "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
              "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": vocabulary, "torch_dtype": "bfloat16",
              "max_position_embeddings": 64, "tie_word_embeddings": False, "rms_norm_eps": 1e-5}
    (directory / "config.json").write_text(json.dumps(config))
    square, up = [hidden, hidden], [inner, hidden]
    in_layer = {"input_layernorm": [hidden], "post_attention_layernorm": [hidden], "self_attn.q_proj": square,
                "self_attn.k_proj": square, "self_attn.v_proj": square, "self_attn.o_proj": square,
                "mlp.gate_proj": up, "mlp.up_proj": up, "mlp.down_proj": [hidden, inner]}
    shapes = {"model.embed_tokens.weight": [vocabulary, hidden], "lm_head.weight": [vocabulary, hidden],
              "model.norm.weight": [hidden]}
    for layer in range(layers):
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in in_layer.items()}
    write_zeros(directory / "model.safetensors", shapes, "BF16", 2)
    return directory


def peak_memory(*arguments):
    """Peak memory of the process in MB; the process must succeed."""
    process = subprocess.Popen([TRAINER, *map(str, arguments)], stderr=subprocess.DEVNULL,
                               env=dict(os.environ, OMP_NUM_THREADS="1"))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss / 1024
