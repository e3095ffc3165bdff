"""`trainer init`: a first configuration that loads, fits and trains."""
import csv
import json
import os
import pty
import shutil
import signal
import subprocess
import time
import unittest

from pseudo_terminal import PseudoTerminal
from support import TRAINER, EndToEnd, run_script, trainer, write_rows


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
                                (["--model", self.model, "--data", "x.jsonl"], "--gpu"),
                                (["--model", self.model, "--data", "x.jsonl", "--card", "big"], "--gpu")):
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
                while b"of the GPU" not in shown:  # the last question
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
        answers = [(b"Model", str(self.model).encode()), (b"data", b"missing.jsonl"), (b"does not exist", data), (b"of the GPU", b"huge"),
                   (b"such as", b"8GB"), (b"Write asked.yaml?", b"")]
        code, files, shown = self.ask(answers)
        self.assertEqual((code, files), (0, ["asked.yaml"]), shown)

    def test_an_interrupted_init_leaves_nothing(self):
        data = str(self.data / "train.jsonl").encode()
        for end in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            code, files, _ = self.ask([(b"Model", str(self.model).encode()), (b"data", data)], end)
            self.assertEqual((code, files), (-end, []))
        answers = [(b"Model", str(self.model).encode()), (b"data", data), (b"of the GPU", b"8GB"), (b"Write asked.yaml?", b"no")]
        self.assertEqual(self.ask(answers)[:2], (0, []))

    def test_ctrl_c_at_any_question_leaves_nothing(self):
        folder = self.scratch / "left"
        folder.mkdir()
        for _ in range(2):
            terminal = PseudoTerminal([TRAINER, "init"], cwd=folder)
            terminal.wait_until(lambda: "Model" in terminal.raw.decode(), "the first question")
            terminal.press(b"\x03")
            self.assertEqual(terminal.finish(), -signal.SIGINT)
            terminal.close()
        self.assertEqual(list(folder.iterdir()), [])


QUESTIONS = [("What is the capital of country %d?" % i, "It is the city %d." % i) for i in range(120)]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


class AnyRows(EndToEnd):
    """Rows of every form that a user may have, with a decoder and an encoder-decoder."""
    family = "qwen2"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.t5 = cls.scratch / "t5"
        run_script("make/tiny_model", "--family", "t5", "--text", cls.data / "text.txt", "--out", cls.t5)
        cls.base = cls.scratch / "base"  # the same without a chat template
        shutil.copytree(cls.model, cls.base)
        settings = json.loads((cls.base / "tokenizer_config.json").read_text())
        del settings["chat_template"]
        (cls.base / "tokenizer_config.json").write_text(json.dumps(settings))

    def init(self, name, rows, *arguments, model=None):
        """Returns the program's result, and the file that it has written, if any."""
        out = self.scratch / f"{name}.yaml"
        out.unlink(missing_ok=True)
        return trainer("init", "--model", model or self.t5, "--data", rows, "--card", "cpu", "--out", out, *arguments), out

    def table(self, name, header, rows, separator=","):
        path = self.scratch / name
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter=separator)
            writer.writerows([header, *rows])
        return path

    def rows(self, name, rows):
        path = self.scratch / name
        write_rows(path, rows)
        return path

    def assert_ready(self, result, out, *lines):
        self.assert_done(result)
        text = out.read_text()
        for line in lines:
            self.assertIn(line, text)
        doctor = trainer("doctor", "--config", out)
        self.assertEqual(doctor.returncode, 0, doctor.stdout)
        return text

    def test_a_table_of_text_and_summary(self):
        path = self.table("sums.csv", ["text", "summary"], QUESTIONS)
        result, out = self.init("sums", path)
        self.assert_ready(result, out, "input: text", "target: summary", "kind: seq2seq")
        for word in ("text", "summary", "What is the capital of country 0?", "It is the city 0."):
            self.assertIn(word, result.stderr)
        self.assertIn("[[", result.stderr)  # what it learns of the first sample

    def test_a_table_with_tabs_names_and_templates(self):
        path = self.table("odd.tsv", ["id", "frage", "antwort", "thema"], [(i, *pair, "x") for i, pair in enumerate(QUESTIONS)], "\t")
        result, out = self.init("odd", path)
        self.assert_refused(result, 2, "--input", "--target", "frage", "antwort")
        self.assertFalse(out.exists())
        result, out = self.init("odd", path, "--input", "Frage: {frage}", "--target", "antwort")
        self.assert_ready(result, out, "target: antwort", "Frage: {frage}")
        result, out = self.init("odd", path, "--input", "frge", "--target", "antwort")
        self.assert_refused(result, 2, "there is no column \"frge\"", "did you mean frage?")

    def test_a_folder_and_an_array(self):
        folder = self.scratch / "folder"
        folder.mkdir(exist_ok=True)
        pairs = [{"question": question, "answer": answer} for question, answer in QUESTIONS]
        write_rows(folder / "a.jsonl", pairs[:60])
        (folder / "b.json").write_text(json.dumps(pairs[60:], indent=1))
        result, out = self.init("folder", folder)
        self.assert_ready(result, out, "input: question", "target: answer", "120 rows")

    def test_a_folder_whose_files_are_named_by_their_parts(self):
        folder = self.scratch / "parts"
        folder.mkdir(exist_ok=True)
        for name in ("train", "test"):
            self.table(f"parts/{name}.csv", ["text", "summary"], QUESTIONS)
        result, out = self.init("parts", folder)
        self.assert_ready(result, out, f"train: [{folder / 'train.csv'}]", f"eval: [{folder / 'test.csv'}]", "eval_strategy: epoch")

    def test_translations_inside_of_objects(self):
        path = self.rows("opus.jsonl", [{"translation": {"en": question, "de": answer}} for question, answer in QUESTIONS])
        result, out = self.init("opus", path)
        self.assert_refused(result, 2, "translation.en")  # the direction is not known
        result, out = self.init("opus", path, "--yes")
        self.assert_ready(result, out, "input: translation.en", "target: translation.de")

    def test_labels_that_are_numbers(self):
        path = self.rows("labels.jsonl", [{"text": question, "label": i % 2} for i, (question, _) in enumerate(QUESTIONS)])
        result, out = self.init("labels", path)
        self.assert_ready(result, out, "input: text", "{label}")

    def chats(self, name, user="user", assistant="assistant", **more):
        return self.rows(name, [{"messages": [{"role": user, "content": question}, {"role": assistant, "content": answer}], **more}
                                for question, answer in QUESTIONS])

    def test_roles_by_other_names_are_learned_by_a_base_model_with_a_fitting_template(self):
        path = self.chats("human.jsonl", "human", "gpt")
        result, out = self.init("human", path, model=self.base)
        text = self.assert_ready(result, out, "kind: chat", "chat_template: chatml", "<|im_start|>")
        self.assertNotIn("bad_rows", text)
        output = self.scratch / "run-human"
        self.assert_done(trainer("--config", out, f"output_dir={output}", "max_steps=1", "eval_strategy=no"))
        self.assertIn("<|im_start|>", (output / "chat_template.jinja").read_text())

    def test_functions_need_a_template_that_writes_them(self):
        path = self.chats("tools.jsonl", tools=[TOOL])
        result, out = self.init("tools", path, model=self.model)  # whose own template writes none
        text = self.assert_ready(result, out, "chat_template: chatml", "120 rows")
        self.assertNotIn("bad_rows", text)

    def test_rows_that_cannot_be_used_are_counted_with_their_reasons(self):
        path = self.chats("broken.jsonl")
        with path.open("a") as file:
            file.write('{"messages": [}\n' * 3 + '{"messages": [{"role": "usr", "content": "q"}]}\n' * 2)
        result, out = self.init("broken", path, model=self.model)
        text = self.assert_ready(result, out, "bad_rows: skip")
        for word in ("5 (4.0 %)", "3 x malformed JSON", "2 x message 1: the role"):
            self.assertIn(word, " ".join(text.replace("#", "").split()))

    def test_lengths_come_from_all_rows(self):
        rows = [{"prompt": f"{i}", "completion": "two"} for i in range(600)] + [{"prompt": "word " * 900, "completion": "two"}]
        path = self.rows("long.jsonl", rows)
        result, out = self.init("long", path, model=self.model)
        text = " ".join(self.assert_ready(result, out, "max_length: 128").replace("#", "").split())
        self.assertIn("1 (0.2 %) is longer and truncated", text)

    def test_rows_that_repeat_are_not_held_out(self):
        result, out = self.init("repeat", self.rows("repeat.jsonl", [{"prompt": "one", "completion": "two"}] * 300), model=self.model)
        self.assertNotIn("eval:", self.assert_ready(result, out))

    def test_a_mistake_in_the_data_is_found_before_the_model_is_looked_at(self):
        result, out = self.init("early", self.rows("empty.jsonl", []), model=self.scratch / "no-such-model")
        self.assert_refused(result, 3, "empty.jsonl")
        self.assertFalse(out.exists())
        path = self.chats("roleless.jsonl", "someone", "another")
        result = trainer("--config", self.init("ready", self.chats("fine.jsonl"), model=self.model)[1], f"data.train={path}",
                         f"output_dir={self.scratch / 'never'}")
        self.assert_refused(result, 3, "the role \"someone\" is not known", "human", "gpt")
        self.assertNotIn("parameters", result.stderr)

    def test_what_doctor_would_refuse_is_not_written(self):
        folder = self.scratch / "no-runs"
        folder.mkdir()
        (folder / "runs").write_text("a file where the folder of the run would be")
        path = self.table("sums2.csv", ["text", "summary"], QUESTIONS)
        result = subprocess.run([TRAINER, "init", "--model", self.t5, "--data", path, "--card", "cpu", "--out", "my.yaml"],
                                cwd=folder, capture_output=True, text=True, timeout=120)
        self.assert_refused(result, 4, "nothing is written", "output")
        self.assertEqual([entry.name for entry in folder.iterdir()], ["runs"])
        shutil.copytree(self.t5, folder / "t5")
        (folder / "t5" / "model.safetensors").write_bytes(b"nothing")
        result, out = self.init("refused", path, model=folder / "t5")
        self.assert_refused(result, 4, "damaged or incomplete")
        self.assertFalse(out.exists())

    def test_a_terminal_is_asked_at_most_six_questions(self):
        folder = self.scratch / "asked"
        folder.mkdir()
        path = self.table("unclear.csv", ["a", "b", "c"], [(*pair, "x") for pair in QUESTIONS])
        terminal = PseudoTerminal([TRAINER, "init", "--out", "six.yaml"], width=300, cwd=folder)
        for question, answer in (("Model", self.t5), ("Training data", path), ("Input: a column", "{a}!"), ("Answer", "d"),
                                 ("there is no column \"d\"", "b"), ("Memory of the GPU", "cpu"), ("Write six.yaml?", "")):
            terminal.wait_until(lambda: question in terminal.raw.decode(), question)
            terminal.press(f"{answer}\n".encode())
        self.assertEqual(terminal.finish(), 0, terminal.raw.decode())
        terminal.close()
        text = (folder / "six.yaml").read_text()
        self.assertIn("{a}!", text)
        self.assertIn("target: b", text)
        self.assertEqual([entry.name for entry in folder.iterdir()], ["six.yaml"])


class Alone(EndToEnd):
    """`trainer` without a word says what to type."""
    family = "t5"

    def alone(self, folder):
        result = subprocess.run([TRAINER], cwd=folder, capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 2)
        return result.stderr

    def test_in_an_empty_folder_beside_a_configuration_and_a_run(self):
        folder = self.scratch / "here"
        folder.mkdir()
        self.assertIn("trainer init", self.alone(folder))
        (folder / "compose.yaml").write_text("services:\n  web: {}\n")
        self.assertNotIn("compose.yaml", self.alone(folder))
        rows = self.data / "train.jsonl"
        self.assert_done(trainer("init", "--model", self.model, "--data", rows, "--out", folder / "my.yaml", "--yes", "--card", "cpu"))
        said = self.alone(folder)
        for command in ("trainer --config my.yaml", "trainer doctor --config my.yaml", "trainer plan --config my.yaml"):
            self.assertIn(command, said)
        self.assert_done(trainer("--config", folder / "my.yaml", f"output_dir={folder / 'runs' / 'my'}", "max_steps=1", "eval_strategy=no"))
        said = self.alone(folder)
        for command in ("trainer generate runs/my", "trainer status runs/my", "trainer report runs/my", "trainer eval runs/my"):
            self.assertIn(command, said)
        self.assertIn("trainer status .", self.alone(folder / "runs" / "my"))


if __name__ == "__main__":
    unittest.main()
