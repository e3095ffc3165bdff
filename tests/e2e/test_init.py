"""`trainer init`: a first configuration that loads, fits and trains."""
import os
import pty
import signal
import subprocess
import time
import unittest

from support import TRAINER, EndToEnd, trainer


class Init(EndToEnd):
    family = "qwen2"

    def init(self, name, *arguments, model=None):
        out = self.scratch / name
        result = trainer("init", "--model", model or self.model, "--data", self.data / "train.jsonl", "--out", out, "--yes", *arguments)
        return result, out

    def plan(self, config, *overrides):
        return trainer("plan", "--config", config, *overrides)

    def test_the_result_loads_fits_and_trains(self):
        result, out = self.init("tiny.yaml", "--card", "8GB")
        self.assert_done(result)
        text = out.read_text()
        self.assertIn("input -> target", text)
        self.assertIn("kind: completion", text)
        self.assertIn("eval: 0.05", text)
        self.assert_done(trainer("config", "--config", out))
        self.assert_done(self.plan(out, "memory.limit=7.6GB"))
        output = self.scratch / "run"
        self.assert_done(trainer("--config", out, f"output_dir={output}", "device=cpu", "model.dtype=fp32", "max_steps=2",
                                 "eval_strategy=no", timeout=600))
        self.assertTrue((output / "model.safetensors").exists())

    def test_the_way_of_training_follows_from_model_and_card(self):
        for card, model, words in (("24GB", "qwen2.5-7b", ("lora:", "batch_size")), ("8GB", "qwen2.5-7b", ("quantize: nf4",)),
                                   ("24", "flan-t5-base", ("There is no section `lora`", "max_source_length"))):
            result, out = self.init(f"{model}-{card}.yaml", "--card", card, model=model)
            with self.subTest(card=card, model=model):
                self.assert_done(result)
                for word in words:
                    self.assertIn(word, out.read_text())
                gigabytes = float(card.removesuffix("GB")) * 0.95
                self.assert_done(self.plan(out, f"memory.limit={gigabytes}GB"))

    def test_a_method_can_be_asked_for(self):
        result, out = self.init("lora.yaml", "--card", "cpu", "--method", "lora")
        self.assert_done(result)
        self.assertIn("lora:", out.read_text())
        self.assertIn("device: cpu", out.read_text())

    def test_what_fits_nowhere_is_said_and_nothing_is_written(self):
        result, out = self.init("none.yaml", "--card", "2GB", "--method", "full", model="qwen2.5-7b")
        self.assert_refused(result, 5, "does not fit", "--method")
        self.assertFalse(out.exists())

    def test_no_file_is_overwritten(self):
        out = self.scratch / "mine.yaml"
        out.write_text("seed: 1\n")
        self.assert_refused(self.init("mine.yaml", "--card", "8GB")[0], 2, "is not overwritten")
        self.assertEqual(out.read_text(), "seed: 1\n")

    def test_what_is_missing_is_named(self):
        for arguments, word in (([], "--model"), (["--model", self.model], "--data"),
                                (["--model", self.model, "--data", "x.jsonl"], "--card"),
                                (["--model", self.model, "--data", "x.jsonl", "--card", "big"], "--card")):
            with self.subTest(arguments):
                self.assert_refused(trainer("init", *arguments), 2, word)

    def ask(self, answers, end=None):
        """Answers questions on a terminal, in an empty folder."""
        folder = self.scratch / f"asked-{time.monotonic_ns()}"
        folder.mkdir()
        ours, theirs = pty.openpty()
        program = subprocess.Popen([TRAINER, "init", "--out", "asked.yaml"], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder,
                                   env=dict(os.environ, OMP_NUM_THREADS="1"))
        os.close(theirs)
        shown = b""
        try:
            for question, answer in answers:
                while question not in shown:
                    shown += os.read(ours, 65536)
                shown = b""
                os.write(ours, answer + b"\n")
            if end is not None:
                while b"card" not in shown:
                    shown += os.read(ours, 65536)
                program.send_signal(end)
            while True:
                shown += os.read(ours, 65536)
        except OSError:  # the other end is closed
            pass
        code = program.wait(timeout=120)
        os.close(ours)
        return code, sorted(path.name for path in folder.iterdir()), shown.decode()

    def test_a_terminal_is_asked(self):
        data = str(self.data / "train.jsonl").encode()
        answers = [(b"Model", str(self.model).encode()), (b"data", b"missing.jsonl"), (b"does not exist", data), (b"card", b"huge"),
                   (b"such as", b"8GB"), (b"Write asked.yaml?", b"")]
        code, files, shown = self.ask(answers)
        self.assertEqual((code, files), (0, ["asked.yaml"]), shown)

    def test_an_interrupted_init_leaves_nothing(self):
        data = str(self.data / "train.jsonl").encode()
        for end in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            code, files, _ = self.ask([(b"Model", str(self.model).encode()), (b"data", data)], end)
            self.assertEqual((code, files), (-end, []))
        answers = [(b"Model", str(self.model).encode()), (b"data", data), (b"card", b"8GB"), (b"Write asked.yaml?", b"no")]
        self.assertEqual(self.ask(answers)[:2], (0, []))


if __name__ == "__main__":
    unittest.main()
