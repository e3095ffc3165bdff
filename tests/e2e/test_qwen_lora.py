"""LoRA on all linear layers of a tiny Qwen2, on inputs with targets."""
import json
import unittest

from support import EndToEnd, tensors_of, trainer

STEPS = 40
LAYERS, LINEAR = 2, 7


class QwenLora(EndToEnd):
    family = "qwen2"
    model_arguments = ("--kv-heads", 2)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = cls.scratch / "output"
        cls.result = cls.train(cls, "tiny_qwen.yaml", cls.output, f"max_steps={STEPS}", "lora.r=8",
                               "lora.lora_alpha=16", "optimizer.learning_rate=5e-3", "data.max_length=160",
                               "memory.gradient_checkpointing=true")

    def test_loss_falls(self):
        self.assert_done(self.result)
        rows = self.assert_loss_falls(self.output, STEPS, to=0.9)
        # Only targets are learned.
        self.assertLess(rows[0]["supervised_tokens"], rows[0]["tokens"])

    def test_leaves_an_adapter(self):
        config = json.loads((self.output / "adapter_config.json").read_text())
        self.assertEqual(config["task_type"], "CAUSAL_LM")
        tensors = tensors_of(self.output / "adapter_model.safetensors")
        self.assertEqual(len(tensors), 2 * LAYERS * LINEAR)
        self.assertEqual(tensors["base_model.model.model.layers.0.self_attn.k_proj.lora_B.weight"][1], [32, 8])
        self.assertFalse([name for name in tensors if "lm_head" in name])

    def test_generates_with_the_adapter(self):
        result = trainer("generate", "--model", self.output, "--input", self.data / "heldout.jsonl", "--device", "cpu",
                         "--max-new-tokens", 16, "--batch-size", 5)
        self.assert_done(result)
        self.assertEqual(len(result.stdout.splitlines()), 24)


if __name__ == "__main__":
    unittest.main()
