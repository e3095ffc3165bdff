"""LoRA on a tiny Gemma 4, whose layers have heads of two sizes: layouts, resuming, formats, generation, results."""
import json
import shutil
import subprocess
import unittest

from support import EndToEnd, python_with, read_rows, tensors_of, trainer

STEPS, CHECKPOINT = 12, 6
ADAPTER = "adapter_model.safetensors"
COMPARED = """
import json, sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
def loaded(directory):
    model, info = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()
base, merged, adapter = sys.argv[1:4]
ids = torch.arange(5, 65).unsqueeze(0)
with torch.no_grad():
    plain = loaded(base)(input_ids=ids).logits
    ours = loaded(merged)(input_ids=ids).logits
    theirs = PeftModel.from_pretrained(loaded(base), adapter).eval()(input_ids=ids).logits
print(json.dumps({"moved": (ours - plain).abs().max().item(), "off": (ours - theirs).abs().max().item()}))
"""


class Gemma4(EndToEnd):
    family = "gemma4"
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
        self.assert_loss_falls(self.output, STEPS, to=0.97)

    def test_layers_without_a_window_have_no_adapter_of_values(self):
        names = {name for name in tensors_of(self.output / ADAPTER) if name.endswith("v_proj.lora_A.weight")}
        self.assertEqual(names, {f"base_model.model.model.layers.{i}.self_attn.v_proj.lora_A.weight" for i in (0, 2)})

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
                         "--dtype", "fp32", "--max-new-tokens", 24, *options)
        self.assert_done(result)
        return result.stdout

    def test_answers_do_not_depend_on_their_batch(self):
        for options in ((), ("--num-beams", 3)):
            alone = self.generate(self.output, "--batch-size", 1, *options)
            self.assertEqual(self.generate(self.output, "--batch-size", 7, *options), alone, options)
            self.assertEqual(len(alone.splitlines()), 24)

    def test_transformers_and_peft_compute_the_same_of_adapter_and_merged_model(self):
        merged = self.scratch / "merged"
        self.assert_done(trainer("merge", self.output, merged, "--dtype", "fp32"))
        self.assertEqual(self.generate(merged), self.generate(self.output))
        python = python_with("peft")
        if python is None:
            return
        done = subprocess.run([python, "-c", COMPARED, self.model, merged, self.output], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        seen = json.loads(done.stdout.splitlines()[-1])
        self.assertGreater(seen["moved"], 1e-3)
        self.assertLess(seen["off"], 1e-4)

    def test_a_full_run_does_not_train_the_scalar_of_a_layer_and_stores_it(self):
        output = self.scratch / "full"
        self.assert_done(self.run_with(output, "lora=null", "max_steps=3"))
        after, before = (tensors_of(folder / "model.safetensors") for folder in (output, self.model))
        self.assertEqual(set(after), set(before))
        same = {name for name in before if after[name] == before[name]}
        self.assertEqual(same, {f"model.layers.{i}.layer_scalar" for i in range(4)})


if __name__ == "__main__":
    unittest.main()
