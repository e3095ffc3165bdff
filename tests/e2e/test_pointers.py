"""The pointer of Git LFS in the place of every file that is read: one line says what it is and how to get the file, and it is never taken
as a template, a configuration or data. So too for other files of another kind."""
import gzip
import json
import shutil
import struct
import unittest

from support import ROOT, EndToEnd, trainer, write_rows

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
AS_CHATS = ("data.kind=chat", "data.input=null", "data.target=null")
CHAT = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


class Pointers(EndToEnd):
    family = "qwen2"
    model_arguments = ("--hidden-size", 32, "--layers", 1)

    def assert_named(self, file, *command):
        """Runs the command; one line has the file and the advice, and nothing was made of the file."""
        result = trainer(*command)
        with self.subTest(file=file.name, command=command[0]):
            self.assertIn(result.returncode, (2, 3, 4), result.stderr)
            said = [line for line in result.stderr.splitlines() if f"{file}: is " in line]
            self.assertEqual(len(said), 1, result.stderr)
            self.assertIn("is the pointer of Git LFS, not the file itself; get it with git lfs pull", said[0])
            self.assertEqual(result.stdout, "")

    def copy_of_model(self, name):
        directory = self.scratch / name
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(self.model, directory)
        return directory

    def train_on(self, *arguments):
        return ("train", "--config", ROOT / "configs/tiny_qwen.yaml", "data.eval=null", f"output_dir={self.scratch / 'out'}", "device=cpu",
                f"data.cache={self.scratch / 'cache'}", *arguments)

    def test_files_of_a_model(self):
        rows = self.scratch / "chats.jsonl"
        write_rows(rows, [CHAT])
        for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                     "added_tokens.json", "model.safetensors", "chat_template.jinja", "additional_chat_templates/default.jinja"):
            model = self.copy_of_model("changed")
            if name == "special_tokens_map.json" or name == "added_tokens.json":
                config = json.loads((model / "tokenizer_config.json").read_text())
                config.pop("added_tokens_decoder", None)
                (model / "tokenizer_config.json").write_text(json.dumps(config))
            (model / name).parent.mkdir(exist_ok=True)
            (model / name).write_text(POINTER)
            if name.startswith(("config", "generation", "tokenizer", "special", "added", "model")):
                self.assert_named(model / name, "generate", model, "a", "--device", "cpu")
            if name.endswith("jinja"):
                self.assert_named(model / name, "tokenize", "--chat", "--model", model, "--input", rows)
            if name != "generation_config.json":
                self.assert_named(model / name, *self.train_on(f"model.path={model}", f"data.train={rows}", *AS_CHATS))

    def test_weights_in_several_files(self):
        model = self.copy_of_model("shards")
        (model / "model.safetensors").rename(model / "model-00001-of-00001.safetensors")
        index = model / "model.safetensors.index.json"
        index.write_text(POINTER)
        self.assert_named(index, "generate", model, "a", "--device", "cpu")
        index.write_text(json.dumps({"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}))
        (model / "model-00001-of-00001.safetensors").write_text(POINTER)
        self.assert_named(model / "model-00001-of-00001.safetensors", "generate", model, "a", "--device", "cpu")

    def test_adapters(self):
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            adapter = self.scratch / f"adapter-{name}"
            adapter.mkdir()
            (adapter / "adapter_config.json").write_text(json.dumps(
                {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"], "base_model_name_or_path": str(self.model)}))
            header = b'{"base_model.model.a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
            (adapter / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
            (adapter / name).write_text(POINTER)
            for command in (("generate", adapter, "a", "--device", "cpu"), ("export", adapter, self.scratch / "exported"), ("merge", adapter, self.scratch / "merged"),
                            self.train_on(f"model.path={self.model}", f"data.train={self.data / 'train.jsonl'}", "lora={}", f"lora.adapter={adapter}")):
                self.assert_named(adapter / name, *command)

    def test_data_and_templates(self):
        for name in ("rows.jsonl", "rows.json", "rows.csv", "rows.tsv", "rows.jsonl.gz", "rows.jsonl.zst", "rows.parquet"):
            file = self.scratch / name
            file.write_text(POINTER)
            self.assert_named(file, *self.train_on(f"model.path={self.model}", f"data.train={file}"))
            self.assert_named(file, "data", "--config", ROOT / "configs/tiny_qwen.yaml", f"model.path={self.model}", f"data.train={file}",
                              f"data.cache={self.scratch / 'cache'}")
        file = self.scratch / "own.jinja"
        file.write_text(POINTER)
        rows = self.scratch / "chat-rows.jsonl"
        write_rows(rows, [CHAT])
        self.assert_named(file, *self.train_on(f"model.path={self.model}", f"data.train={rows}", f"data.chat_template={file}", *AS_CHATS))
        rows.write_text(POINTER)
        self.assert_named(rows, "tokenize", "--model", self.model, "--input", rows)
        self.assert_named(rows, "tokenize", "--chat", "--model", self.model, "--input", rows, "--chat-template", ROOT / "README.md")
        self.assert_named(rows, "generate", self.model, "--input-file", rows, "--device", "cpu")

    def test_configurations(self):
        file = self.scratch / "config.yaml"
        file.write_text(POINTER)
        for command in (("train", "--config", file), ("config", "--config", file), ("import-config", file)):
            self.assert_named(file, *command)
        for content, words in ((gzip.compress(b"seed: 1\n"), "is compressed with gzip; unpack it"), ("seed: 1\n".encode("utf-16"), "is UTF-16; save the file as UTF-8"),
                               (b"seed: 1\n\0\0", "is no text: it has a byte 0 at line 2"), (b"# caf\xe9\n", "is not UTF-8 at line 1")):
            file.write_bytes(content)
            for command in (("train", "--config", file), ("import-config", file)):
                self.assert_refused(trainer(*command), 2, f"{file}: {words}")


if __name__ == "__main__":
    unittest.main()
