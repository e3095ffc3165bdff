"""`trainer data` reports on the data of a run, and limits on the data end the run."""
import json
import os
import unittest

from support import ROOT, EndToEnd, read_rows, trainer, write_rows


class Data(EndToEnd):
    family = "t5"

    def arguments(self, *overrides):
        return ("--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}",
                f"data.train={self.data / 'train.jsonl'}", f"data.eval={self.data / 'heldout.jsonl'}", "data.max_target_length=96",
                *overrides)

    def report(self, *overrides):
        result = trainer("data", *self.arguments(*overrides), "--json")
        self.assert_done(result)
        return json.loads(result.stdout)

    def test_counts(self):
        report = self.report()
        rows = read_rows(self.data / "train.jsonl")
        inputs = {row["input"] for row in rows}
        heldout = read_rows(self.data / "heldout.jsonl")
        train = report["train"]
        self.assertEqual((train["rows"], train["samples"], train["kind"]), (400, 400, "seq2seq"))
        self.assertEqual(train["duplicates"]["count"], len(rows) - len({(row["input"], row["target"]) for row in rows}))
        self.assertEqual(sum(bucket["count"] for bucket in train["input"]["lengths"]["histogram"]), 400)
        self.assertEqual(train["tokens"], train["input"]["tokens"] + train["target"]["tokens"])
        self.assertEqual(train["supervised_tokens"], train["target"]["tokens"])
        self.assertEqual(report["overlap"]["same_input"]["count"], sum(row["input"] in inputs for row in heldout))
        self.assertEqual(report["eval"]["rows"], 24)
        self.assertEqual(report["epoch"]["steps"], -(-400 // report["epoch"]["effective_batch_size"]))
        self.assertEqual(0, report["epoch"]["padding"]["share"])
        self.assertLess(0, self.report("data.packing=false")["epoch"]["padding"]["share"])
        self.assertEqual(report["epoch"]["padding"]["samples"], 400)

    def test_samples_are_what_the_model_sees(self):
        samples = self.report("data.shuffle=false")["samples"]
        self.assertEqual([sample["origin"] for sample in samples], [f"{self.data / 'train.jsonl'}:{i}" for i in (1, 2, 3)])
        for sample, row in zip(samples, read_rows(self.data / "train.jsonl")):
            (target,) = sample["target"]
            self.assertTrue(target["supervised"])
            self.assertTrue(target["text"].endswith("</s>"))
            self.assertEqual((sample["origin"], target["text"].removesuffix("</s>")), (sample["origin"], row["target"]))
            self.assertEqual(sample["supervised_tokens"], sample["target_tokens"])

    def test_text(self):
        result = trainer("data", *self.arguments())
        self.assert_done(result)
        for words in ("training data: ", "evaluation data: ", "supervised", "p99", "[["):
            self.assertIn(words, result.stdout)
        self.assertNotIn("\x1b", result.stdout)

    def test_no_weights_are_needed(self):
        other = self.scratch / "no-weights"
        other.mkdir()
        for file in self.model.iterdir():
            if file.suffix != ".safetensors":
                os.link(file, other / file.name)
        result = trainer("data", *self.arguments(f"model.path={other}"), "--json")
        self.assert_done(result)
        self.assertEqual(json.loads(result.stdout), self.report())

    def test_malformed_rows_are_shown_and_end_it(self):
        rows = self.scratch / "bad.jsonl"
        rows.write_text('{"input": "a", "target": "b"}\nnonsense\n{"input": "c"}\n', encoding="utf-8")
        result = trainer("data", *self.arguments(f"data.train={rows}"), "--json")
        self.assert_refused(result, 3, f"{rows}:2", "2 of 3 rows cannot be used")
        malformed = json.loads(result.stdout)["train"]["malformed"]
        self.assertEqual([row["origin"] for row in malformed["first"]], [f"{rows}:2", f"{rows}:3"])
        skipping = (f"data.train={rows}", "data.bad_rows=skip")
        self.assert_done(trainer("data", *self.arguments(*skipping)))
        self.assert_refused(trainer("data", *self.arguments(*skipping, "data.max_malformed=0.5")), 3, "data.max_malformed")

    def test_limits_end_the_run_before_it_begins(self):
        output = self.scratch / "limited"
        for limit in ("data.max_truncated=0.01", "data.max_unknown=0"):
            rows = self.scratch / "limited.jsonl"
            write_rows(rows, [{"input": "Fry onions. " * 8, "target": "ab 日本語"}] * 2)
            overrides = (f"data.train={rows}", "data.max_source_length=8", limit)
            words = (limit.split("=")[0], f"{rows}:1", "2 of 2 rows")
            self.assert_refused(trainer("data", *self.arguments(*overrides)), 3, *words)
            self.assert_refused(self.train("tiny_t5.yaml", output, "max_steps=2", *overrides), 3, *words)
            self.assert_refused(trainer("doctor", *self.arguments(*overrides, "device=cpu", f"output_dir={output}")), 3)
            self.assertFalse(output.exists())
        self.assert_refused(trainer("data", *self.arguments("data.max_unknown=2")), 2, "data.max_unknown")

    def test_a_run_keeps_its_report(self):
        output = self.scratch / "output"
        settings = ("data.max_target_length=96", f"data.eval={self.data / 'heldout.jsonl'}", "save.strategy=steps",
                    "save.steps=1")
        result = self.train("tiny_t5.yaml", output, "max_steps=2", *settings)
        self.assert_done(result)
        kept = json.loads((output / "data_report.json").read_text(encoding="utf-8"))
        self.assertEqual(kept, self.report())
        for words in ("train data: 400 samples", "p99", "padding"):
            self.assertIn(words, result.stderr)
        # Without room for it the run goes on.
        (output / "data_report.json").unlink()
        (output / "data_report.json" / "in the way").mkdir(parents=True)
        result = self.train("tiny_t5.yaml", output, "max_steps=3", *settings)
        self.assert_done(result)
        self.assertIn("the data report is not saved: ", result.stderr)


class DataOfADecoder(EndToEnd):
    family = "qwen2"

    def test_the_answer_is_what_is_learned(self):
        rows = self.scratch / "rows.jsonl"
        write_rows(rows, [{"prompt": "How are you?\n", "completion": " Ça va"}])
        arguments = ("--config", ROOT / "configs" / "tiny_qwen.yaml", f"model.path={self.model}", f"data.train={rows}")
        result = trainer("data", *arguments, "--json")
        self.assert_done(result)
        (sample,) = json.loads(result.stdout)["samples"]
        prompt, answer = sample["input"]
        self.assertEqual((prompt["text"], prompt["supervised"]), ("How are you?\n", False))
        self.assertTrue(answer["supervised"])
        self.assertTrue(answer["text"].startswith(" Ça va<|"), answer)
        self.assertIn("How are you?\\n[[ Ça va<|", trainer("data", *arguments).stdout)

    def test_a_template_that_fails_is_named_with_its_line_and_the_row(self):
        rows = self.scratch / "conversations.jsonl"
        messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
        write_rows(rows, [{"messages": messages}, {"messages": [{"role": "user", "content": "endless"}, messages[1]]}])
        template = self.scratch / "chat.jinja"
        arguments = ("--config", ROOT / "configs" / "tiny_qwen.yaml", f"model.path={self.model}", f"data.train={rows}",
                     f"data.chat_template={template}", "data.kind=chat")
        tokenize = ("tokenize", "--model", self.model, "--chat", "--chat-template", template, "--input", rows)
        turns = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|im_end|>{% endfor %}"
                 "{% if add_generation_prompt %}<|assistant|>{% endif %}\n")
        endless = "{% if messages[0].content == 'endless' %}{{ range(100000) | select('in', range(100000)) | list }}{% endif %}"
        template.write_text(turns + endless)
        words = (f"{template}:2: the chat template takes more than", "another template", f"(at the row {rows}:2)")
        self.assert_refused(trainer("data", *arguments), 4, *words)
        self.assert_refused(trainer(*tokenize), 4, *words)
        self.assertNotIn("40 bytes", trainer("data", *arguments).stderr)
        template.write_text(turns + "{% if messages[0].content == 'endless' %}{{ raise_exception('not this') }}{% endif %}")
        words = (f"{rows}:2: ", f"{template}:2: the chat template refuses the conversation: not this")
        self.assert_refused(trainer("data", *arguments), 3, *words)
        self.assert_refused(trainer(*tokenize), 3, *words)
        # A template with {% generation %} for other conversations: what ends an answer cannot be found with an example.
        template.write_text("{% if messages | length < 3 %}{{ raise_exception('too short') }}{% endif %}{% for m in messages %}"
                            "<|{{ m.role }}|>{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}")
        write_rows(rows, [{"messages": messages * 2}])
        result = trainer("data", *arguments)
        self.assert_done(result)
        self.assertIn("does not show what ends an answer: ", result.stderr)
        self.assertIn("too short", result.stderr)


if __name__ == "__main__":
    unittest.main()
