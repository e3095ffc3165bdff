"""A T5's encoder alone: vectors of texts, tags of words, classes. What is learned does not depend on the split, and Transformers loads it."""
import json
import math
import unittest

from support import EndToEnd, python_with, read_rows, run_with, tensors_of, trainer, write_rows

PYTHON = python_with("transformers")
LONGEST = 500  # tokens of a text
# Gets a model and texts, or lists of words; prints the mean states, or the outputs at the first token of each word.
LOADED = """
import json, sys, torch
from transformers import AutoTokenizer, T5EncoderModel, T5ForTokenClassification
given = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(given["model"])
kind = T5ForTokenClassification if given["words"] else T5EncoderModel
model, info = kind.from_pretrained(given["model"], dtype=torch.float32, output_loading_info=True)
wrong = {key: value for key, value in info.items() if value and not (given["headed"] and key == "unexpected_keys")}
assert not wrong, wrong
model = model.double().eval()
found = []
with torch.no_grad():
    for words in given["words"]:
        ids, firsts = [], []
        for word in words:
            firsts.append(len(ids))
            ids += tokenizer(word, add_special_tokens=False)["input_ids"]
        outputs = model(input_ids=torch.tensor([ids + [tokenizer.eos_token_id]])).logits[0]
        found.append([model.config.id2label[i] for i in outputs[firsts].argmax(-1).tolist()])
    for text in given["texts"]:
        states = model(**{k: v for k, v in tokenizer(text, return_tensors="pt").items() if k != "token_type_ids"}).last_hidden_state[0]
        found.append(states.mean(0).tolist())
print(json.dumps(found))
"""


def loaded(model, texts=(), words=(), headed=False):
    given = {"model": str(model), "texts": list(texts), "words": list(words), "headed": headed}
    return run_with(PYTHON, LOADED, given)[0]


def steps_of(output, kind="train"):
    return [row for row in read_rows(output / "metrics.jsonl") if row["kind"] == kind]


def of_length_one(vector):
    length = sum(value * value for value in vector) ** 0.5
    return [value / length for value in vector]


class Encoders(EndToEnd):
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rows = read_rows(cls.data / "train.jsonl")[:96]
        cls.texts = [row["input"] for row in rows]
        cls.pairs, cls.tags, cls.labels = (cls.scratch / name for name in ("pairs.jsonl", "tags.jsonl", "labels.jsonl"))
        write_rows(cls.pairs, [{"anchor": row["input"], "positive": row["target"]} for row in rows])
        kind = lambda word: "NUMBER" if word in ("ten", "five", "two", "seven", "twenty", "forty", "fifteen") else "WORD"
        cls.words = [text.split() for text in cls.texts]
        write_rows(cls.tags, [{"tokens": words, "ner_tags": [kind(word) for word in words]} for words in cls.words])
        write_rows(cls.labels, [{"text": text, "label": "long" if len(text) > 50 else "short"} for text in cls.texts])

    def run_steps(self, name, objective, rows, *overrides):
        output = self.scratch / name
        self.assert_done(self.train("tiny_t5.yaml", output, f"data.train={rows}", "data.kind=auto", f"objective.name={objective}",
                                    "max_steps=4", "training.dropout=0", f"data.max_length={LONGEST}", *overrides))
        return output

    def asked(self, model, rows):
        file = self.scratch / "asked.jsonl"
        write_rows(file, rows)
        result = trainer("generate", model, "--input-file", file, "--classify", "--dtype", "fp32", "--device", "cpu")
        self.assert_done(result)
        return [json.loads(line) for line in result.stdout.splitlines()]

    @unittest.skipUnless(PYTHON, "needs transformers")
    def test_vectors(self):
        output = self.run_steps("vectors", "embedding", self.pairs, "max_steps=40", "optimizer.learning_rate=3e-3",
                                "training.effective_batch_size=16", f"data.eval={self.pairs}", "training.eval_strategy=steps",
                                "training.eval_steps=40")
        steps = steps_of(output)
        self.assertLess(steps[-1]["loss"], 0.7 * steps[0]["loss"])
        self.assertGreater(steps_of(output, "eval")[-1]["eval_accuracy"], steps[0]["accuracy"])
        there = loaded(output, self.texts[:6])
        for row, mean in zip(self.asked(output, [{"text": text} for text in self.texts[:6]]), there, strict=True):
            for ours, theirs in zip(row["embedding"], of_length_one(mean), strict=True):
                self.assertAlmostEqual(ours, theirs, delta=2e-5)
        modules = json.loads((output / "modules.json").read_text())
        self.assertEqual([module["type"].split(".")[-1] for module in modules], ["Transformer", "Pooling", "Normalize"])
        pooling = json.loads((output / "1_Pooling" / "config.json").read_text())
        self.assertEqual(pooling["word_embedding_dimension"], len(there[0]))
        exported = self.scratch / "exported_vectors"
        self.assert_done(trainer("export", output, exported))
        for directory in (output, exported):
            self.assertEqual(json.loads((directory / "sentence_bert_config.json").read_text())["max_seq_length"], LONGEST)
        self.assertEqual(json.loads((output / "config.json").read_text())["architectures"], ["T5EncoderModel"])
        self.assertFalse([name for name in tensors_of(output / "model.safetensors") if name.startswith(("decoder", "lm_head"))])
        result = trainer("eval", output, self.pairs, "device=cpu", "model.dtype=fp32", "training.effective_batch_size=16")
        self.assert_done(result)
        self.assertIn("eval_similarity", result.stdout)

    def test_noise_is_there_in_training(self):
        """NEFTune's, of the same step without an update."""
        losses = [steps_of(self.run_steps(f"noise{alpha}", "classification", self.labels, "model.encoder_only=true", "max_steps=1",
                                          "data.shuffle=false", "optimizer.learning_rate=0", f"training.neftune_noise_alpha={alpha}"))[0]["loss"]
                  for alpha in (0, 15)]
        self.assertNotAlmostEqual(*losses, delta=1e-5)

    @unittest.skipUnless(PYTHON, "needs transformers")
    def test_the_first_loss_is_that_of_the_formula(self):
        """Of the base model's mean states: cross-entropy of 20 times the cosines, over the rows of the update."""
        output = self.run_steps("first", "embedding", self.pairs, "max_steps=1", "data.shuffle=false", "training.batch_size=2",
                                "training.micro_batching=samples", "training.effective_batch_size=6")
        rows = read_rows(self.pairs)[:6]
        base = self.run_steps("first_base", "embedding", self.pairs, "max_steps=1", "optimizer.learning_rate=0")
        texts = [row[side] for side in ("anchor", "positive") for row in rows]
        vectors = [of_length_one(vector) for vector in loaded(base, texts)]
        loss = 0
        for i in range(6):
            scores = [20 * sum(a * b for a, b in zip(vectors[i], vectors[6 + j])) for j in range(6)]
            most = max(scores)
            loss += (most + math.log(sum(math.exp(score - most) for score in scores)) - scores[i]) / 6
        self.assertAlmostEqual(steps_of(output)[0]["loss"], loss, delta=2e-5)

    def test_vectors_are_those_of_the_effective_batch_in_any_split(self):
        runs = [self.run_steps(f"split{size}", "embedding", self.pairs, f"training.batch_size={size}", "training.effective_batch_size=12",
                               "training.micro_batching=samples", *more)
                for size, more in ((24, ()), (5, ()), (1, ("memory.gradient_checkpointing=true",)))]
        self.assertEqual(len(steps_of(runs[0])[0]["micro_batch_sizes"]), 1)
        self.assertEqual(len(steps_of(runs[2])[0]["micro_batch_sizes"]), 24)
        for run in runs[1:]:
            for a, b in zip(steps_of(runs[0]), steps_of(run), strict=True):
                self.assertAlmostEqual(a["loss"] / b["loss"], 1, delta=2e-5)
                self.assertAlmostEqual(a["grad_norm"] / b["grad_norm"], 1, delta=1e-3)

    @unittest.skipUnless(PYTHON, "needs transformers")
    def test_tags_of_words(self):
        output = self.run_steps("tags", "token_classification", self.tags, "max_steps=60", "optimizer.learning_rate=3e-3",
                                f"data.eval={self.tags}", "training.eval_strategy=steps", "training.eval_steps=60")
        evaluated = steps_of(output, "eval")[-1]
        self.assertEqual(evaluated["eval_classes"], ["NUMBER", "WORD"])
        self.assertGreater(evaluated["eval_f1"], 0.8)
        self.assertEqual(evaluated["eval_supervised_tokens"], sum(map(len, self.words)))
        found = self.asked(output, [{"tokens": words} for words in self.words[:5]])
        self.assertEqual([row["prediction"] for row in found], loaded(output, words=self.words[:5]))

    @unittest.skipUnless(PYTHON, "needs transformers")
    def test_a_classifier_on_the_encoder(self):
        output = self.run_steps("classes", "classification", self.labels, "model.encoder_only=true", "max_steps=40",
                                "optimizer.learning_rate=3e-3", f"data.eval={self.labels}", "training.eval_strategy=steps",
                                "training.eval_steps=40")
        self.assertGreater(steps_of(output, "eval")[-1]["eval_accuracy"], 0.8)
        tensors = tensors_of(output / "model.safetensors")
        self.assertEqual(tensors["score.weight"][1][0], 2)
        loaded(output, self.texts[:1], headed=True)
        found = self.asked(output, [{"text": text} for text in self.texts[:3]])
        self.assertAlmostEqual(sum(found[0]["probabilities"].values()), 1, delta=1e-6)
        further = self.run_steps("further", "classification", self.labels, f"model.path={output}", "max_steps=1")
        self.assertEqual(tensors_of(further / "model.safetensors").keys(), tensors.keys())

    def test_an_adapter(self):
        settings = "lora.r=4", "lora.lora_alpha=8", "lora.target_modules=all-linear"
        for objective, rows, more in (("embedding", self.pairs, ()), ("token_classification", self.tags, ()),
                                      ("classification", self.labels, ("model.encoder_only=true",))):
            output = self.run_steps(f"lora_{objective}", objective, rows, *settings, *more)
            merged = self.scratch / f"merged_{objective}"
            self.assert_done(trainer("merge", output, merged))
            row = {"tokens": self.words[0]} if objective == "token_classification" else {"text": self.texts[0]}
            one, other = self.asked(output, [row])[0], self.asked(merged, [row])[0]
            if objective == "embedding":
                for a, b in zip(one["embedding"], other["embedding"], strict=True):
                    self.assertAlmostEqual(a, b, delta=1e-5)
                self.assertTrue((merged / "modules.json").exists())
                self.assertEqual(json.loads((merged / "sentence_bert_config.json").read_text())["max_seq_length"], LONGEST)
            else:
                self.assertEqual(one["prediction"], other["prediction"])

    def test_what_is_refused(self):
        def refused(code, words, *overrides):
            self.assert_refused(self.train("tiny_t5.yaml", self.scratch / "refused", "data.kind=auto", "max_steps=1", *overrides), code,
                                *words)

        refused(2, ["model.encoder_only", "objective.name"], "model.encoder_only=true")
        refused(3, ["no two are known", "anchor"], "objective.name=embedding", f"data.train={self.labels}")
        refused(3, ["must be the list of a text's words"], "objective.name=token_classification", f"data.train={self.labels}")
        refused(2, ["1 leaves embedding no other text"], "objective.name=embedding", f"data.train={self.pairs}",
                "training.effective_batch_size=1", "training.batch_size=1")


if __name__ == "__main__":
    unittest.main()
