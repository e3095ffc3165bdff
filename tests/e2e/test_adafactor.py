"""Adafactor on a tiny T5: it learns as AdamW does, in less memory."""
import unittest

from support import EndToEnd, read_rows

STEPS = 100


class Adafactor(EndToEnd):
    family = "t5"

    def run_of(self, name, *overrides):
        """The last evaluation loss, and the bytes at the peak."""
        output = self.scratch / name
        self.assert_done(self.train("tiny_t5.yaml", output, f"max_steps={STEPS}", "data.max_target_length=96",
                                    "training.eval_strategy=steps", f"training.eval_steps={STEPS}",
                                    f"data.eval={self.data / 'heldout.jsonl'}", f"optimizer.name={name}", *overrides))
        rows = read_rows(output / "metrics.jsonl")
        loss = next(row["eval_loss"] for row in rows if row["kind"] == "eval")
        return loss, next(row["peak"] for row in rows if row["kind"] == "memory" and "peak" in row)

    def test_learns_as_adamw_does_in_less_memory(self):
        # For both the best of 1e-3, 3e-3, 1e-2 and 2e-2.
        adamw, adamw_peak = self.run_of("adamw", "optimizer.learning_rate=1e-2")
        adafactor, adafactor_peak = self.run_of("adafactor", "optimizer.learning_rate=1e-2",
                                                "optimizer.lr_scheduler_type=linear")
        self.assertLess(adamw, 1)
        self.assertLessEqual(adafactor, 1.01 * adamw)
        self.assertLess(adafactor_peak, adamw_peak)


if __name__ == "__main__":
    unittest.main()
