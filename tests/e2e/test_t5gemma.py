"""T5Gemma and T5Gemma 2: layouts, resuming, formats, generation, and the vision tower that is left as it is."""
import json
import shutil
import unittest

from support import EndToEnd, read_rows, tensors_of, trainer

STEPS, CHECKPOINT = 8, 4
ADAPTER = "adapter_model.safetensors"
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")


def all_tensors(directory):
    return tensors_of(directory / "model.safetensors")


class OfBoth:
    """What both models must do; texts are longer than their windows."""
    model_arguments = ("--kv-heads", 2, "--layers", 3, "--decoder-layers", 2)

    def run_with(self, output, *overrides):
        return self.train("tiny_t5.yaml", output, f"training.max_steps={STEPS}", "save.strategy=steps", f"save.steps={CHECKPOINT}",
                          "training.num_threads=1", *overrides)

    def losses(self, output):
        return [row["loss"] for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.full, cls.lora = cls.scratch / "full", cls.scratch / "lora"
        cls.full_result = cls().run_with(cls.full)
        cls.lora_result = cls().run_with(cls.lora, "lora={r: 4, target_modules: all-linear}")

    def test_learns(self):
        self.assert_done(self.full_result)
        self.assert_done(self.lora_result)
        self.assert_loss_falls(self.full, STEPS, to=0.97)

    def test_packed_and_padded_rows_and_any_split_teach_the_same(self):
        expected = self.losses(self.full)
        for number, layout in enumerate([("data.packing=false",), ("training.batch_size=1",),
                                         ("data.packing=false", "training.batch_size=8", "training.num_threads=2")]):
            output = self.scratch / f"layout-{number}"
            self.assert_done(self.run_with(output, *layout))
            for one, other in zip(expected, self.losses(output), strict=True):
                self.assertAlmostEqual(one, other, delta=2e-5 * one, msg=str(layout))

    def test_a_resumed_run_and_recomputed_blocks_give_the_same_bits(self):
        resumed, recomputed = self.scratch / "resumed", self.scratch / "recomputed"
        shutil.copytree(self.full / f"checkpoint-{CHECKPOINT}", resumed / f"checkpoint-{CHECKPOINT}")
        self.assert_done(self.run_with(resumed, f"resume={resumed / f'checkpoint-{CHECKPOINT}'}"))
        self.assert_done(self.run_with(recomputed, "memory.gradient_checkpointing=true"))
        self.assertEqual(all_tensors(resumed), all_tensors(self.full))
        self.assertEqual(all_tensors(recomputed), all_tensors(self.full))

    def test_a_result_has_the_names_of_the_base(self):
        base, result = all_tensors(self.model), all_tensors(self.full)
        self.assertEqual({name: shape for name, (_, shape, _) in result.items()}, {name: shape for name, (_, shape, _) in base.items()})
        same = {name for name in base if result[name] == base[name]} - {"model.encoder.embed_tokens.eoi_embedding"}  # no text has it
        self.assertEqual(same, {name for name in base if "vision_tower" in name or "multi_modal" in name})
        config = json.loads((self.full / "config.json").read_text())
        self.assertEqual(config["decoder"], json.loads((self.model / "config.json").read_text())["decoder"])

    def test_the_base_may_be_in_nf4(self):
        output = self.scratch / "nf4"
        self.assert_done(self.run_with(output, "lora={r: 4}", "model.quantize=nf4", "optimizer.learning_rate=5e-3"))
        losses = self.losses(output)
        self.assertLess(losses[-1], losses[0])

    def generate(self, model, *options):
        result = trainer("generate", "--model", model, "--input", self.data / "heldout.jsonl", "--device", "cpu",
                         "--dtype", "fp32", "--max-new-tokens", 16, *options)  # more than the window
        self.assert_done(result)
        return result.stdout

    def test_answers_do_not_depend_on_their_batch(self):
        for options in ((), ("--num-beams", 3)):
            alone = self.generate(self.full, "--batch-size", 1, *options)
            self.assertEqual(self.generate(self.full, "--batch-size", 7, *options), alone, options)
            self.assertEqual(len(alone.splitlines()), 24)

    def test_a_merged_export_answers_the_same(self):
        merged = self.scratch / "merged"
        self.assert_done(trainer("export", self.lora, merged))
        self.assertEqual(all_tensors(merged).keys(), all_tensors(self.model).keys())
        self.assertEqual(self.generate(merged), self.generate(self.lora))


class T5Gemma(OfBoth, EndToEnd):
    family = "t5gemma"

    def test_an_adapter_has_the_names_of_peft(self):
        names = {name for name in tensors_of(self.lora / ADAPTER) if name.endswith("lora_A.weight")}
        expected = {f"base_model.model.model.{stack}.layers.{number}.{part}.lora_A.weight"
                    for stack, layers, parts in (("encoder", 3, ("self_attn",)), ("decoder", 2, ("self_attn", "cross_attn")))
                    for number in range(layers)
                    for part in [f"{attention}.{name}" for attention in parts for name in PROJECTIONS]
                    + [f"mlp.{name}_proj" for name in ("gate", "up", "down")]}
        self.assertEqual(names, expected)


class T5Gemma2(OfBoth, EndToEnd):
    family = "t5gemma2"

    def test_an_adapter_has_the_names_of_peft(self):
        names = {name for name in tensors_of(self.lora / ADAPTER) if name.endswith("lora_A.weight")}
        expected = {f"base_model.model.model.{stack}.layers.{number}.{part}.lora_A.weight"
                    for stack, layers in (("encoder.text_model", 3), ("decoder", 2)) for number in range(layers)
                    for part in [f"self_attn.{name}" for name in PROJECTIONS] + [f"mlp.{name}_proj" for name in ("gate", "up", "down")]}
        self.assertEqual(names, expected)
        excluded = json.loads((self.lora / "adapter_config.json").read_text())["exclude_modules"]
        self.assertEqual(excluded, r"(?!model\.encoder\.text_model\.|model\.decoder\.).*")

    def test_of_the_encoder_the_text_model_alone_is_loaded(self):
        listed = trainer("models", self.model)
        self.assert_done(listed)
        self.assertIn("T5Gemma 2", listed.stdout)
        self.assertIn("its text half is trained", listed.stdout)


if __name__ == "__main__":
    unittest.main()
