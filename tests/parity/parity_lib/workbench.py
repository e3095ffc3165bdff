"""The files of a case (model, tokenizer, adapter, data, trainer's configuration), and Hugging Face's run on them."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch.optim import AdamW
from transformers import AutoTokenizer, PreTrainedTokenizerFast, get_scheduler
from transformers.optimization import Adafactor

from . import program, reference, small_tokenizers, texts, tiny_models

ROWS = 3  # in a micro-batch
TRAIN_ROWS = 20  # an epoch ends in a short step
MAX_SOURCE, MAX_TARGET, MAX_LENGTH = 60, 24, 90  # some samples are longer
WIDER = {"t5_v1_1": {"d_model": 48, "d_ff": 64}, "t5_v1_0": {"d_model": 48, "d_ff": 64},
         "phi3": {"hidden_size": 64, "intermediate_size": 80}}  # three quarters of a head: an even number of dimensions
WIDER |= {"t5gemma": {}, "t5gemma2": {}}
WIDER_DECODER = {"hidden_size": 48, "intermediate_size": 80}


def load_tokenizer(directory):
    """The tokenizer exactly as in the files: no class of Transformers that rebuilds tokenizer.json differently."""
    if (Path(directory) / "tokenizer.json").exists():
        return PreTrainedTokenizerFast.from_pretrained(directory)
    return AutoTokenizer.from_pretrained(directory)


def rounded_up(number, multiple):
    return (number + multiple - 1) // multiple * multiple


@dataclass
class Evaluation:
    loss: float
    right: int  # supervised tokens that were predicted as most probable
    tokens: int


@dataclass
class Curve:
    losses: list
    grad_norms: list
    learning_rates: list
    supervised_tokens: list
    weights: dict
    evaluations: list


class RelativeSteps:
    """The learning rates of Adafactor's own schedule, without what each tensor makes of them."""

    def __init__(self, settings):
        self.settings = {"warmup_init": False} | settings | {"lr": None, "scale_parameter": False}
        self.step_of_update = 1

    def get_last_lr(self):
        return [Adafactor._get_lr(self.settings, {"step": self.step_of_update})]

    def step(self):
        self.step_of_update += 1


class Workbench:
    """Everything of one case in one directory."""

    # Larger than usual, so that rounding alone does not move elements whose gradient is nearly 0 (AdamW divides by it).
    epsilon = 1e-6
    fused_adamw = False
    eval_rows_at_once = 7

    def __init__(self, case, directory, seed=1):
        self.case = case
        self.directory = directory
        self.model = directory / "model"
        self.adapter = directory / "adapter" if case.lora else None
        self.output = directory / "out"
        directory.mkdir(parents=True)
        self.tokenizer = self.make_tokenizer()
        torch.manual_seed(seed)
        model = self.make_model()
        model.save_pretrained(self.model)
        if case.lora:
            model.name_or_path = str(self.model)
            self.make_adapter(model, "SEQ_2_SEQ_LM" if case.seq2seq else "CAUSAL_LM").save_pretrained(self.adapter)
        self.train_rows, self.eval_rows = self.make_rows(seed)
        program.write_rows(directory / "train.jsonl", self.train_rows)
        program.write_rows(directory / "eval.jsonl", self.eval_rows)

    def make_tokenizer(self):
        if self.case.seq2seq:
            return small_tokenizers.make_sentencepiece(self.model, texts.corpus(), 400)
        return small_tokenizers.make_byte_level(self.model, self.case.family, texts.corpus(), 420)

    def make_model(self):
        vocab_size = rounded_up(len(self.tokenizer), 64)
        return tiny_models.random_model(self.case.family, vocab_size, **self.token_ids() | self.sizes())

    def sizes(self):
        return WIDER.get(self.case.family, WIDER_DECODER)

    def token_ids(self):
        """Sets the special tokens of the tokenizer in a decoder's configuration."""
        tokens = self.tokenizer
        if self.case.seq2seq:
            return {}
        return {f"{name}_token_id": getattr(tokens, f"{name}_token_id") for name in ("bos", "eos", "pad")}

    def make_adapter(self, model, task):
        return tiny_models.random_adapter(model, task, **self.case.lora)

    def make_rows(self, seed):
        return texts.rows(TRAIN_ROWS, seed=seed), texts.rows(7, seed=seed + 1)

    def load(self, dtype):
        return reference.load_model(self.model, dtype, self.adapter)

    def config(self, dtype="fp32", **changes):
        """trainer's configuration as nested dictionaries; `changes` has keys "section.key"."""
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
            | {"eval_strategy": "steps", "eval_steps": case.eval_steps or case.steps, "eval_batch_size": 2},
            "optimizer": self.optimizer_config(),
            "save": {"strategy": "no"},
            "device": "cpu",
            "output_dir": "out",
        }
        if case.kind == "chat":
            config["data"]["learn_reasoning"] = True  # {% generation %} counts also an empty block of the template
        if case.lora:
            config["lora"] = {"adapter": "adapter"}
        for key, value in (case.changes | changes).items():
            section, _, name = key.rpartition(".")
            (config.setdefault(section, {}) if section else config)[name] = value
        return absolute(config, self.directory)

    @property
    def has_schedule(self):
        return not (self.case.adafactor or {}).get("relative_step")

    def optimizer_config(self):
        case = self.case
        config = {"weight_decay": case.weight_decay}
        if self.has_schedule:
            config |= {"learning_rate": case.learning_rate, "lr_scheduler_type": case.schedule, "warmup_steps": case.warmup}
        if case.adafactor is None:
            return config | {"adam_epsilon": self.epsilon}
        return config | {"name": "adafactor"} | case.adafactor

    def make_optimizer(self, groups):
        """Transformers' own, and the learning rate of each step."""
        case = self.case
        if case.adafactor is None:
            optimizer = AdamW(groups, lr=case.learning_rate, eps=self.epsilon, fused=self.fused_adamw)
        else:
            settings = {"scale_parameter": False, "relative_step": False} | case.adafactor
            optimizer = Adafactor(groups, lr=case.learning_rate if self.has_schedule else None, **settings)
        if self.has_schedule:
            return optimizer, get_scheduler(case.schedule, optimizer, case.warmup, case.steps)
        return optimizer, RelativeSteps(settings)

    def encode(self, row):
        """One sample, made as src/data/encode.h describes."""
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
        """The effective batch of every step, in file order, epoch by epoch."""
        size = self.case.effective_batch_size
        epoch = [self.train_rows[at : at + size] for at in range(0, len(self.train_rows), size)]
        return [self.batch(epoch[step % len(epoch)]) for step in range(self.case.steps)]

    def evaluate(self, model):
        """The mean loss over the supervised tokens of the evaluation data, and how many of them are predicted correctly."""
        total, right, tokens = 0.0, 0, 0
        for batch in reference.cut(self.batch(self.eval_rows), self.eval_rows_at_once):
            with torch.no_grad():
                logits, labels = reference.supervised_logits(model, batch)
                total += reference.token_losses(logits, labels).item()
            right += (logits.argmax(-1) == labels).sum().item()
            tokens += len(labels)
        return Evaluation(total / tokens, right, tokens)

    def train_reference(self, dtype, rows=ROWS, master_weights=True):
        """Hugging Face's run of this case, in micro-batches of `rows` samples."""
        case, model = self.case, self.load(dtype)
        masters = reference.MasterWeights(model, master_weights)
        groups = reference.parameter_groups(model, case.weight_decay, masters)
        optimizer, scheduler = self.make_optimizer(groups)
        curve = Curve([], [], [], [], {}, [])
        for step, batch in enumerate(self.step_batches(), 1):
            model.zero_grad()
            curve.losses.append(reference.backward(model, batch, rows, case.label_smoothing))
            masters.take_gradients()
            curve.grad_norms.append(reference.clip(masters.updated(), case.max_grad_norm))
            curve.learning_rates.append(scheduler.get_last_lr()[0])
            curve.supervised_tokens.append(reference.supervised_tokens(model, batch))
            optimizer.step()
            scheduler.step()
            masters.give_weights()
            if step % (case.eval_steps or case.steps) == 0:
                curve.evaluations.append(self.evaluate(model))
        curve.weights = reference.weights(model)
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
    """Makes the paths of a configuration absolute."""
    config["output_dir"] = str(directory / config["output_dir"])
    for section, key in (("model", "path"), ("data", "train"), ("data", "eval"), ("lora", "adapter")):
        if key in config.get(section, {}):
            config[section][key] = str(directory / config[section][key])
    return config
