"""Checks that sentence-transformers loads an encoder's run, whole or merged from an adapter, and gives the program's vectors."""

from functools import partial

import torch
from sentence_transformers import SentenceTransformer

from . import exports, texts
from .program import write_rows

LENGTH = 48  # tokens of a text; some texts are longer
RUNS = {"full": {}, "lora": {"lora": {"r": 4}}}


def train(program, directory, settings):
    write_rows(directory / "pairs.jsonl", [{"anchor": row["input"], "positive": row["target"]} for row in texts.rows(24, seed=5)])
    program.train({"model": {"path": str(directory / "model"), "dtype": "fp32"},
                   "data": {"train": str(directory / "pairs.jsonl"), "max_length": LENGTH},
                   "objective": {"name": "embedding"}, "training": {"effective_batch_size": 8, "max_steps": 3},
                   "device": "cpu", "output_dir": str(directory / "run"), **settings}, directory / "config.yaml")  # fmt: skip


def run(settings, report, program, directory):
    exports.make_model(directory / "model", "t5_v1_1")
    train(program, directory, settings)
    result = directory / "run"
    if settings:
        result = directory / "merged"
        program.run("export", directory / "run", result)
    there = SentenceTransformer(str(result), device="cpu")
    report.equal("the length of a text", there.max_seq_length, LENGTH)
    asked = [row["input"] for row in texts.rows(12, seed=6)] + [" ".join(row["input"] for row in texts.rows(9, seed=8)), "x"]
    write_rows(directory / "asked.jsonl", [{"text": text} for text in asked])
    ours = program.rows("generate", result, "--input-file", directory / "asked.jsonl", "--classify", "--device", "cpu", "--dtype", "fp32")
    theirs = torch.tensor(there.encode(asked))
    apart = (torch.tensor([row["embedding"] for row in ours]) - theirs).norm(dim=1) / theirs.norm(dim=1)
    report.check("vectors", apart.max().item() <= 1e-5, f"at most {apart.max().item():.1e} apart")


def cases():
    return [(f"sentences_{name}", partial(run, settings)) for name, settings in RUNS.items()]
