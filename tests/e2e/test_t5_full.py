"""Full fine-tuning of a tiny T5: the loss falls, and the result is a model that every command accepts again."""
import json
import unittest

from support import EndToEnd, read_rows, tensors_of, trainer

STEPS = 40


class T5Full(EndToEnd):
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = cls.scratch / "output"
        cls.result = cls.train(cls, "tiny_t5.yaml", cls.output, f"max_steps={STEPS}", "optimizer.learning_rate=3e-3",
                               "data.max_target_length=96", "training.eval_strategy=steps", "training.eval_steps=20",
                               f"data.eval={cls.data / 'heldout.jsonl'}")

    def test_loss_falls(self):
        self.assert_done(self.result)
        self.assert_loss_falls(self.output, STEPS, to=0.3)

    def test_evaluates(self):
        rows = read_rows(self.output / "metrics.jsonl")
        losses = {row["step"]: row["eval_loss"] for row in rows if row["kind"] == "eval"}
        self.assertIn(20, losses)
        self.assertLess(losses[40], losses[20])

    def test_leaves_a_complete_model(self):
        before, after = tensors_of(self.model / "model.safetensors"), tensors_of(self.output / "model.safetensors")
        shapes, new_shapes = ({name: shape for name, (_, shape, _) in tensors.items()} for tensors in (before, after))
        self.assertEqual(shapes, new_shapes)
        for name in before:
            self.assertNotEqual(before[name][2], after[name][2], f"{name} did not move")
        config = json.loads((self.output / "config.json").read_text())
        self.assertEqual(config["model_type"], "t5")
        self.assertEqual((self.output / "spiece.model").read_bytes(), (self.model / "spiece.model").read_bytes())

    def test_generates_with_what_was_trained(self):
        result = trainer("generate", "--model", self.output, "--input", self.data / "heldout.jsonl", "--device", "cpu",
                         "--max-new-tokens", 20)
        self.assert_done(result)
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(len(rows), 24)
        self.assertTrue(all(row["prediction"].startswith("{") for row in rows), rows[:3])

    def test_a_prompt_is_answered_on_stdout(self):
        result = trainer("generate", "--model", self.output, "--prompt", "Fry onions.", "--device", "cpu",
                         "--max-new-tokens", 20)
        self.assert_done(result)
        self.assertIn("{", result.stdout)

    def test_goes_on_from_what_was_trained(self):
        again = self.scratch / "again"
        result = self.train("tiny_t5.yaml", again, "max_steps=6", "optimizer.learning_rate=1e-3",
                            "data.max_target_length=96", f"model.path={self.output}")
        self.assert_done(result)
        rows = [row for row in read_rows(again / "metrics.jsonl") if row["kind"] == "train"]
        self.assertLess(rows[0]["loss"], 3)

    def test_saves_the_configuration_that_it_used(self):
        result = trainer("config", "--config", self.output / "config.yaml")
        self.assert_done(result)
        self.assertIn(str(self.model), result.stdout)


if __name__ == "__main__":
    unittest.main()
