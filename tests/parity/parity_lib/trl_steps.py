"""Steps of TRL's trainers on tiny models in float64: TRL's own collators and losses, and a loop of our own around them.

TRL's fused head computes in float32 whatever the model is; here a plain head takes its place.
"""

import copy
import types
from dataclasses import dataclass, field

import torch
from datasets import Dataset, disable_progress_bars
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer
from trl.trainer import utils

from . import reference


disable_progress_bars()


@dataclass
class Steps:
    losses: list = field(default_factory=list)
    rewards: list = field(default_factory=list)  # {"chosen", "rejected", "margins"} of each step
    kl: list = field(default_factory=list)
    gradients: list = field(default_factory=list)  # by name, of each step


def plain_head(model):
    """In place of add_fused_lm_head(): the same results from whole logits."""
    fused = model.forward

    def forward(self, *args, fused_lm_head=False, labels=None, **kwargs):
        if not fused_lm_head:
            return fused(*args, **kwargs, **({} if labels is None else {"labels": labels}))
        logits = fused(*args, **kwargs).logits[:, :-1]
        labels = labels[:, 1:]
        mask = labels != reference.IGNORE
        taken = logits.log_softmax(-1).gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        nothing = torch.zeros_like(taken)
        return utils.FusedCausalLMOutput(
            loss=None, log_probs=taken.masked_fill(~mask, 0), entropy=nothing, log_sum_sq_probs=nothing, mean_logits=nothing,
            is_top1=torch.zeros_like(mask), label_mask=mask, aux_loss=None)  # fmt: skip

    model.forward = types.MethodType(forward, model)


def common(rows, output):
    return {"output_dir": str(output), "per_device_train_batch_size": rows, "bf16": False, "use_cpu": True, "report_to": "none",
            "gradient_checkpointing": False, "max_length": 4096, "disable_dropout": True, "dataset_num_proc": None}  # fmt: skip


def make_trainer(case, model, tokenizer, rows, output):
    """`case`: an objective with TRL's names of its settings."""
    settings, data = common(case.batch, output) | case.trl, Dataset.from_list(rows)
    tokenizer.padding_side = "right"
    if case.trainer == "reward":
        return RewardTrainer(model=model, args=RewardConfig(**settings), train_dataset=data, processing_class=tokenizer)
    if case.trainer in ("orpo", "cpo"):
        kind, config = {"orpo": (ORPOTrainer, ORPOConfig), "cpo": (CPOTrainer, CPOConfig)}[case.trainer]
        return kind(model=model, args=config(**settings), train_dataset=data, processing_class=tokenizer)
    kind, config = {"dpo": (DPOTrainer, DPOConfig), "kto": (KTOTrainer, KTOConfig)}[case.trainer]
    first = None if case.lora else copy.deepcopy(model)
    trainer = kind(model=model, ref_model=first, args=config(**settings), train_dataset=data, processing_class=tokenizer)
    if first is not None:
        plain_head(trainer.ref_model)
    plain_head(trainer.model.get_base_model() if case.lora else trainer.model)
    if case.ours.get("reference") == "adapter_off" and "ref" in trainer.model.peft_config:
        trainer.model.delete_adapter("ref")  # a copy of the adapter as it begins: without it, the reference is the base
    return trainer


def loss_of(trainer, model, inputs, case, steps):
    if case.trainer == "reward":
        return trainer.compute_loss(model, inputs)
    if case.trainer in ("orpo", "cpo"):
        loss, found = trainer.get_batch_loss_metrics(model, inputs, train_eval="train")
        values = {name.split("/")[1]: value for name, value in found.items() if name.startswith("rewards/")}
    else:
        loss = trainer.compute_loss(model, inputs)
        kept = trainer._metrics["train"]
        values = {name.split("/")[1]: kept[name][-1] for name in kept if name.startswith("rewards/")}
        if "kl" in kept:
            steps.kl.append(kept["kl"][-1])
    steps.rewards.append(values)
    return loss


def train(case, model, tokenizer, rows, learning_rate, epsilon, count, output):
    """`count` steps of AdamW over the rows, `case.batch` at a time, in their order."""
    trainer = make_trainer(case, model, tokenizer, rows, output)
    model, data, steps = trainer.model, trainer.train_dataset, Steps()
    trained = [p for p in model.parameters() if p.requires_grad]
    adam = torch.optim.AdamW(trained, lr=learning_rate, betas=(0.0, 0.999), eps=epsilon, weight_decay=0.0)
    model.train()  # without dropout: neither the models nor the adapters have any
    for step in range(count):
        first = step * case.batch % len(rows)
        inputs = trainer.data_collator([data[i] for i in range(first, first + case.batch)])
        with reference.precision_of(model):
            loss = loss_of(trainer, model, inputs, case, steps)
        adam.zero_grad()
        loss.backward()
        steps.losses.append(loss.item())
        steps.gradients.append(reference.gradients(model))
        adam.step()
    return steps
