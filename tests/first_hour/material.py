"""What a new user has: rows of several kinds, some broken, and models."""
import csv
import json
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAIRS = 120
COLOURS = ["red", "blue", "green", "grey", "white", "black", "brown", "pink", "gold", "silver"]
THINGS = ["house", "river", "garden", "window", "bridge", "tower", "street", "market", "harbor", "mill", "school", "lantern"]
TOOL = {"type": "function", "function": {"name": "find", "description": "Finds a thing.",
                                         "parameters": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}}}


def sentences():
    for number in range(PAIRS):
        thing, colour = THINGS[number % len(THINGS)], COLOURS[number // len(THINGS)]
        yield f"The {thing} at the end of the road is {colour}, and everybody who comes by has a look at it.", f"a {colour} {thing}"


def write_rows(path, rows):
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_table(path, header):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *sentences()])


def chat_rows(user="user", assistant="assistant"):
    for text, short in sentences():
        yield {"messages": [{"role": user, "content": f"What is there? {text}"}, {"role": assistant, "content": f"There is {short}."}]}


def tool_rows():
    for number, (text, short) in enumerate(sentences()):
        call = {"role": "assistant", "content": "", "tool_calls": [{"id": f"call{number:05}", "type": "function", "function": {
            "name": "find", "arguments": json.dumps({"what": short})}}]}
        answer = {"role": "assistant", "content": f"There is {short}."}
        found = {"role": "tool", "name": "find", "tool_call_id": f"call{number:05}", "content": json.dumps({"found": True})}
        question = {"role": "user", "content": f"What is there? {text}"}
        yield {"messages": [question, call, found, answer] if number % 2 else [question, answer], "tools": [TOOL]}


def broken_rows():
    rows = list(chat_rows())
    rows[5] = "{\"messages\": [{\"role\": \"user\"\n"
    rows[17] = {"message": "none"}
    rows[33] = {"messages": [{"role": "user", "content": 7}, {"role": "assistant", "content": "x"}]}
    return rows


def make_model(out, family, text, *more):
    subprocess.run([sys.executable, "-B", ROOT / "scripts" / "make" / "tiny_model", "--family", family, "--text", text, "--out", out,
                    *map(str, more)], check=True, stdout=subprocess.DEVNULL)


def write_text(folder):
    path = folder / "text.txt"
    path.write_text("\n".join(part for pair in sentences() for part in pair) + "\n", encoding="utf-8")
    return path


def write_all(folder):
    text = write_text(folder)
    write_table(folder / "sums.csv", ["text", "summary"])
    write_table(folder / "odd.csv", ["wort", "bild"])
    write_rows(folder / "pairs.jsonl", [{"input": text, "target": short} for text, short in sentences()])
    write_rows(folder / "chats.jsonl", tool_rows())
    write_rows(folder / "sharegpt_roles.jsonl", chat_rows("human", "gpt"))
    write_rows(folder / "broken.jsonl", broken_rows())
    make_model(folder / "t5", "t5", text)
    make_model(folder / "chat", "qwen2", text)
    shutil.copytree(folder / "chat", folder / "base")
    # A base model knows no conversations.
    about = folder / "base" / "tokenizer_config.json"
    config = json.loads(about.read_text())
    config.pop("chat_template", None)
    about.write_text(json.dumps(config))
    (folder / "base" / "chat_template.jinja").unlink(missing_ok=True)


def write_chat(folder, like_smollm2):
    """`model` and rows.jsonl."""
    smollm2 = ["--layers", 30, "--hidden-size", 576, "--intermediate-size", 1536, "--heads", 9, "--kv-heads", 3, "--vocab-size", 49152]
    write_rows(folder / "rows.jsonl", chat_rows())
    make_model(folder / "model", "llama", write_text(folder), *(smollm2 if like_smollm2 else []))
