"""Runs with weights in NF4, against Transformers with bitsandbytes and PEFT on the CPU."""

import os

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # bitsandbytes would compile its dequantisation

import torch  # noqa: E402

from . import comparison, reference  # noqa: E402
from .cases import LORA_ALL, SINGLY, Case  # noqa: E402
from .workbench import Workbench  # noqa: E402

CURVE_TOLERANCE = 1e-4
NF4 = {"model.quantize": "nf4"}
CURVES = [
    Case("llama_nf4", "llama", LORA_ALL, steps=60, changes=NF4),
    Case("qwen2_nf4", "qwen2", LORA_ALL | {"use_rslora": True}, steps=60, changes=NF4 | {"model.double_quant": False}),
    Case("t5_v1_1_nf4", "t5_v1_1", LORA_ALL, steps=60, changes=NF4),
]
BF16 = [
    Case("llama_nf4_bf16", "llama", LORA_ALL, changes=NF4, **SINGLY),
    Case("t5_v1_1_nf4_bf16", "t5_v1_1", LORA_ALL, changes=NF4, **SINGLY),
]
ONLY_LONG = {"qwen2_nf4"}


def selected(short, name_part):
    return [
        case
        for case in CURVES + BF16
        if name_part in case.name and not (short and not name_part and case.name in ONLY_LONG)
    ]


class QuantisedBench(Workbench):
    # For widths that are no multiple of 64, the dequantisation of bitsandbytes for AVX-512 is wrong (0.50.2).
    def sizes(self):
        if self.case.seq2seq:
            return {"d_model": 64, "d_ff": 128, "d_kv": 16, "num_heads": 4}
        return {"hidden_size": 64, "intermediate_size": 128}

    def load(self, dtype):
        double_quant = self.case.changes.get("model.double_quant", True)
        return reference.load_quantised(self.model, dtype, self.adapter, double_quant)


def check_curve(report, bench, rows):
    theirs = bench.train_reference(torch.float32)
    for what, key, expected in (
        ("losses", "loss", theirs.losses),
        ("gradient norms", "grad_norm", theirs.grad_norms),
    ):
        ours = comparison.column(rows, "train", key)
        report.at_most(f"first of the {what}", comparison.relative(ours[:1], expected[:1]), comparison.LOSS_TOLERANCE)
        report.at_most(f"{what} of {len(expected)} steps", comparison.relative(ours, expected), CURVE_TOLERANCE)
    losses = comparison.column(rows, "eval", "eval_loss")[-1:]
    report.at_most("evaluation loss", comparison.relative(losses, [theirs.evaluations[-1].loss]), CURVE_TOLERANCE)


def run_case(report, program, bench):
    if bench.case in BF16:
        rows = program.train(bench.config("bf16"), bench.directory / "config.yaml")
        comparison.check_bf16(report, bench, rows)
        return
    rows = program.train(bench.config(), bench.directory / "config.yaml")
    check_curve(report, bench, rows)
