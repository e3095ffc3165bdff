"""Checks exports in GGUF with llama.cpp itself: logits and tokens are those of Transformers, and the bytes of the types with
few bits are ggml's."""

import json
from functools import partial

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer, ByT5Tokenizer

from . import llama_cpp, sentencepiece_bpe, small_tokenizers, texts, tiny_models

GEMMA = {"head_dim": 16}
GEMMA4 = GEMMA | {"global_head_dim": 32}
T5 = {"d_kv": 16, "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}
DELTA = {"head_dim": 16, "linear_key_head_dim": 16, "linear_value_head_dim": 16}
WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4}
SLIDING, FULL = "sliding_attention", "full_attention"
MODELS = {  # name -> family, changes, kind of tokenizer
    "llama": ("llama", {}, "llama"),
    "mistral": ("mistral", {"sliding_window": None}, "spm"),
    "qwen2": ("qwen2", {}, "qwen"),
    "qwen3": ("qwen3", {"head_dim": 16}, "qwen"),
    "qwen3_5": ("qwen3_5", DELTA | {"num_hidden_layers": 4, "layer_types": ["linear_attention"] * 3 + [FULL]}, "qwen3_5"),
    "qwen3_5_three_values": ("qwen3_5", DELTA | {"linear_num_value_heads": 6}, "qwen3_5"),
    "qwen3_5_whole": ("qwen3_5_whole", DELTA | {"num_hidden_layers": 2}, "qwen3_5"),
    "lfm2": ("lfm2", {}, "llama"),
    "gemma": ("gemma", GEMMA, "gemma"),
    "gemma2": ("gemma2", GEMMA | {"num_hidden_layers": 4}, "gemma"),
    "gemma3": ("gemma3", GEMMA | {"num_hidden_layers": 7, "layer_types": [SLIDING] * 5 + [FULL, SLIDING]}, "gemma"),
    "gemma3_whole": ("gemma3_whole", GEMMA | {"num_hidden_layers": 6, "layer_types": [SLIDING] * 5 + [FULL]}, "gemma"),
    "gemma4": ("gemma4", GEMMA4, "gemma4"),
    "gemma4_small": ("gemma4_small", GEMMA4, "gemma4"),
    "phi3": ("phi3", {}, "qwen"),
    "granite": ("granite", {}, "qwen"),
    "granite4": ("granite_hybrid", {}, "qwen"),
    "granite4_without_rope": ("granite_hybrid", {"position_embedding_type": "nope"}, "qwen"),
    "olmo2": ("olmo2", {}, "llama"),
    "olmo3": ("olmo3", {"num_hidden_layers": 4, "layer_types": [SLIDING] * 3 + [FULL]}, "llama"),
    "glm4": ("glm4", {"head_dim": 16, "attention_bias": True}, "llama"),
    "glm": ("glm", {}, "llama"),
    "ernie4_5": ("ernie4_5", {"head_dim": 16}, "llama"),
    "smollm3": ("smollm3", {"num_hidden_layers": 5}, "llama"),
    "ministral3": ("ministral3", {"head_dim": 16}, "qwen"),
    "t5_tied": ("t5_v1_0", T5 | {"num_layers": 2}, "t5"),  # no deeper decoder than encoder: llama.cpp cannot run it
    "t5_untied": ("t5_v1_1", T5, "t5"),
    "mt5": ("mt5", T5, "t5"),
    "umt5": ("umt5", T5 | {"dense_act_fn": "gelu_new"}, "t5"),
    "byt5": ("t5_v1_1", T5, "byt5"),
    "llama_wide": ("llama", WIDE, "llama"),
    "qwen2_wide_tied": ("qwen2", WIDE, "qwen"),
}
TEXTS = ["Hello world", "It isn't 12345, or is it?", "zwölf Äpfel", "a <b> c", "the  end", "two\n\nlines\n"]
# ggml's types: number, values and bytes of a block
BLOCKS = {"Q8_0": (8, 32, 34), "Q5_0": (6, 32, 22), "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210)}


def make_tokenizer(directory, kind):
    corpus = texts.corpus()
    if kind == "t5":
        small_tokenizers.make_sentencepiece(directory, corpus, 300)
        return 400
    if kind == "byt5":
        directory.mkdir(parents=True)
        (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125}))
        return 384
    if kind in ("spm", "gemma", "gemma4"):
        sentencepiece_bpe.make(directory, corpus, 420)
        if kind != "spm":
            sentencepiece_bpe.as_gemma(directory, bos="<s>" if kind == "gemma4" else None)  # llama.cpp always adds Gemma 4's
    else:
        small_tokenizers.make_byte_level(directory, "llama" if kind == "llama" else "qwen", corpus, 500)
        if kind == "qwen3_5":
            path = directory / "tokenizer.json"
            path.write_text(path.read_text().replace(*small_tokenizers.QWEN3_5_CHANGE))
    return Tokenizer.from_file(str(directory / "tokenizer.json")).get_vocab_size()


def reference_tokenizer(directory, kind):
    if kind == "byt5":
        return ByT5Tokenizer()
    if kind == "t5":
        return AutoTokenizer.from_pretrained(directory, tokenizer_type="t5")
    fast = Tokenizer.from_file(str(directory / "tokenizer.json"))
    return lambda text: type("Encoded", (), {"input_ids": fast.encode(text).ids})


def inputs(model, kind):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 200, (1, 40), generator=generator)
    if kind not in ("t5", "byt5"):
        return {"input_ids": ids}
    ids[0, 0] = model.config.decoder_start_token_id
    source = torch.randint(3, 200, (1, 150), generator=generator)  # beyond the largest distance of the position bias
    return {"input_ids": source, "decoder_input_ids": ids}


def llama_logits(path, feed):
    with llama_cpp.LlamaCpp(path) as model:
        if "decoder_input_ids" in feed:
            return model.logits(feed["decoder_input_ids"][0].tolist(), feed["input_ids"][0].tolist())
        return model.logits(feed["input_ids"][0].tolist())


def check_bytes(report, what, path, exact):
    """Every tensor is what ggml makes of the values in the fp32 file."""
    values = {tensor.name: tensor.data for tensor in gguf.GGUFReader(exact).tensors}
    wrong, kinds = [], set()
    for tensor in gguf.GGUFReader(path).tensors:
        kind = tensor.tensor_type.name
        kinds.add(kind)
        if kind in BLOCKS:
            number, block, size = BLOCKS[kind]
            expected = llama_cpp.quantize(values[tensor.name], number, size, block)
            wrong += [tensor.name] * (tensor.data.tobytes() != expected)
    report.equal(f"{what}: tensors that are not ggml's", wrong, [])
    return kinds


def run(name, report, program, directory):
    family, changes, kind = MODELS[name]
    source = directory / "model"
    rows = (make_tokenizer(source, kind) + 31) // 32 * 32
    model = tiny_models.random_model(family, rows if kind == "byt5" else rows + 32, **changes)
    if kind == "byt5":
        model.config.tokenizer_class = "ByT5Tokenizer"
    model.config._attn_implementation = "eager"
    model.save_pretrained(source)
    feed = inputs(model, kind)
    with torch.no_grad():
        expected = model(**feed).logits[0].numpy()
    exact = directory / "exact.gguf"
    program.run("export", source, exact, "--dtype", "fp32")
    # ggml computes GELU by a table in fp16.
    bound = 3e-3 if family.startswith(("gemma", "t5_v1_1", "mt5", "umt5")) else 2e-5
    found = llama_logits(exact, feed)
    report.at_most("logits in llama.cpp", float(np.linalg.norm(found - expected) / np.linalg.norm(expected)), bound)
    tokenizer = reference_tokenizer(source, kind)
    with llama_cpp.LlamaCpp(exact) as loaded:
        report.equal("tokens in llama.cpp", {text: loaded.tokens(text) for text in TEXTS},
                     {text: list(tokenizer(text).input_ids) for text in TEXTS})
    for quantize, bound in (("q8_0", 0.2), ("q4_k_m", 0.8)):
        out = directory / f"{quantize}.gguf"
        program.run("export", source, out, "--quantize", quantize)
        kinds = check_bytes(report, quantize, out, exact)
        if "wide" in name:
            report.equal(f"{quantize}: types", sorted(kinds), ["F32", "Q4_K", "Q6_K"] if quantize == "q4_k_m" else ["F32", "Q8_0"])
        found = llama_logits(out, feed)
        report.at_most(f"{quantize}: logits in llama.cpp", float(np.linalg.norm(found - expected) / np.linalg.norm(expected)), bound)


def cases():
    return ((f"llama_cpp_{name}", partial(run, name)) for name in MODELS)
