"""The text half of a model of texts and images: it is trained, and every result holds the other half as it was."""
import json
import shutil
import subprocess
import unittest

from support import EndToEnd, python_with, read_rows, tensors_of, trainer, write_rows
from whole_models import OTHERS, make_whole, stored_tensors

COMPARED = """
import json, sys, torch
from peft import PeftModel
from transformers import AutoModelForImageTextToText
def loaded(directory):
    model, info = AutoModelForImageTextToText.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()
whole, merged, adapter = sys.argv[1:4]
ids = torch.arange(5, 45).unsqueeze(0)
with torch.no_grad():
    plain = loaded(whole)(input_ids=ids).logits
    ours = loaded(merged)(input_ids=ids).logits
    adapted = PeftModel.from_pretrained(loaded(whole), adapter).eval()
    trained = [name for name, _ in adapted.named_parameters() if "lora_" in name]
    theirs = adapted(input_ids=ids).logits
print(json.dumps({"kind": type(loaded(merged)).__name__, "moved": (ours - plain).abs().max().item(),
                  "off": (ours - theirs).abs().max().item(), "trained": trained}))
"""


class WholeModel(EndToEnd):
    family = "mistral"
    model_arguments = ("--kv-heads", 2)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text, cls.model = cls.model, cls.scratch / "whole"
        make_whole(cls.text, cls.model)

    def check_other_half(self, directory):
        stored, base = stored_tensors(directory), stored_tensors(self.model)
        self.assertEqual(set(stored), set(base))
        others = [name for name in base if name.startswith(("vision_tower.", "multi_modal_projector."))]
        self.assertGreater(len(others), 2)
        for name in others:
            self.assertEqual(stored[name], base[name], name)
        for name in OTHERS:
            self.assertEqual((directory / name).read_bytes(), (self.model / name).read_bytes(), name)
        config, before = (json.loads((folder / "config.json").read_text()) for folder in (directory, self.model))
        for each in (config, before):
            each.pop("torch_dtype", None)
            each.pop("dtype", None)
        self.assertEqual(config, before)
        return stored, base

    def answers(self, model):
        result = trainer("generate", "--model", model, "--input", self.data / "heldout.jsonl", "--device", "cpu",
                         "--dtype", "fp32", "--max-new-tokens", 8)
        self.assert_done(result)
        return result.stdout

    def test_it_computes_what_the_text_model_computes(self):
        self.assertEqual(self.answers(self.model), self.answers(self.text))
        losses = []
        for name, model in (("of_text", self.text), ("of_whole", self.model)):
            output = self.scratch / name
            self.assert_done(self.train("tiny_qwen.yaml", output, "max_steps=3", f"model.path={model}", "lora=null"))
            losses.append([row["loss"] for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"])
        self.assertEqual(*losses)

    def test_an_adapter_and_what_it_is_merged_into(self):
        adapter, merged = self.scratch / "adapter", self.scratch / "merged"
        self.assert_done(self.train("tiny_qwen.yaml", adapter, "max_steps=3", "optimizer.learning_rate=5e-3"))
        names = tensors_of(adapter / "adapter_model.safetensors")
        self.assertTrue(all(name.startswith("base_model.model.model.language_model.layers.") for name in names), names)
        self.assert_done(trainer("merge", adapter, merged, "--dtype", "fp32"))
        stored, base = self.check_other_half(merged)
        changed = [name for name in base if stored[name] != base[name]]
        self.assertTrue(changed and all(name.startswith("language_model.model.layers.") for name in changed), changed)
        self.assertEqual(self.answers(merged), self.answers(adapter))
        python = python_with("peft")
        if python is None:
            return
        done = subprocess.run([python, "-c", COMPARED, self.model, merged, adapter], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("issing", done.stderr)
        seen = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(seen["kind"], "Mistral3ForConditionalGeneration")
        self.assertGreater(seen["moved"], 1e-3)
        self.assertLess(seen["off"], 1e-4)
        self.assertTrue(all(".language_model." in name for name in seen["trained"]), seen["trained"])

    def test_a_full_run_and_one_that_goes_on(self):
        output = self.scratch / "full"
        settings = ("tiny_qwen.yaml", output, "lora=null", "save.strategy=steps", "save.steps=2")
        self.assert_done(self.train(*settings, "max_steps=2"))
        self.check_other_half(output)
        self.check_other_half(output / "checkpoint-2")
        self.assert_done(self.train(*settings, "max_steps=4"))
        stored, base = self.check_other_half(output)
        self.assertNotEqual(stored["language_model.model.norm.weight"], base["language_model.model.norm.weight"])
        exported = self.scratch / "exported"
        self.assert_done(trainer("export", output / "checkpoint-2", exported, "--max-shard-size", "100kB"))
        self.check_other_half(exported)
        self.assertEqual(self.answers(exported), self.answers(output / "checkpoint-2"))

    def test_in_four_and_eight_bits(self):
        for how in ("nf4", "fp8"):
            with self.subTest(how):
                out = self.scratch / how
                self.assert_done(trainer("export", self.model, out, "--quantize", how))
                stored, base = stored_tensors(out), stored_tensors(self.model)
                for name in base:
                    if name.startswith("vision_tower."):
                        self.assertEqual(stored[name], base[name])
                settings = json.loads((out / "config.json").read_text())["quantization_config"]
                self.assertIn("vision_tower", json.dumps(settings))
                self.assertEqual(len(self.answers(out).splitlines()), len(self.answers(self.model).splitlines()))

    def test_rows_with_images_are_refused(self):
        rows = self.data / "images.jsonl"
        question, image = {"type": "text", "text": "What is it?"}, {"type": "image", "image": "cat.png"}
        for parts, fields in (([image, question], {}), ([question], {"images": ["cat.png"]})):
            write_rows(rows, [{"messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": "A cat."}]} | fields])
            result = self.train("tiny_qwen.yaml", self.scratch / "images", "data.kind=chat", f"data.train={rows}")
            self.assert_refused(result, 3, "images.jsonl:1", '"image', "can be learned from")

    def test_a_half_of_another_kind_is_refused(self):
        other = self.scratch / "other"
        shutil.copytree(self.model, other)
        config = json.loads((other / "config.json").read_text())
        for text, said in (({"model_type": "llama"}, "text_config: model_type 'llama'"), (None, "text_config: must be an object")):
            (other / "config.json").write_text(json.dumps(config | {"text_config": text and config["text_config"] | text}))
            self.assert_refused(trainer("generate", "--model", other, "--prompt", "Fry", "--device", "cpu"), 4, said)


if __name__ == "__main__":
    unittest.main()
