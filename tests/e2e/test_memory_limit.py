"""memory.limit on the CPU, from ample to far too small: the same losses, or exit code 5 with advice."""
import re
import unittest

from support import EndToEnd, read_rows, tensors_of, trainer, write_rows

STEPS = 4


class MemoryLimit(EndToEnd):
    family = "t5"

    def run_with(self, name, *overrides):
        output = self.scratch / name
        result = self.train("tiny_t5.yaml", output, f"max_steps={STEPS}", "data.max_target_length=96", "training.num_threads=1",
                            "training.batch_size=8", "training.effective_batch_size=16", "memory.rehearse=false", *overrides)
        return result, output

    @staticmethod
    def rows(output, kind):
        return [row for row in read_rows(output / "metrics.jsonl") if row["kind"] == kind]

    def losses(self, output):
        return [row["loss"] for row in self.rows(output, "train")]

    def assert_equal_losses(self, output, expected):
        losses = self.losses(output)
        self.assertEqual(len(losses), len(expected))
        for one, other in zip(losses, expected):
            self.assertAlmostEqual(one, other, delta=1e-5 * other)

    def assert_hopeless(self, result):
        self.assert_refused(result, 5, "out of memory", "weights", "gradients", "optimizer state", "peak", "limit",
                            "What helps", "What makes it fit, by the memory plan")
        for line in result.stderr[result.stderr.index("What helps"):].splitlines():
            if re.search(r"model\.dtype|lora|gradient_checkpointing|master_weights", line):
                self.assertIn("times as long", line, "what the plan can weigh is listed once, with its figures")

    def test_from_ample_to_hopeless(self):
        ample, unlimited = self.run_with("ample")
        self.assert_done(ample)
        expected = self.losses(unlimited)
        self.assertEqual(self.rows(unlimited, "recovery"), [])
        recovered, limit = [], 100e6
        while True:
            result, output = self.run_with(f"limit-{limit:.0f}", f"memory.limit={limit / 1e3:.0f}kB")
            if result.returncode != 0:
                break
            self.assert_equal_losses(output, expected)
            rows = self.rows(output, "recovery")
            self.assertEqual(len(rows), sum(row["retries"] for row in self.rows(output, "train")))
            self.assertEqual(result.stderr.count("out of memory ("), len(rows), result.stderr)
            for row in rows:
                self.assertIn(row["stage"], ("forward", "backward", "optimizer"))
                self.assertGreater(row["asked"], row["free"])
                self.assertLessEqual(row["allocated"], limit)
            if rows:
                recovered.append(output)
            self.assertGreater(limit, 1e5, "nothing is hopeless?")
            limit *= 0.8
        self.assertIn("memory.limit", result.stderr)
        if "The model did not fit" not in result.stderr:
            self.assert_hopeless(result)
        self.assertTrue(recovered, "no limit between ample and hopeless")

        again, replayed = self.run_with("replayed", f"training.replay_cuts={recovered[-1] / 'metrics.jsonl'}")
        self.assert_done(again)
        self.assertEqual(self.rows(replayed, "recovery"), [])
        self.assertEqual(self.losses(replayed), self.losses(recovered[-1]))
        self.assertEqual(tensors_of(replayed / "model.safetensors"), tensors_of(recovered[-1] / "model.safetensors"))

    def test_the_last_step_is_saved(self):
        """Short samples, then one that is too long for a limit at which the short ones just fit."""
        short = read_rows(self.data / "train.jsonl")[:32]
        long = dict(short[0], input=" ".join(row["input"] for row in short))
        data = self.scratch / "late.jsonl"
        write_rows(data, short + [long] * 16)
        limit = 100e6
        while True:
            result, output = self.run_with(f"late-{limit:.0f}", f"data.train={data}", "data.shuffle=false",
                                           "data.max_source_length=704", f"memory.limit={limit / 1e3:.0f}kB")
            if result.returncode != 0:
                break
            self.assertGreater(limit, 1e5, "nothing is hopeless?")
            limit *= 0.8
        self.assert_hopeless(result)
        steps = len(self.losses(output))
        self.assertGreaterEqual(steps, 1, result.stderr)
        checkpoint = output / f"checkpoint-{steps}"
        self.assertIn(f"The weights of step {steps}, the last one, are in {checkpoint}", result.stderr)
        self.assert_done(trainer("generate", checkpoint, "Fry onions.", "--device", "cpu", "--max-new-tokens", 5))

    def test_a_rehearsal_finds_it_first(self):
        """The rehearsal runs out of memory so that no step does, and nothing else changes."""
        ample, unlimited = self.run_with("ample-rehearsed", "memory.rehearse=true")
        self.assert_done(ample)
        self.assertIn("memory test: largest batch", ample.stderr)
        memory = self.rows(unlimited, "memory")
        self.assertEqual(len(memory), 1)
        self.assertLess(abs(memory[0]["planned_peak"] / memory[0]["peak"] - 1), 0.05)
        plain, without = self.run_with("ample-not-rehearsed")
        self.assert_done(plain)
        self.assertEqual(self.losses(unlimited), self.losses(without))
        self.assertEqual(tensors_of(unlimited / "model.safetensors"), tensors_of(without / "model.safetensors"))
        limit = int(0.8 * memory[0]["peak"])
        result, output = self.run_with("rehearsed", "memory.rehearse=true", f"memory.limit={limit / 1e3:.0f}kB")
        self.assert_done(result)
        rows = self.rows(output, "recovery")
        self.assertTrue(rows)
        self.assertEqual({row["stage"] for row in rows}, {"memory test"})
        self.assert_equal_losses(output, self.losses(unlimited))

    def test_auto_fits_into_the_limit(self):
        ample, unlimited = self.run_with("ample-auto")
        self.assert_done(ample)
        limit = int(0.8 * self.rows(unlimited, "memory")[0]["peak"])
        result, output = self.run_with("auto", "training.batch_size=auto", "memory.gradient_checkpointing=auto",
                                       "memory.rehearse=true", f"memory.limit={limit / 1e3:.0f}kB")
        self.assert_done(result)
        self.assertEqual(self.rows(output, "recovery"), [])
        self.assertIn("chosen by the plan", result.stderr)
        self.assert_equal_losses(output, self.losses(unlimited))

    def test_a_limit_that_the_model_does_not_fit_in(self):
        result, _ = self.run_with("none", "memory.limit=20kB")
        self.assert_refused(result, 5, "out of memory", "limit of 20.0 kB", "The model did not fit")

    def test_what_would_fit_is_true(self):
        """The weights fit, the optimizer's state does not; with the advice the run ends well, with the same result."""
        short = ("data.max_source_length=8", "data.max_target_length=8")
        limited = (*short, "memory.limit=2500kB")
        result, _ = self.run_with("no-state", *limited)
        self.assert_refused(result, 5, "out of memory", "The model did not fit", "What makes it fit, by the memory plan:\n")
        settings = result.stderr.split("What makes it fit, by the memory plan:\n")[1].split("  (")[0].split()
        self.assertTrue(any(setting.startswith("memory.offload=[optimizer") for setting in settings), settings)
        advised, output = self.run_with("advised", *limited, *settings)
        self.assert_done(advised)
        ample, unlimited = self.run_with("ample-short", *short)
        self.assert_done(ample)
        self.assert_equal_losses(output, self.losses(unlimited))

    def test_what_is_no_limit(self):
        result, _ = self.run_with("wrong", "memory.limit=lots")
        self.assert_refused(result, 2, "memory.limit", "18GB")

    def test_evaluation(self):
        rows = self.data / "heldout.jsonl"
        evaluate = ("eval", self.model, rows, "--json", "device=cpu", "model.dtype=fp32", "training.num_threads=1",
                    "training.eval_batch_size=24")
        ample = trainer(*evaluate)
        self.assert_done(ample)
        value = lambda result: float(re.search(r'"eval_loss":([^,]+)', result.stdout)[1])
        recovered, limit = 0, 100e6
        while True:
            result = trainer(*evaluate, f"memory.limit={limit / 1e3:.0f}kB")
            if result.returncode != 0:
                break
            self.assertAlmostEqual(value(result), value(ample), delta=1e-5 * value(ample))
            recovered += "out of memory (evaluation)" in result.stderr
            self.assertGreater(limit, 1e5, "nothing is hopeless?")
            limit *= 0.8
        self.assert_refused(result, 5, "out of memory")
        self.assertTrue(recovered)


if __name__ == "__main__":
    unittest.main()
