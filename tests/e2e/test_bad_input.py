"""Bad input: one clear message with where and what, its exit code, and nothing half-written."""
import json
import shutil
import struct
import subprocess
import time
import unittest

from support import ROOT, TRAINER, EndToEnd, read_rows, trainer


def contents(directory):
    """The files of an output directory but the lock, which names the process that looked last."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file() and "lock" not in path.name}


class BadInput(EndToEnd):
    family = "t5"

    def refused(self, code, words, *overrides, model=None):
        """Trains with overrides into a folder of its own, which holds no results afterwards."""
        output = self.scratch / f"output-{self._testMethodName}"
        result = self.train("tiny_t5.yaml", output, f"model.path={model or self.model}", *overrides)
        self.assert_refused(result, code, *words)
        left = [path.name for path in output.glob("*")] if output.exists() else []
        self.assertFalse([name for name in left if name.endswith((".safetensors", ".tmp", ".partial"))], left)
        return result

    def rows(self, text):
        path = self.scratch / f"{self._testMethodName}.jsonl"
        path.write_text(text)
        return path

    def broken_model(self, change):
        """A copy of the model on which `change(directory)` was called."""
        directory = self.scratch / f"model-{self._testMethodName}"
        shutil.copytree(self.model, directory)
        change(directory)
        return directory

    def test_missing_configuration(self):
        self.assert_refused(trainer("--config", "no/such.yaml"), 2, "no/such.yaml")

    def test_missing_data_file(self):
        self.refused(3, ["no/such.jsonl", "data.train"], "data.train=no/such.jsonl")

    def test_missing_model(self):
        self.refused(4, ["no/such/model", "model.path"], "model.path=no/such/model")

    def test_empty_data_file(self):
        path = self.rows("")
        self.refused(3, [path.name], f"data.train={path}")

    def test_malformed_json(self):
        path = self.rows('{"input": "a", "target": "b"}\n{"input": "a", "target": \n')
        self.refused(3, [f"{path.name}:2"], f"data.train={path}")

    def test_row_without_its_field(self):
        path = self.rows('{"input": "a", "target": "b"}\n{"input": "a", "tagret": "b"}\n')
        self.refused(3, [f"{path.name}:2", "target"], f"data.train={path}")

    def test_invalid_utf8(self):
        path = self.rows("")
        path.write_bytes(b'{"input": "a", "target": "b"}\n{"input": "\xff", "target": "b"}\n')
        self.refused(3, [f"{path.name}:2"], f"data.train={path}")

    def test_unknown_model_type(self):
        def change(directory):
            config = json.loads((directory / "config.json").read_text())
            (directory / "config.json").write_text(json.dumps(dict(config, model_type="mamba")))
        self.refused(4, ["mamba", "t5"], model=self.broken_model(change))

    def test_truncated_safetensors(self):
        def change(directory):
            path = directory / "model.safetensors"
            path.write_bytes(path.read_bytes()[:-1000])
        self.refused(4, ["model.safetensors"], model=self.broken_model(change))

    def test_header_that_lies_about_offsets(self):
        def change(directory):
            path = directory / "model.safetensors"
            content = path.read_bytes()
            start = 8 + struct.unpack("<Q", content[:8])[0]
            header = json.loads(content[8:start])
            header["shared.weight"]["data_offsets"][1] += 1 << 40
            text = json.dumps(header).encode()
            path.write_bytes(struct.pack("<Q", len(text)) + text + content[start:])
        self.refused(4, ["model.safetensors", "shared.weight"], model=self.broken_model(change))

    def test_missing_and_misshapen_tensors_are_all_named(self):
        def change(directory):
            path = directory / "model.safetensors"
            content = path.read_bytes()
            start = 8 + struct.unpack("<Q", content[:8])[0]
            header = json.loads(content[8:start])
            header["encoder.block.0.layer.0.SelfAttention.odd.weight"] = header.pop(
                "encoder.block.0.layer.0.SelfAttention.q.weight")
            header["decoder.block.0.layer.2.DenseReluDense.wo.weight"]["shape"].reverse()
            text = json.dumps(header).encode()
            path.write_bytes(struct.pack("<Q", len(text)) + text + content[start:])
        self.refused(4, ["SelfAttention.q.weight", "SelfAttention.odd.weight", "64", "128",
                         "decoder.block.0.layer.2.DenseReluDense.wo.weight"], model=self.broken_model(change))

    def test_vocabulary_larger_than_the_embedding(self):
        small = self.scratch / "small"
        self.make_model(small, "--tokenizer-vocab", 100)
        shutil.copy(self.model / "spiece.model", small / "spiece.model")
        self.refused(4, ["tokenizer", "embedding"], model=small)

    def test_nothing_to_learn(self):
        path = self.rows('{"input": "a", "target": "b"}\n')
        result = self.refused(2, ["target_modules"], f"data.train={path}", "lora.target_modules=[nothing]")
        self.assertIn("nothing", result.stderr)

    def test_numbers_that_become_nan_end_the_run_unsaved(self):
        self.refused(7, ["step", "learning_rate"], "learning_rate=1e30", "max_grad_norm=0", "training.max_steps=30",
                     "save.strategy=no")

    def test_output_directory_with_results(self):
        output = self.scratch / "full"
        self.assert_done(self.train("tiny_t5.yaml", output, "max_steps=1"))
        before = contents(output)
        result = self.train("tiny_t5.yaml", output, "max_steps=1", "seed=7")
        self.assert_refused(result, 4, output, "seed: 42 there, 7 here", "overwrite_output_dir")
        after = contents(output)
        self.assertEqual(sorted(before), sorted(after))
        self.assertEqual([name for name in before if before[name] != after[name]], [])
        self.assert_done(self.train("tiny_t5.yaml", output, "max_steps=1", "overwrite_output_dir=true"))
        self.assertEqual(len([row for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"]), 1)

    def test_output_directory_in_use(self):
        output = self.scratch / "used"
        first = subprocess.Popen(
            [TRAINER, "--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}", "max_steps=100000",
             f"data.train={self.data / 'train.jsonl'}", f"output_dir={output}", "logging_steps=1"], cwd=ROOT,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not ((output / "metrics.jsonl").exists()
                                                       and (output / "metrics.jsonl").stat().st_size):
                self.assertIsNone(first.poll(), "the first run ended")
                time.sleep(0.05)
            result = self.train("tiny_t5.yaml", output, "max_steps=1", "overwrite_output_dir=true")
            self.assert_refused(result, 4, output, first.pid)
        finally:
            first.kill()
            first.wait()
        # A dead process holds no lock.
        self.assert_done(self.train("tiny_t5.yaml", output, "max_steps=1", "overwrite_output_dir=true"))

    def test_output_directory_not_writable(self):
        blocked = self.scratch / "file"
        blocked.write_text("in the way")
        result = self.train("tiny_t5.yaml", blocked / "output", "max_steps=1")
        self.assertIn(result.returncode, (2, 4))
        self.assert_refused(result, result.returncode, blocked)


if __name__ == "__main__":
    unittest.main()
