"""`trainer eval` gives the same numbers as the evaluation during training, and both score answers."""
import json
import math
import unittest

from support import ROOT, EndToEnd, read_rows, tensors_of, trainer, write_rows


SCORES = ("eval_exact_match", "eval_f1", "eval_rouge1", "eval_rouge2", "eval_rougeL", "eval_bleu", "eval_chrf", "eval_json_valid",
          "eval_json_match", "eval_generated_samples", "eval_gen_len")


class Eval(EndToEnd):
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = cls.scratch / "output"
        cls.rows = cls.data / "heldout.jsonl"
        cls.result = cls.train(cls, "tiny_t5.yaml", cls.output, "max_steps=30", "optimizer.learning_rate=3e-3",
                               "data.max_target_length=96", "training.eval_strategy=steps", "training.eval_steps=30",
                               f"data.eval={cls.rows}", "evaluation.generate=true", "evaluation.max_new_tokens=20",
                               "evaluation.generation_batch_size=5", "evaluation.show=2")

    def measure(self, *arguments):
        result = trainer("eval", *arguments, "--json", "device=cpu", "model.dtype=fp32")
        self.assert_done(result)
        return json.loads(result.stdout)

    def answers(self, *options):
        answers = trainer("generate", self.output, "--input-file", self.rows, "--device", "cpu", "--dtype", "fp32", *options)
        self.assert_done(answers)
        return [json.loads(line) for line in answers.stdout.splitlines()]

    def test_equals_the_evaluation_of_the_run(self):
        self.assert_done(self.result)
        (expected,) = [row for row in read_rows(self.output / "metrics.jsonl") if row["kind"] == "eval"]
        by_hand = self.measure(self.output, self.rows, "data.max_target_length=96", "training.eval_batch_size=3", "--generate",
                               "--max-new-tokens", 20)
        of_the_run = self.measure("--config", self.output / "config.yaml")
        for measured in (by_hand, of_the_run):
            for key in ("eval_samples", "eval_supervised_tokens", "eval_token_accuracy", *SCORES):
                self.assertEqual(measured[key], expected[key], key)
            for key in ("eval_loss", "eval_perplexity"):
                self.assertTrue(math.isclose(measured[key], expected[key], rel_tol=1e-5), (key, measured, expected))
        self.assertEqual(of_the_run["model"], str(self.output))

    def test_predictions_stand_beside_their_targets(self):
        predictions = read_rows(self.output / "predictions" / "step-30.jsonl")
        rows = read_rows(self.rows)
        self.assertEqual([(row["origin"], row["input"], row["target"]) for row in predictions],
                         [(f"{self.rows}:{i}", row["input"], row["target"]) for i, row in enumerate(rows, 1)])
        self.assertEqual([row["prediction"] for row in predictions],
                         [row["prediction"] for row in self.answers("--max-new-tokens", 20)])
        for line in ("answers  24 samples  exact match", *(f"target      {row['target']}" for row in rows[:2])):
            self.assertIn(line, self.result.stderr)
        self.assertNotIn(f"target      {rows[2]['target']}", self.result.stderr)

    def test_answers_do_not_depend_on_packing(self):
        answers = []
        for packing in ("true", "false"):
            file = self.scratch / f"packing-{packing}.jsonl"
            self.measure(self.output, self.rows, "--generate", "--max-new-tokens", 20, f"data.packing={packing}",
                         "evaluation.generation_batch_size=24", "--predictions", file)
            answers.append(read_rows(file))
        self.assertEqual(*answers)

    def test_answers_do_not_change_the_run(self):
        without = self.scratch / "without"
        self.assert_done(self.train("tiny_t5.yaml", without, "max_steps=30", "optimizer.learning_rate=3e-3",
                                    "data.max_target_length=96"))
        self.assertEqual(tensors_of(without / "model.safetensors"), tensors_of(self.output / "model.safetensors"))

    def test_counts_answers_that_equal_their_targets(self):
        known = self.scratch / "known.jsonl"
        write_rows(known, [{"input": row["input"], "target": row["prediction"] if i % 3 else "no"}
                           for i, row in enumerate(self.answers("--max-new-tokens", 10))])
        measured = self.measure(self.output, known, "--generate", "--max-new-tokens", 10)
        self.assertEqual(measured["eval_exact_match"], 16 / 24)
        self.assertNotIn("eval_json_valid", measured)  # "no" is no JSON

    def test_scores_come_with_their_ranges_and_the_fields_of_json(self):
        known = self.scratch / "fields.jsonl"
        write_rows(known, [{"input": row["input"], "target": json.dumps({"do": "bake", "minutes": i})}
                           for i, row in enumerate(read_rows(self.rows))])
        measured = self.measure(self.output, known, "--generate", "--max-new-tokens", 10)
        self.assertEqual(set(measured["ranges"]), {"exact_match", "f1", "rouge1", "rouge2", "rougeL", "bleu", "chrf", "json_valid",
                                                   "json_match", "json_fields"})
        for name, (low, high) in measured["ranges"].items():
            self.assertLessEqual(low, measured[f"eval_{name}"], name)
            self.assertGreaterEqual(high, measured[f"eval_{name}"], name)
        self.assertEqual({name: field["count"] for name, field in measured["fields"].items()}, {"do": 24, "minutes": 24})
        shown = trainer("eval", self.output, known, "--generate", "--max-new-tokens", 10, "device=cpu", "model.dtype=fp32")
        self.assertRegex(shown.stdout, r"eval_bleu +[\d.e-]+  \[[\d.e-]+, [\d.e-]+\]")
        self.assertRegex(shown.stdout, r"field minutes +\d+ of 24 right")

    def test_two_models_are_compared_on_the_same_rows(self):
        arguments = (self.output, self.rows, "--generate", "--max-new-tokens", 20, "evaluation.metrics=[exact_match, chrf, ter]")
        file = self.scratch / "other.jsonl"
        other = self.measure(self.model, *arguments[1:], "--predictions", file)
        own = self.measure(*arguments)
        by_model = self.measure(*arguments, "--against", self.model)
        by_file = self.measure(*arguments, "--against", file)
        self.assertEqual(by_model["differences"], by_file["differences"])
        for name in ("exact_match", "chrf", "ter"):
            found = by_model["differences"][name]
            self.assertEqual((found["this"], found["other"]), (own[f"eval_{name}"], other[f"eval_{name}"]))
            self.assertEqual(found["difference"], found["this"] - found["other"])
        self.assertGreater(by_model["differences"]["chrf"]["difference"], 0)
        self.assertLess(by_model["differences"]["chrf"]["p"], 0.05)  # 30 steps of training are seen in 24 answers
        same = self.measure(*arguments, "--against", self.output)
        self.assertEqual({score["p"] for score in same["differences"].values()}, {1.0})
        shown = trainer("eval", *arguments, "--against", file, "device=cpu", "model.dtype=fp32")
        self.assertRegex(shown.stdout, r"chrf +[\d.]+ +[\d.]+ +\+[\d.]+ +\[.*\]  p 0\.")

    def test_answers_to_other_rows_are_not_compared(self):
        file = self.scratch / "few.jsonl"
        write_rows(file, [{"origin": "x:1", "input": "?", "target": "a", "prediction": "b"}])
        arguments = ("eval", self.output, self.rows, "--max-new-tokens", 2, "device=cpu", "model.dtype=fp32", "--against", file)
        self.assert_refused(trainer("eval", self.model, *arguments[2:]), 2, "--generate")
        self.assert_refused(trainer(*arguments, "--generate"), 3, file, "not to the same inputs")
        write_rows(file, [{"input": "?"}])
        refused = trainer(*arguments, "--generate")
        self.assert_refused(refused, 3, f"{file}:1", "prediction")
        self.assertNotIn("samples", refused.stderr)  # told before the work
        self.assert_refused(trainer(*arguments[:-1], "no/such", "--generate"), 4, "no/such")

    def test_a_bound_is_spread_over_the_data(self):
        file = self.scratch / "some.jsonl"
        measured = self.measure(self.output, self.rows, "--generate", "evaluation.max_samples=5", "evaluation.metrics=[chrf]",
                                "evaluation.num_beams=2", "--max-new-tokens", 108, "--predictions", file)
        self.assertEqual(measured["eval_samples"], 24)
        self.assertEqual(measured["eval_generated_samples"], 5)
        self.assertIn("eval_chrf", measured)
        self.assertNotIn("eval_bleu", measured)
        rows = read_rows(file)
        self.assertEqual([row["origin"] for row in rows], [f"{self.rows}:{line}" for line in (1, 5, 10, 15, 20)])
        beams = self.answers("--max-new-tokens", 108, "--num-beams", 2)
        self.assertEqual([row["prediction"] for row in rows], [beams[line - 1]["prediction"] for line in (1, 5, 10, 15, 20)])

    def test_little_memory_costs_time_alone(self):
        arguments = ("eval", self.output, self.rows, "--generate", "--max-new-tokens", 20, "--json", "device=cpu", "model.dtype=fp32",
                     "training.num_threads=1", "training.eval_batch_size=1", "evaluation.generation_batch_size=24")
        ample = trainer(*arguments)
        self.assert_done(ample)
        expected, recovered, limit = json.loads(ample.stdout), 0, 30e6
        while (result := trainer(*arguments, f"memory.limit={limit / 1e3:.0f}kB")).returncode == 0:
            measured = json.loads(result.stdout)
            self.assertEqual({key: measured[key] for key in SCORES}, {key: expected[key] for key in SCORES})
            recovered += "out of memory with so many answers at once" in result.stderr
            self.assertGreater(limit, 1e5, "nothing is hopeless?")
            limit *= 0.8
        self.assert_refused(result, 5, "out of memory")
        self.assertTrue(recovered)

    def test_text_has_the_same_numbers(self):
        result = trainer("eval", self.output, self.rows, "device=cpu", "model.dtype=fp32")
        self.assert_done(result)
        shown = dict(line.split(None, 1) for line in result.stdout.splitlines())
        measured = self.measure(self.output, self.rows)
        self.assertEqual(shown["eval_samples"], "24")
        self.assertTrue(math.isclose(float(shown["eval_loss"]), measured["eval_loss"], rel_tol=1e-4))

    def test_a_file_that_cannot_be_written_is_told_before_the_work(self):
        file = self.scratch / "nodir" / "p.jsonl"
        generate = ("eval", self.output, self.rows, "--generate", "--max-new-tokens", 2, "device=cpu")
        result = trainer(*generate, "--predictions", file)
        self.assert_refused(result, 4, file, "No such file or directory")
        self.assertNotIn("samples", result.stderr)
        self.assertEqual(result.stdout, "")
        # One that can be written is left alone until then.
        file.parent.mkdir()
        for content in (None, "earlier"):
            if content:
                file.write_text(content)
            self.assert_refused(trainer("eval", "no/such/model", *generate[2:], "--predictions", file), 4, "no/such/model")
            self.assertEqual(file.read_text() if file.exists() else None, content)

    def test_mistakes(self):
        self.assert_refused(trainer("eval"), 2, "MODEL")
        self.assert_refused(trainer("eval", self.model), 2, "data.eval")
        self.assert_refused(trainer("eval", self.output, "no/such.jsonl", "device=cpu"), 3, "no/such.jsonl")
        self.assert_refused(trainer("eval", "no/such/model", self.rows, "device=cpu"), 4, "no/such/model")
        self.assert_refused(trainer("eval", self.output, self.rows, "data.kidn=text"), 2, "data.kind")
        self.assert_refused(trainer("eval", self.output, self.rows, "evaluation.metrics=[bleu, meteor]"), 2, "evaluation.metrics", "meteor")
        self.assert_refused(trainer("eval", self.output, self.rows, "evaluation.generate=false", "--predictions", "x.jsonl"), 2,
                            "--generate")
        self.assert_refused(self.train("tiny_t5.yaml", self.scratch / "never", "evaluation.generate=true"), 2, "training.eval_strategy")


class EvalOfAnAdapter(EndToEnd):
    family = "qwen2"

    def test_an_adapter_is_measured_with_its_base(self):
        output = self.scratch / "output"
        rows = self.data / "heldout.jsonl"
        self.assert_done(self.train("tiny_qwen.yaml", output, "max_steps=20", "data.max_length=160",
                                    "optimizer.learning_rate=5e-3"))
        losses, predictions = [], self.scratch / "predictions.jsonl"
        for model in (self.model, output):
            result = trainer("eval", model, rows, "--json", "device=cpu", "--config", ROOT / "configs" / "tiny_qwen.yaml",
                             "data.max_length=160", "model.dtype=fp32", "--generate", "--max-new-tokens", 12, "--predictions", predictions)
            self.assert_done(result)
            losses.append(json.loads(result.stdout)["eval_loss"])
        self.assertLess(losses[1], losses[0])
        answers = trainer("generate", output, "--input-file", rows, "--device", "cpu", "--dtype", "fp32", "--max-new-tokens", 12)
        self.assert_done(answers)
        self.assertEqual([row["prediction"] for row in read_rows(predictions)],
                         [json.loads(line)["prediction"] for line in answers.stdout.splitlines()])

    def test_running_text_has_no_targets(self):
        rows = self.scratch / "text.jsonl"
        write_rows(rows, [{"text": "Fry onions."}])
        self.assert_refused(trainer("eval", self.model, rows, "--generate", "device=cpu"), 2, "data.kind")


if __name__ == "__main__":
    unittest.main()
