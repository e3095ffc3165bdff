"""`trainer eval` gives what training's own evaluation gives, and counts right answers."""
import json
import math
import unittest

from support import ROOT, EndToEnd, read_rows, trainer, write_rows


class Eval(EndToEnd):
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = cls.scratch / "output"
        cls.rows = cls.data / "heldout.jsonl"
        cls.result = cls.train(cls, "tiny_t5.yaml", cls.output, "max_steps=30", "optimizer.learning_rate=3e-3",
                               "data.max_target_length=96", "training.eval_strategy=steps", "training.eval_steps=30",
                               f"data.eval={cls.rows}")

    def measure(self, *arguments):
        result = trainer("eval", *arguments, "--json", "device=cpu", "model.dtype=fp32")
        self.assert_done(result)
        return json.loads(result.stdout)

    def test_equals_the_evaluation_of_the_run(self):
        self.assert_done(self.result)
        (expected,) = [row for row in read_rows(self.output / "metrics.jsonl") if row["kind"] == "eval"]
        by_hand = self.measure(self.output, self.rows, "data.max_target_length=96", "training.eval_batch_size=3")
        of_the_run = self.measure("--config", self.output / "config.yaml")
        for measured in (by_hand, of_the_run):
            for key in ("eval_samples", "eval_supervised_tokens", "eval_token_accuracy"):
                self.assertEqual(measured[key], expected[key])
            for key in ("eval_loss", "eval_perplexity"):
                self.assertTrue(math.isclose(measured[key], expected[key], rel_tol=1e-5), (key, measured, expected))
        self.assertEqual(of_the_run["model"], str(self.output))

    def test_counts_answers_that_equal_their_targets(self):
        answers = trainer("generate", self.output, "--input-file", self.rows, "--device", "cpu", "--dtype", "fp32",
                          "--max-new-tokens", 10)
        self.assert_done(answers)
        rows = [json.loads(line) for line in answers.stdout.splitlines()]
        known = self.scratch / "known.jsonl"
        write_rows(known, [{"input": row["input"], "target": row["prediction"] if i % 3 else "no"}
                           for i, row in enumerate(rows)])
        measured = self.measure(self.output, known, "--generate", "--max-new-tokens", 10)
        self.assertEqual(measured["eval_exact_matches"], 16)
        self.assertEqual(measured["eval_exact_match"], 16 / 24)

    def test_text_has_the_same_numbers(self):
        result = trainer("eval", self.output, self.rows, "device=cpu", "model.dtype=fp32")
        self.assert_done(result)
        shown = dict(line.split(None, 1) for line in result.stdout.splitlines())
        measured = self.measure(self.output, self.rows)
        self.assertEqual(shown["eval_samples"], "24")
        self.assertTrue(math.isclose(float(shown["eval_loss"]), measured["eval_loss"], rel_tol=1e-4))

    def test_mistakes(self):
        self.assert_refused(trainer("eval"), 2, "MODEL")
        self.assert_refused(trainer("eval", self.output), 2, "data.eval")
        self.assert_refused(trainer("eval", self.output, "no/such.jsonl", "device=cpu"), 3, "no/such.jsonl")
        self.assert_refused(trainer("eval", "no/such/model", self.rows, "device=cpu"), 4, "no/such/model")
        self.assert_refused(trainer("eval", self.output, self.rows, "data.kidn=text"), 2, "data.kind")


class EvalOfAnAdapter(EndToEnd):
    family = "qwen2"

    def test_an_adapter_is_measured_with_its_base(self):
        output = self.scratch / "output"
        rows = self.data / "heldout.jsonl"
        self.assert_done(self.train("tiny_qwen.yaml", output, "max_steps=20", "data.max_length=160",
                                    "optimizer.learning_rate=5e-3"))
        losses = []
        for model in (self.model, output):
            result = trainer("eval", model, rows, "--json", "device=cpu", "--config", ROOT / "configs" / "tiny_qwen.yaml",
                             "data.max_length=160")
            self.assert_done(result)
            losses.append(json.loads(result.stdout)["eval_loss"])
        self.assertLess(losses[1], losses[0])


if __name__ == "__main__":
    unittest.main()
