"""Checks exports in GGUF by reading them with the package gguf and computing with them in Transformers."""

import json
import re
from functools import partial

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import AutoModelForCausalLM

from . import exports, sentencepiece_bpe, small_tokenizers, texts, tiny_models

YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 128}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16,
          "low_freq_factor": 1.0, "high_freq_factor": 4.0}
MODELS = {  # name -> family, changes, tokenizer (GGUF's tokenizer.ggml.pre)
    "gguf_llama": ("llama", {"intermediate_size": 64}, "llama-bpe"),
    "gguf_llama_biased": ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 12}, "gpt-2"),
    "gguf_llama_31": ("llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}, "llama-bpe"),
    "gguf_smollm": ("llama", {"tie_word_embeddings": True}, "smollm"),
    "gguf_llama_2": ("llama", {}, "default"),
    "gguf_mistral": ("mistral", {}, "default"),
    "gguf_qwen2": ("qwen2", {"intermediate_size": 64}, "qwen2"),
    "gguf_qwen2_yarn": ("qwen2", {"rope_parameters": YARN, "tie_word_embeddings": False}, "qwen2"),
    "gguf_qwen3": ("qwen3", {"head_dim": 16}, "qwen2"),
    "gguf_phi3": ("phi3", {}, "default"),
    "gguf_phi3_window": ("phi3_window", {}, "gpt-2"),
    "gguf_granite": ("granite", {"attention_bias": True, "tie_word_embeddings": False}, "smollm"),
    "gguf_qwen3_linear": ("qwen3", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}, "qwen2"),
}
TYPES = {"fp32": "F32", "fp16": "F16", "bf16": "BF16", "q8_0": "Q8_0"}
ARCHITECTURES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3,
                 "phi3": gguf.MODEL_ARCH.PHI3, "granite": gguf.MODEL_ARCH.GRANITE}
ROPE_TENSORS = {"rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"}
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}ü{% endfor %}"


def make_tokenizer(directory, family, kind):
    if kind == "default":
        sentencepiece_bpe.make(directory, texts.corpus(), 420)
        if family == "mistral":
            (directory / "tokenizer.model").unlink()  # scores then come from the merges
        return
    style = "llama" if kind == "llama-bpe" else "qwen"
    small_tokenizers.make_byte_level(directory, style, texts.corpus(), 500)
    if kind in ("llama-bpe", "qwen2"):
        return
    path = str(directory / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    plain = ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = plain if kind == "gpt-2" else Sequence([Digits(individual_digits=True), plain])
    tokenizer.save(path)


def make_model(directory, family, changes, kind):
    make_tokenizer(directory, family, kind)
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    size = Tokenizer.from_file(str(directory / "tokenizer.json")).get_vocab_size()
    model = tiny_models.random_model(family, (size + 31) // 32 * 32 + 32, **changes)
    model.save_pretrained(directory)
    return model


def interleaved(tensor, heads):
    """The rows of each head in the order in which readers of `llama` rotate them: (0, half), (1, half + 1), ..."""
    half = tensor.shape[0] // heads // 2
    order = [head * 2 * half + i + part * half for head in range(heads) for i in range(half) for part in range(2)]
    return tensor[order]


def expected_tensors(model, architecture):
    """Name in GGUF -> fp32 array, with the names of the package's tables."""
    names = gguf.get_tensor_name_map(ARCHITECTURES[architecture], model.config.num_hidden_layers)
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        if architecture in ("llama", "granite") and (match := re.search(r"\.([qk])_proj\.", name)):
            config = model.config
            tensor = interleaved(tensor, config.num_attention_heads if match[1] == "q" else config.num_key_value_heads)
        tensors[names.get_name(name, try_suffixes=(".weight", ".bias"))] = tensor.float().numpy()
    return tensors


def type_of(array, wanted):
    if array.ndim == 1:
        return gguf.GGMLQuantizationType.F32
    fits = wanted != "Q8_0" or array.shape[-1] % 32 == 0
    return gguf.GGMLQuantizationType[wanted if fits else "F16"]


def check_tensors(report, what, reader, expected, wanted):
    found = {tensor.name: tensor for tensor in reader.tensors}
    report.equal(f"{what}: names of the tensors", sorted(set(found) - ROPE_TENSORS), sorted(expected))
    problems = []
    for name, array in expected.items():
        tensor, kind = found[name], type_of(array, wanted)
        bytes_expected = gguf.quants.quantize(array, kind)
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if (
            tensor.tensor_type != kind
            or list(reversed(tensor.shape.tolist())) != list(array.shape)
            or not np.array_equal(values, gguf.quants.dequantize(bytes_expected, kind))
            or tensor.data.tobytes() != bytes_expected.tobytes()
            or tensor.data_offset % 32 != 0
        ):
            problems.append(name)
    report.equal(f"{what}: tensors that differ", problems, [])


def expected_metadata(model, architecture, wanted, kind):
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters
    facts = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": float(np.float32(config.rms_norm_eps)),
        "vocab_size": config.vocab_size,
        "rope.dimension_count": int(head_dim * rope.get("partial_rotary_factor", 1.0)),
        "rope.freq_base": rope["rope_theta"],
    }
    if config.model_type in ("mistral", "phi3"):
        facts["attention.sliding_window"] = config.sliding_window or 0
    if config.model_type == "granite":
        scales = {"attention.scale": config.attention_multiplier, "embedding_scale": config.embedding_multiplier}
        scales |= {"residual_scale": config.residual_multiplier, "logit_scale": config.logits_scaling}
        facts |= {key: float(np.float32(value)) for key, value in scales.items()}
    if rope["rope_type"] == "longrope":
        facts["rope.scaling.original_context_length"] = config.original_max_position_embeddings
        facts["rope.scaling.attn_factor"] = float(np.float32(model.model.rotary_emb.attention_scaling))
    if rope["rope_type"] in ("yarn", "linear"):
        facts |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": rope["factor"]}
    if rope["rope_type"] == "yarn":
        facts["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        facts |= {"rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0}
    return {
        "general.architecture": architecture,
        "general.type": "model",
        "general.name": wanted,
        "general.file_type": int(gguf.LlamaFileType[("ALL_" if wanted == "F32" else "MOSTLY_") + wanted]),
        "general.quantization_version": gguf.GGML_QUANT_VERSION,
        "tokenizer.ggml.model": "llama" if kind == "default" else "gpt2",
        "tokenizer.ggml.pre": kind,
        "tokenizer.chat_template": TEMPLATE,
    } | {f"{architecture}.{key}": value for key, value in facts.items()}


def check_metadata(report, what, reader, expected):
    fields = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    ours = {key: value for key, value in fields.items() if not key.startswith("tokenizer.ggml.") or key in expected}
    report.equal(f"{what}: metadata", dict(sorted(ours.items())), dict(sorted(expected.items())))
    known = {value for group in (gguf.Keys.General, gguf.Keys.Tokenizer) for value in vars(group).values()}
    report.equal(f"{what}: keys of the tokenizer that gguf does not know",
                 [key for key in fields if key.startswith("tokenizer.") and key not in known], [])
    return fields


def check_tokens(report, directory, fields, rows):
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    by_id = {id: token for token, id in tokenizer["model"]["vocab"].items()}
    added = {token["id"]: token for token in tokenizer["added_tokens"]}
    by_id |= {id: token["content"] for id, token in added.items()}
    report.equal("tokens", fields["tokenizer.ggml.tokens"], [by_id.get(id, f"[PAD{id}]") for id in range(rows)])
    types = fields["tokenizer.ggml.token_type"]
    unknown = settings.get("unk_token")
    control = [id for id, token in added.items() if token["special"] and token["content"] != unknown]
    report.equal("control tokens", [id for id, kind in enumerate(types) if kind == gguf.TokenType.CONTROL], sorted(control))
    report.equal("unused tokens", [id for id, kind in enumerate(types) if kind == gguf.TokenType.UNUSED],
                 [id for id in range(rows) if id not in by_id])
    ids = {token: id for id, token in by_id.items()}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
        token = settings.get(f"{name}_token")
        report.equal(f"{name} token", fields.get(f"tokenizer.ggml.{key}_token_id"), ids.get(token))
    plain = Tokenizer.from_file(str(directory / "tokenizer.json")).encode("a").ids
    report.equal("a BOS is added", fields["tokenizer.ggml.add_bos_token"], plain[0] == ids.get(settings.get("bos_token")))
    report.equal("an EOS is added", fields["tokenizer.ggml.add_eos_token"], plain[-1] == ids.get(settings["eos_token"]))
    if fields["tokenizer.ggml.model"] == "gpt2":
        merges = [" ".join(pair) for pair in tokenizer["model"]["merges"]]
        report.equal("merges", fields["tokenizer.ggml.merges"], merges)
        return
    scores = fields["tokenizer.ggml.scores"]
    reference = Tokenizer.from_file(str(directory / "tokenizer.json"))
    wrong = []
    for text in texts.corpus():
        # Transformers adds no space before a space, and finds added tokens first.
        if text.startswith((" ", "</s>")):
            continue
        ids = sentencepiece_bpe.by_scores(text, fields["tokenizer.ggml.tokens"], types, scores)
        wrong += [text] * (ids != reference.encode(text, add_special_tokens=False).ids)
    report.equal("texts that scores cut otherwise than merges", wrong, [])


def llama3_factors(model):
    """The inverse frequencies without scaling, divided by Transformers' own, which are scaled."""
    config = model.config
    head_dim = config.hidden_size // config.num_attention_heads
    plain = config.rope_parameters["rope_theta"] ** -(torch.arange(0, head_dim, 2).double() / head_dim)
    return (plain / model.model.rotary_emb.inv_freq.double()).numpy()


def check_longrope(report, model, reader):
    rope = model.config.rope_parameters
    for length in ("short", "long"):
        name = f"rope_factors_{length}.weight"
        found = [tensor.data.tolist() for tensor in reader.tensors if tensor.name == name]
        factors = rope.get(f"{length}_factor")
        expected = [] if factors is None else [np.float32(factors).tolist()]
        report.equal(name, found, expected)


def run(name, report, program, directory):
    family, changes, kind = MODELS[name]
    source = directory / "model"
    model = make_model(source, family, changes, kind)
    architecture = {"mistral": "llama", "phi3_window": "phi3"}.get(family, family)
    expected = expected_tensors(model, architecture)
    for dtype, wanted in TYPES.items():
        out = directory / f"{wanted}.gguf"
        program.run("export", source, out, *(["--dtype", dtype] if dtype != "fp32" else []))
        reader = gguf.GGUFReader(out)
        check_tensors(report, dtype, reader, expected, wanted)
        fields = check_metadata(report, dtype, reader, expected_metadata(model, architecture, wanted, kind))
    check_tokens(report, source, fields, model.config.vocab_size)
    check_longrope(report, model, reader)
    if "rope_freqs.weight" in (factors := {tensor.name: tensor.data for tensor in reader.tensors}):
        close = np.allclose(factors["rope_freqs.weight"], llama3_factors(model), rtol=1e-6)
        report.check("rope_freqs.weight", close)
    report.equal("rope_freqs.weight is there for llama3 alone", "rope_freqs.weight" in factors, name == "gguf_llama_31")
    if name in ("gguf_llama", "gguf_qwen2", "gguf_qwen3"):
        check_logits(report, directory, model)


def check_logits(report, directory, model):
    """Transformers' own GGUF reader must read the tensors back."""
    # It does not read head_dim.
    again = AutoModelForCausalLM.from_pretrained(directory, gguf_file="F32.gguf", config=model.config).eval()
    ours, theirs = (exports.logits(each, model.config.vocab_size) for each in (again, model))
    report.at_most("logits of the GGUF in Transformers", exports.relative_error(ours, theirs), 1e-5)


def cases():
    return ((name, partial(run, name)) for name in MODELS)
