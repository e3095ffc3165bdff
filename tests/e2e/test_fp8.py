"""LoRA on weights in FP8: a run that is killed and resumed, its export and merges, and models that are stored so."""
import json
import shutil
import signal
import subprocess
import time

from support import ROOT, TRAINER, EndToEnd, read_rows, tensors_of, trainer

STEPS = 12
ADAPTER = "adapter_model.safetensors"


class Fp8(EndToEnd):
    family = "qwen2"
    model_arguments = ("--kv-heads", 2)

    @classmethod
    def arguments(cls, output, *overrides):
        return ["--config", ROOT / "configs" / "tiny_qwen.yaml", f"model.path={cls.model}", "model.dtype=fp32", f"data.train={cls.data / 'train.jsonl'}",
                f"output_dir={output}", "device=cpu", "logging_steps=1", "lora.r=8", "model.quantize=fp8",
                "optimizer.learning_rate=5e-3", "data.max_length=96", "lora.lora_dropout=0.1", "save.strategy=steps",
                "save.steps=3", "training.num_threads=1", f"max_steps={STEPS}", *overrides]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = cls.scratch / "output"
        cls.result = trainer(*cls.arguments(cls.output))
        assert cls.result.returncode == 0, cls.result.stderr

    def loss(self, model, *overrides):
        result = trainer("eval", model, self.data / "heldout.jsonl", "device=cpu", "model.dtype=fp32", "data.max_length=96",
                         *overrides, "--json")
        self.assert_done(result)
        return json.loads(result.stdout)["eval_loss"]

    def answers(self, model):
        result = trainer("generate", "--model", model, "--input", self.data / "heldout.jsonl", "--device", "cpu",
                         "--dtype", "fp32", "--max-new-tokens", 8)
        self.assert_done(result)
        return [json.loads(line)["prediction"] for line in result.stdout.splitlines()]

    def test_trains_and_says_once_how_it_multiplies(self):
        self.assertIn("matrices kept in FP8", self.result.stderr)
        self.assertEqual(self.result.stderr.count("weights in FP8 are widened when they are multiplied on the CPU"), 1)
        losses = [row["loss"] for row in read_rows(self.output / "metrics.jsonl") if row["kind"] == "train"]
        self.assertLess(losses[-1], losses[0])
        self.assertTrue(all("lora_" in name for name in tensors_of(self.output / ADAPTER)))

    def test_a_killed_run_goes_on_to_the_same_bits(self):
        output = self.scratch / "killed"
        arguments = [TRAINER, *map(str, self.arguments(output))]
        process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline and process.poll() is None and not (output / "checkpoint-3").exists():
                time.sleep(0.01)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        for late in output.glob("checkpoint-*"):  # it may have come further before the signal did
            if late.name != "checkpoint-3":
                shutil.rmtree(late)
        self.assertTrue((output / "checkpoint-3").exists())
        self.assert_done(trainer(*self.arguments(output, f"resume={output / 'checkpoint-3'}")))
        self.assertEqual(tensors_of(output / ADAPTER), tensors_of(self.output / ADAPTER))

    def test_other_weights_do_not_resume_it(self):
        result = trainer(*self.arguments(self.output, "model.quantize=nf4", f"max_steps={STEPS + 1}"))
        self.assert_refused(result, 4, "model.quantize: fp8 there, nf4 here")

    def test_merged_it_answers_as_it_was_trained(self):
        self.assertEqual(self.loss(self.output), self.loss(self.output, "model.quantize=fp8"))
        dequantised = self.scratch / "dequantised"
        self.assert_done(trainer("merge", self.output, dequantised, "--dequantized"))
        self.assertAlmostEqual(self.loss(dequantised), self.loss(self.output), delta=1e-5)
        self.assertEqual(self.answers(dequantised), self.answers(self.output))
        original = self.scratch / "original"
        result = trainer("merge", self.output, original)
        self.assert_done(result)
        self.assertIn("trained on FP8 weights and is merged onto the original ones", result.stderr)
        # A merge in FP8 is rounded once more.
        merged = self.scratch / "merged"
        self.assert_done(trainer("export", self.output, merged, "--quantize", "fp8"))
        self.assertAlmostEqual(self.loss(merged), self.loss(original), delta=0.05)

    def test_an_export_in_fp8_is_a_model_like_others(self):
        exported = self.scratch / "exported"
        self.assert_done(trainer("export", self.model, exported, "--quantize", "fp8"))
        stored = tensors_of(exported / "model.safetensors")
        self.assertEqual(stored["model.layers.0.mlp.up_proj.weight"][:2], ("F8_E4M3", [128, 64]))
        self.assertEqual(stored["model.layers.0.mlp.up_proj.weight_scale"][:2], ("F32", [128, 1]))
        config = json.loads((exported / "config.json").read_text())["quantization_config"]
        self.assertEqual((config["quant_method"], config["format"]), ("compressed-tensors", "float-quantized"))
        # The same weights, read or quantised while they are loaded: the same run.
        output = self.scratch / "on_exported"
        self.assert_done(trainer(*self.arguments(output, f"model.path={exported}", "model.quantize=none")))
        self.assertEqual(tensors_of(output / ADAPTER), tensors_of(self.output / ADAPTER))
        result = trainer("plan", *self.arguments(output, f"model.path={exported}", "model.quantize=none"))
        self.assert_done(result)

    def test_full_fine_tuning_is_refused_with_what_to_do(self):
        result = trainer(*self.arguments(self.scratch / "full", "lora=null"))
        self.assert_refused(result, 2, "model.quantize", "add a lora section")
        exported = self.scratch / "for_full"
        self.assert_done(trainer("export", self.model, exported, "--quantize", "fp8"))
        result = trainer(*self.arguments(self.scratch / "full", f"model.path={exported}", "model.quantize=none", "lora=null"))
        self.assert_refused(result, 2, "stored in FP8", "add a lora section", "trainer export MODEL OUT")


if __name__ == "__main__":
    import unittest
    unittest.main()
