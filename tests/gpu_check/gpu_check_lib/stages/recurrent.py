"""A Qwen3.5-0.8B shape with LoRA: its recurrent layers by kernels and composed of LibTorch's operators, next to Qwen3-0.6B."""
from .. import training
from ..stage import Stage
from . import decoder

SHAPE, PLAIN = "qwen3.5-0.8b", "qwen3-0.6b"
COMPOSED = {"TRAINER_RECURRENT_KERNELS": "off"}


def run(check, name, shape, extra=None):
    keys = training.settings(check, shape, training.output_of(check, name),
                             **{"model.dtype": "bf16", **training.LORA, **decoder.case(check)})
    return training.need_train(check, name, keys, extra)


def kernels(check):
    """The rule and its convolution must be those of the composed operators; the speed of both is recorded."""
    found = run(check, "0.8B LoRA", SHAPE)
    decoder.expect_plan(check, found.figures)
    composed = run(check, "0.8B LoRA, composed layers", SHAPE, COMPOSED)
    decoder.near(check, "by kernels as composed", found.figures, composed.figures)
    again = run(check, "0.8B LoRA, again", SHAPE)
    training.expect_same_rows(check, "0.8B LoRA: the same bits", again.figures, found.figures)
    run(check, "Qwen3-0.6B LoRA", PLAIN)


STAGES = [
    Stage("recurrent", "Qwen3.5-0.8B shape, LoRA, bf16, 2 x 2048: kernels and composed layers, the same losses; tok/s beside Qwen3-0.6B",
          kernels, 3, needs_bf16=True, gigabytes=24, models=(SHAPE, PLAIN)),
]
