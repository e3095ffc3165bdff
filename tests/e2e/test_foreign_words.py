"""The worst of files, names and numbers through every door: the program ends with a code of its own and words of its own, and
writes nothing that a terminal would obey."""
import json
import re
import shutil
import subprocess
import unittest

from support import ROOT, TRAINER, EndToEnd

# As tests/support/hostile_json.h has them.
FOREIGN = ("[json.exception", "type must be", "vector", "basic_string", "_M_", "std::", "stoi", "stod", "bad_alloc", ".cc:", ".cpp:", "what():",
           "yaml-cpp", "operator[]", "syntax error while", "Exception raised", "enforce fail", "bad conversion", "Thrift", "arrow::", "parquet::",
           "TAPE_ERROR", "c10::", "gloo/", "regex_error", "internal error", "terminate called", "-9223372", "-9,223,372")
CODES = {0, 2, 3, 4, 5, 6, 75}
CONTROL = "\x1b[31m\x07"
VALUES = (None, True, 0, -1, 1.5, 1e308, 2**31, 2**63 - 1, 2**63, 2**64 - 1, -9 * 10**18, "", "7", CONTROL + "\0\u202e", [], [None], {}, {CONTROL: 1}, [[1], "a", {}])


def malformed(text):
    """Texts that are no JSON, made of one that is."""
    half = text[:len(text) // 2].encode()
    return (b"", b" ", b"null", b"[]", b"7", half, half + CONTROL.encode(), text.encode() + b"}", text.encode() * 2, text.encode("utf-16"),
            b"\x1f\x8b\x08", bytes(64), b'{"a": NaN}', b'{"a": "\\ud800"}', b'{"a": "\xc3("}', b'{"a": 1e999}', b"{'a': 1}", b"[" * 100_000,
            b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def changed(value, depth=0):
    """Yields (name, value) with one other value at each key, of `value` and of the mappings in it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            for other in VALUES:
                yield key, dict(value, **{key: other})
            if depth < 2:
                for name, other in changed(inner, depth + 1):
                    yield f"{key}.{name}", dict(value, **{key: other})
        yield "renamed", {"other": 1}
    elif isinstance(value, list) and value and depth < 2:
        for name, other in changed(value[0], depth + 1):
            yield f"[0].{name}", [other] + value[1:]


class ForeignWords(EndToEnd):
    family = "qwen2"
    model_arguments = ("--hidden-size", 32, "--layers", 1)

    def run_door(self, what, *arguments):
        """Runs the program; checks how it ends and what it says, and returns the result."""
        result = subprocess.run([TRAINER, *map(str, arguments)], capture_output=True, timeout=120, cwd=ROOT)
        with self.subTest(what=what, command=arguments[0]):
            said = result.stdout + result.stderr
            self.assertIn(result.returncode, CODES, said[-2000:])
            text = said.decode("utf-8")  # throws for bytes that are no text
            self.assertIsNone(re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text), ascii(text[-2000:]))
            for words in FOREIGN:
                self.assertNotIn(words, text)
        return result

    def copy_of_model(self):
        directory = self.scratch / "changed"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(self.model, directory)
        return directory

    def some(self, items, count):
        """`count` of the items, spread evenly."""
        items = list(items)
        return items[::max(len(items) // count, 1)]

    def through(self, file, values, *command):
        """Writes each value into `file`, and runs the command."""
        for name, content in values:
            file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
            self.run_door(f"{file.name}: {name}", *command)

    def test_configurations(self):
        file = self.scratch / "config.yaml"
        yaml = f"training:\n  batch_size: 3\n  {CONTROL}: 4\n".encode()
        texts = (yaml, b"training: " + b"[" * 100_000, b"a: \x00\x01", b"\xff\xfe\x00", b"a: &a [*a]", b"training: &x {a: *x}", b"{a: b", b"- a: 'b",
                 b"training:\n  batch_size: 9223372036854775808", b"training: {batch_size: 1e999}", b"? [a]: b", b"%YAML 9.9", b"a: \"\\q\"", b"a: \"\\ud800\"",
                 b"lora:\n  rank_pattern: {q: 1, q: 2}", b"model: {path: 'a\x1b[31mb'}", b"a: *b", b"<<: {a: b}", b"key: \x9b31m")
        for text in texts:
            file.write_bytes(text)
            for command in (("config", "--config", file), ("import-config", file)):
                self.run_door(text[:40], *command)
        for override in (f"training.{CONTROL}=3", f"training.batch_size={CONTROL}", "batch_size=9223372036854775808", "lora={a: &x [*x]}", f"{CONTROL}", "=",
                         "lora.rank_pattern={a: 1, a: 2}", "training.batch_size=[1"):
            self.run_door(override, "config", override)

    def test_other_programs_configurations(self):
        file = self.scratch / "theirs.yaml"
        for text in (f"base_model: m\n{CONTROL}: 1\ndatasets:\n  - path: 'a{CONTROL}'\n    type: '{CONTROL}'\n", "micro_batch_size: 9223372036854775808\n",
                     "learning_rate: 1e999\nper_device_train_batch_size: -1\n", "base_model: m\nlora_r: 1e300\nadapter: lora\n",
                     "base_model: &x {a: *x}\n", "finetuning_type: lora\nlora_rank: nan\nlora_alpha: .inf\n"):
            file.write_text(text)
            self.run_door(text, "import-config", file)

    def test_tokenizers(self):
        rows = self.scratch / "texts.jsonl"
        rows.write_text('{"text": "a b"}\n')
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
            model = self.copy_of_model()
            file = model / name
            if not file.exists():
                file.write_text("{}")
            value = json.loads(file.read_text())
            command = ("tokenize", "--model", model, "--input", rows)
            self.through(file, [("malformed", text) for text in malformed(json.dumps(value))], *command)
            self.through(file, self.some(changed(value), 60), *command)

    def test_templates(self):
        model = self.copy_of_model()
        rows = self.scratch / "chats.jsonl"
        rows.write_text(json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}) + "\n")
        for template in (f"{{{{ raise_exception('{CONTROL}') }}}}", f"{{% {CONTROL} %}}", "{{ messages[2**63] }}", "{{ 1 // 0 }}", "{{ 'a' * 10**12 }}",
                         "{% for a in range(10**18) %}{% endfor %}", "{{ messages.x.y.z }}", "\x00\xff", "{{", f"{{{{ {CONTROL} }}}}"):
            (model / "chat_template.jinja").write_text(template)
            self.run_door(template, "tokenize", "--chat", "--model", model, "--input", rows)

    def test_rows(self):
        rows = self.scratch / "hostile.jsonl"
        command = ("data", "--config", ROOT / "configs/tiny_qwen.yaml", f"model.path={self.model}", f"data.train={rows}", f"data.cache={self.scratch / 'cache'}")
        for text in malformed('{"input": "a", "target": "b"}'):
            rows.write_bytes(b'{"input": "a", "target": "b"}\n' + text + b"\n")
            self.run_door(text[:40], *command)
        for row in ({CONTROL: 1}, {"input": CONTROL, "target": "b"}, {"input": 2**64, "target": "b"}, {"input": {CONTROL: 1}, "target": None}):
            rows.write_text(json.dumps(row) + "\n")
            self.run_door(row, *command)
        named = self.scratch / f"a{CONTROL}b.jsonl"
        named.write_text("{")
        result = self.run_door("a name with control bytes", *command[:-2], f"data.train={named}", command[-1])
        self.assertIn(b"\\x1b[31m", result.stderr)

    def test_rows_to_answer(self):
        rows = self.scratch / "asked.jsonl"
        deep = b"[" * 100_000 + b"]" * 100_000
        texts = [*malformed('{"input": "a"}'), b'{"input": "a", "x": ' + deep + b"}", b'{"messages": [{"role": "user", "content": "a", "x": ' + deep + b"}]}",
                 b'{"input": "\xe9"}', b'{"input": "a", "id": ' + b"9" * 400 + b"}", b'{"prompt": [3]}', b'{"prompt": [{"role": "user"}]}']
        for text in texts:
            rows.write_bytes(text + b"\n")
            self.run_door(text[:40], "generate", self.model, "--input-file", rows, "--device", "cpu", "--max-new-tokens", 1)
            self.run_door(text[:40], "tokenize", "--model", self.model, "--chat", "--input", rows)

    def test_parquet(self):
        whole = (ROOT / "tests/goldens/parquet/pairs.snappy.parquet").read_bytes()
        file = self.scratch / "damaged.parquet"
        command = ("data", "--config", ROOT / "configs/tiny_qwen.yaml", f"model.path={self.model}", f"data.train={file}", f"data.cache={self.scratch / 'cache'}")
        damaged = [whole[:at] + bytes(value ^ flip for value in whole[at:at + 4]) + whole[at + 4:]
                   for flip in (0xff, 0x80) for at in range(0, len(whole), max(len(whole) // 20, 1))]
        for content in (b"", b"PAR1", b"PAR1" * 9, whole[:-8], whole[: len(whole) // 2], b"PAR1" + bytes(100) + b"\xff\xff\xff\x7fPAR1", *damaged):
            file.write_bytes(content)
            self.run_door(content[:20], *command)

    def test_what_a_run_has_written(self):
        run = self.scratch / "run"
        run.mkdir()
        row = {"kind": "train", "step": 1, "epoch": 0.5, "loss": 2.5, "learning_rate": 0.001, "step_seconds": 1, "tokens": 10, "memory_peak": 5}
        metrics = run / "metrics.jsonl"
        doors = (("status", run), ("report", run, "--out", self.scratch / "page.html"), ("runs", self.scratch))
        for door in doors:
            self.through(metrics, [("malformed", text) for text in malformed(json.dumps(row))], *door)
            self.through(metrics, self.some(changed(row), 25), *door)
        metrics.write_text(json.dumps(row) + "\n")
        status = {"state": "running", "model": "m", "step": 10, "total_steps": 40, "loss": 1.5, "memory_peak": 1e9, "seconds_left": 60, "updated": 1e6,
                  "message": "x", "host": "h", "pid": 1}
        for door in doors[::2]:
            self.through(run / "status.json", [("malformed", text) for text in malformed(json.dumps(status))], *door)
            self.through(run / "status.json", self.some(changed(status), 60), *door)

    def test_models_and_adapters(self):
        for name in ("config.json", "generation_config.json"):
            model = self.copy_of_model()
            value = json.loads((model / name).read_text()) if (model / name).exists() else {"eos_token_id": 1}
            command = ("generate", model, "a", "--device", "cpu", "--max-new-tokens", 1)
            self.through(model / name, [("malformed", text) for text in malformed(json.dumps(value))[::3]], *command)
            self.through(model / name, self.some(changed(value), 12), *command)
        model = self.copy_of_model()
        (model / "model.safetensors").rename(model / "model-00001-of-00001.safetensors")
        index = {"metadata": {"total_size": 1}, "weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}
        values = self.some(changed(index), 8) + [("control", {"weight_map": {f"a{CONTROL}": f"b{CONTROL}"}})]
        self.through(model / "model.safetensors.index.json", values, "generate", model, "a", "--device", "cpu")
        adapter = self.scratch / "adapter"
        adapter.mkdir()
        config = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"], "base_model_name_or_path": str(self.model)}
        self.through(adapter / "adapter_config.json", self.some(changed(config), 12), "generate", adapter, "a", "--device", "cpu")


if __name__ == "__main__":
    unittest.main()
