"""Adapters of every kind are trained, continued and merged; the merged model gives the same answers."""
import json
import re
import shutil
import unittest

from support import EndToEnd, tensors_of, trainer
from zero_models import peak_memory, write_llama, write_zeros

PATTERNS = ["lora.r=4", "lora.target_modules=[q_proj, v_proj, down_proj]", "lora.rank_pattern={q_proj: 2}",
            'lora.alpha_pattern={"layers.0.*v_proj": 3}', "lora.layers_to_transform=[0]", "lora.use_dora=true",
            "lora.lora_dropout=0.1"]


def write_adapter(model):
    """A rank-1 adapter of zeros on the down_proj of a model of zeros."""
    config = json.loads((model / "config.json").read_text())
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    adapter = model / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "base_model_name_or_path": str(model), "r": 1, "lora_alpha": 1,
         "target_modules": ["down_proj"]}))
    shapes = {}
    for layer in range(config["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.mlp.down_proj"
        shapes |= {f"{name}.lora_A.weight": [1, inner], f"{name}.lora_B.weight": [hidden, 1]}
    write_zeros(adapter / "adapter_model.safetensors", shapes, "F32", 4)
    return adapter


class Merge(EndToEnd):
    family = "qwen2"
    model_arguments = ("--kv-heads", 2)

    def train_more(self, name, *overrides):
        output = self.scratch / name
        self.assert_done(self.train("tiny_qwen.yaml", output, "max_steps=3", "optimizer.learning_rate=5e-3",
                                    "data.max_length=160", *overrides))
        return output

    def answers(self, model, *arguments):
        result = trainer("generate", "--model", model, "--input", self.data / "heldout.jsonl", "--device", "cpu",
                         "--dtype", "fp32", "--max-new-tokens", 8, *arguments)
        self.assert_done(result)
        return result.stdout

    def test_patterns_and_dora(self):
        output = self.train_more("patterns", *PATTERNS)
        tensors = tensors_of(output / "adapter_model.safetensors")
        self.assertEqual(tensors["base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"][1], [2, 64])
        self.assertEqual(tensors["base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector"][1], [64])
        self.assertFalse([name for name in tensors if ".layers.1." in name])
        config = json.loads((output / "adapter_config.json").read_text())
        self.assertEqual(config["rank_pattern"], {"q_proj": 2})
        self.assertEqual(config["layers_to_transform"], [0])
        self.assertTrue(config["use_dora"])

        again = self.train_more("patterns_again", f"lora.adapter={output}")
        self.assertEqual(json.loads((again / "adapter_config.json").read_text()), config)

        merged = self.scratch / "merged"
        self.assert_done(trainer("merge", again, merged, "--dtype", "fp32"))
        self.assertEqual(self.answers(merged), self.answers(again))
        self.assert_refused(trainer("merge", again, merged), 2, merged, "already exists")

    def test_added_tokens(self):
        tokens = [f"<tool {i}>" for i in range(80)]  # more than the rows that the embedding has to spare
        text = json.dumps({"text": "".join(tokens)})
        given = "model.add_tokens=" + json.dumps(tokens)
        before = tensors_of(self.model / "model.safetensors")["model.embed_tokens.weight"][1][0]
        lora = self.train_more("added", given, "lora.r=4")
        ids = trainer("tokenize", "--model", lora, "--input", "-", text=text)
        self.assert_done(ids)
        rows = tensors_of(lora / "adapter_model.safetensors")["base_model.model.model.embed_tokens.weight"][1][0]
        self.assertGreater(rows, before)
        merged = self.scratch / "added_merged"
        self.assert_done(trainer("merge", lora, merged, "--dtype", "fp32"))
        self.assertEqual(json.loads((merged / "config.json").read_text())["vocab_size"], rows)
        self.assertEqual(self.answers(merged), self.answers(lora))
        again = trainer("tokenize", "--model", merged, "--input", "-", text=text)
        self.assertEqual(again.stdout, ids.stdout)
        # Gone on with, the tokens are there without being named again.
        self.train_more("added_again", f"lora.adapter={lora}")

        full = self.train_more("added_full", given, "lora=null")
        self.assertEqual(json.loads((full / "config.json").read_text())["vocab_size"], rows)
        self.assertEqual(tensors_of(full / "model.safetensors")["model.embed_tokens.weight"][1][0], rows)
        self.answers(full)

    def test_an_adapter_that_names_no_base_takes_one(self):
        adapter = self.train_more("named")
        expected = self.answers(adapter)
        nameless = self.scratch / "nameless"
        shutil.copytree(adapter, nameless)
        config = json.loads((nameless / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = None
        (nameless / "adapter_config.json").write_text(json.dumps(config))
        rows = self.data / "heldout.jsonl"
        for command in (["generate", nameless, "Fry."], ["eval", nameless, rows, "device=cpu"],
                        ["merge", nameless, self.scratch / "merged_nameless"]):
            self.assert_refused(trainer(*command), 4, "base_model_name_or_path", "--base DIR")
        self.assertEqual(self.answers(nameless, "--base", self.model), expected)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (nameless / file).unlink()
        self.assertEqual(self.answers(nameless, "--base", self.model), expected)
        scores = [trainer("eval", path, rows, "device=cpu", "model.dtype=fp32", *base) for path, base in
                  ((adapter, ()), (nameless, ("--base", self.model)))]
        self.assertEqual(*(line for score in scores for line in score.stdout.splitlines() if line.startswith("eval_loss")))
        self.assert_done(trainer("merge", nameless, self.scratch / "merged_nameless", "--base", self.model))
        self.assert_done(trainer("export", nameless, self.scratch / "nameless.gguf", "--base", self.model))

    def test_a_merge_in_bf16_says_what_it_changes_and_what_does_not(self):
        base = self.scratch / "bf16_base"
        self.make_model(base, *self.model_arguments, "--dtype", "bfloat16")
        adapter = self.train_more("on_bf16", f"model.path={base}", "lora.r=4")
        merged = self.scratch / "bf16_merged"
        result = trainer("merge", adapter, merged)
        self.assert_done(result)
        said = re.search(r"rounding changes the most likely token at (\d+) of (\d+) positions; "
                         r"--dtype fp32 rounds nothing, --dtype fp16 8 times less than bf16", result.stderr)
        self.assertIsNotNone(said, result.stderr)
        self.assertLessEqual(int(said[1]), int(said[2]))
        self.assertGreater(int(said[2]), 0)
        self.assertEqual({kind for kind, _, _ in tensors_of(merged / "model.safetensors").values()}, {"BF16"})
        for name, kind in (("fp32", "F32"), ("fp16", "F16")):
            out = self.scratch / f"{name}_merged"
            result = trainer("merge", adapter, out, "--dtype", name)
            self.assert_done(result)
            self.assertNotIn("rounding changes", result.stderr)
            self.assertEqual({kind for kind, _, _ in tensors_of(out / "model.safetensors").values()}, {kind})
        self.assertEqual(self.answers(self.scratch / "fp32_merged"), self.answers(adapter))

    def test_memory_is_bounded(self):
        small = peak_memory("merge", write_adapter(write_llama(self.scratch / "small", 64, 1)), self.scratch / "small_merged")
        large = peak_memory("merge", write_adapter(write_llama(self.scratch / "large", 1024, 12)), self.scratch / "large_merged")
        size = (self.scratch / "large_merged" / "model.safetensors").stat().st_size / 1e6
        self.assertGreater(size, 300)
        self.assertLess(large - small, 100)


if __name__ == "__main__":
    unittest.main()
