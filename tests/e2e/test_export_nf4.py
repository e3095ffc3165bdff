"""A run on weights in NF4, its export and merges, from the command line."""
import json
import unittest

from support import EndToEnd, tensors_of, trainer
from zero_models import peak_memory, write_llama


class ExportNf4(EndToEnd):
    family = "qwen2"
    model_arguments = ("--kv-heads", 2)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_directory = cls.scratch / "run"
        result = trainer("--config", "configs/tiny_qwen.yaml", f"model.path={cls.model}", "model.quantize=nf4",
                         f"data.train={cls.data / 'train.jsonl'}", f"data.eval={cls.data / 'heldout.jsonl'}",
                         f"output_dir={cls.run_directory}", "device=cpu", "max_steps=4",
                         "training.eval_strategy=steps", "training.eval_steps=4")
        assert result.returncode == 0, result.stderr
        cls.nf4 = cls.scratch / "nf4"
        result = trainer("export", cls.model, cls.nf4, "--quantize", "nf4")
        assert result.returncode == 0, result.stderr

    def loss(self, model):
        result = trainer("eval", model, self.data / "heldout.jsonl", "device=cpu", "model.dtype=fp32", "data.max_length=96",
                         "--json")
        self.assert_done(result)
        return json.loads(result.stdout)["eval_loss"]

    def answers(self, model):
        result = trainer("generate", "--model", model, "--input", self.data / "heldout.jsonl", "--device", "cpu",
                         "--dtype", "fp32", "--max-new-tokens", 8)
        self.assert_done(result)
        return [json.loads(line)["prediction"] for line in result.stdout.splitlines()]

    def test_a_run_is_evaluated_on_the_weights_that_it_was_trained_on(self):
        rows = [json.loads(line) for line in (self.run_directory / "metrics.jsonl").read_text().splitlines()]
        in_training = [row["eval_loss"] for row in rows if row.get("kind") == "eval"][-1]
        self.assertAlmostEqual(self.loss(self.run_directory), in_training, delta=1e-5)
        dequantised = self.scratch / "dequantised"
        self.assert_done(trainer("merge", self.run_directory, dequantised, "--dequantized"))
        self.assertAlmostEqual(self.loss(dequantised), in_training, delta=1e-5)
        self.assertEqual(self.answers(dequantised), self.answers(self.run_directory))

    def test_a_run_is_merged_onto_the_original_weights(self):
        out = self.scratch / "merged"
        result = trainer("export", self.run_directory, out)
        self.assert_done(result)
        self.assertIn("trained on NF4 weights and is merged onto the original ones", result.stderr)
        self.assertIn("difference: at ", result.stderr)
        self.assertNotIn("quantization_config", json.loads((out / "config.json").read_text()))

    def test_an_export_in_nf4_is_a_model_like_others(self):
        stored = tensors_of(self.nf4 / "model.safetensors")
        self.assertEqual(stored["model.layers.0.mlp.up_proj.weight"][0], "U8")
        self.assertEqual(len(self.answers(self.nf4)), 24)
        out = self.scratch / "on_nf4"
        result = trainer("--config", "configs/tiny_qwen.yaml", f"model.path={self.nf4}",
                         f"data.train={self.data / 'train.jsonl'}", f"output_dir={out}", "device=cpu", "max_steps=2")
        self.assert_done(result)
        self.answers(out)
        for name, arguments in {"plain": (), "original": ("--base", self.model), "again": ("--quantize", "nf4")}.items():
            result = trainer("merge", out, self.scratch / name, *arguments)
            self.assert_done(result)
            self.assertIn("difference: at ", result.stderr)
            self.assertEqual(len(self.answers(self.scratch / name)), 24)
        result = trainer("export", self.nf4, self.scratch / "nf4.gguf")
        self.assert_done(result)
        self.assertIn("dequantised", result.stderr)

    def test_mistakes_are_named(self):
        out = self.scratch / "wrong"
        for source, arguments, words in (
            (self.model, ("--quantize", "int8"), "--quantize"),
            (self.model, ("--no-double-quant",), "--quantize"),
            (self.nf4, ("--quantize", "nf4"), "already"),
            (self.model, ("--base", self.model), "not an adapter"),
            (self.model, ("--dequantized",), "not an adapter"),
            (self.run_directory, ("--base", self.nf4), "original weights"),
            (self.run_directory, ("--adapter", "--quantize", "nf4"), "--adapter"),
        ):
            self.assert_refused(trainer("export", source, out, *arguments), 2, words)
        self.assert_refused(trainer("export", self.model, f"{out}.gguf", "--quantize", "nf4"), 2, "no type of GGUF")
        self.assertFalse(out.exists())

    def test_memory_is_below_two_shards(self):
        small = write_llama(self.scratch / "small", 64, 1)
        large = write_llama(self.scratch / "large", 1024, 12)  # 400 MB
        arguments = ("--quantize", "nf4", "--max-shard-size", "50MB")
        base = peak_memory("export", small, self.scratch / "small_nf4", *arguments)
        peak = peak_memory("export", large, self.scratch / "large_nf4", *arguments)
        self.assertLess(peak - base, 100)


if __name__ == "__main__":
    unittest.main()
