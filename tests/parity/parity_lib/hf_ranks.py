"""One rank of Transformers' Trainer, which accelerate runs in several processes: reads a JSON file that parity/ranks wrote.

usage: hf_ranks.py SETTINGS. Rank 0 writes {"losses", "seconds"} of each step, and the trained weights, where the settings say.
"""

import json
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from peft import PeftModel
from safetensors.torch import save_file
from torch.utils.data import SequentialSampler
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, Trainer, TrainerCallback, TrainingArguments

IGNORE = -100


class Watch(TrainerCallback):
    """Keeps what each step took and the loss that the Trainer logs for it."""

    def __init__(self):
        self.seconds, self.losses = [], []

    def on_step_begin(self, *_, **__):
        self.begin = time.perf_counter()

    def on_step_end(self, *_, **__):
        self.seconds.append(time.perf_counter() - self.begin)

    def on_log(self, args, state, control, logs=None, **__):
        if "loss" in logs:
            self.losses.append(logs["loss"])


class InOrder(Trainer):
    def _get_train_sampler(self, dataset=None):
        return SequentialSampler(self.train_dataset if dataset is None else dataset)


def load_model(settings):
    config = AutoConfig.from_pretrained(settings["model"])
    kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    no_dropout = {"dropout_rate": 0.0} if config.is_encoder_decoder else {}
    model = kind.from_pretrained(settings["model"], dtype=torch.float32, **no_dropout)
    return PeftModel.from_pretrained(model, settings["adapter"], is_trainable=True) if settings["adapter"] else model


def collate(rows, pad):
    def block(lists, fill):
        longest = max(map(len, lists))
        return torch.tensor([ids + [fill] * (longest - len(ids)) for ids in lists])

    inputs = [row["input_ids"] for row in rows]
    mask = block([[1] * len(ids) for ids in inputs], 0)
    return {"input_ids": block(inputs, pad), "attention_mask": mask, "labels": block([row["labels"] for row in rows], IGNORE)}


def with_decoder_input(batch, model):
    """A hook for the loss keeps the labels from the model, so a T5 cannot make its decoder's input of them."""
    if model.config.is_encoder_decoder:
        batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels=batch["labels"])
    return batch


def mean_over_all_ranks(shifted):
    """Trainer's hook. Without it, a T5's loss is the mean of the ranks' means, in which a rank with few supervised tokens
    counts as much as one with many."""

    def loss(outputs, labels, num_items_in_batch):
        logits = outputs.logits[:, :-1] if shifted else outputs.logits
        targets = labels[:, 1:] if shifted else labels
        total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")
        return total / num_items_in_batch

    return loss


def main():
    settings = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    model = load_model(settings)
    sharded = {"fsdp": True, "fsdp_config": settings["fsdp"]} if settings["fsdp"] else {}
    options = TrainingArguments(
        output_dir=settings["output"], use_cpu=True, ddp_backend="gloo", logging_steps=1, report_to="none", save_strategy="no",
        disable_tqdm=True, average_tokens_across_devices=True, remove_unused_columns=False, **settings["options"], **sharded,
    )  # fmt: skip
    watch, pad = Watch(), settings["pad"]
    trainer = InOrder(
        model, options, data_collator=lambda rows: with_decoder_input(collate(rows, pad), model),
        train_dataset=settings["samples"], callbacks=[watch],
        compute_loss_func=mean_over_all_ranks(shifted=not model.config.is_encoder_decoder),
    )  # fmt: skip
    trainer.train()
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    if trainer.is_world_process_zero():
        output = Path(settings["output"])
        output.mkdir(exist_ok=True)
        save_file({name: state[name].contiguous() for name in sorted(trained)}, output / "trained.safetensors")
        (output / "curve.json").write_text(json.dumps({"losses": watch.losses, "seconds": watch.seconds}))


if __name__ == "__main__":
    main()
