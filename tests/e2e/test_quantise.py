"""LoRA on weights in NF4: training, resuming, evaluating, what a checkpoint holds, and what is refused."""
import json
import shutil
import unittest

from support import EndToEnd, read_rows, tensors_of, trainer

STEPS = 12
CHECKPOINT = 6


class Quantised(EndToEnd):
    family = "qwen2"
    model_arguments = ("--kv-heads", 2)

    def run_with(self, output, *overrides):
        return self.train("tiny_qwen.yaml", output, f"max_steps={STEPS}", "lora.r=8", "model.quantize=nf4",
                          "optimizer.learning_rate=5e-3", "data.max_length=96", "lora.lora_dropout=0.1",
                          "save.strategy=steps", f"save.steps={CHECKPOINT}", "training.num_threads=1", *overrides)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = cls.scratch / "output"
        cls.result = cls().run_with(cls.output)

    def test_trains_and_warns_that_the_model_is_small(self):
        self.assert_done(self.result)
        self.assertIn("matrices kept in NF4", self.result.stderr)
        self.assertIn("model.quantize: nf4: this model has", self.result.stderr)
        losses = [row["loss"] for row in read_rows(self.output / "metrics.jsonl") if row["kind"] == "train"]
        self.assertLess(losses[-1], losses[0])

    def test_a_checkpoint_holds_the_adapter_only(self):
        names = tensors_of(self.output / f"checkpoint-{CHECKPOINT}" / "adapter_model.safetensors")
        self.assertTrue(names)
        self.assertTrue(all("lora_" in name for name in names), sorted(names))

    def test_a_resumed_run_ends_with_the_same_bits(self):
        resumed = self.scratch / "resumed"
        shutil.copytree(self.output / f"checkpoint-{CHECKPOINT}", resumed / f"checkpoint-{CHECKPOINT}")
        self.assert_done(self.run_with(resumed, f"resume={resumed / f'checkpoint-{CHECKPOINT}'}"))
        name = "adapter_model.safetensors"
        self.assertEqual(tensors_of(resumed / name), tensors_of(self.output / name))

    def test_other_weights_do_not_resume_it(self):
        result = self.run_with(self.output, "model.quantize=none", f"max_steps={STEPS + 1}")
        self.assert_refused(result, 4, "model.quantize: nf4 there, none here")

    def test_an_adapter_that_goes_on_with_other_weights_is_told_so(self):
        for format, goes_on in (("none", "unquantised"), ("fp8", "FP8"), ("nf4", None)):
            result = self.run_with(self.scratch / f"on_{format}", f"model.quantize={format}", f"lora.adapter={self.output}", "max_steps=1")
            self.assert_done(result)
            said = f"was trained on NF4 weights, and goes on with {goes_on} ones; model.quantize=nf4 keeps"
            self.assertEqual(result.stderr.count(said), 0 if goes_on is None else 1, result.stderr)

    def test_recomputed_blocks_give_the_same_bits(self):
        output = self.scratch / "recomputed"
        self.assert_done(self.run_with(output, "memory.gradient_checkpointing=true"))
        name = "adapter_model.safetensors"
        self.assertEqual(tensors_of(output / name), tensors_of(self.output / name))

    def test_evaluates_on_the_quantised_base(self):
        def loss(model, *overrides):
            result = trainer("eval", model, self.data / "heldout.jsonl", "device=cpu", "data.max_length=96",
                             *overrides, "--json")
            self.assert_done(result)
            return json.loads(result.stdout)["eval_loss"]

        self.assertEqual(loss(self.output), loss(self.output, "model.quantize=nf4"))
        merged = self.scratch / "merged"  # onto the original weights
        self.assert_done(trainer("merge", self.output, merged))
        self.assertNotEqual(loss(self.output), loss(merged))

    def test_full_fine_tuning_is_refused_before_anything_is_loaded(self):
        result = self.run_with(self.scratch / "full", "lora=null")
        self.assert_refused(result, 2, "model.quantize", "add a lora section")


if __name__ == "__main__":
    unittest.main()
