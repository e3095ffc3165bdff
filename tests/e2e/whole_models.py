"""Makes a model of texts and images out of a model of texts: its directory, with the names of the official files."""
import json
import shutil
import struct

from support import tensors_of

OTHERS = {"preprocessor_config.json": '{"image_processor_type": "PixtralImageProcessor"}\n',
          "processor_config.json": '{"processor_class": "PixtralProcessor", "patch_size": 14}\n', "LICENSE": "To do as you like.\n"}
VISION = {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
          "head_dim": 8, "image_size": 28, "patch_size": 14}


def write_tensors(path, tensors):
    """name -> (type, shape, bytes)"""
    header, offset = {}, 0
    for name, (kind, shape, content) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + len(content)]}
        offset += len(content)
    text = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(content for _, _, content in tensors.values()))


def stored_tensors(directory):
    """Those of all files of a model."""
    return {name: tensor for file in sorted(directory.glob("model*.safetensors")) for name, tensor in tensors_of(file).items()}


def random_tensor(*shape):
    count = 1
    for size in shape:
        count *= size
    return "F32", list(shape), struct.pack(f"<{count}f", *(((i * 37) % 101 - 50) / 200 for i in range(count)))


def other_half(hidden):
    layer = "vision_tower.transformer.layers.0."
    tensors = {"vision_tower.patch_conv.weight": random_tensor(16, 3, 14, 14), "vision_tower.ln_pre.weight": random_tensor(16)}
    tensors |= {layer + f"attention.{part}_proj.weight": random_tensor(16, 16) for part in "qkvo"}
    tensors |= {layer + f"feed_forward.{part}_proj.weight": random_tensor(16, 16) for part in ("gate", "up", "down")}
    tensors |= {layer + f"{part}_norm.weight": random_tensor(16) for part in ("attention", "ffn")}
    projector = "multi_modal_projector."
    tensors |= {projector + "norm.weight": random_tensor(16), projector + "patch_merger.merging_layer.weight": random_tensor(16, 64)}
    tensors |= {projector + "linear_1.weight": random_tensor(hidden, 16), projector + "linear_2.weight": random_tensor(hidden, hidden)}
    return tensors


def make_whole(text, whole):
    """Writes `whole`, a mistral3 in two files, of the directory `text` of a mistral."""
    shutil.copytree(text, whole)
    config = json.loads((text / "config.json").read_text())
    kept = {key: config.pop(key) for key in ("torch_dtype", "dtype", "transformers_version") if key in config}
    config.pop("architectures")
    (whole / "config.json").write_text(json.dumps(kept | {
        "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "text_config": config, "vision_config": VISION,
        "tie_word_embeddings": config.get("tie_word_embeddings", False), "image_token_index": 10, "spatial_merge_size": 2,
        "multimodal_projector_bias": False, "projector_hidden_act": "gelu", "vision_feature_layer": -1}, indent=2) + "\n")
    tensors = {"language_model." + name: tensor for name, tensor in tensors_of(text / "model.safetensors").items()}
    tensors |= other_half(config["hidden_size"])
    (whole / "model.safetensors").unlink()
    names = sorted(tensors)
    files = {f"model-0000{i + 1}-of-00002.safetensors": names[i::2] for i in range(2)}
    for file, held in files.items():
        write_tensors(whole / file, {name: tensors[name] for name in held})
    (whole / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {}, "weight_map": {name: file for file, held in files.items() for name in held}}))
    for name, content in OTHERS.items():
        (whole / name).write_text(content)
