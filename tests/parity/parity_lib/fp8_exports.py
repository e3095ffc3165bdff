"""Exports in FP8, as Transformers with the package compressed-tensors loads them. Without the package there are no cases."""

import importlib.util
from functools import partial

import torch

from . import exports

FAMILIES = {  # name -> family, changes
    "fp8_llama": ("llama", {}),
    "fp8_qwen2_tied": ("qwen2", {}),
    "fp8_qwen3_untied": ("qwen3", {"tie_word_embeddings": False}),
    "fp8_t5_tied": ("t5_v1_0", {}),
    "fp8_t5_untied": ("t5_v1_1", {}),
}


def values_of(model):
    """The weights' values: modules of the package keep codes and scales, or have widened them."""
    values = dict(model.state_dict())
    for name, module in model.named_modules():
        scales, weight = getattr(module, "weight_scale", None), getattr(module, "weight", None)
        if scales is not None and weight.dtype == torch.float8_e4m3fn:
            values[f"{name}.weight"] = weight.float() * scales.float()
    return {name: value for name, value in values.items() if not name.endswith("_scale")}


def run_model(name, report, program, directory):
    family, changes = FAMILIES[name]
    exports.make_model(directory / "model", family, **changes)
    program.run("export", directory / "model", directory / "fp8", "--quantize", "fp8")
    program.run("export", directory / "fp8", directory / "dequantised", "--dtype", "fp32")
    theirs, complaints = exports.load(family, directory / "fp8", dtype=torch.float32)
    report.equal("what Transformers says", complaints, {})
    report.equal("its weights' format", theirs.config.quantization_config.quant_method.value, "compressed-tensors")
    ours, _ = exports.load(family, directory / "dequantised", dtype=torch.float32)
    found, expected = values_of(theirs), values_of(ours)
    report.equal("names", sorted(found), sorted(expected))
    report.equal("values that differ", [each for each in expected if not expected[each].equal(found[each])], [])


def cases():
    if importlib.util.find_spec("compressed_tensors") is None:
        return
    yield from ((name, partial(run_model, name)) for name in FAMILIES)
