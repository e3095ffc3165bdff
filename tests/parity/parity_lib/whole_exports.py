"""Checks adapters of models of texts and images: PEFT puts them on the whole model, which then is the merged export."""

import random
from functools import partial
from unittest import mock

import torch
from peft import PeftModel
from transformers import AutoModelForImageTextToText

from . import random_models, small_tokenizers, texts
from .program import write_rows

ROWS = 512  # of the embedding


def make_model(directory, family):
    with mock.patch.object(random_models, "VOCABULARY", ROWS):
        random_models.make(random.Random(f"whole {family}"), family, directory)
    small_tokenizers.make_byte_level(directory, "qwen", texts.corpus(), 500)


def train(program, directory):
    write_rows(directory / "rows.jsonl", [{"input": row["input"], "target": row["target"]} for row in texts.rows(24, seed=5)])
    program.train({"model": {"path": str(directory / "model"), "dtype": "fp32"}, "data": {"train": str(directory / "rows.jsonl")},
                   "lora": {"r": 4}, "optimizer": {"learning_rate": 5e-3},
                   "training": {"effective_batch_size": 8, "max_steps": 3}, "device": "cpu",
                   "output_dir": str(directory / "adapter")}, directory / "config.yaml")  # fmt: skip


def loaded(report, directory):
    model, info = AutoModelForImageTextToText.from_pretrained(directory, dtype=torch.float32, output_loading_info=True,
                                                              attn_implementation="eager")
    report.equal(f"tensors that {directory.name} lacks or has too many of", {key: value for key, value in info.items() if value}, {})
    return model.eval()


def run(family, report, program, directory):
    make_model(directory / "model", family)
    train(program, directory)
    program.run("merge", directory / "adapter", directory / "merged", "--dtype", "fp32")
    ids = torch.arange(10, 60).unsqueeze(0)
    with torch.no_grad():
        plain = loaded(report, directory / "model")(input_ids=ids).logits
        merged = loaded(report, directory / "merged")(input_ids=ids).logits
        theirs = PeftModel.from_pretrained(loaded(report, directory / "model"), directory / "adapter").eval()
        others = [name for name, _ in theirs.named_parameters() if "lora_" in name and ".language_model." not in name]
        adapted = theirs(input_ids=ids).logits
    report.equal("adapters outside of the text half", others, [])
    distance = lambda logits: ((logits - merged).norm() / merged.norm()).item()  # noqa: E731
    report.at_most("logits with the adapter in PEFT and of the merged model", distance(adapted), 1e-5)
    report.check("the adapter changes them", distance(plain) > 1e-3, f"by {distance(plain):.1e}")


def cases():
    return [(f"whole_{family}", partial(run, family)) for family in random_models.WHOLES]
