#!/usr/bin/env python3
"""The Python side of benchmarks/generation: Transformers' generate(), a round for each line of stdin.

    peer.py MODEL PROMPTS.json fp32|bf16 BATCH_SIZE MAX_NEW_TOKENS BEAMS

The same protocol as answers.cpp: prompts sorted by length, so that batches have little padding, in the fastest attention.
"""
import json
import os
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM  # noqa: E402


def main():
    path, prompts_file, dtype, batch_size, tokens, beams = sys.argv[1:]
    config = AutoConfig.from_pretrained(path)
    kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    model = kind.from_pretrained(path, dtype=torch.float32 if dtype == "fp32" else torch.bfloat16).eval()
    model.generation_config.eos_token_id = None
    with open(prompts_file, encoding="utf-8") as file:
        prompts = json.load(file)
    pad = config.pad_token_id or 0
    order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
    print("ready", flush=True)
    for _ in sys.stdin:
        answers = [None] * len(prompts)
        begin, processor = time.perf_counter(), time.process_time()
        for first in range(0, len(order), int(batch_size)):
            batch = order[first:first + int(batch_size)]
            longest = max(len(prompts[i]) for i in batch)
            left = not config.is_encoder_decoder
            padded = lambda ids, fill: [fill] * (longest - len(ids)) * left + ids + [fill] * (longest - len(ids)) * (not left)  # noqa: E731
            inputs = torch.tensor([padded(prompts[i], pad) for i in batch])
            mask = torch.tensor([padded([1] * len(prompts[i]), 0) for i in batch])
            with torch.inference_mode():
                out = model.generate(inputs, attention_mask=mask, max_new_tokens=int(tokens), num_beams=int(beams),
                                     do_sample=False, pad_token_id=pad, eos_token_id=None)
            for i, row in zip(batch, out.tolist()):
                answers[i] = [row[longest if left else 1:]]
        print(json.dumps({"seconds": time.perf_counter() - begin, "processor": time.process_time() - processor,
                          "answers": answers}), flush=True)


if __name__ == "__main__":
    main()
