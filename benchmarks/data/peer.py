"""What benchmarks/data/side_by_side measures of Hugging Face's libraries. One line of JSON on stdout.

    peer.py rows TOKENIZER_JSON FILE THREADS PROCESSES   JSONL -> padded arrays, one epoch; conversations by
                                                         `transformers` and the template in FILE.jinja
    peer.py encode TOKENIZER_JSON FILE THREADS           the lines of a file -> ids, by `tokenizers`
    peer.py sentencepiece SPIECE_MODEL FILE THREADS      the same by `sentencepiece`
"""
import json
import os
import sys
import tempfile
import time

EFFECTIVE_BATCH, MICRO_BATCH, MAX_LENGTH, END = 32, 8, 1024, "<|endoftext|>"


def chat_tokenizer(model, file):
    """None: the rows are no conversations."""
    template = file + ".jinja"
    if not os.path.exists(template):
        return None
    from transformers import PreTrainedTokenizerFast
    with open(template, encoding="utf-8") as text:
        return PreTrainedTokenizerFast(tokenizer_file=model, chat_template=text.read())


def rows(model, file, threads, processes):
    """`datasets` maps the files by batches of 1000 through `tokenizers`, then pads micro-batches of a random order."""
    import datasets
    import numpy
    from tokenizers import Tokenizer
    datasets.disable_progress_bars()
    tokenizer = Tokenizer.from_file(model)
    end = tokenizer.token_to_id(END)
    chat = chat_tokenizer(model, file)

    def encode_chat(batch):
        encoded = chat.apply_chat_template(batch["messages"], return_dict=True, return_assistant_tokens_mask=True)
        ids = [each[:MAX_LENGTH] for each in encoded["input_ids"]]
        masks = encoded["assistant_masks"]
        return {"input_ids": ids, "labels": [[token if learn else -100 for token, learn in zip(*each)]
                                             for each in zip(ids, masks)]}

    def encode(batch):
        if chat:
            return encode_chat(batch)
        prompts = tokenizer.encode_batch(batch["input"])
        answers = tokenizer.encode_batch(batch["target"], add_special_tokens=False)
        ids, labels = [], []
        for prompt, answer in zip(prompts, answers):
            learnt = answer.ids + [end]
            ids.append((prompt.ids + learnt)[:MAX_LENGTH])
            labels.append(([-100] * len(prompt.ids) + learnt)[:MAX_LENGTH])
        return {"input_ids": ids, "labels": labels}

    def collate(samples):
        longest = max(map(len, samples["input_ids"]))
        batch = {"input_ids": numpy.zeros((len(samples["input_ids"]), longest), dtype=numpy.int64),
                 "labels": numpy.full((len(samples["input_ids"]), longest), -100, dtype=numpy.int64)}
        for key, array in batch.items():
            for row, values in zip(array, samples[key]):
                row[:len(values)] = values
        return batch

    with tempfile.TemporaryDirectory() as cache:
        begin = time.perf_counter()
        data = datasets.load_dataset("json", data_files=file, split="train", cache_dir=cache)
        data = data.map(encode, batched=True, remove_columns=data.column_names,
                        num_proc=processes if processes > 1 else None)
        opened = time.perf_counter()
        order = numpy.random.default_rng(1).permutation(len(data))
        tokens = supervised = 0
        for first in range(0, len(order), EFFECTIVE_BATCH):
            step = order[first:first + EFFECTIVE_BATCH]
            for begin_of in range(0, len(step), MICRO_BATCH):
                samples = data[step[begin_of:begin_of + MICRO_BATCH]]
                tokens += sum(map(len, samples["input_ids"]))
                supervised += int((collate(samples)["labels"] != -100).sum())
        return {"rows": len(data), "tokens": tokens, "supervised_tokens": supervised, "open": opened - begin,
                "epoch": time.perf_counter() - opened}


def lines_of(file):
    with open(file, encoding="utf-8") as text:
        return text.read().removesuffix("\n").split("\n")


def encode(model, file, threads):
    from tokenizers import Tokenizer
    tokenizer, lines = Tokenizer.from_file(model), lines_of(file)
    begin, tokens = time.perf_counter(), 0
    for first in range(0, len(lines), 1000):
        for encoded in tokenizer.encode_batch_fast(lines[first:first + 1000], add_special_tokens=False):
            tokens += len(encoded.ids)
    return {"rows": len(lines), "tokens": tokens, "epoch": time.perf_counter() - begin}


def sentencepiece(model, file, threads):
    from sentencepiece import SentencePieceProcessor
    processor, lines = SentencePieceProcessor(model_file=model), lines_of(file)
    begin = time.perf_counter()
    tokens = sum(map(len, processor.encode(lines, num_threads=threads)))
    return {"rows": len(lines), "tokens": tokens, "epoch": time.perf_counter() - begin}


def main():
    what, model, file, threads, *processes = sys.argv[1:]
    os.environ.update(RAYON_NUM_THREADS=threads, TOKENIZERS_PARALLELISM="false" if processes[:1] > ["1"] else "true",
                      HF_HUB_OFFLINE="1")
    run = {"rows": rows, "encode": encode, "sentencepiece": sentencepiece}[what]
    print(json.dumps(run(model, file, int(threads), *map(int, processes))))


if __name__ == "__main__":
    main()
