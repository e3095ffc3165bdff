"""The files of a case (model, tokenizer, adapter, data, our configuration) and Hugging Face's run on them."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch.optim import AdamW
from transformers import AutoTokenizer, PreTrainedTokenizerFast, get_scheduler

from . import program, reference, small_tokenizers, texts, tiny_models

ROWS = 3  # of a micro-batch
TRAIN_ROWS = 20  # an epoch ends in a short step
MAX_SOURCE, MAX_TARGET, MAX_LENGTH = 60, 24, 90  # some samples are longer
# Larger than usual, so that elements whose gradient is nearly 0 do not move by rounding alone (AdamW divides by it).
EPSILON = 1e-6
WIDER = {"t5_v1_1": {"d_model": 48, "d_ff": 64}, "t5_v1_0": {"d_model": 48, "d_ff": 64}}
WIDER_DECODER = {"hidden_size": 48, "intermediate_size": 80}


def load_tokenizer(directory):
    """As the files say: for a tokenizer.json no class of Transformers that rebuilds it its own way."""
    if (Path(directory) / "tokenizer.json").exists():
        return PreTrainedTokenizerFast.from_pretrained(directory)
    return AutoTokenizer.from_pretrained(directory)


def rounded_up(number, multiple):
    return (number + multiple - 1) // multiple * multiple


@dataclass
class Curve:
    losses: list
    grad_norms: list
    learning_rates: list
    supervised_tokens: list
    weights: dict
    eval_loss: float


class Workbench:
    """Everything of one case in one directory."""

    def __init__(self, case, directory, seed=1):
        self.case = case
        self.directory = directory
        self.model = directory / "model"
        self.adapter = directory / "adapter" if case.lora else None
        self.output = directory / "out"
        directory.mkdir(parents=True)
        if case.seq2seq:
            self.tokenizer = small_tokenizers.make_sentencepiece(self.model)
        else:
            self.tokenizer = small_tokenizers.make_byte_level(self.model, case.family)
        self.make_model(seed)
        self.train_rows = texts.rows(TRAIN_ROWS, seed=seed)
        self.eval_rows = texts.rows(7, seed=seed + 1)
        program.write_rows(directory / "train.jsonl", self.train_rows)
        program.write_rows(directory / "eval.jsonl", self.eval_rows)

    def make_model(self, seed):
        torch.manual_seed(seed)
        case, tokens = self.case, self.tokenizer
        changes = WIDER.get(case.family, WIDER_DECODER)
        if not case.seq2seq:
            changes = changes | {"bos_token_id": tokens.bos_token_id, "eos_token_id": tokens.eos_token_id}
            changes |= {"pad_token_id": tokens.pad_token_id}
        model = tiny_models.random_model(case.family, rounded_up(len(tokens), 64), **changes)
        model.save_pretrained(self.model)
        if case.lora:
            model.name_or_path = str(self.model)
            task = "SEQ_2_SEQ_LM" if case.seq2seq else "CAUSAL_LM"
            tiny_models.random_adapter(model, task, **case.lora).save_pretrained(self.adapter)

    def load(self, dtype):
        return reference.load_model(self.model, dtype, self.adapter)

    def config(self, dtype="fp32", **changes):
        """Ours, as nested dictionaries; `changes` by "section.key"."""
        case = self.case
        config = {
            "model": {"path": "model", "dtype": dtype},
            "data": {"train": "train.jsonl", "eval": "eval.jsonl", "kind": case.kind, "shuffle": False}
            | {"input": "input"} | ({} if case.kind == "text" else {"target": "target"})
            | {"max_source_length": MAX_SOURCE, "max_target_length": MAX_TARGET, "max_length": MAX_LENGTH},
            "training": {"batch_size": ROWS, "effective_batch_size": case.effective_batch_size}
            | {"max_steps": case.steps, "max_grad_norm": case.max_grad_norm}
            | {"micro_batching": "samples", "dropout": 0.0}
            | {"label_smoothing": case.label_smoothing, "logging_steps": 1, "num_threads": 1}
            | {"eval_strategy": "steps", "eval_steps": case.steps, "eval_batch_size": 2},
            "optimizer": {"learning_rate": case.learning_rate, "weight_decay": case.weight_decay}
            | {"adam_epsilon": EPSILON, "lr_scheduler_type": case.schedule, "warmup_steps": case.warmup},
            "save": {"strategy": "no"},
            "device": "cpu",
            "output_dir": "out",
        }
        if case.lora:
            config["lora"] = {"adapter": "adapter"}
        for key, value in (case.changes | changes).items():
            section, _, name = key.rpartition(".")
            (config.setdefault(section, {}) if section else config)[name] = value
        return absolute(config, self.directory)

    def encode(self, row):
        """One sample, as `trainer` documents it (src/data/encode.h)."""
        tokens, eos = self.tokenizer, [self.tokenizer.eos_token_id]
        if self.case.seq2seq:
            source = tokens(row["input"], truncation=True, max_length=MAX_SOURCE).input_ids
            return source, tokens(row["target"], truncation=True, max_length=MAX_TARGET).input_ids
        prompt = tokens(row["input"]).input_ids
        if self.case.kind == "text":
            ids = (prompt + eos)[:MAX_LENGTH]
            return ids, ids
        answer = tokens(row["target"], add_special_tokens=False).input_ids + eos
        labels = [reference.IGNORE] * len(prompt) + answer
        return (prompt + answer)[:MAX_LENGTH], labels[:MAX_LENGTH]

    def batch(self, rows):
        samples = [self.encode(row) for row in rows]
        return {"input_ids": [ids for ids, _ in samples], "labels": [labels for _, labels in samples]}

    def step_batches(self):
        """The effective batch of every step, in the order of the file, epoch after epoch."""
        size = self.case.effective_batch_size
        epoch = [self.train_rows[at : at + size] for at in range(0, TRAIN_ROWS, size)]
        return [self.batch(epoch[step % len(epoch)]) for step in range(self.case.steps)]

    def eval_loss(self, model):
        batch = self.batch(self.eval_rows)
        with torch.no_grad():
            total = reference.token_losses(*reference.supervised_logits(model, batch)).item()
        return total / reference.supervised_tokens(model, batch)

    def train_reference(self, dtype, rows=ROWS):
        """Hugging Face's run of this case, in micro-batches of `rows` samples."""
        case, model = self.case, self.load(dtype)
        optimizer = AdamW(
            reference.parameter_groups(model, case.weight_decay), lr=case.learning_rate, eps=EPSILON
        )
        scheduler = get_scheduler(case.schedule, optimizer, case.warmup, case.steps)
        parameters = list(reference.trained_parameters(model).values())
        curve = Curve([], [], [], [], {}, 0.0)
        for batch in self.step_batches():
            optimizer.zero_grad()
            curve.losses.append(reference.backward(model, batch, rows, case.label_smoothing))
            limit = case.max_grad_norm or float("inf")
            curve.grad_norms.append(torch.nn.utils.clip_grad_norm_(parameters, limit).item())
            curve.learning_rates.append(scheduler.get_last_lr()[0])
            curve.supervised_tokens.append(reference.supervised_tokens(model, batch))
            optimizer.step()
            scheduler.step()
        curve.weights = reference.weights(model)
        curve.eval_loss = self.eval_loss(model)
        return curve

    def reference_losses(self, dtype):
        """Hugging Face's loss of every step without training."""
        model = self.load(dtype)
        losses = []
        for batch in self.step_batches():
            with torch.no_grad():
                total = reference.token_losses(*reference.supervised_logits(model, batch))
            losses.append(total.item() / reference.supervised_tokens(model, batch))
        return losses


def absolute(config, directory):
    """Paths of a configuration made absolute."""
    config["output_dir"] = str(directory / config["output_dir"])
    for section, key in (("model", "path"), ("data", "train"), ("data", "eval"), ("lora", "adapter")):
        if key in config.get(section, {}):
            config[section][key] = str(directory / config[section][key])
    return config
