"""Checks exports in safetensors by loading them with Transformers and PEFT."""

import json
from functools import partial

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from . import small_tokenizers, texts, tiny_models

FAMILIES = {  # name -> family, changes
    "t5_tied": ("t5_v1_0", {}),
    "t5_untied": ("t5_v1_1", {}),
    "mt5": ("mt5", {}),
    "umt5": ("umt5", {}),
    "llama": ("llama", {}),
    "llama_tied": ("llama", {"tie_word_embeddings": True}),
    "llama_31": ("llama_31", {}),
    "mistral": ("mistral", {}),
    "qwen2_tied": ("qwen2", {}),
    "qwen2_untied": ("qwen2", {"tie_word_embeddings": False}),
    "qwen3_tied": ("qwen3", {}),
    "qwen3_untied": ("qwen3", {"tie_word_embeddings": False}),
}
ADAPTERS = {  # name -> family, the adapter's options
    "adapter_llama": ("llama", {"r": 3, "target_modules": ["q_proj", "v_proj", "down_proj"]}),
    "adapter_qwen2_dora": ("qwen2", {"r": 2, "use_dora": True, "target_modules": ["q_proj", "o_proj"]}),
    "adapter_qwen3_rslora": ("qwen3", {"r": 2, "use_rslora": True, "target_modules": "all-linear"}),
    "adapter_llama_saved_head": ("llama", {"r": 2, "target_modules": ["v_proj"], "modules_to_save": ["lm_head"]}),
    "adapter_t5": ("t5_v1_1", {"r": 3, "target_modules": ["q", "v", "wo"]}),
}
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def is_t5(family):
    return "t5" in family


def model_class(family):
    return AutoModelForSeq2SeqLM if is_t5(family) else AutoModelForCausalLM


def make_model(directory, family, **changes):
    """A random model with a tokenizer, saved by Transformers in fp32."""
    corpus = texts.corpus()
    if is_t5(family):
        tokenizer = small_tokenizers.make_sentencepiece(directory, corpus, 300)
    else:
        tokenizer = small_tokenizers.make_byte_level(directory, "llama" if "llama" in family else "qwen", corpus, 500)
        (directory / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    rows = (len(tokenizer) + 63) // 64 * 64  # more rows than the tokenizer has ids
    model = tiny_models.random_model(family, rows, **changes)
    model.save_pretrained(directory)
    return model


def logits(model, vocab_size):
    ids = torch.arange(1, 40, 3).remainder(vocab_size).view(1, -1)
    target = {"decoder_input_ids": ids[:, :7]} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(input_ids=ids, **target).logits.float()


def relative_error(ours, theirs):
    return ((ours - theirs).norm() / theirs.norm()).item()


def load(family, directory, **options):
    model, info = model_class(family).from_pretrained(directory, output_loading_info=True, **options)
    complaints = {key: sorted(value) for key, value in info.items() if value}
    return model.eval(), complaints


def check_index(report, directory, largest):
    """The index must be the one that Transformers writes for these files."""
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in directory.glob("*.safetensors"))
    expected = [f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))]
    report.equal("names of the shards", files, expected)
    held = {file: load_file(directory / file) for file in files}
    placed = {name: file for file, tensors in held.items() for name in tensors}
    report.equal("weight_map", dict(sorted(index["weight_map"].items())), dict(sorted(placed.items())))
    report.equal("order of weight_map", list(index["weight_map"]), sorted(index["weight_map"]))
    sizes = [[tensor.nbytes for tensor in tensors.values()] for tensors in held.values()]
    count = sum(tensor.numel() for tensors in held.values() for tensor in tensors.values())
    report.equal("metadata", index["metadata"], {"total_parameters": count, "total_size": sum(map(sum, sizes))})
    report.check("shards are no larger than asked", all(sum(each) <= largest or len(each) == 1 for each in sizes))


def check_model(report, family, directory, out, model, dtype):
    reloaded, complaints = load(family, out)
    report.equal(f"{dtype}: what Transformers says", complaints, {})
    report.equal(f"{dtype}: type", str(reloaded.dtype), str(TYPES[dtype]))
    state, ours = model.state_dict(), reloaded.state_dict()
    different = [name for name, tensor in state.items() if not ours[name].equal(tensor.to(TYPES[dtype]))]
    report.equal(f"{dtype}: tensors that differ", different, [])
    if dtype == "fp32":
        same = logits(reloaded, model.config.vocab_size).equal(logits(model, model.config.vocab_size))
        report.check("fp32: the logits are equal", same)
    model.to(TYPES[dtype]).save_pretrained(directory / f"theirs_{dtype}")
    theirs = load_file(directory / f"theirs_{dtype}" / "model.safetensors")
    stored = {name for file in out.glob("*.safetensors") for name in load_file(file)}
    report.equal(f"{dtype}: names in the files", sorted(stored), sorted(theirs))
    model.float()


def run_model(name, report, program, directory):
    family, changes = FAMILIES[name]
    source = directory / "model"
    model = make_model(source, family, **changes)
    reference, complaints = load(family, source)
    report.equal("what Transformers says to the original", complaints, {})
    for dtype in TYPES:
        out = directory / dtype
        sharded = ["--max-shard-size", "20kB"] if dtype == "fp32" else []
        program.run("export", source, out, "--dtype", dtype, *sharded)
        model.load_state_dict(reference.state_dict())
        check_model(report, family, directory, out, model, dtype)
    check_index(report, directory / "fp32", 20_000)
    weights = ("config.json", ".safetensors", ".index.json")
    others = [path for path in source.iterdir() if not path.name.endswith(weights) or path.name == "generation_config.json"]
    same = [(directory / "bf16" / path.name).read_bytes() == path.read_bytes() for path in others]
    report.check("tokenizer, chat template and generation_config.json are those of the original", all(same), str(len(same)))


def load_adapter(family, base, directory):
    model = PeftModel.from_pretrained(model_class(family).from_pretrained(base), directory, is_trainable=True)
    result = model.load_adapter(directory, "default", is_trainable=True)
    found = {"missing": result.missing_keys, "unexpected": result.unexpected_keys}
    return model.eval(), {key: value for key, value in found.items() if value}


def run_adapter(name, report, program, directory):
    family, options = ADAPTERS[name]
    base, adapter = directory / "model", directory / "adapter"
    model = make_model(base, family)
    model.config._name_or_path = str(base)
    task = "SEQ_2_SEQ_LM" if is_t5(family) else "CAUSAL_LM"
    with_adapter = tiny_models.random_adapter(model, task, **options)
    with_adapter.peft_config["default"].base_model_name_or_path = str(base)
    with_adapter.save_pretrained(adapter)
    expected = logits(with_adapter, model.config.vocab_size)

    program.run("export", adapter, directory / "alone", "--adapter")
    again, complaints = load_adapter(family, base, directory / "alone")
    report.equal("what PEFT says to the adapter alone", complaints, {})
    report.check("its logits are equal", logits(again, model.config.vocab_size).equal(expected))
    theirs = load_file(adapter / "adapter_model.safetensors")
    ours = load_file(directory / "alone" / "adapter_model.safetensors")
    report.equal("its tensors", sorted(ours), sorted(theirs))
    report.check("its values", all(ours[key].equal(value) for key, value in theirs.items()))

    program.run("export", adapter, directory / "half", "--adapter", "--dtype", "bf16")
    _, complaints = load_adapter(family, base, directory / "half")
    report.equal("what PEFT says to it in bf16", complaints, {})

    program.run("export", adapter, directory / "merged")
    merged, complaints = load(family, directory / "merged")
    report.equal("what Transformers says to the merged model", complaints, {})
    report.at_most("its logits", relative_error(logits(merged, model.config.vocab_size), expected), 1e-5)
    program.run("merge", adapter, directory / "merged_too")
    one, two = ((directory / each / "model.safetensors").read_bytes() for each in ("merged", "merged_too"))
    report.check("`trainer merge` writes the same", one == two)


def cases():
    yield from ((name, partial(run_model, name)) for name in FAMILIES)
    yield from ((name, partial(run_adapter, name)) for name in ADAPTERS)
