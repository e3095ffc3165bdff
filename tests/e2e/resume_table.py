"""What may change between two starts of a run, and what happens then: the table of docs/reliability.md.

`python3 tests/e2e/resume_table.py` prints the table; test_resume_changes.py tries every row and compares the page.
"""
import dataclasses
import gzip
import json
import shutil
import typing

TEMPLATE = ("{% for message in messages %}<|{{ message['role'] }}|>{% generation %}{{ message['content'] }}"
            "{% endgeneration %}\n{% endfor %}")

# What happens.
REFUSED, LOGGED, SAID, SAME, ROUNDED = "refused", "logged", "said", "same", "rounded"


@dataclasses.dataclass
class Change:
    """What changed, in the words of the page, and how to do it."""
    words: str
    happens: str
    about: str = ""  # REFUSED, LOGGED: the key; SAID: words of the line in the log
    overrides: tuple = ()
    edit: typing.Callable = lambda place: None  # gets the folder with model, data, cache and the stopped run
    kind: str = "rows"  # which run: "chat" learns conversations

    def outcome(self):
        """What happens, in words; a key that is the change itself is not said again."""
        key = "its name" if self.words == f"`{self.about}`" else f"`{self.about}`"
        return {REFUSED: f"exit code 4, with {key}", LOGGED: f"accepted, logged with {key}",
                SAID: f"accepted; the log says \"{self.about}\"", SAME: "accepted; the same to the bit",
                ROUNDED: "accepted; the same up to rounding"}[self.happens]


def setting(key, value, happens=REFUSED, words=None, kind="rows", extra=()):
    return Change(words or f"`{key}`", happens, key if happens in (REFUSED, LOGGED) else "", (f"{key}={value}", *extra),
                  kind=kind)


def edit_json(name, **changes):
    def edit(place):
        path = place / "model" / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return edit


def edit_text(name, change):
    def edit(place):
        path = place / name
        path.write_text(change(path.read_text()))
    return edit


def edit_rows(change):
    """The compressed training data, with its rows changed."""
    def edit(place):
        path = place / "rows.jsonl.gz"
        path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()).decode()).encode()))
    return edit


def put(name, text):
    def edit(place):
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return edit


def remove(name):
    def edit(place):
        path = place / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return edit


def flip_a_bit_of_the_weights(place):
    path = place / "model" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-301] ^= 1
    path.write_bytes(content)


def shard_the_weights(place):
    """One file becomes two and an index, as `save_pretrained(max_shard_size=...)` would write them."""
    model = place / "model"
    content = (model / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    names = sorted(header)
    files = {}
    for number, part in enumerate((names[:len(names) // 2], names[len(names) // 2:])):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        entries, data = {}, b""
        for name in part:
            piece = content[start + header[name]["data_offsets"][0]:start + header[name]["data_offsets"][1]]
            entries[name] = dict(header[name], data_offsets=[len(data), len(data) + len(piece)])
            data += piece
        text = json.dumps(entries).encode()
        text += b" " * (-len(text) % 8)
        (model / file).write_bytes(len(text).to_bytes(8, "little") + text + data)
        files.update({name: file for name in part})
    (model / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    (model / "model.safetensors").unlink()


def unpacked_copy(change):
    def edit(place):
        path = next((place / "cache" / "unpacked").glob("*.jsonl"))
        path.write_text(change(path.read_text()))
    return edit


def rename(old, new):
    return lambda place: (place / old).rename(place / new)


def touch(place):
    for path in (place / "rows.jsonl.gz", place / "model" / "model.safetensors", place / "model" / "tokenizer.json"):
        path.touch()


CHANGES = (
    # What a run is.
    setting("seed", 7),
    setting("data.kind", "text"),
    setting("data.input", "so {input}", extra=("data.target=target",)),
    setting("data.target", "so {target}", extra=("data.input=input",)),
    setting("data.max_length", 90),
    setting("data.long_samples", "drop"),
    setting("data.truncation_side", "left"),
    setting("data.max_samples", 20),
    setting("data.shuffle", "false"),
    setting("data.loss_on", "last_turn", kind="chat"),
    setting("data.learn_reasoning", "true", kind="chat"),
    setting("data.loss_weight", "weight"),
    setting("data.template_date", "2001-11-11"),
    setting("data.eval", 0.2, words="`data.eval`: a share of the training data is held out"),
    setting("training.effective_batch_size", 3),
    setting("model.dtype", "bf16"),
    setting("model.quantize", "nf4"),
    setting("model.double_quant", "false", extra=("model.quantize=nf4",)),
    setting("model.add_tokens", "[and]"),
    setting("optimizer.state_dtype", "bf16"),
    setting("optimizer.name", "adafactor"),
    setting("lora.r", 2),
    setting("lora.lora_alpha", 4),
    setting("lora.target_modules", "[q_proj]"),
    setting("lora.use_dora", "true"),
    Change("LoRA on or off", REFUSED, "lora.r", ("lora=null",)),
    # The files that it is made of.
    Change("training data: a row more", REFUSED, "data.train", edit=edit_rows(lambda text: text + text.split("\n")[0] + "\n")),
    Change("training data: a letter", REFUSED, "data.train", edit=edit_rows(lambda text: text.replace("and", "anb", 1))),
    Change("training data: the weight of a file", REFUSED, "data.train",
           ("data.train=[{path: PLACE/rows.jsonl.gz, weight: 2}]",)),
    Change("training data: the `loss_weight` of a file", REFUSED, "data.train",
           ("data.train=[{path: PLACE/rows.jsonl.gz, loss_weight: 0.5}]",)),
    Change("training data: the same rows, compressed in another way", REFUSED, "data.train",
           edit=lambda place: (place / "rows.jsonl.gz").write_bytes(
               gzip.compress(gzip.decompress((place / "rows.jsonl.gz").read_bytes()), 1))),
    Change("the file of `data.chat_template`", REFUSED, "data.chat_template",
           edit=edit_text("template.jinja", lambda text: text.replace("<|", "<")), kind="chat"),
    Change("one bit of the model's weights", REFUSED, "model.path", edit=flip_a_bit_of_the_weights),
    Change("the model's `config.json`", REFUSED, "model.path", edit=edit_json("config.json", rms_norm_eps=1e-5)),
    Change("`tokenizer.json`", REFUSED, "model.path", edit=edit_text("model/tokenizer.json", lambda text: text + "\n")),
    Change("`tokenizer_config.json`: an entry", REFUSED, "model.path",
           edit=edit_json("tokenizer_config.json", add_bos_token=True)),
    Change("`tokenizer_config.json`: its chat template", REFUSED, "model.path", kind="chat",
           edit=edit_json("tokenizer_config.json", chat_template=TEMPLATE)),
    Change("`tokenizer_config.json` is removed", REFUSED, "model.path", edit=remove("model/tokenizer_config.json")),
    Change("`special_tokens_map.json` is added", REFUSED, "model.path",
           edit=put("model/special_tokens_map.json", '{"eos_token": "a"}')),
    Change("`chat_template.jinja` is added", REFUSED, "model.path", edit=put("model/chat_template.jinja", TEMPLATE)),
    Change("`additional_chat_templates/` gets a file", REFUSED, "model.path",
           edit=put("model/additional_chat_templates/tool_use.jinja", TEMPLATE)),
    # What changes the result on purpose.
    setting("training.max_steps", 3, LOGGED),
    setting("optimizer.learning_rate", 1e-4, LOGGED),
    setting("optimizer.lr_scheduler_type", "cosine", LOGGED),
    setting("optimizer.warmup_steps", 3, LOGGED),
    setting("optimizer.weight_decay", 0.1, LOGGED),
    setting("training.max_grad_norm", 0.1, LOGGED),
    setting("optimizer.adam_beta2", 0.95, LOGGED),
    setting("training.label_smoothing", 0.1, LOGGED),
    setting("training.z_loss", 1e-4, LOGGED),
    setting("training.focal_gamma", 2, LOGGED),
    setting("training.neftune_noise_alpha", 5, LOGGED),
    setting("training.cpu_products", "by_type", LOGGED),
    setting("lora.lora_dropout", 0.1, LOGGED),
    setting("optimizer.grad_dtype", "fp32", LOGGED),
    # The layout of the work.
    setting("training.batch_size", 1, ROUNDED),
    setting("training.micro_batching", "samples", ROUNDED),
    setting("data.packing", "false", ROUNDED),
    setting("memory.gradient_checkpointing", "true", SAME),
    setting("memory.limit", "1GB", SAME),
    setting("training.num_workers", 1, SAME, words="`training.num_workers`, `data.prefetch`", extra=("data.prefetch=7",)),
    # What is saved, shown and measured.
    setting("save.steps", 1, SAME, words="`save.steps`, `save.async`, `save.total_limit`",
            extra=("save.async=false", "save.total_limit=1")),
    setting("training.eval_strategy", "steps", SAME, words="`training.eval_strategy`, `data.eval`: files",
            extra=("training.eval_steps=1", "data.eval=PLACE/rows.jsonl")),
    setting("data.bad_rows", "skip", SAME,
            words="`data.bad_rows`, `data.unknown_marks`: there are none, `data.max_truncated`: nothing is above it",
            extra=("data.unknown_marks=ignore", "data.max_truncated=0.9",)),
    # Where the files are.
    Change("the model is in another folder", SAME, "", ("model.path=PLACE/moved",), rename("model", "moved")),
    Change("the weights are split into several files", SAME, edit=shard_the_weights),
    Change("the training data has another name", SAME, "", ("data.train=PLACE/moved.jsonl.gz",),
           rename("rows.jsonl.gz", "moved.jsonl.gz")),
    Change("the files have another time", SAME, edit=touch),
    Change("the cache is gone", SAME, edit=remove("cache")),
    Change("the unpacked copy of the training data in the cache: a word", SAID, "was changed after it was unpacked",
           edit=unpacked_copy(lambda text: text.replace("and", "dna"))),
    Change("the unpacked copy of the training data in the cache: its end is missing", SAID,
           "was changed after it was unpacked", edit=unpacked_copy(lambda text: text[:text.index("\n", 200) + 1])),
    Change("`trainer_position.json` in `output_dir` is damaged", SAID, "trainer_position.json",
           edit=edit_text("rows/trainer_position.json", lambda text: text.replace('"step": ', '"step": 1'))),
)


def table():
    """A row for all changes of which the same happens."""
    rows = {}
    for change in CHANGES:
        rows.setdefault(change.outcome(), []).append(change.words)
    return "\n".join(["| what changed between two starts | what happens |", "| --- | --- |",
                      *(f"| {'; '.join(words)} | {outcome} |" for outcome, words in rows.items())])


if __name__ == "__main__":
    print(table())
    print(f"\n{len(CHANGES)} changes")
