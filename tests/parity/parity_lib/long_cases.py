"""The cases of the long runs: every family, full and LoRA, with settings that differ between families."""

from dataclasses import dataclass, field


@dataclass
class LongCase:
    name: str
    family: str  # of tiny_models
    schedule: str
    lora: dict | None = None  # PEFT's options; None: full fine-tuning
    kind: str = "auto"
    label_smoothing: float = 0.0
    learning_rate: float = 1e-3
    warmup: int = 10
    weight_decay: float = 0.1
    max_grad_norm: float = 1.0
    steps: int = 100
    eval_steps: int = 25
    effective_batch_size: int = 8
    adafactor: dict | None = None  # as in cases.py; the long runs have AdamW
    bf16_state: bool = False  # also train all in bf16, without an fp32 copy
    changes: dict = field(default_factory=dict)

    @property
    def relu(self):
        return self.family == "t5_v1_0"

    @property
    def seq2seq(self):
        return "t5" in self.family


ALL_LINEAR = {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"}
T5_DEFAULT = {"r": 8, "lora_alpha": 32, "target_modules": ["q", "v"]}
DECODER_DEFAULT = {"r": 8, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"]}


def full(family, schedule, **settings):
    return LongCase(f"long_{family}", family, schedule, **settings)


def lora(family, schedule, options, **settings):
    return LongCase(f"long_{family}_lora", family, schedule, options, **settings)


CASES = [
    full("t5_v1_1", "cosine", bf16_state=True),
    lora("t5_v1_1", "linear", T5_DEFAULT, label_smoothing=0.1),
    full("t5_v1_0", "linear", label_smoothing=0.1),
    lora("t5_v1_0", "cosine", ALL_LINEAR),
    full("mt5", "constant_with_warmup"),
    lora("mt5", "polynomial", ALL_LINEAR | {"use_rslora": True}),
    full("umt5", "linear"),
    lora("umt5", "cosine", ALL_LINEAR),
    full("qwen2", "polynomial"),
    lora("qwen2", "cosine", ALL_LINEAR),
    full("qwen3", "cosine", kind="text", bf16_state=True),
    lora("qwen3", "constant", ALL_LINEAR, kind="text", warmup=0),
    full("llama", "inverse_sqrt", label_smoothing=0.1),
    lora("llama", "linear", DECODER_DEFAULT),
    full("mistral", "linear", kind="text"),
    lora("mistral", "cosine", ALL_LINEAR, label_smoothing=0.1),
    lora("qwen3_5", "cosine", ALL_LINEAR),
]


def selected(name_part):
    return [case for case in CASES if name_part in case.name]
