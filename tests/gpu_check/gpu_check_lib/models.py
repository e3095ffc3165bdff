"""Makes models of real shapes with random weights, their tokenizers, and rows to train on."""
import dataclasses
import json
import random
import shutil
import sys
import threading

from . import layout, processes

sys.path.insert(0, str(layout.MAKE))
from tiny_model_lib import byte_level_bpe  # noqa: E402

WORDS = 400
END = {"t5": "</s>", "qwen3": "<|im_end|>", "qwen3_5_text": "<|im_end|>", "qwen2": "<|im_end|>"}


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    card: str  # in configs/models
    changes: tuple = ()  # ((key, value), ...) of its config.json
    dtype: str = "bfloat16"
    row_words: int = 2600  # enough for every row to be truncated at the length of the stage

    def config(self):
        config = json.loads((layout.CARDS / f"{self.card}.json").read_text(encoding="utf-8"))
        return {**config, **dict(self.changes), "torch_dtype": self.dtype}

    @property
    def seq2seq(self):
        return self.config()["model_type"] == "t5"

    def tiny(self):
        """The same architecture, small enough to train in a second on any machine."""
        if self.seq2seq:
            changes = {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
                       "vocab_size": 1024}
        else:
            changes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
                       "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 1024}
            if "linear_key_head_dim" in self.config():  # heads of a size that the kernels take; one layer of each kind
                changes |= {"linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_num_key_heads": 2,
                            "linear_num_value_heads": 4, "full_attention_interval": 2}
        return dataclasses.replace(self, name=f"tiny-{self.name}", changes=(*self.changes, *changes.items()), row_words=120)


SMALL_DECODER = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 2048}
SMALL_T5 = {"d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 3, "num_decoder_layers": 3, "num_heads": 4,
            "vocab_size": 2048}
SHAPES = {shape.name: shape for shape in (
    Shape("qwen3-8b", "qwen3-8b"),
    Shape("qwen3-0.6b", "qwen3-0.6b"),
    Shape("qwen3.5-0.8b", "qwen3.5-0.8b"),
    Shape("flan-t5-xl", "flan-t5-xl"),
    Shape("qwen3", "qwen3-8b", tuple(SMALL_DECODER.items()), "float32", 200),
    Shape("t5", "flan-t5-xl", tuple(SMALL_T5.items()), "float32", 200),
)}


def words():
    """Pronounceable words, the same on every machine."""
    source = random.Random(7)
    parts = [a + b for a in "bdfgklmnprstvw" for b in "aeiou"]
    return sorted({"".join(source.choices(parts, k=source.randint(1, 4))) for _ in range(WORDS)})


def sentence(source, count):
    return " ".join(source.choices(words(), k=count))


def unigram_tokenizer():
    """A T5 tokenizer as tokenizer.json: whole words, and letters for all other words."""
    special = ["<pad>", "</s>", "<unk>"]
    letters = sorted({letter for word in words() for letter in word})
    pieces = [[piece, 0.0] for piece in special] + [["▁" + word, -6.0] for word in words()]
    pieces += [[piece, -10.0] for piece in ["▁", *letters]]
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    added = [{"id": i, "content": piece, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, piece in enumerate(special)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": space, "decoder": space,
            "post_processor": {"type": "TemplateProcessing", "single": [first, end], "pair": [first, end, second, end],
                               "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}},
            "model": {"type": "Unigram", "unk_id": 2, "byte_fallback": False, "vocab": pieces}}


def write_tokenizer(shape, folder):
    if shape.seq2seq:
        settings = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "extra_ids": 0,
                    "tokenizer_class": "PreTrainedTokenizerFast"}
        write_json(folder / "tokenizer.json", unigram_tokenizer())
        write_json(folder / "tokenizer_config.json", settings)
        return {}
    text = folder / "text.txt"
    text.write_text("\n".join(words()) + "\n", encoding="utf-8")
    _, pad, end = byte_level_bpe.train(text, 700, shape.config()["model_type"], folder)
    return {"pad_token_id": pad, "bos_token_id": pad, "eos_token_id": end}


def write_json(path, content):
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_rows(shape, folder, count=64):
    """rows.jsonl: every row longer than any length that the stages use. spread.jsonl: rows of many lengths;
    short.jsonl: mostly of a few words."""
    source = random.Random(11)
    for name in ("rows", "spread", "short"):
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as file:
            for _ in range(count):
                size = shape.row_words
                if name == "spread":
                    size = int(size * source.choice([0.05, 0.1, 0.2, 0.5]))
                elif name == "short":
                    size = source.choice([2, 3, 5, 100])
                target = sentence(source, max(8, size // 3))
                row = {"input": sentence(source, size), "target": target, "text": sentence(source, size)}
                file.write(json.dumps(row) + "\n")


def shape(name, quick):
    return SHAPES[name].tiny() if quick else SHAPES[name]


LOCKS = {}  # of the models, by name


def make(scratch, shape, run):
    """The folder of a model. It is complete or does not exist. run(what, command) runs a program, and raises if it fails.
    Whoever comes while it is being made waits for it."""
    with LOCKS.setdefault(shape.name, threading.Lock()):
        return make_alone(scratch, shape, run)


def make_alone(scratch, shape, run):
    folder = scratch / shape.name
    if (folder / "short.jsonl").is_file():  # which folders of earlier versions lack
        return folder
    new = folder.with_name(folder.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    config = {**shape.config(), **write_tokenizer(shape, new)}
    write_json(new / "config.json", config)
    write_rows(shape, new)
    run(f"making a model of the shape of {shape.name}", processes.python("write_model.py", new))
    shutil.rmtree(folder, ignore_errors=True)
    new.replace(folder)
    return folder
