"""Pretraining: random weights from a config.json, and span corruption of running text."""
import json
import subprocess
import unittest

from support import EndToEnd, python_with, read_rows, tensors_of, trainer, write_rows

DEVIATIONS = """
import json, sys, torch, transformers
config = transformers.AutoConfig.from_pretrained(sys.argv[1])
kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
torch.manual_seed(0)
model = kind.from_config(config, dtype=torch.float32)
print(json.dumps({name: [float(t.std()) if t.numel() > 1 else 0.0, float(t.mean())] for name, t in model.state_dict().items()}))
"""
OURS = """
import json, sys, safetensors.torch
tensors = safetensors.torch.load_file(sys.argv[1])
print(json.dumps({name: [float(t.std()), float(t.mean()), t.numel()] for name, t in tensors.items()}))
"""


class Pretraining(EndToEnd):
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shape = cls.scratch / "shape"
        cls.without_weights(cls.model, cls.shape)
        cls.text = cls.scratch / "text.jsonl"
        lines = (cls.data / "text.txt").read_text(encoding="utf-8").split("\n")
        write_rows(cls.text, [{"text": " ".join(lines[i:i + 8])} for i in range(0, len(lines) - 8, 8)])
        cls.cache = cls.scratch / "cache"
        cls.arguments = (f"model.path={cls.shape}", "model.init=random", "data.kind=span_corruption", f"data.train={cls.text}",
                         f"data.cache={cls.cache}", "optimizer.learning_rate=3e-3", "data.noise_span=2")
        cls.output = cls.scratch / "output"
        cls.result = cls.train(cls, "tiny_t5.yaml", cls.output, *cls.arguments, "max_steps=40")

    @staticmethod
    def without_weights(model, to):
        to.mkdir()
        for file in model.iterdir():
            if file.suffix != ".safetensors":
                (to / file.name).write_bytes(file.read_bytes())

    def test_loss_falls_from_random_weights(self):
        self.assert_done(self.result)
        self.assert_loss_falls(self.output, 40, to=0.8)
        self.assertEqual(sorted(tensors_of(self.output / "model.safetensors")), sorted(tensors_of(self.model / "model.safetensors")))

    def test_weights_are_distributed_as_those_of_transformers(self):
        python = python_with("transformers")
        if python is None:
            self.skipTest("needs transformers")

        def of(script, path):
            return json.loads(subprocess.run([python, "-c", script, path], capture_output=True, text=True, check=True).stdout)
        cache = self.scratch / "other-cache"
        self.assert_done(self.train("tiny_t5.yaml", self.scratch / "one", *self.arguments, "max_steps=1", f"data.cache={cache}"))
        (initial,) = (cache / "initial").iterdir()
        theirs, ours = of(DEVIATIONS, self.shape), of(OURS, initial / "model.safetensors")
        for name, (deviation, mean, count) in ours.items():
            five_deviations = 5 * 2 ** 0.5 * theirs[name][0] / count ** 0.5 + 1e-6  # both are drawn
            self.assertAlmostEqual(deviation, theirs[name][0], delta=five_deviations, msg=name)
            self.assertAlmostEqual(mean, theirs[name][1], delta=five_deviations, msg=name)

    def test_the_same_seed_gives_the_same_run_and_another_another(self):
        runs = {}
        for name, seed in (("again", 42), ("other", 43)):
            output = self.scratch / name
            self.assert_done(self.train("tiny_t5.yaml", output, *self.arguments, f"seed={seed}", "max_steps=4"))
            runs[name] = [row["loss"] for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"]
        first = [row["loss"] for row in read_rows(self.output / "metrics.jsonl") if row["kind"] == "train"][:4]
        self.assertNotEqual(runs["other"], runs["again"])
        self.assertEqual(runs["again"][0], first[0])

    def test_a_resumed_run_takes_out_the_same_parts(self):
        several = (*self.arguments, "effective_batch_size=64", "save.strategy=steps", "save.steps=5", "training.num_threads=1",
                   "optimizer.lr_scheduler_type=constant")
        whole, resumed = self.scratch / "whole", self.scratch / "resumed"
        self.assert_done(self.train("tiny_t5.yaml", whole, *several, "max_steps=20"))
        for steps in (7, 20):
            self.assert_done(self.train("tiny_t5.yaml", resumed, *several, f"max_steps={steps}"))
        rows = [row for row in read_rows(whole / "metrics.jsonl") if row["kind"] == "train"]
        self.assertGreater(rows[-1]["epoch"], 1)  # another epoch takes out other parts
        self.assertEqual(tensors_of(whole / "model.safetensors"), tensors_of(resumed / "model.safetensors"))

    def test_mistakes(self):
        self.assert_refused(self.train("tiny_t5.yaml", self.scratch / "no", *self.arguments, "lora={}"), 2, "model.init")
        bare = self.scratch / "bare"
        bare.mkdir()
        (bare / "config.json").write_bytes((self.model / "config.json").read_bytes())
        self.assert_refused(self.train("tiny_t5.yaml", self.scratch / "no", *self.arguments, f"model.path={bare}"), 4, "tokenizer")
        generate = self.train("tiny_t5.yaml", self.scratch / "no", *self.arguments, "data.eval=0.1", "training.eval_strategy=steps",
                              "evaluation.generate=true")
        self.assert_refused(generate, 2, "span_corruption")


if __name__ == "__main__":
    unittest.main()
