"""Exports in NF4, and adapters on weights in NF4, as Transformers, bitsandbytes and PEFT load them.

All widths are multiples of 64, and numbers of outputs of 32: for others bitsandbytes 0.50.2 reads wrong scales, or stops, on
processors with AVX-512.
"""

import json
from functools import partial

import torch
from bitsandbytes.nn import Linear4bit
from peft import PeftModel
from safetensors.torch import load_file
from transformers import BitsAndBytesConfig

from . import exports, tiny_models

DECODER = {"hidden_size": 64, "intermediate_size": 192, "head_dim": 16, "num_key_value_heads": 2}
T5 = {"d_model": 64, "d_ff": 128, "d_kv": 32}
FAMILIES = {  # name -> family, changes
    "nf4_llama": ("llama", DECODER),
    "nf4_llama_31": ("llama_31", DECODER),
    "nf4_qwen2_tied": ("qwen2", DECODER),
    "nf4_qwen3_untied": ("qwen3", DECODER | {"tie_word_embeddings": False}),
    "nf4_t5_tied": ("t5_v1_0", T5),
    "nf4_t5_untied": ("t5_v1_1", T5),
}
ADAPTERS = {  # name -> family, changes, the adapter's options
    "nf4_adapter_llama": ("llama", DECODER, {"r": 3, "target_modules": "all-linear"}),
    "nf4_adapter_qwen3_rslora": ("qwen3", DECODER, {"r": 2, "use_rslora": True, "target_modules": ["q_proj", "up_proj"]}),
    "nf4_adapter_t5": ("t5_v1_1", T5, {"r": 3, "target_modules": ["q", "v", "wi_0", "wo"]}),
}
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def quantisation(dtype, double_quant=True):
    options = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": double_quant}
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=dtype, **options)


def load(family, directory, **options):
    model, complaints = exports.load(family, directory, **options)
    for module in model.modules():
        if isinstance(module, Linear4bit):  # no other layout, with scales in bfloat16, for inference
            module.support_avx512bf16_for_cpu = False
    return model, complaints


def tensors_of(directory):
    return {name: tensor for file in sorted(directory.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def compare_tensors(report, what, ours, theirs):
    report.equal(f"{what}: names in the files", sorted(ours), sorted(theirs))
    same_kind = [name for name in theirs if name in ours and ours[name].dtype == theirs[name].dtype]
    different = [name for name in theirs if name not in same_kind or not ours[name].equal(theirs[name])]
    report.equal(f"{what}: tensors that differ", different, [])


def run_model(name, report, program, directory):
    family, changes = FAMILIES[name]
    source = directory / "model"
    exports.make_model(source, family, **changes)
    for dtype, kind in TYPES.items():
        for double_quant in (True, False):
            what = f"{dtype}{'' if double_quant else ', scales in fp32'}"
            out, theirs = directory / f"{dtype}_{double_quant}", directory / f"theirs_{dtype}_{double_quant}"
            options = ["--max-shard-size", "20kB"] if dtype == "fp32" else []
            options += [] if double_quant else ["--no-double-quant"]
            program.run("export", source, out, "--quantize", "nf4", "--dtype", dtype, *options)
            config = quantisation(kind, double_quant)
            reference, _ = load(family, source, quantization_config=config, dtype=kind)
            reference.save_pretrained(theirs)
            compare_tensors(report, what, tensors_of(out), tensors_of(theirs))
            configs = [json.loads((each / "config.json").read_text())["quantization_config"] for each in (out, theirs)]
            report.equal(f"{what}: quantization_config", *configs)
            reloaded, complaints = load(family, out)
            report.equal(f"{what}: what Transformers says", complaints, {})
            logits = [exports.logits(each, reference.config.vocab_size) for each in (reloaded, reference)]
            report.check(f"{what}: the logits are equal", logits[0].equal(logits[1]))
    program.run("export", directory / "bf16_True", directory / "dequantised")
    ours, _ = exports.load(family, directory / "dequantised", dtype=torch.bfloat16)
    theirs, _ = load(family, directory / "bf16_True")
    compare_tensors(report, "dequantised", ours.state_dict(), theirs.dequantize().state_dict())


def run_adapter(name, report, program, directory):
    family, changes, options = ADAPTERS[name]
    original, base, adapter = directory / "model", directory / "nf4", directory / "adapter"
    exports.make_model(original, family, **changes)
    program.run("export", original, base, "--quantize", "nf4")
    model, _ = load(family, base)
    task = "SEQ_2_SEQ_LM" if exports.is_t5(family) else "CAUSAL_LM"
    with_adapter = tiny_models.random_adapter(model, task, **options)
    with_adapter.peft_config["default"].base_model_name_or_path = str(base)
    with_adapter.save_pretrained(adapter)
    size = model.config.vocab_size
    trained = exports.logits(with_adapter.eval(), size)

    program.run("export", adapter, directory / "alone", "--adapter")
    again, _ = load(family, base)
    again = PeftModel.from_pretrained(again, directory / "alone").eval()
    report.check("PEFT on bitsandbytes: the adapter alone gives equal logits", exports.logits(again, size).equal(trained))

    program.run("merge", adapter, directory / "dequantised")
    merged, complaints = exports.load(family, directory / "dequantised")
    report.equal("what Transformers says to the merged model", complaints, {})
    report.at_most("its logits", exports.relative_error(exports.logits(merged, size), trained), 1e-5)

    program.run("merge", adapter, directory / "merged", "--base", original)
    merged, _ = exports.load(family, directory / "merged")
    on_original = PeftModel.from_pretrained(exports.load(family, original)[0], adapter).eval()
    expected = exports.logits(on_original, size)
    report.at_most("merged onto the original", exports.relative_error(exports.logits(merged, size), expected), 1e-5)

    program.run("merge", adapter, directory / "again_nf4", "--quantize", "nf4")
    _, complaints = load(family, directory / "again_nf4")
    report.equal("what Transformers says to the merged model in NF4", complaints, {})
    ours, theirs = tensors_of(directory / "again_nf4"), with_adapter.merge_and_unload().state_dict()
    codes = [name for name, tensor in ours.items() if name.endswith(".weight") and tensor.dtype == torch.uint8]
    same = torch.cat([(ours[name] == theirs[name]).flatten() for name in codes]).float().mean().item()
    report.at_most("in NF4: bytes of codes that differ from PEFT's", 1 - same, 1e-3)


def cases():
    yield from ((name, partial(run_model, name)) for name in FAMILIES)
    yield from ((name, partial(run_adapter, name)) for name in ADAPTERS)
