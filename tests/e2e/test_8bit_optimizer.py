"""Training with 8-bit AdamW: the curve is AdamW's, and the checkpoint has the codes."""
import unittest

from support import EndToEnd, read_rows, tensors_of

STEPS = 100


class EightBitOptimizer(EndToEnd):
    family = "t5"

    def losses(self, name, *overrides):
        output = self.scratch / name
        result = self.train("tiny_t5.yaml", output, f"max_steps={STEPS}", "optimizer.learning_rate=3e-3",
                            f"optimizer.name={name}", *overrides)
        self.assert_done(result)
        return [row["loss"] for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"]

    def test_learns_as_adamw_does(self):
        adamw, coded = self.losses("adamw"), self.losses("adamw_8bit", "save.strategy=steps", f"save.steps={STEPS}")
        self.assertEqual(len(coded), STEPS)
        self.assertNotEqual(adamw, coded)
        self.assertLess(sum(coded[-10:]), 0.3 * 10 * coded[0])
        ratio = sum(coded[-10:]) / sum(adamw[-10:])
        self.assertAlmostEqual(ratio, 1, delta=0.01)
        state = tensors_of(self.scratch / "adamw_8bit" / f"checkpoint-{STEPS}" / "optimizer.safetensors")
        types = {name: kind for name, (kind, _, _) in state.items()}
        self.assertEqual(types["shared.weight.exp_avg"], "F32")  # an embedding
        codes = [name for name, kind in types.items() if kind == "U8"]
        self.assertGreater(len(codes), 20)
        for name in codes:
            self.assertEqual(types[name + "_absmax"], "F32")
            self.assertEqual(state[name + "_absmax"][1], [(len(state[name][2]) + 255) // 256])


if __name__ == "__main__":
    unittest.main()
