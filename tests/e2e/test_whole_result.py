"""A result is whole: it is measured, asked and continued as it was trained."""
import csv
import gzip
import json
import shlex

from support import ROOT, EndToEnd, read_rows, trainer, write_rows


class Table(EndToEnd):
    """A T5 that was trained on a table, with columns that only its configuration names."""
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rows = read_rows(cls.data / "train.jsonl")
        cls.table = cls.scratch / "sums.csv"
        cls.write_table(cls.table, rows[:120])
        cls.small = rows[:5]
        cls.output = cls.scratch / "run"
        cls.result = trainer(
            "--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={cls.model}", f"data.train={cls.table}",
            "data.input=Report: {report}", "data.target=short", "data.eval=0.1", f"output_dir={cls.output}",
            "save.strategy=steps", "save.steps=4", "max_steps=8", "data.max_target_length=96")

    @staticmethod
    def write_table(path, rows, separator=","):
        with open(path, "w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out, delimiter=separator)
            writer.writerow(["report", "short"])
            writer.writerows([row["input"], row["target"]] for row in rows)

    def files(self):
        """The same five rows in every kind of file that needs no package."""
        named = [{"report": row["input"], "short": row["target"]} for row in self.small]
        for name, separator in (("five.csv", ","), ("five.tsv", "\t")):
            self.write_table(self.scratch / name, self.small, separator)
        write_rows(self.scratch / "five.jsonl", named)
        (self.scratch / "five.json").write_text(json.dumps(named), encoding="utf-8")
        with gzip.open(self.scratch / "five.csv.gz", "wb") as out:
            out.write((self.scratch / "five.csv").read_bytes())
        return [self.scratch / name for name in ("five.jsonl", "five.csv", "five.tsv", "five.json", "five.csv.gz")]

    def measured(self, *arguments):
        result = trainer("eval", *arguments, "--json")
        self.assert_done(result)
        return json.loads(result.stdout)

    def test_it_is_measured_on_the_rows_that_it_held_out(self):
        self.assert_done(self.result)
        last = [row for row in read_rows(self.output / "metrics.jsonl") if row["kind"] == "eval"][-1]
        found = self.measured(self.output)
        self.assertEqual(found["eval_samples"], last["eval_samples"])
        self.assertAlmostEqual(found["eval_loss"], last["eval_loss"], places=4)

    def test_files_of_every_kind_are_measured_by_its_columns(self):
        losses = [self.measured(self.output, file)["eval_loss"] for file in self.files()]
        self.assertEqual(len(set(losses)), 1, losses)
        of_checkpoint = self.measured(self.output / "checkpoint-8", self.scratch / "five.csv")["eval_loss"]
        self.assertAlmostEqual(of_checkpoint, losses[0], places=5)
        other = trainer("eval", self.output, self.scratch / "five.csv", "data.target=long")
        self.assert_refused(other, 3, "long")

    def test_files_of_every_kind_are_answered_by_its_columns(self):
        prompts = [f"Report: {row['input']}" for row in self.small]
        plain = trainer("generate", self.output, *prompts, "--max-new-tokens", 8)
        self.assert_done(plain)
        for file in self.files():
            answers = trainer("generate", self.output, "--input-file", file, "--max-new-tokens", 8)
            self.assert_done(answers)
            rows = [json.loads(line) for line in answers.stdout.splitlines()]
            self.assertEqual([row["prediction"] for row in rows], plain.stdout.splitlines(), file)
            self.assertEqual([row["report"] for row in rows], [row["input"] for row in self.small])

    def test_a_row_may_hold_a_prompt_as_it_stands(self):
        row = json.dumps({"prompt": "Fry onions."}) + "\n"
        answered = trainer("generate", self.output, "--input-file", "-", "--max-new-tokens", 8, text=row)
        self.assert_done(answered)
        plain = trainer("generate", self.output, "Fry onions.", "--max-new-tokens", 8)
        self.assertEqual(json.loads(answered.stdout)["prediction"], plain.stdout.rstrip("\n"))

    def test_files_of_every_kind_are_tokenized_by_its_columns(self):
        texts = "".join(json.dumps({"text": f"Report: {row['input']}"}) + "\n" for row in self.small)
        plain = trainer("tokenize", "-m", self.output, "-i", "-", text=texts)
        self.assert_done(plain)
        for file in self.files():
            self.assertEqual(trainer("tokenize", "-m", self.output, "-i", file).stdout, plain.stdout, file)

    def test_a_row_that_cannot_be_read_is_named(self):
        broken = self.scratch / "broken.csv"
        broken.write_text("report,short\na,b\nonly one\n")
        self.assert_refused(trainer("generate", self.output, "--input-file", broken), 3, f"{broken}:3")
        self.write_table(self.scratch / "other.csv", self.small)
        (self.scratch / "other.csv").write_text((self.scratch / "other.csv").read_text().replace("report", "text", 1))
        self.assert_refused(trainer("generate", self.output, "--input-file", self.scratch / "other.csv"), 3, "report")


class GoingOn(EndToEnd):
    """What a run says of how to go on is true."""
    family = "t5"

    def command_in(self, text, name):
        line = next(line for line in text.splitlines() if name in line)
        return shlex.split(line.split(name, 1)[1].split("  (")[0])

    def test_the_command_of_a_finished_run_makes_it_longer(self):
        output = self.scratch / "longer"
        result = self.train("tiny_t5.yaml", output, "max_steps=4", "save.strategy=epoch", "overwrite_output_dir=true")
        self.assert_done(result)
        command = self.command_in(result.stderr, "to train longer: ")
        self.assertEqual(command[:3], ["trainer", "--config", str(output / "config.yaml")])
        self.assertEqual(self.command_in(trainer("status", output).stdout, "to train longer"), command)
        longer = trainer(*command[1:])
        self.assert_done(longer)
        self.assertIn("resumes after step 4", longer.stderr)
        self.assertEqual(read_rows(output / "metrics.jsonl")[-1]["step"], 8)

    def test_without_a_checkpoint_none_is_promised(self):
        output = self.scratch / "no-checkpoint"
        result = self.train("tiny_t5.yaml", output, "max_steps=2")
        self.assert_done(result)
        self.assertIn("no checkpoint was kept", result.stderr)
        self.assertNotIn("to train longer", result.stderr)
        self.assertNotIn("--config", trainer("status", output).stdout)

    def test_a_run_that_was_stopped_goes_on(self):
        output = self.scratch / "stopped"
        result = self.train("tiny_t5.yaml", output, "max_steps=100000", "training.max_hours=0.0005")
        self.assertEqual(result.returncode, 75, result.stderr)
        command = self.command_in(result.stderr, "To go on: ")
        self.assertEqual(self.command_in(trainer("status", output).stdout, "to go on"), command)
        step = read_rows(output / "metrics.jsonl")[-1]["step"]
        again = trainer(*command[1:], f"max_steps={step + 2}", "max_hours=0")
        self.assert_done(again)
        self.assertIn(f"resumes after step {step}", again.stderr)

    def test_a_run_that_left_nothing_begins_anew(self):
        output = self.scratch / "nothing"
        result = self.train("tiny_t5.yaml", output, "max_steps=100", "learning_rate=1e30", "max_bad_steps=0", "max_grad_norm=0")
        self.assertEqual(result.returncode, 7, result.stderr)
        said = trainer("status", output).stdout
        self.assertIn("there is no checkpoint", said)
        self.assertIn("to begin anew", said)


class Memory(EndToEnd):
    """Defaults that give way where they would not fit."""
    family = "qwen3"

    def test_a_run_on_a_processor_is_not_rehearsed_without_a_limit(self):
        keys = ("memory.gradient_checkpointing=fit", "max_steps=2")
        self.assertNotIn("rehears", self.train("tiny_qwen.yaml", self.scratch / "free", *keys).stderr)
        self.assertIn("rehears", self.train("tiny_qwen.yaml", self.scratch / "limited", *keys, "memory.limit=2GB").stderr)

    def test_the_plan_of_a_large_model_says_what_it_takes(self):
        large = ("model.path=qwen2.5-7b", "lora={}", "model.quantize=nf4", "device=cuda", "model.dtype=bf16")
        plan = trainer("plan", "--json", *large)
        self.assert_done(plan)
        plan = json.loads(plan.stdout)
        self.assertLess(plan["total"], 12e9)
        usual = json.loads(trainer("plan", "--json", *large, "batch_size=8", "gradient_checkpointing=false").stdout)
        self.assertGreater(usual["total"], 30e9)
        limited = json.loads(trainer("plan", "--json", *large, "memory.limit=24GB").stdout)
        self.assertLess(limited["total"], 24e9)
        self.assertGreater(limited["total"], plan["total"])
        self.assertIn("Chosen to fit into 24.0 GB", trainer("plan", *large, "memory.limit=24GB").stdout)


if __name__ == "__main__":
    import unittest
    unittest.main()
