"""Exports from the command line: what is written, reported and refused, and what a failure leaves behind."""
import json
import os
import shutil
import unittest

from support import EndToEnd, tensors_of, trainer
from zero_models import peak_memory, write_llama


def flip_last_bit(path):
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


class Export(EndToEnd):
    family = "qwen2"
    model_arguments = ("--kv-heads", 2)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_directory = cls.scratch / "run"
        cls.addClassCleanup(os.environ.pop, "TRAINER_FILE_FAULT", None)
        result = trainer("--config", "configs/tiny_qwen.yaml", f"model.path={cls.model}",
                         f"data.train={cls.data / 'train.jsonl'}", f"output_dir={cls.run_directory}", "device=cpu",
                         "max_steps=2", "lora.r=4", "save.strategy=steps", "save.steps=1")
        assert result.returncode == 0, result.stderr

    def out(self, name):
        path = self.scratch / name
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True)
        return path

    def answers(self, model):
        result = trainer("generate", "--model", model, "--input", self.data / "heldout.jsonl", "--device", "cpu",
                         "--dtype", "fp32", "--max-new-tokens", 8)
        self.assert_done(result)
        return [json.loads(line)["prediction"] for line in result.stdout.splitlines()]

    def test_a_run_becomes_a_model(self):
        out = self.out("merged")
        result = trainer("export", self.run_directory, out, "--dtype", "fp32", "--max-shard-size", "100kB")
        self.assert_done(result)
        self.assertIn("checked: reloaded from disk", result.stderr)
        self.assertIn("done: ", result.stderr)
        names = {path.name for path in out.iterdir()}
        self.assertLessEqual({"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                              "model.safetensors.index.json"}, names)
        self.assertNotIn("adapter_config.json", names)
        self.assertEqual(self.answers(out), self.answers(self.run_directory))

    def test_a_checkpoint_becomes_an_adapter(self):
        out = self.out("adapter")
        self.assert_done(trainer("export", self.run_directory / "checkpoint-1", out, "--adapter"))
        self.assertEqual(tensors_of(out / "adapter_model.safetensors"),
                         tensors_of(self.run_directory / "checkpoint-1" / "adapter_model.safetensors"))
        self.answers(out)

    def test_a_damaged_checkpoint_is_used_by_nothing(self):
        checkpoint, out = self.out("damaged"), self.out("of_damaged")
        shutil.copytree(self.run_directory / "checkpoint-1", checkpoint)
        (checkpoint / "optimizer.safetensors").unlink()  # which no model needs
        self.assert_done(trainer("export", checkpoint, out, "--adapter"))
        self.out("of_damaged")
        flip_last_bit(checkpoint / "adapter_model.safetensors")
        rows = self.data / "heldout.jsonl"
        for arguments in (("export", checkpoint, out), ("export", checkpoint, out, "--adapter"),
                          ("export", checkpoint, f"{out}.gguf"), ("generate", checkpoint, "--prompt", "Fry onions.", "--device", "cpu"),
                          ("eval", checkpoint, rows, "device=cpu"),
                          ("train", "--config", "configs/tiny_qwen.yaml", f"model.path={self.model}", f"lora.adapter={checkpoint}",
                           f"data.train={rows}", f"output_dir={out}", "device=cpu")):
            with self.subTest(arguments[0]):
                self.assert_refused(trainer(*arguments), 4, "adapter_model.safetensors: its bytes do not match the checksum")
        self.assertFalse(out.exists())

    def test_a_damaged_base_is_used_by_nothing(self):
        base, adapter, out = self.out("base"), self.out("on_base"), self.out("of_base")
        self.assert_done(trainer("--config", "configs/tiny_qwen.yaml", f"model.path={self.model}", "lora=null",
                                 f"data.train={self.data / 'train.jsonl'}", f"output_dir={base}", "device=cpu", "max_steps=2",
                                 "save.strategy=steps", "save.steps=1"))
        checkpoint = base / "checkpoint-1"
        self.assert_done(trainer("--config", "configs/tiny_qwen.yaml", f"model.path={checkpoint}", "lora.r=4",
                                 f"data.train={self.data / 'train.jsonl'}", f"output_dir={adapter}", "device=cpu", "max_steps=1"))
        flip_last_bit(checkpoint / "model.safetensors")
        for source in (checkpoint, adapter):
            for arguments in (("export", source, out), ("eval", source, self.data / "heldout.jsonl", "device=cpu")):
                self.assert_refused(trainer(*arguments), 4, checkpoint / "model.safetensors", "do not match the checksum")

    def test_a_gguf_is_one_checked_file(self):
        out = self.out("model.gguf")
        result = trainer("export", self.run_directory, out, "--dtype", "q8_0")
        self.assert_done(result)
        self.assertEqual(out.read_bytes()[:4], b"GGUF")
        self.assertIn("tensors have the model's values", result.stderr)
        self.assert_refused(trainer("export", self.run_directory, out), 2, "already exists")

    def test_what_is_there_is_not_touched(self):
        out = self.out("taken")
        out.mkdir()
        self.assert_done(trainer("export", self.model, out))  # an empty folder is no loss
        before = {path.name: path.read_bytes() for path in out.iterdir()}
        self.assert_refused(trainer("export", self.model, out), 2, "already exists")
        self.assertEqual({path.name: path.read_bytes() for path in out.iterdir()}, before)

    def test_mistakes_are_named(self):
        out = self.out("wrong")
        for arguments, words in {
            ("--format", "gguf"): ".gguf",
            ("--dtype", "q8_0"): "GGUF",
            ("--quantize", "q4_k_m"): "GGUF",
            ("--adapter",): "not an adapter",
            ("--max-shard-size", "5"): "--max-shard-size 5",
            ("--dtype", "int4"): "--dtype",
        }.items():
            self.assert_refused(trainer("export", self.model, out, *arguments), 2, words)
        self.assert_refused(trainer("export", self.model, f"{out}.gguf", "--max-shard-size", "5GB"), 2, "single file")
        self.assert_refused(trainer("export", self.model, f"{out}.gguf", "--quantize", "nf4"), 2, "no type of GGUF")
        self.assert_refused(trainer("export", self.model, f"{out}.gguf", "--quantize", "q8_0", "--dtype", "bf16"), 2, "leave out one")
        self.assert_refused(trainer("export", self.data, out), 4, "neither a model")
        self.assert_refused(trainer("export", self.scratch / "nothing", out), 4, "nothing")
        self.assertFalse(out.exists())

    def test_a_run_becomes_a_model_of_ollama(self):
        folder = self.out("ollama")
        folder.mkdir()
        model = folder / "model"
        shutil.copytree(self.model, model)
        (model / "chat_template.jinja").write_text(
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
        (model / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}))
        for name, modelfile in (("a.gguf", "Modelfile"), ("b.gguf", "b.Modelfile")):
            result = trainer("export", model, folder / name, "--quantize", "Q4_K_M")
            self.assert_done(result)
            self.assertIn(f"ollama create NAME -f {folder / modelfile}", result.stderr)
            text = (folder / modelfile).read_text()
            self.assertTrue(text.startswith(f"FROM ./{name}\nTEMPLATE "), text)
            self.assertIn("<|im_start|>assistant\n", text)
            self.assertIn('PARAMETER stop "<|im_end|>"\n', text)
            self.assertIn("PARAMETER temperature 0.6\nPARAMETER top_k 20\nPARAMETER top_p 0.95\n", text)

    def test_t5_is_a_gguf_without_a_modelfile(self):
        folder = self.out("t5s")
        folder.mkdir()
        type(self).family = "t5"
        self.make_model(folder / "t5")
        type(self).family = "qwen2"
        self.assert_done(trainer("export", folder / "t5", folder / "t5.gguf", "--quantize", "q8_0"))
        self.assert_done(trainer("export", folder / "t5", folder / "t5_copy", "--dtype", "bf16"))
        self.assertEqual({path.name for path in folder.iterdir()}, {"t5", "t5.gguf", "t5_copy"})

    def with_fault(self, fault, *arguments):
        os.environ["TRAINER_FILE_FAULT"] = fault
        try:
            return trainer("export", *arguments)
        finally:
            os.environ.pop("TRAINER_FILE_FAULT")

    def test_a_full_disk_leaves_nothing(self):
        for name in ("full", "full.gguf"):
            out = self.out(name)
            for n in (1, 3, 5, 8, 12, 20):
                result = self.with_fault(f"{n}+:ENOSPC", self.run_directory, out)
                if result.returncode == 0:
                    self.out(name)
                    continue
                self.assert_refused(result, 4, "No space left on device")
                self.assertFalse(out.exists(), result.stderr)
                self.assertFalse(out.with_name(name + ".tmp").exists(), result.stderr)

    def test_a_killed_export_has_no_name_and_is_done_again(self):
        def content(out):
            return [path.read_bytes() for path in (sorted(out.iterdir()) if out.is_dir() else [out])]

        for name in ("killed", "killed.gguf"):
            out = self.out(name)
            self.assert_done(trainer("export", self.run_directory, out))
            whole = content(out)
            for n in (2, 4, 9, 15):
                out = self.out(name)
                result = self.with_fault(f"{n}:crash", self.run_directory, out)
                self.assertIn(result.returncode, (0, 86), result.stderr)
                if result.returncode == 0 or out.exists():  # killed after it had its name, it is whole
                    self.assertEqual(content(out), whole)
            self.out(name)
            self.assert_done(trainer("export", self.run_directory, out))
            self.assertFalse(out.with_name(name + ".tmp").exists())

    def test_memory_is_below_two_shards(self):
        small = write_llama(self.scratch / "small", 64, 1)
        large = write_llama(self.scratch / "large", 1024, 12)  # 400 MB
        tokenizer = self.model / "tokenizer.json"
        for directory in (small, large):
            shutil.copy(tokenizer, directory)
        for name, arguments in {"memory": ("--max-shard-size", "50MB"), "memory.gguf": ()}.items():
            base = peak_memory("export", small, self.out(f"small_{name}"), *arguments)
            peak = peak_memory("export", large, self.out(f"large_{name}"), *arguments)
            self.assertLess(peak - base, 100, name)


if __name__ == "__main__":
    unittest.main()
