"""LoRA on a tiny Qwen3.5, whose layers are recurrent and attention by turns: layouts, resuming, formats, generation."""
import json
import shutil
import unittest

from support import EndToEnd, read_rows, tensors_of, trainer

STEPS, CHECKPOINT = 12, 6
RECURRENT = {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"}
ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
ADAPTER = "adapter_model.safetensors"


class Qwen35(EndToEnd):
    family = "qwen3_5"
    model_arguments = ("--kv-heads", 2, "--head-dim", 24, "--layers", 4)

    def run_with(self, output, *overrides):
        return self.train("tiny_qwen.yaml", output, f"max_steps={STEPS}", "lora.r=8", "optimizer.learning_rate=5e-3",
                          "data.max_length=160", "save.strategy=steps", f"save.steps={CHECKPOINT}",
                          "training.num_threads=1", *overrides)

    def losses(self, output):
        return [row["loss"] for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = cls.scratch / "output"
        cls.result = cls().run_with(cls.output)

    def test_learns(self):
        self.assert_done(self.result)
        self.assert_loss_falls(self.output, STEPS, to=0.95)

    def test_an_adapter_has_the_names_of_peft(self):
        config = json.loads((self.output / "adapter_config.json").read_text())
        self.assertEqual(config["task_type"], "CAUSAL_LM")
        layer = "base_model.model.model.layers."
        names = {name for name in tensors_of(self.output / ADAPTER) if name.endswith("lora_A.weight")}
        for number, (mixer, projections) in enumerate([("linear_attn", RECURRENT), ("self_attn", ATTENTION)] * 2):
            for projection in projections:
                names.remove(f"{layer}{number}.{mixer}.{projection}.lora_A.weight")
        self.assertEqual({name.split(".")[-4] for name in names}, {"mlp"})
        self.assertEqual(len(names), 4 * 3)

    def test_packed_and_padded_rows_and_any_split_teach_the_same(self):
        packed = self.losses(self.output)
        for number, layout in enumerate([("data.packing=false",), ("training.batch_size=1",),
                                         ("data.packing=false", "training.batch_size=8", "training.num_threads=2")]):
            output = self.scratch / f"layout-{number}"
            self.assert_done(self.run_with(output, *layout))
            for one, other in zip(packed, self.losses(output), strict=True):
                self.assertAlmostEqual(one, other, delta=1e-5 * one, msg=str(layout))

    def test_a_resumed_run_ends_with_the_same_bits(self):
        resumed = self.scratch / "resumed"
        shutil.copytree(self.output / f"checkpoint-{CHECKPOINT}", resumed / f"checkpoint-{CHECKPOINT}")
        self.assert_done(self.run_with(resumed, f"resume={resumed / f'checkpoint-{CHECKPOINT}'}"))
        self.assertEqual(tensors_of(resumed / ADAPTER), tensors_of(self.output / ADAPTER))

    def test_recomputed_blocks_give_the_same_bits(self):
        output = self.scratch / "recomputed"
        self.assert_done(self.run_with(output, "memory.gradient_checkpointing=true"))
        self.assertEqual(tensors_of(output / ADAPTER), tensors_of(self.output / ADAPTER))

    def test_the_base_may_be_in_nf4_or_fp8(self):
        for kind in ("nf4", "fp8"):
            output = self.scratch / kind
            self.assert_done(self.run_with(output, f"model.quantize={kind}"))
            losses = self.losses(output)
            self.assertLess(losses[-1], losses[0])

    def generate(self, model, *options):
        result = trainer("generate", "--model", model, "--input", self.data / "heldout.jsonl", "--device", "cpu",
                         "--dtype", "fp32", "--max-new-tokens", 12, *options)  # bf16 rounds with the batch
        self.assert_done(result)
        return result.stdout

    def test_answers_do_not_depend_on_their_batch(self):
        for options in ((), ("--num-beams", 3, "--scores")):  # the scores to the last bit
            alone = self.generate(self.output, "--batch-size", 1, *options)
            self.assertEqual(self.generate(self.output, "--batch-size", 7, *options), alone, options)
            self.assertEqual(len(alone.splitlines()), 24)

    def test_a_merged_export_answers_the_same(self):
        merged = self.scratch / "merged"
        self.assert_done(trainer("export", self.output, merged))
        shapes = {name: shape for name, (_, shape, _) in tensors_of(merged / "model.safetensors").items()}
        base = {name: shape for name, (_, shape, _) in tensors_of(self.model / "model.safetensors").items()}
        self.assertEqual(shapes, base)
        self.assertEqual(self.generate(merged), self.generate(self.output))


if __name__ == "__main__":
    unittest.main()
