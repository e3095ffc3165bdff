"""Makes seq2seq.json: what Hugging Face's T5 tokenizer and DataCollatorForSeq2Seq give for a handful of texts, whole
and truncated, and the padded batch of them. Run from the repository's root with transformers 5 and torch installed:
    python tests/goldens/data/make_seq2seq.py
"""

import json
import pathlib

from transformers import DataCollatorForSeq2Seq, T5Config, T5ForConditionalGeneration, T5Tokenizer

WORDS = ["one", "two", "three", "four", "five", "six"]
# T5's own special tokens, then a vocabulary of whole words.
vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)] + [(f"▁{w}", -1.0) for w in WORDS]
tokenizer = T5Tokenizer(vocab=vocab, extra_ids=0)
model = T5ForConditionalGeneration(
    T5Config(vocab_size=16, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, decoder_start_token_id=0)
)

texts = ["one two three four five six", "one", "", "two three"]
pairs = [("one two three four five", "six"), ("two", "one two three four"), ("", "three two")]

truncations = []
for text in texts:
    for max_length in (1, 2, 3, 6, 7, 8):
        truncations.append(
            {
                "text": text,
                "max_length": max_length,
                "whole": tokenizer(text)["input_ids"],
                "truncated": tokenizer(text, max_length=max_length, truncation=True)["input_ids"],
            }
        )

MAX_SOURCE, MAX_TARGET = 4, 3
features = []
for source, target in pairs:
    row = tokenizer(source, max_length=MAX_SOURCE, truncation=True)
    row["labels"] = tokenizer(text_target=target, max_length=MAX_TARGET, truncation=True)["input_ids"]
    features.append(row)
batch = DataCollatorForSeq2Seq(tokenizer, model=model)(features)

result = {
    "truncations": truncations,
    "batch": {
        "max_source_length": MAX_SOURCE,
        "max_target_length": MAX_TARGET,
        "pairs": [
            {"source": tokenizer(source)["input_ids"], "target": tokenizer(target)["input_ids"]}
            for source, target in pairs
        ],
        **{name: batch[name].tolist() for name in ("input_ids", "labels", "decoder_input_ids", "attention_mask")},
    },
}
path = pathlib.Path(__file__).parent / "seq2seq.json"
path.write_text(json.dumps(result, ensure_ascii=False) + "\n")
