"""Classes, numbers and rewards of texts: what is learned, evaluated, printed and saved, and that Transformers and PEFT load it."""
import json
import unittest

from support import ROOT, EndToEnd, python_with, read_rows, run_with, tensors_of, trainer, write_rows

PYTHON = python_with("peft")
ROWS = 120
# Gets a result, its base if it is an adapter, and texts; prints the labels and the outputs.
LOADED = """
import json, sys, torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
given = json.load(sys.stdin)
labels = given["labels"]
if given["base"]:
    from peft import PeftModel
    model = AutoModelForSequenceClassification.from_pretrained(given["base"], num_labels=labels, dtype=torch.float32)
    model = PeftModel.from_pretrained(model, given["model"])
    names = {}
else:
    model, info = AutoModelForSequenceClassification.from_pretrained(given["model"], dtype=torch.float32, output_loading_info=True)
    assert not any(info.values()), info
    names = model.config.id2label
model.eval()
tokenizer = AutoTokenizer.from_pretrained(given["model"])
if tokenizer.pad_token is None:
    tokenizer.pad_token = tokenizer.eos_token
with torch.no_grad():
    batch = tokenizer(given["texts"], padding=True, return_tensors="pt")
    outputs = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
print(json.dumps({"names": [names[i] for i in sorted(names)], "outputs": outputs.tolist()}))
"""


def loaded(model, texts, labels=3, base=None):
    given = {"model": str(model), "base": base and str(base), "texts": texts, "labels": labels}
    return run_with(PYTHON, LOADED, given)[0]


def rows_of(output, kind="train"):
    return [row for row in read_rows(output / "metrics.jsonl") if row["kind"] == kind]


class OfAModel:
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        said = read_rows(cls.data / "train.jsonl")
        verb = lambda row: json.loads(row["target"])["do"]
        cls.rows = [{"text": row["input"], "label": verb(row) if verb(row) in ("bake", "grill") else "other"}
                    for row in said[:ROWS]]
        cls.train_file, cls.eval_file = cls.scratch / "labels.jsonl", cls.scratch / "eval.jsonl"
        write_rows(cls.train_file, cls.rows)
        write_rows(cls.eval_file, cls.rows[:30])
        cls.numbers, cls.pairs = cls.scratch / "numbers.jsonl", cls.scratch / "pairs.jsonl"
        write_rows(cls.numbers, [{"text": row["text"], "label": len(row["text"]) / 50} for row in cls.rows])
        write_rows(cls.pairs, [{"prompt": "Answer: ", "chosen": row["text"], "rejected": row["text"][: len(row["text"]) // 3]}
                               for row in cls.rows])

    def run_steps(self, name, *overrides, code=0):
        output = self.scratch / name
        result = self.train(self.preset, output, f"data.train={self.train_file}", "data.kind=auto", "objective.name=classification",
                            "max_steps=4", *self.settings, *overrides)
        self.assertEqual(result.returncode, code, result.stderr)
        self.said = result.stderr
        if code == 0:
            self.assertIn("--classify", result.stderr)  # how to try it
        return output

    def classified(self, model, rows, *arguments):
        file = self.scratch / "asked.jsonl"
        write_rows(file, rows)
        result = trainer("generate", model, "--input-file", file, "--classify", "--dtype", "fp32", "--device", "cpu", *arguments)
        self.assert_done(result)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def assert_same_probabilities(self, found, outputs, labels):
        for row, scores in zip(found, outputs, strict=True):
            largest = max(scores)
            self.assertEqual(row["prediction"], labels[scores.index(largest)])
            shares = [2.718281828459045 ** (score - largest) for score in scores]
            for label, share in zip(labels, shares, strict=True):
                self.assertAlmostEqual(row["probabilities"][label], share / sum(shares), delta=1e-5)

    @unittest.skipUnless(PYTHON, "needs transformers and peft")
    def test_a_classifier_of_all_weights(self):
        """It learns its rows; the evaluation, the probabilities and Transformers agree."""
        output = self.run_steps("full", "lora=null", "max_steps=60", f"data.eval={self.eval_file}", "training.eval_strategy=steps",
                                "training.eval_steps=60", "optimizer.learning_rate=3e-3")
        losses = [row["loss"] for row in rows_of(output)]
        self.assertLess(sum(losses[-5:]), 0.5 * sum(losses[:5]))
        evaluated = rows_of(output, "eval")[-1]
        labels = ["bake", "grill", "other"]
        self.assertEqual(evaluated["eval_classes"], labels)
        self.assertEqual(sum(map(sum, evaluated["eval_confusion"])), 30)
        right = sum(evaluated["eval_confusion"][i][i] for i in range(3))
        self.assertAlmostEqual(evaluated["eval_accuracy"], right / 30)
        self.assertNotIn("eval_perplexity", evaluated)
        texts = [row["text"] for row in self.rows[:30]]
        there = loaded(output, texts)
        self.assertEqual(there["names"], labels)
        found = self.classified(output, [{"text": text, "id": 7} for text in texts])
        self.assertEqual(found[0]["id"], 7)
        self.assert_same_probabilities(found, there["outputs"], labels)
        self.assertEqual(sum(row["prediction"] == of["label"] for row, of in zip(found, self.rows)), right)
        result = trainer("eval", output, self.eval_file, "device=cpu", "model.dtype=fp32")
        self.assert_done(result)
        for words in (f"eval_accuracy", "eval_f1", "label \\ prediction", "grill"):
            self.assertIn(words, result.stdout)
        exported = self.scratch / "exported"
        self.assert_done(trainer("export", output, exported))
        self.assertEqual(json.loads((exported / "config.json").read_text())["architectures"],
                         json.loads((output / "config.json").read_text())["architectures"])
        # It is trained further with the labels that it has, though the new rows have fewer.
        fewer = self.scratch / "fewer.jsonl"
        write_rows(fewer, [row for row in self.rows if row["label"] != "bake"])
        further = self.run_steps("further", "lora=null", f"model.path={output}", f"data.train={fewer}", "max_steps=1")
        self.assertEqual(loaded(further, texts[:1])["names"], labels)

    @unittest.skipUnless(PYTHON, "needs transformers and peft")
    def test_an_adapter_with_its_head(self):
        output = self.run_steps("lora", *self.adapter)
        self.assertIn("the head begins anew, with 3 classes: bake, grill, other", self.said)
        config = json.loads((output / "adapter_config.json").read_text())
        self.assertEqual(config["task_type"], "SEQ_CLS")
        self.assertEqual(config["modules_to_save"], [self.head])
        texts = [row["text"] for row in self.rows[:5]]
        labels = ["bake", "grill", "other"]
        found = self.classified(output, [{"text": text} for text in texts])
        self.assert_same_probabilities(found, loaded(output, texts, base=self.model)["outputs"], labels)
        merged = self.scratch / "merged"
        self.assert_done(trainer("merge", output, merged))
        there = loaded(merged, texts)
        self.assertEqual(there["names"], labels)
        self.assert_same_probabilities(found, there["outputs"], labels)
        on = self.run_steps("further_lora", *self.adapter, f"lora.adapter={output}")
        self.assertLess(rows_of(on)[0]["loss"], rows_of(output)[0]["loss"])
        self.assertIn(f"the head is that of the adapter {output}, with 3 classes: bake, grill, other", self.said)
        for names in ("[grill, bake, other]", "[bake, grill, toast]", "[bake, other]"):
            result = self.train(self.preset, self.scratch / "others", f"data.train={self.train_file}", "data.kind=auto", "objective.name=classification",
                                *self.settings, *self.adapter, f"lora.adapter={output}", f"objective.labels={names}")
            self.assert_refused(result, 2, "lora.adapter", "has the 3 classes bake, grill, other", "objective.labels names " + names[1:-1])
        self.run_steps("same_labels", *self.adapter, f"lora.adapter={output}", "objective.labels=[bake, grill, other]", "max_steps=1")

    def test_a_plan_has_the_head_of_the_run(self):
        """Of a classifier that is trained further with fewer rows: its classes, which the data do not show."""
        classes = [f"class {number}" for number in range(40)]
        first = self.run_steps("forty", "lora=null", f"objective.labels={json.dumps(['bake', 'grill', 'other', *classes])}", "max_steps=1")
        settings = ("lora=null", "device=cpu", f"model.path={first}")
        output = self.run_steps("planned", *settings, "max_steps=1")
        memory = rows_of(output, "memory")[0]
        result = trainer("plan", "--config", ROOT / "configs" / self.preset, "--json", "data.kind=auto", "objective.name=classification", *self.settings, *settings)
        self.assert_done(result)
        planned = json.loads(result.stdout)["bytes"]
        for part in ("weights", "optimizer_state"):
            self.assertEqual(planned[part], memory[f"planned_{part}"], part)

    def test_any_split_gives_the_same_steps(self):
        weights = "objective.class_weights={bake: 3, other: 0.5}"
        whole = self.run_steps("whole", *self.adapter, weights, "training.batch_size=8", "data.packing=false")
        for name, overrides in (("ones", ("training.batch_size=1", "training.micro_batching=samples")),
                                ("packed", ("training.batch_size=3", "data.packing=true")),
                                ("recomputed", ("training.batch_size=3", "memory.gradient_checkpointing=true"))):
            cut = self.run_steps(name, *self.adapter, weights, *overrides)
            for a, b in zip(rows_of(whole), rows_of(cut), strict=True):
                self.assertAlmostEqual(a["loss"] / b["loss"], 1, delta=2e-5, msg=name)
                self.assertAlmostEqual(a["grad_norm"] / b["grad_norm"], 1, delta=1e-3, msg=name)

    def test_a_run_that_resumes_has_the_same_bits(self):
        for name, tuning in (("full", ("lora=null",)), ("lora", self.adapter)):
            settings = *tuning, "save.strategy=steps", "save.steps=2", "optimizer.lr_scheduler_type=constant"
            whole = self.run_steps(f"whole_{name}", *settings)
            self.run_steps(f"stopped_{name}", *settings, "max_steps=2")
            resumed = self.run_steps(f"stopped_{name}", *settings)
            file = "model.safetensors" if name == "full" else "adapter_model.safetensors"
            self.assertEqual(tensors_of(whole / file), tensors_of(resumed / file))

    @unittest.skipUnless(PYTHON, "needs transformers and peft")
    def test_numbers(self):
        output = self.run_steps("numbers", "lora=null", f"data.train={self.numbers}", "objective.name=regression", "max_steps=150",
                                "optimizer.learning_rate=3e-3", f"data.eval={self.numbers}", "training.eval_strategy=steps",
                                "training.eval_steps=150", "training.metric_for_best_model=pearson",
                                "training.load_best_model_at_end=true", "save.strategy=steps", "save.steps=150")
        evaluated = rows_of(output, "eval")[-1]
        self.assertGreater(evaluated["eval_pearson"], 0.5)
        self.assertNotIn("eval_accuracy", evaluated)
        texts = [row["text"] for row in self.rows[:4]]
        for row, (number,) in zip(self.classified(output, [{"text": text} for text in texts]), loaded(output, texts)["outputs"]):
            self.assertAlmostEqual(row["prediction"], number, delta=1e-4)

    @unittest.skipUnless(PYTHON, "needs transformers and peft")
    def test_rewards(self):
        output = self.run_steps("rewards", "lora=null", f"data.train={self.pairs}", "objective.name=reward", "max_steps=40",
                                "optimizer.learning_rate=3e-3", f"data.eval={self.pairs}", "training.eval_strategy=steps",
                                "training.eval_steps=40", "objective.center_rewards_coefficient=0.01")
        evaluated = rows_of(output, "eval")[-1]
        self.assertGreater(evaluated["eval_reward_accuracy"], 0.9)
        self.assertNotIn("eval_logps_chosen", evaluated)
        row = read_rows(self.pairs)[0]
        asked = [{"prompt": row["prompt"], "completion": row[side]} for side in ("chosen", "rejected")]
        rewards = [found["prediction"] for found in self.classified(output, asked)]
        self.assertGreater(*rewards)
        end = "" if self.family == "t5" else "<eos>"
        tokens = json.loads((output / "tokenizer_config.json").read_text())
        end = end and (tokens["eos_token"] if isinstance(tokens["eos_token"], str) else tokens["eos_token"]["content"])
        texts = [row["prompt"] + row[side] + end for side in ("chosen", "rejected")]
        for reward, text in zip(rewards, texts):
            self.assertAlmostEqual(reward, loaded(output, [text], labels=1)["outputs"][0][0], delta=1e-4)
        halves = [self.run_steps(name, *self.adapter, f"data.train={self.pairs}", "objective.name=reward", *cut)
                  for name, cut in (("r8", ("training.batch_size=8",)), ("r1", ("training.batch_size=1",)))]
        for a, b in zip(*map(rows_of, halves), strict=True):
            self.assertAlmostEqual(a["loss"] / b["loss"], 1, delta=2e-5)
            self.assertAlmostEqual(a["grad_norm"] / b["grad_norm"], 1, delta=1e-3)

    def test_the_memory_test_takes_rewards(self):
        plain, tested = (self.run_steps(f"rewards_{name}", *self.adapter, f"data.train={self.pairs}", "objective.name=reward",
                                        f"memory.rehearse={name}", "max_steps=2") for name in ("false", "true"))
        self.assertIn("memory test: largest batch", (tested / "log.txt").read_text())
        self.assertEqual(*([row["loss"] for row in rows_of(output)] for output in (plain, tested)))

    def test_what_is_refused(self):
        def refused(code, words, *overrides):
            result = self.train(self.preset, self.scratch / "refused", f"data.train={self.train_file}", "data.kind=auto",
                                "objective.name=classification", "max_steps=1", *self.settings, *overrides)
            self.assert_refused(result, code, *words)

        file = self.scratch / "bad.jsonl"
        write_rows(file, [{"text": row["text"], "label": "same"} for row in self.rows])
        refused(3, ["all 120 rows have the label \"same\""], f"data.train={file}")
        write_rows(file, [{"text": row["text"], "label": 1.5} for row in self.rows])
        refused(3, ["all 120 rows have the label \"1.5\""], f"data.train={file}", "objective.name=regression")
        refused(3, ["bad.jsonl:1", "\"label\" is 1.5", "objective.name=regression"], f"data.train={file}")
        write_rows(file, [{"text": row["text"], "label": "toast"} for row in self.rows])
        refused(3, ["bad.jsonl:1", "the label \"toast\" is none of", "bake, grill, other", "objective.labels"],
                f"data.eval={file}", "training.eval_strategy=epoch")
        refused(3, ["labels.jsonl", "needs a number", "objective.name=classification"], "objective.name=regression")
        refused(3, ["none is known as the label", "objective.name=sft"], f"data.train={self.data / 'train.jsonl'}",
                "data.input=input")
        refused(3, ["preferences", "objective.name=reward"], f"data.train={self.pairs}")
        write_rows(file, [{"text": row["text"], "label": row["text"] + "!"} for row in self.rows])
        refused(3, ["different labels", "objective.name=sft"], f"data.train={file}")
        refused(2, ["data.kind", "needs objective.name: classification or regression"], "objective.name=sft", "data.kind=classification")
        refused(2, ["objective.class_weights", "toast"], "objective.class_weights={toast: 2}")
        refused(2, ["training.metric_for_best_model", "token_accuracy"], "training.metric_for_best_model=token_accuracy")
        result = trainer("generate", self.model, "--classify", "text")
        self.assert_refused(result, 2, "scores none", "objective.name=classification")

    def test_a_classifier_writes_nothing(self):
        output = self.run_steps("mute", *self.adapter, "max_steps=1")
        self.assert_refused(trainer("generate", output, "text"), 2, "--classify")
        merged = self.scratch / "mute_merged"
        self.assert_done(trainer("merge", output, merged))
        result = self.train(self.preset, self.scratch / "sft", f"model.path={merged}", "max_steps=1", *self.settings, *self.own_kind)
        self.assert_refused(result, 2, "ForSequenceClassification", "objective.name is sft")


class Decoder(OfAModel, EndToEnd):
    family, preset, head = "qwen2", "tiny_qwen.yaml", "score"
    settings, own_kind = (), ()
    adapter = ("lora.target_modules=[q_proj, v_proj]",)

    def test_conversations_and_whole_numbers(self):
        """The labels of a conversation; numbers from 0 are the outputs that they name."""
        rows = [{"messages": [{"role": "user", "content": row["text"]}, {"role": "assistant", "content": "yes"}],
                 "label": len(row["label"]) % 2 * 2} for row in self.rows]
        file = self.scratch / "talks.jsonl"
        write_rows(file, rows)
        output = self.run_steps("talks", f"data.train={file}", "data.chat_template=chatml", "data.max_length=200",
                                "objective.balance_classes=true")
        found = self.classified(output, rows[:2])
        self.assertEqual(set(found[0]["probabilities"]), {"0", "1", "2"})
        asked = self.classified(output, [{"messages": row["messages"]} for row in rows[:2]])
        self.assertEqual([row["probabilities"] for row in found], [row["probabilities"] for row in asked])

    def test_quantised(self):
        output = self.run_steps("nf4", "model.quantize=nf4")
        tensors = tensors_of(output / "adapter_model.safetensors")
        self.assertEqual(tensors["base_model.model.score.weight"][1][0], 3)
        self.assertEqual(len(self.classified(output, self.rows[:2])), 2)


class EncoderDecoder(OfAModel, EndToEnd):
    family, preset, head = "t5", "tiny_t5.yaml", "classification_head"
    settings, own_kind = ("training.dropout=0",), ()
    adapter = ("lora.r=4", "lora.lora_alpha=8", "lora.target_modules=all-linear")


if __name__ == "__main__":
    unittest.main()
