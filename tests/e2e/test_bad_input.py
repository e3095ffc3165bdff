"""Bad input: one clear message that says where and what, the right exit code, and nothing half-written."""
import json
import os
import resource
import shutil
import struct
import subprocess
import time
import unittest

from support import ROOT, TRAINER, EndToEnd, read_rows, trainer


def contents(directory):
    """The files of an output directory except the lock, which names the process that opened it last."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file() and "lock" not in path.name}


class BadInput(EndToEnd):
    family = "t5"

    def refused(self, code, words, *overrides, model=None):
        """Trains with overrides into its own folder; checks the refusal, and that the folder holds no results."""
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
        """A copy of the model, changed by `change(directory)`."""
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
        self.refused(4, ["mamba", "trainer models"], model=self.broken_model(change))

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


    def change_config(self, **changes):
        """A model with these values in its config.json."""
        def change(directory):
            path = directory / "config.json"
            path.write_text(json.dumps(dict(json.loads(path.read_text()), **changes)))
        return self.broken_model(change)

    def with_header(self, edit):
        """A model whose safetensors header was changed by `edit(header)`."""
        def change(directory):
            path = directory / "model.safetensors"
            content = path.read_bytes()
            start = 8 + struct.unpack("<Q", content[:8])[0]
            header = json.loads(content[8:start])
            edit(header)
            text = json.dumps(header).encode()
            path.write_bytes(struct.pack("<Q", len(text)) + text + content[start:])
        return self.broken_model(change)

    def limited(self, limit, value, *arguments):
        """Runs the program with a resource limit."""
        return subprocess.run([TRAINER, *map(str, arguments)], text=True, capture_output=True, timeout=300, cwd=ROOT,
                              env=dict(os.environ, OMP_NUM_THREADS="1"),
                              preexec_fn=lambda: resource.setrlimit(limit, (value, value)))

    def test_sizes_that_no_model_has(self):
        for key in ("d_ff", "num_layers", "vocab_size", "num_heads"):
            with self.subTest(key):
                model = self.scratch / f"model-{key}"
                shutil.copytree(self.model, model)
                path = model / "config.json"
                path.write_text(json.dumps(dict(json.loads(path.read_text()), **{key: 1 << 31})))
                begin = time.monotonic()
                result = trainer("plan", "--config", ROOT / "configs/tiny_t5.yaml", f"model.path={model}", timeout=60)
                self.assert_refused(result, 4, "config.json", key, "at most")
                self.assertLess(time.monotonic() - begin, 30)

    def test_sizes_that_are_too_much_together(self):
        model = self.change_config(d_model=1 << 20, d_ff=1 << 22, num_layers=100)
        result = trainer("plan", "--config", ROOT / "configs/tiny_t5.yaml", f"model.path={model}", timeout=60)
        self.assert_refused(result, 4, "config.json", "more than any model has")

    def test_tokens_outside_the_vocabulary(self):
        self.refused(4, ["config.json", "decoder_start_token_id", "vocabulary"],
                     model=self.change_config(decoder_start_token_id=1 << 20))

    def test_generation_settings_outside_the_vocabulary(self):
        for key, value in (("eos_token_id", 1 << 20), ("decoder_start_token_id", [0, 1]), ("pad_token_id", "a"),
                           ("forced_bos_token_id", 1 << 40), ("num_beams", 1 << 62)):
            with self.subTest(key):
                model = self.scratch / f"generation-{key}"
                shutil.copytree(self.model, model)
                path = model / "generation_config.json"
                path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
                result = trainer("generate", model, "a", "--device", "cpu")
                self.assert_refused(result, 4, "generation_config.json", key)
                self.refused(4, ["generation_config.json", key], "evaluation.generate=true", "data.max_samples=8",
                             f"data.eval={self.data / 'heldout.jsonl'}", "training.eval_strategy=epoch", model=model)

    def test_pipes_in_place_of_files(self):
        for name in ("config.json", "spiece.model", "model.safetensors"):
            with self.subTest(name):
                model = self.scratch / f"piped-{name}"
                shutil.copytree(self.model, model)
                (model / name).unlink()
                os.mkfifo(model / name)
                self.refused(4, [name, "is a named pipe"], model=model)
        pipe = self.scratch / "pipe.jsonl"
        os.mkfifo(pipe)
        self.refused(3, ["pipe.jsonl", "is a named pipe"], f"data.train={pipe}")
        self.assert_refused(trainer("--config", pipe, timeout=60), 2, "pipe.jsonl", "is a named pipe")

    def test_links_in_place_of_files(self):
        for target, words in (("nowhere", "a link to nowhere"), ("model.safetensors", "back to itself")):
            with self.subTest(target):
                model = self.scratch / f"linked-{target}"
                shutil.copytree(self.model, model)
                (model / "model.safetensors").unlink()
                (model / "model.safetensors").symlink_to(target)
                self.refused(4, ["model.safetensors", words], model=model)
        circle = self.scratch / "circle"
        circle.symlink_to("circle")
        self.refused(4, ["circle"], model=circle)
        self.refused(3, ["circle"], f"data.train={circle}")

    def test_very_many_tensors_too_much(self):
        begin = time.monotonic()
        empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
        result = self.refused(4, ["unexpected: extra.0 ", "more"], model=self.with_header(
            lambda header: header.update({f"extra.{i}": empty for i in range(100_000)})))
        self.assertLess(len(result.stderr), 60_000)
        self.assertLess(time.monotonic() - begin, 60)

    def test_very_many_files_missing(self):
        def change(directory):
            (directory / "model.safetensors").unlink()
            names = {f"tensor.{i}": f"part-{i}.safetensors" for i in range(100_000)}
            (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
        result = self.refused(4, ["100000 files", "part-0.safetensors", "99,990 more"], model=self.broken_model(change))
        self.assertLess(len(result.stderr), 5_000)

    def test_whole_numbers_in_place_of_weights(self):
        model = self.with_header(lambda header: header["shared.weight"].update(dtype="I32"))
        self.refused(4, ["shared.weight", "I32"], model=model)
        result = trainer("export", model, self.scratch / "whole")
        self.assert_refused(result, 4, "shared.weight", "I32")

    def test_more_workers_than_batches_ahead(self):
        self.assert_done(self.train("tiny_t5.yaml", self.scratch / "workers", "max_steps=1", "num_workers=100"))

    def test_numbers_that_nobody_means(self):
        for override in ("data.max_source_length=9223372036854775807", "data.max_target_length=9223372036854775807",
                         "batch_size=4611686018427387904", "num_train_epochs=1e18", "num_workers=4096", "batch_size=1000000000000000000",
                         "lora.r=1000000", "lora.lora_alpha=1e308", "num_threads=1000000", "effective_batch_size=9000000000000000000",
                         "logging_steps=9223372036854775807", "save.steps=1000000000000000000"):
            with self.subTest(override):
                self.refused(2, [override.split("=")[0], "at most"], override)

    def test_too_little_address_space(self):
        for megabytes in (100, 420):
            with self.subTest(megabytes):
                result = self.limited(resource.RLIMIT_AS, megabytes << 20, "--config", ROOT / "configs/tiny_t5.yaml",
                                      f"model.path={self.model}", f"data.train={self.data / 'train.jsonl'}",
                                      f"output_dir={self.scratch / 'address'}")
                self.assert_refused(result, 5, "ut of memory")

    def test_too_little_memory_for_the_library(self):
        for megabytes in (2, 4, 8):
            with self.subTest(megabytes):
                result = self.limited(resource.RLIMIT_DATA, megabytes << 20, "plan", "--config", ROOT / "configs/tiny_t5.yaml",
                                      f"model.path={self.model}")
                self.assert_refused(result, 5, "ut of memory")

    def test_a_limit_on_the_size_of_files(self):
        output = self.scratch / "file-size"
        result = self.limited(resource.RLIMIT_FSIZE, 100_000, "--config", ROOT / "configs/tiny_t5.yaml", "max_steps=4",
                              f"model.path={self.model}", f"data.train={self.data / 'train.jsonl'}", "save.strategy=steps",
                              "save.steps=2", f"output_dir={output}", f"data.cache={self.scratch / 'cache'}")
        self.assert_refused(result, 4, "ulimit -f", "checkpoint-2 is not saved")
        steps = [row["step"] for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"]
        self.assertEqual(steps, [1, 2, 3, 4])

    def test_overwriting_removes_no_model_that_no_run_made(self):
        model = self.broken_model(lambda directory: None)
        before = contents(model)
        result = self.train("tiny_t5.yaml", model, "max_steps=1", "overwrite_output_dir=true")
        self.assert_refused(result, 4, model, "model.safetensors", "choose another output_dir")
        self.assertEqual(contents(model), before)


if __name__ == "__main__":
    unittest.main()
