"""LoRA on a tiny T5: an adapter in PEFT's format, and a base model that stays unchanged."""
import json
import re
import unittest

from support import EndToEnd, read_rows, tensors_of, trainer

STEPS = 40
KEY = re.compile(r"^base_model\.model\.(encoder|decoder)\.block\.\d+\.layer\.\d\.(SelfAttention|EncDecAttention)\.[qv]"
                 r"\.lora_[AB]\.weight$")


class T5Lora(EndToEnd):
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = cls.scratch / "output"
        cls.base = (cls.model / "model.safetensors").read_bytes()
        cls.result = cls.train(cls, "tiny_t5.yaml", cls.output, f"max_steps={STEPS}", "lora.r=4", "lora.target_modules=[q, v]", "lora.lora_alpha=16",
                               "optimizer.learning_rate=2e-2", "data.max_target_length=96")

    def test_loss_falls(self):
        self.assert_done(self.result)
        self.assert_loss_falls(self.output, STEPS, to=0.9)

    def test_leaves_an_adapter(self):
        config = json.loads((self.output / "adapter_config.json").read_text())
        self.assertEqual((config["peft_type"], config["task_type"], config["r"], config["lora_alpha"]),
                         ("LORA", "SEQ_2_SEQ_LM", 4, 16))
        self.assertEqual(sorted(config["target_modules"]), ["q", "v"])
        tensors = tensors_of(self.output / "adapter_model.safetensors")
        self.assertEqual(len(tensors), 2 * 2 * (2 + 2 * 2))  # A and B of q and v, in 2 + 2 x 2 attentions
        for name, (_, shape, data) in tensors.items():
            self.assertRegex(name, KEY)
            self.assertEqual(shape, [4, 64] if "lora_A" in name else [64, 4])
            self.assertTrue(any(data), f"{name} is all zero")
        self.assertFalse((self.output / "model.safetensors").exists())

    def test_leaves_the_base_alone(self):
        self.assertEqual((self.model / "model.safetensors").read_bytes(), self.base)

    def test_generates_with_the_adapter(self):
        prompt = ("--prompt", "Fry onions.", "--device", "cpu", "--max-new-tokens", 20)
        adapted, base = (trainer("generate", "--model", model, *prompt) for model in (self.output, self.model))
        self.assert_done(adapted)
        self.assert_done(base)
        self.assertNotEqual(adapted.stdout, base.stdout)

    def test_starts_from_an_adapter(self):
        again = self.scratch / "again"
        result = self.train("tiny_t5.yaml", again, "max_steps=6", f"lora.adapter={self.output}",
                            "optimizer.learning_rate=1e-3", "data.max_target_length=96")
        self.assert_done(result)
        first, last = (read_rows(output / "metrics.jsonl") for output in (self.output, again))
        self.assertLess(last[0]["loss"], first[0]["loss"])

    def test_trained_embeddings_are_not_rounded_to_the_type_of_the_base(self):
        base, adapter, merged = (self.scratch / name for name in ("bf16", "added", "added_merged"))
        self.make_model(base, "--dtype", "bfloat16")
        self.assert_done(self.train("tiny_t5.yaml", adapter, f"model.path={base}", "max_steps=3", "lora.r=4",
                                    'model.add_tokens=["<new>"]', "optimizer.learning_rate=2e-2"))
        self.assert_done(trainer("merge", adapter, merged, "--dtype", "fp32"))
        losses = []
        for model in (adapter, merged):
            result = trainer("eval", model, self.data / "heldout.jsonl", "--json", "device=cpu", "model.dtype=fp32",
                             "data.max_source_length=64", "data.max_target_length=64")
            self.assert_done(result)
            losses.append(json.loads(result.stdout)["eval_loss"])
        self.assertAlmostEqual(*losses, delta=1e-6 * losses[0])

    def test_a_target_that_matches_nothing_lists_what_could_be(self):
        output = self.scratch / "none"
        result = self.train("tiny_t5.yaml", output, "lora.target_modules=[q_proj]")
        self.assertIn(result.returncode, (2, 4), result.stderr)
        self.assert_refused(result, result.returncode, "q_proj", "wi_0")
        self.assertFalse(list(output.glob("adapter*")))


if __name__ == "__main__":
    unittest.main()
