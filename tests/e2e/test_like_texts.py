"""What is scored, learned and resumed from is what it seems: like texts, marks of other programs, foreign checkpoints."""
import json
import shutil
import unittest

from support import EndToEnd, read_rows, trainer, write_rows


class LikeTexts(EndToEnd):
    """A model that has learned its rows by heart answers all of them right."""
    family = "t5"
    model_arguments = ("--dropout", 0)

    def by_heart(self, name, rows, *overrides):
        data = self.scratch / f"{name}.jsonl"
        write_rows(data, rows)
        output = self.scratch / name
        result = self.train("tiny_t5.yaml", output, f"data.train={data}", "max_steps=150", "training.batch_size=4",
                            "optimizer.learning_rate=1e-2", "lr_scheduler_type=constant", *overrides)
        self.assert_done(result)
        return output, data, result

    def scores(self, output, data, *overrides):
        predictions = self.scratch / "predictions.jsonl"
        result = trainer("eval", output, data, "data.kind=seq2seq", "device=cpu", "model.dtype=fp32", "--generate", "--json",
                         "--predictions", predictions, *overrides)
        self.assert_done(result)
        return json.loads(result.stdout), read_rows(predictions)

    def test_special_tokens_are_on_both_sides_or_on_none(self):
        rows = [{"input": "fill <extra_id_0> in", "target": "<extra_id_0> word <extra_id_1>"},
                {"input": "plain", "target": "a plain answer"}]
        output, data, _ = self.by_heart("special", rows)
        for skip in ("true", "false"):
            scores, predictions = self.scores(output, data, f"evaluation.skip_special_tokens={skip}")
            self.assertEqual(scores["eval_token_accuracy"], 1)
            self.assertEqual(scores["eval_exact_match"], 1, predictions)
            self.assertEqual("<extra_id_0>" in predictions[0]["target"], skip == "false")
            self.assertEqual("<extra_id_0>" in predictions[0]["prediction"], skip == "false")

    def test_what_the_tokenizer_does_not_keep_is_named_with_the_cure(self):
        rows = [{"input": "list the steps", "target": "one\ntwo\n  three"}, {"input": "data", "target": "name\tvalue"}]
        output, data, result = self.by_heart("blanks", rows)
        self.assertIn("the tokenizer does not keep tabs, line ends, repeated blanks of what is learned in 2 (100.0 %) rows",
                      result.stderr)
        self.assertEqual(self.scores(output, data)[0]["eval_exact_match"], 1)
        cure = 'model.add_tokens=["\\t","\\n","  "]'
        self.assertIn(cure, result.stderr)
        cured, data, result = self.by_heart("cured", rows, cure)
        self.assertNotIn("does not keep", result.stderr)
        scores, predictions = self.scores(cured, data)
        self.assertEqual(scores["eval_exact_match"], 1)
        self.assertIn("\n", predictions[0]["prediction"])
        text = self.scratch / "text.jsonl"
        write_rows(text, [{"text": "the bread in the oven"}])
        ids = [trainer("tokenize", "--model", model, "--input", text).stdout for model in (self.model, cured)]
        self.assertEqual(*ids)

    def test_the_template_of_conversations_has_an_effect_and_a_list_of_marks_has_none(self):
        template = self.scratch / "own.jinja"
        template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
        data = self.scratch / "marked.jsonl"
        messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
        write_rows(data, [{"messages": messages, "loss_mask": [0, 1]}] * 2)
        result = self.train("tiny_t5.yaml", self.scratch / "marked", f"data.train={data}", f"data.chat_template={template}",
                            "data.kind=chat", "max_steps=1")
        self.assert_done(result)
        self.assertNotIn("data.chat_template: has no effect", result.stderr)
        self.assertIn('the rows have a list "loss_mask", which is not used', result.stderr)

    def test_checkpoints_of_other_programs_are_named(self):
        other = self.scratch / "other" / "checkpoint-2"
        shutil.copytree(self.model, other)
        for name in ("optimizer.pt", "rng_state.pth", "training_args.bin", "trainer_state.json"):
            (other / name).write_text("{}")
        named = "checkpoint of another program, Hugging Face's Trainer"
        output = self.scratch / "resumed"
        self.assert_refused(self.train("tiny_t5.yaml", output, f"resume={other}"), 4, named, "give it as model.path")
        self.assert_refused(self.train("tiny_t5.yaml", output, f"resume={other.parent}"), 4, "checkpoint-2 of another program")
        for overwrite in ("true", "false"):
            result = self.train("tiny_t5.yaml", other.parent, f"overwrite_output_dir={overwrite}")
            self.assert_refused(result, 4, "checkpoint-2 of another program, Hugging Face's Trainer", "give it as model.path")
        self.assertTrue((other / "optimizer.pt").exists())


class Marks(EndToEnd):
    family = "qwen3"

    def rows(self, **mark):
        path = self.scratch / "rows.jsonl"
        write_rows(path, [{"messages": [{"role": "user", "content": "q1"}, {"role": "assistant", "content": "bad", **mark},
                                        {"role": "user", "content": "q2"}, {"role": "assistant", "content": "good"}]}])
        return path

    def supervised(self, path):
        result = trainer("data", "--json", f"model.path={self.model}", f"data.train={path}", "device=cpu")
        self.assert_done(result)
        (sample,) = json.loads(result.stdout)["samples"]
        return [piece["text"] for piece in sample["input"] if piece["supervised"]]

    def test_what_another_program_leaves_out_is_left_out(self):
        learned = self.supervised(self.rows(weight=0))
        self.assertTrue(len(learned) == 1 and learned[0].startswith("good"), learned)
        for mark in ({"loss": False}, {"train": False}, {"training": False}, {"trainable": False}, {"loss_mask": 0},
                     {"masked": True}):
            self.assertEqual(self.supervised(self.rows(**mark)), learned, mark)

    def test_what_is_not_known_is_refused_unless_it_is_ignored(self):
        arguments = (f"model.path={self.model}", "device=cpu", f"data.train={self.rows(good=False)}")
        self.assert_refused(trainer("data", *arguments), 3, "rows.jsonl:1", '"good" is false', "data.unknown_marks=ignore")
        self.assert_done(trainer("data", *arguments, "data.unknown_marks=ignore"))


if __name__ == "__main__":
    unittest.main()
