#!/usr/bin/env python3
"""The Python side of benchmarks/training: transformers + peft in a plain loop, as its users write it.

Without options: file order, micro-batches padded to their longest row, the model's default attention, AdamW. Prints one
JSON object: seconds and supervised tokens of each optimizer step, and the peak of resident memory or of the GPU's.
"""
import argparse
import json
import os
import resource
import time

start = time.perf_counter()
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, PreTrainedTokenizerFast  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", type=json.loads, help="the case, as benchmarks/training writes it")
    parser.add_argument("--length-grouping", action="store_true", help="sort the effective batch by length first")
    parser.add_argument("--flatten", action="store_true",
                        help="decoders: a micro-batch as one row without padding (DataCollatorWithFlattening)")
    parser.add_argument("--attention", help="attn_implementation of Transformers: sdpa, flex_attention, eager")
    parser.add_argument("--autocast", action="store_true", help="weights in fp32, computed in bf16 by torch.autocast")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    return parser.parse_args()


def load_tokenizer(model):
    if (os.path.exists(f"{model}/tokenizer.json")):
        return PreTrainedTokenizerFast(tokenizer_file=f"{model}/tokenizer.json")
    if not os.path.exists(f"{model}/spiece.model"):
        return transformers.ByT5Tokenizer.from_pretrained(model)
    return transformers.T5TokenizerFast.from_pretrained(model)


def samples(case, tokenizer):
    """(source ids, label ids) in file order: the tokens that trainer makes of the same rows."""
    needed = case["steps"] * case["effective_batch_size"]
    end = tokenizer.convert_tokens_to_ids("</s>" if case["kind"] == "seq2seq" else case["end_token"])
    encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
    with open(case["data"], encoding="utf-8") as file:
        for row in (json.loads(next(file)) for _ in range(needed)):
            if case["kind"] == "seq2seq":
                yield (encode(row["input"])[:case["max_source_length"] - 1] + [end],
                       encode(row["target"])[:case["max_target_length"] - 1] + [end])
            elif case["kind"] == "completion":
                prompt, answer = encode(row["input"]), encode(row["target"]) + [end]
                ids = (prompt + answer)[:case["max_length"]]
                yield ids, ([-100] * len(prompt) + answer)[:case["max_length"]]
            else:
                ids = (encode(row["text"]) + [end])[:case["max_length"]]
                yield ids, ids


def collate(rows, pad):
    def block(lists, fill):
        longest = max(map(len, lists))
        return torch.tensor([ids + [fill] * (longest - len(ids)) for ids in lists])
    inputs = block([ids for ids, _ in rows], pad)
    mask = block([[1] * len(ids) for ids, _ in rows], 0)
    return {"input_ids": inputs, "attention_mask": mask, "labels": block([labels for _, labels in rows], -100)}


def flatten(rows, collator=transformers.DataCollatorWithFlattening()):
    return collator([{"input_ids": ids, "labels": labels} for ids, labels in rows])


def load_model(case, args):
    kind = AutoModelForSeq2SeqLM if case["kind"] == "seq2seq" else AutoModelForCausalLM
    dtype = torch.float32 if args.autocast or case["dtype"] == "fp32" else torch.bfloat16
    attention = {"attn_implementation": args.attention} if args.attention else {}
    model = kind.from_pretrained(case["model"], dtype=dtype, **attention)
    model.config.use_cache = False
    if case["lora_targets"]:
        targets = case["lora_targets"]
        task = "SEQ_2_SEQ_LM" if case["kind"] == "seq2seq" else "CAUSAL_LM"
        model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, task_type=task,
                                                           target_modules=targets))
    model.train()
    return model.to(case["device"])


def supervised(case, rows):
    """What predicts a token: all labels of a seq2seq target; a decoder's first token is never predicted."""
    first = 0 if case["kind"] == "seq2seq" else 1
    return sum(sum(label != -100 for label in labels[first:]) for _, labels in rows)


def main():
    args = parse_arguments()
    case = args.case
    torch.set_num_threads(case["threads"])
    model = load_model(case, args)
    loaded = time.perf_counter() - start
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0)
    forward = torch.compile(model) if args.compile else model
    rows = list(samples(case, load_tokenizer(case["model"])))
    size, effective = case["batch_size"], case["effective_batch_size"]
    seconds, tokens = [], []
    for first in range(0, len(rows), effective):
        batch = rows[first:first + effective]
        if args.length_grouping:
            batch.sort(key=lambda row: len(row[0]), reverse=True)
        begin = time.perf_counter()
        for i in range(0, effective, size):
            part = batch[i:i + size]
            inputs = flatten(part) if args.flatten else collate(part, case["pad_id"])
            inputs = {name: tensor.to(case["device"]) for name, tensor in inputs.items()}
            with torch.autocast(case["device"], torch.bfloat16, enabled=args.autocast):
                loss = forward(**inputs).loss
            (loss / (effective // size)).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        seconds.append(time.perf_counter() - begin)
        tokens.append(supervised(case, batch))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if case["device"] != "cpu":
        peak = torch.cuda.max_memory_allocated()
    print(json.dumps({"start": loaded, "seconds": seconds, "tokens": tokens, "peak": peak}))


if __name__ == "__main__":
    main()
