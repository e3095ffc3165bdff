#!/usr/bin/env python3
"""TRL's side of benchmarks/training/preferences: SFTTrainer or DPOTrainer with LoRA, as its users write it.

Prints one JSON object: the seconds of each update, and the peak of resident memory.
"""
import json
import os
import resource
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from peft import LoraConfig  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback  # noqa: E402
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer  # noqa: E402


class Watch(TrainerCallback):
    def __init__(self):
        self.seconds = []

    def on_step_begin(self, *_, **__):
        self.begin = time.perf_counter()

    def on_step_end(self, *_, **__):
        self.seconds.append(time.perf_counter() - self.begin)


def main():
    case, method = json.loads(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(case["threads"])
    tokenizer = AutoTokenizer.from_pretrained(case["model"])
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(case["model"], dtype=torch.float32)
    with open(case["data"][method.partition("_")[0]], encoding="utf-8") as file:
        rows = Dataset.from_list([json.loads(line) for line in file])
    pairs = method != "sft"
    options = {"output_dir": case["scratch"], "max_steps": case["steps"], "bf16": False, "use_cpu": True, "report_to": "none",
               "per_device_train_batch_size": case["batch_size"] // (2 if pairs else 1),
               "gradient_accumulation_steps": case["sequences"] // case["batch_size"], "gradient_checkpointing": False,
               "max_length": case["max_length"], "save_strategy": "no", "learning_rate": 1e-5, "dataloader_pin_memory": False}
    lora = LoraConfig(r=16, lora_alpha=32, task_type="CAUSAL_LM", target_modules="all-linear")
    kind, config = (DPOTrainer, DPOConfig) if pairs else (SFTTrainer, SFTConfig)
    if method == "dpo_kept":
        options["precompute_ref_log_probs"] = True
    watch = Watch()
    trainer = kind(model=model, args=config(**options), train_dataset=rows, processing_class=tokenizer, peft_config=lora, callbacks=[watch])
    trainer.train()
    print(json.dumps({"seconds": watch.seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
