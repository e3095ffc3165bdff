"""Compares tiny models on the device with the CPU."""
import random
import re

from .. import layout, training
from ..models import sentence
from ..stage import Stage

STEPS = 10
# Allowed differences in fp32. One step: sums in another order. Ten steps: AdamW enlarges them where gradients are near 0.
FIRST_STEP, TEN_STEPS = 1e-5, 2e-3
BF16, TEN_BF16, BF16_NORM = 2e-3, 5e-3, 5e-2


def keys(check, shape, output, **more):
    lengths = {"data.max_length": 96, "data.max_source_length": 96, "data.max_target_length": 48}
    return training.settings(check, shape, output, **{
        **lengths, "model.dtype": "fp32", "training.tf32": "false", "training.batch_size": 4,
        "training.effective_batch_size": 8, "training.max_steps": STEPS, "data.train": check.model(shape) / "spread.jsonl",
        **more})


def compare(check, shape, way, **more):
    """Trains a model in one way on the CPU and on the device."""
    runs = {}
    for place, changes in {"cpu": {"device": "cpu"}, "device": {}}.items():
        name = f"{shape} {way} {place}"
        output = training.output_of(check, name)
        runs[place] = training.need_train(check, name, keys(check, shape, output, **more, **changes))
    expected, run = runs["cpu"], runs["device"]
    says = f"{way}, device: as on the CPU"
    training.expect_near(check, f"{says}, the first loss", run.losses[:1], expected.losses[:1], FIRST_STEP)
    training.expect_near(check, f"{says}, the first gradient's norm", run.norms[:1], expected.norms[:1], 10 * FIRST_STEP)
    training.expect_near(check, f"{says}, {STEPS} losses", run.losses, expected.losses, TEN_STEPS)
    return expected


def in_bf16(check, shape, expected, **more):
    name = f"{shape} bf16 device"
    output = training.output_of(check, name)
    run = training.need_train(check, name, keys(check, shape, output, **{**more, "model.dtype": "bf16"}))
    says = "bf16 on the device: as fp32 on the CPU"
    training.expect_near(check, f"{says}, the first loss", run.losses[:1], expected.losses[:1], BF16)
    training.expect_near(check, f"{says}, the first gradient's norm", run.norms[:1], expected.norms[:1], BF16_NORM)
    training.expect_near(check, f"{says}, {STEPS} losses", run.losses, expected.losses, TEN_BF16)


def evaluated(check, shape):
    """The loss of `trainer eval`, and an answer of `trainer generate`."""
    losses = []
    for device in ("cpu", check.device):
        ended = check.need_run(f"eval on {device}", [
            layout.program(), "eval", check.model(shape), check.model(shape) / "spread.jsonl", "--json", f"device={device}",
            "model.dtype=fp32", "training.tf32=false", "data.max_samples=16", f"training.num_threads={check.threads}",
            f"data.kind={'seq2seq' if shape == 't5' else 'text'}", f"data.input={'input' if shape == 't5' else 'text'}"])
        losses.append(float(re.search(r'"eval_loss": *([^,}\s]+)', ended.text)[1]))
    training.expect_near(check, "eval: as on the CPU, the loss", losses[:1], losses[1:], FIRST_STEP)
    prompt = sentence(random.Random(1), 4)
    check.need_run("generate", [layout.program(), "generate", check.model(shape), prompt, "--device", check.device,
                                "--max-new-tokens", "16"])


def decoder(check):
    more = {**training.LORA, "lora.lora_dropout": 0.1}
    expected = compare(check, "qwen3", "LoRA with dropout", **more)
    compare(check, "qwen3", "full")
    if check.machine["bf16"]:
        in_bf16(check, "qwen3", expected, **more)
    evaluated(check, "qwen3")


def seq2seq(check):
    expected = compare(check, "t5", "full with dropout")
    if check.machine["bf16"]:
        in_bf16(check, "t5", expected)
    evaluated(check, "t5")


def recomputed(check, shape, way, **more):
    """Trains with all blocks recomputed, and with everything offloaded that can be: the same bits."""
    runs = []
    for name, changes in ((f"{shape} {way}, recomputed", {"memory.gradient_checkpointing": "true"}),
                          (f"{shape} {way}, offloaded", {"memory.offload": "[optimizer, weights, activations]"})):
        output = training.output_of(check, name)
        runs.append(training.need_train(check, name, keys(check, shape, output, **more, **changes)))
    training.expect_same_rows(check, f"{shape} {way}: offloaded as recomputed", runs[1].figures, runs[0].figures)
    check.expect(f"{shape} {way}: the same result, bit by bit", runs[0].files == runs[1].files and runs[0].files)


def savings(check):
    compare(check, "qwen3", "NF4, 8-bit AdamW", **{**training.LORA, "model.quantize": "nf4", "optimizer.name": "adamw_8bit"})
    compare(check, "t5", "full, Adafactor", **{"optimizer.name": "adafactor", "optimizer.learning_rate": 1e-3})
    recomputed(check, "qwen3", "full")
    recomputed(check, "t5", "full, 8-bit AdamW", **{"optimizer.name": "adamw_8bit"})
    recomputed(check, "qwen3", "NF4", **{**training.LORA, "model.quantize": "nf4"})


STAGES = [
    Stage("tiny-qwen", "a tiny Qwen3 against the CPU, TF32 off, with kernels of ours and without", decoder, 1, gigabytes=3, models=("qwen3",)),
    Stage("tiny-t5", "a tiny T5 against the CPU, TF32 off, with kernels of ours and without", seq2seq, 0.7, gigabytes=3, models=("t5",)),
    Stage("tiny-savings", "NF4, 8-bit AdamW and Adafactor against the CPU; offloaded runs have the bits of recomputed ones",
          savings, 1, gigabytes=3, models=("qwen3", "t5")),
]
