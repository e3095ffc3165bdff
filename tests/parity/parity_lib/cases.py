"""The cases of the parity runs: tiny models of every family, full and LoRA, each with other settings."""

from dataclasses import dataclass, field

LORA_ALL = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}


@dataclass
class Case:
    name: str
    family: str  # of tiny_models
    lora: dict | None = None  # PEFT's options; None: full fine-tuning
    kind: str = "auto"  # data.kind
    schedule: str = "linear"
    warmup: int = 2
    weight_decay: float = 0.1
    max_grad_norm: float = 1.0
    label_smoothing: float = 0.0
    learning_rate: float = 2e-3
    steps: int = 8
    eval_steps: int = 0  # 0: at the end
    effective_batch_size: int = 6
    adafactor: dict | None = None  # keys of Transformers' Adafactor, which have the same names here; None: AdamW
    changes: dict = field(default_factory=dict)  # to trainer's configuration, "section.key": value; HF does not get them

    @property
    def seq2seq(self):
        return self.family.startswith("t5")


OTHER_CUT = {"training.micro_batching": "tokens", "memory.gradient_checkpointing": True, "training.num_threads": 2}
# Packed by trainer; Hugging Face has each sample in its own row.
PACKED = {"data.packing": True, "training.micro_batching": "tokens", "training.batch_size": 2}

FP32_CASES = [
    Case("t5_v1_1", "t5_v1_1"),
    Case("t5_v1_0", "t5_v1_0", schedule="cosine", label_smoothing=0.1),
    Case("t5_v1_1_other_cut", "t5_v1_1", changes=OTHER_CUT, max_grad_norm=0.0),
    Case("t5_v1_1_lora", "t5_v1_1", {"r": 4, "lora_alpha": 16, "target_modules": ["q", "v"]}, schedule="constant"),
    Case("t5_v1_0_lora", "t5_v1_0", LORA_ALL | {"use_rslora": True}, changes=OTHER_CUT),
    Case("qwen2", "qwen2", schedule="constant_with_warmup"),
    Case("qwen2_lora", "qwen2", LORA_ALL, label_smoothing=0.1),
    Case("qwen3", "qwen3", kind="text", schedule="polynomial"),
    Case("qwen3_lora", "qwen3", {"r": 3, "lora_alpha": 6, "target_modules": r".*self_attn\.(q|k|v|o)_proj"}),
    Case("llama", "llama", schedule="inverse_sqrt"),
    Case(
        "llama_lora_head",
        "llama",
        {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "modules_to_save": ["lm_head"]},
        changes=OTHER_CUT,
    ),
    Case("qwen2_chat", "qwen2", kind="chat"),
    Case("qwen2_dora", "qwen2", LORA_ALL | {"use_dora": True, "bias": "lora_only"}, changes=OTHER_CUT),
    Case(
        "llama_patterns",
        "llama",
        {"r": 3, "lora_alpha": 6, "use_rslora": True, "target_modules": ["q_proj", "v_proj", "down_proj"]}
        | {"rank_pattern": {"layers.0.*q_proj": 5, "down_proj": 2}, "alpha_pattern": {"v_proj": 4.5}}
        | {"exclude_modules": ["layers.1.self_attn.v_proj"], "modules_to_save": ["norm"]},
    ),
    Case(
        "llama_dora_vocabulary",
        "llama",
        {"r": 3, "lora_alpha": 6, "use_dora": True, "target_modules": ["embed_tokens", "o_proj", "lm_head"]},
    ),
    Case(
        "t5_v1_1_vocabulary",
        "t5_v1_1",
        {"r": 3, "lora_alpha": 6, "target_modules": ["q", "embed_tokens", "lm_head"]},
    ),
    Case(
        "qwen3_saved",
        "qwen3",
        {"r": 3, "lora_alpha": 6, "lora_bias": True, "target_modules": ["o_proj", "up_proj"]}
        | {"layers_to_transform": 1, "modules_to_save": ["embed_tokens", "input_layernorm"]},
    ),
    Case("qwen2_packed", "qwen2", changes=PACKED),
    Case("qwen3_packed_lora", "qwen3", LORA_ALL, changes=PACKED | {"training.batch_size": 1}),
    Case("llama_packed_lora", "llama", LORA_ALL, changes=PACKED | {"memory.gradient_checkpointing": True}),
    Case("mistral_packed", "mistral", kind="text", changes=PACKED),
    Case("gemma3", "gemma3", kind="chat", changes=OTHER_CUT),
    Case("gemma3_packed_lora", "gemma3", LORA_ALL | {"modules_to_save": ["norm"]}, changes=PACKED),
    Case("gemma2_lora", "gemma2", LORA_ALL, changes=OTHER_CUT),
    Case("gemma2_packed", "gemma2", kind="text", changes=PACKED),
    Case("phi3", "phi3", kind="chat", changes=OTHER_CUT),
    Case("phi3_packed_lora", "phi3", LORA_ALL, changes=PACKED),
    Case("phi3_dora", "phi3_window", LORA_ALL | {"use_dora": True}, schedule="cosine"),
    Case("granite", "granite", kind="text", changes=PACKED),
    Case("granite_lora", "granite", LORA_ALL, changes=OTHER_CUT),
    Case("qwen3_5", "qwen3_5", kind="chat", changes=OTHER_CUT),
    Case("qwen3_5_packed_lora", "qwen3_5", LORA_ALL, changes=PACKED),
    Case("lfm2", "lfm2", kind="text", changes=PACKED),
    Case("lfm2_lora", "lfm2", LORA_ALL, changes=OTHER_CUT),
    Case("granite_hybrid_lora", "granite_hybrid", LORA_ALL, changes=PACKED),
    Case("ministral3_packed", "ministral3", kind="text", changes=PACKED),
    Case("olmo3_packed_lora", "olmo3", LORA_ALL, changes=PACKED),
    Case("glm4", "glm4", kind="chat", changes=OTHER_CUT),
]

IMAGE_HALF = {"exclude_modules": r"(?!model\.encoder\.text_model\.|model\.decoder\.).*"}
FP32_CASES += [
    Case("t5gemma", "t5gemma", changes=OTHER_CUT),
    Case("t5gemma_packed_lora", "t5gemma", LORA_ALL, changes=PACKED),
    Case("t5gemma2_packed", "t5gemma2", changes=PACKED, label_smoothing=0.1),
    Case("t5gemma2_lora", "t5gemma2", LORA_ALL | IMAGE_HALF, changes=OTHER_CUT),
]

# As T5 was trained, but with a warm-up. More steps amplify rounding, Hugging Face's too, beyond the bound of gradient norms.
ADAFACTOR = {"weight_decay": 0.0, "max_grad_norm": 0.0, "schedule": "constant_with_warmup", "learning_rate": 1e-3}
RELATIVE = {"scale_parameter": True, "relative_step": True, "warmup_init": True, "beta1": 0.9}
FP32_CASES += [
    Case("t5_adafactor", "t5_v1_1", adafactor={}, steps=15, **ADAFACTOR),
    Case("t5_v1_0_adafactor", "t5_v1_0", adafactor={"beta1": 0.9, "clip_threshold": 0.5}, changes=OTHER_CUT, steps=50),
    Case("t5_v1_1_adafactor_relative", "t5_v1_1", adafactor=RELATIVE, steps=50, weight_decay=0.1),
    Case("t5_v1_1_adafactor_lora", "t5_v1_1", LORA_ALL, adafactor={"scale_parameter": True}, steps=50),
]

# One sample for each step, and a tiny learning rate (the program refuses 0): this gives as many independent losses as
# there are samples.
SINGLY = {"steps": 20, "effective_batch_size": 1, "learning_rate": 1e-7}
BF16_CASES = [
    Case("t5_v1_1_bf16", "t5_v1_1", **SINGLY),
    Case("t5_v1_0_lora_bf16", "t5_v1_0", LORA_ALL, **SINGLY),
    Case("qwen3_bf16", "qwen3", **SINGLY),
    Case("qwen2_lora_bf16", "qwen2", LORA_ALL, **SINGLY),
    Case("qwen3_packed_bf16", "qwen3", changes=PACKED, **SINGLY),
]

# Adapters that trainer initialises itself.
FRESH_CASES = [
    Case("t5_v1_1_fresh_lora", "t5_v1_1", {"r": 4, "lora_alpha": 12, "use_rslora": True, "target_modules": ["q", "v"]}, steps=2, warmup=0),
    Case("qwen3_fresh_lora", "qwen3", LORA_ALL, steps=2, warmup=0),
    Case("qwen2_fresh_dora", "qwen2", LORA_ALL | {"use_dora": True}, steps=2, warmup=0),
]

# Not in the short run: other cases have the same families and code paths.
ONLY_LONG = {"qwen2_packed", "t5_v1_1_other_cut", "qwen3_lora", "llama_patterns", "t5_v1_0_lora_bf16", "qwen3_bf16"} | {
    "t5_v1_0_adafactor",
    "t5_v1_1_adafactor_lora",
}


def selected(short, name_part):
    return [
        case
        for case in FP32_CASES + BF16_CASES + FRESH_CASES
        if name_part in case.name and not (short and not name_part and case.name in ONLY_LONG)
    ]
