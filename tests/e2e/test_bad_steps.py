"""Steps whose loss or gradient is not finite are not applied, their samples are named, and too many end the run."""
import json
import math
import struct
import unittest

from support import EndToEnd, read_rows, tensors_of, write_rows

MARK = "~"  # in no sentence of the demo; a token of its own


class BadSteps(EndToEnd):
    family = "llama"
    model_arguments = ("--untied", "--tokenizer-vocab", 300)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        vocabulary = json.loads((cls.model / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
        cls.good = read_rows(cls.data / "train.jsonl")[:64]
        cls.poison(vocabulary[MARK])

    @classmethod
    def poison(cls, token):
        """Makes the embedding of that token infinite."""
        path = cls.model / "model.safetensors"
        content = bytearray(path.read_bytes())
        start = 8 + struct.unpack("<Q", content[:8])[0]
        entry = json.loads(content[8:start])["model.embed_tokens.weight"]
        begin = start + entry["data_offsets"][0] + token * entry["shape"][1] * 4
        content[begin:begin + 4] = struct.pack("<f", math.inf)
        path.write_bytes(content)

    def data_with(self, name, *bad_lines):
        """64 rows; in these lines, counted from 1, the input contains the mark."""
        rows = [dict(row) for row in self.good]
        for line in bad_lines:
            rows[line - 1]["input"] = MARK + rows[line - 1]["input"]
        path = self.scratch / f"{name}.jsonl"
        write_rows(path, rows)
        return path

    def run_on(self, data, *overrides):
        output = self.scratch / f"out-{data.stem}"
        result = self.train("tiny_qwen.yaml", output, f"data.train={data}", "lora=null", "data.shuffle=false",
                            "effective_batch_size=8", "max_steps=8", *overrides)
        return result, output

    @staticmethod
    def train_rows(output):
        return [row for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"]

    def test_a_bad_sample_costs_its_step_and_is_named(self):
        data = self.data_with("one", 19)  # in step 3
        result, output = self.run_on(data)
        self.assert_done(result)
        rows = self.train_rows(output)
        self.assertEqual([row["step"] for row in rows], list(range(1, 9)))
        self.assertEqual([row["step"] for row in rows if row.get("skipped")], [3])
        self.assertIsNone(rows[2]["loss"])
        line = next(line for line in result.stderr.splitlines() if "step 3 skipped" in line)
        self.assertIn(f"1 of 8 samples: {data}:19", line)

        bad = read_rows(output / "bad_steps.jsonl")
        self.assertEqual([row["step"] for row in bad], [3])
        self.assertEqual(bad[0]["cause"], "samples")
        self.assertEqual([sample["origin"] for sample in bad[0]["samples"]], [f"{data}:{line}" for line in range(17, 25)])
        self.assertEqual([sample["loss"] is None for sample in bad[0]["samples"]], [line == 19 for line in range(17, 25)])

        weights = tensors_of(output / "model.safetensors")
        self.assertNotEqual(weights, tensors_of(self.model / "model.safetensors"))
        self.assertTrue(all(math.isfinite(row["loss"]) for row in rows if not row.get("skipped")))
        learning_rates = [row["learning_rate"] for row in rows]
        self.assertEqual(learning_rates, sorted(set(learning_rates), reverse=True), "the schedule goes on")

    def test_too_many_in_a_row_end_the_run_with_the_last_good_checkpoint(self):
        data = self.data_with("many", 27, 33, 34, 47)  # in steps 4, 5 and 6
        result, output = self.run_on(data, "max_bad_steps=2", "save.strategy=steps", "save.steps=1")
        self.assert_refused(result, 7, "step 5", "2 steps in a row", "training.max_bad_steps: 2",
                            f"that is known to be good is {output / 'checkpoint-2'}")
        self.assertEqual([row["step"] for row in self.train_rows(output)], [1, 2, 3, 4, 5])
        self.assertEqual([row["step"] for row in read_rows(output / "bad_steps.jsonl")], [4, 5])
        self.assertFalse((output / "model.safetensors").exists())

        result, output = self.run_on(data, "max_bad_steps=4", "overwrite_output_dir=true")
        self.assert_done(result)
        self.assertEqual([row["step"] for row in read_rows(output / "bad_steps.jsonl")], [4, 5, 6])

    def test_the_count_goes_on_in_a_run_that_goes_on(self):
        data = self.data_with("longer", 27, 33, 41)  # in steps 4, 5 and 6
        saved = ("max_bad_steps=3", "save.strategy=steps", "save.steps=3")
        result, output = self.run_on(data, *saved, "max_steps=5")
        self.assert_done(result)
        result, _ = self.run_on(data, *saved)
        self.assert_refused(result, 7, "step 6", "3 steps in a row", "no step succeeded after the last one")
        self.assertEqual([row["step"] for row in self.train_rows(output)], [1, 2, 3, 4, 5, 6])
        self.assertEqual([row["step"] for row in read_rows(output / "bad_steps.jsonl")], [4, 5, 6])

    def test_none_is_allowed(self):
        data = self.data_with("none", 10)
        result, output = self.run_on(data, "max_bad_steps=0")
        self.assert_refused(result, 7, "step 2", f"{data}:10", "There is no checkpoint", "training.max_bad_steps: 0,")

    def test_weights_that_are_lost_end_the_run(self):
        """A learning rate far too high: from then on every sample is bad."""
        data = self.data_with("diverges")
        result, output = self.run_on(data, "learning_rate=1e30", "max_grad_norm=0", "max_steps=60")
        self.assert_refused(result, 7, "3 steps in a row", "learning_rate")
        self.assertEqual([row["step"] for row in self.train_rows(output) if row.get("skipped")],
                         [row["step"] for row in read_rows(output / "bad_steps.jsonl")])

    def test_a_limit_on_checkpoints_leaves_a_good_one(self):
        data = self.data_with("limited")
        saved = ("max_grad_norm=0", "save.strategy=steps", "save.steps=1", "save.total_limit=1", "lr_scheduler_type=constant")
        result, output = self.run_on(data, *saved, "max_steps=3")
        self.assert_done(result)
        self.assertEqual([path.name for path in output.glob("checkpoint-*")], ["checkpoint-3"])
        result, output = self.run_on(data, *saved, "max_steps=30", "learning_rate=1e38")
        good = output / "checkpoint-3"
        self.assert_refused(result, 7, f"that is known to be good is {good}; resume={good}")
        self.assertTrue(good.is_dir())
        result, output = self.run_on(data, *saved, "max_steps=6", f"resume={good}")
        self.assert_done(result)
        self.assertEqual([path.name for path in output.glob("checkpoint-*")], ["checkpoint-6"])

    def test_a_spike_is_marked(self):
        rows = [dict(row) for row in self.good * 16]
        data = self.scratch / "spike.jsonl"
        for row in rows[8 * 119:8 * 120]:  # step 120: targets of noise
            row["target"] = "zvwkjx" * 8
        write_rows(data, rows)
        result, output = self.run_on(data, "max_steps=121", "learning_rate=2e-3")
        self.assert_done(result)
        marked = [row["step"] for row in self.train_rows(output) if row.get("spike")]
        self.assertEqual(marked, [120], [row["loss"] for row in self.train_rows(output)])
        self.assertIn("step 120: a loss of", result.stderr)


if __name__ == "__main__":
    unittest.main()
