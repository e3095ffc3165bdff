"""ByT5: text as bytes, without a tokenizer file, and an encoder that is deeper than its decoder."""
import json
import unittest

from support import EndToEnd, python_with, trainer, write_rows

LOAD = """
import sys, torch, transformers
model = transformers.AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1]).eval()
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
ids = tokenizer(sys.argv[2], return_tensors="pt")
print(tokenizer.decode(model.generate(**ids, max_new_tokens=24)[0], skip_special_tokens=True), end="")
"""


class ByT5(EndToEnd):
    family = "byt5"
    model_arguments = ("--layers", 3, "--decoder-layers", 1)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output, cls.rows = cls.scratch / "output", cls.scratch / "rows.jsonl"
        words = ["\u00e4pfel", "\u6771\u4eac", "na\u00efve", "\U0001f95a", "salt"]
        write_rows(cls.rows, [{"input": f"say {word} {i % 7}", "target": f"{word}!"} for i in range(40) for word in words])
        cls.result = cls.train(cls, "tiny_t5.yaml", cls.output, f"data.train={cls.rows}", "max_steps=60",
                               "optimizer.learning_rate=1e-2", "model.dtype=fp32")

    def test_loss_falls_and_the_report_counts_bytes(self):
        self.assert_done(self.result)
        self.assert_loss_falls(self.output, 60, to=0.4)
        report = trainer("data", f"model.path={self.model}", f"data.train={self.rows}", "--json")
        self.assert_done(report)
        longest = max(len(json.loads(line)["target"].encode()) for line in self.rows.read_text().splitlines())
        self.assertEqual(json.loads(report.stdout)["train"]["target"]["lengths"]["max"], longest + 1)  # and </s>
        self.assertEqual(json.loads(report.stdout)["train"]["unit"], "bytes")
        self.assertIn(" bytes; lengths:", self.result.stderr)

    def test_the_result_says_what_reads_it(self):
        config = json.loads((self.output / "config.json").read_text())
        self.assertEqual((config["tokenizer_class"], config["num_layers"], config["num_decoder_layers"]), ("ByT5Tokenizer", 3, 1))
        answer = trainer("generate", "--model", self.output, "--prompt", "say \u00e4pfel 3", "--device", "cpu", "--max-new-tokens", 24,
                         "--dtype", "fp32")
        self.assert_done(answer)
        python = python_with("transformers")
        if python is None:
            self.skipTest("needs transformers")
        import subprocess
        theirs = subprocess.run([python, "-c", LOAD, self.output, "say \u00e4pfel 3"], capture_output=True, text=True, check=True)
        self.assertEqual(answer.stdout.rstrip("\n"), theirs.stdout)

    def test_text_becomes_bytes_and_sentinels(self):
        done = trainer("tokenize", "--model", self.model, "--input", "-", text=json.dumps({"text": "caf\u00e9 <extra_id_0>"}))
        self.assert_done(done)
        self.assertEqual(json.loads(done.stdout.splitlines()[0])["ids"], [102, 100, 105, 198, 172, 35, 259, 1])

    def test_a_vocabulary_that_is_too_small_is_named(self):
        small = self.scratch / "small"
        small.mkdir()
        for name in ("config.json", "model.safetensors", "generation_config.json"):
            (small / name).write_bytes((self.model / name).read_bytes())
        (small / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ByT5Tokenizer", "extra_ids": 200}))
        self.assert_refused(self.train("tiny_t5.yaml", self.scratch / "no", f"data.train={self.rows}", f"model.path={small}"), 4, "384")


if __name__ == "__main__":
    unittest.main()
