"""A teacher: the loss and its gradient are those of the documents' formulas in fp64, from a model's directory and from files,
however a step is split; what is kept, what resumes, and what is refused."""
import json
import shutil
import struct
import unittest

from in_ranks import InRanks
from support import ROOT, EndToEnd, python_with, read_rows, run_script, run_with, tensors_of, trainer, write_rows

PYTHON = python_with("transformers")
ROWS, STEPS = 6, 4
TOLERANCE = 3e-5
# Makes a model of the same family and vocabulary whose weights differ.
TEACHER = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM
given = json.load(sys.stdin)
kind = AutoModelForSeq2SeqLM if given["t5"] else AutoModelForCausalLM
torch.manual_seed(3)
model = kind.from_pretrained(given["model"], dtype=torch.float32)
with torch.no_grad():
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.add_(torch.randn_like(parameter) * parameter.std())
model.save_pretrained(given["teacher"])
"""
# Gets two models, rows and settings; prints loss, divergence and the norm of the gradient of each step of AdamW, for each of the
# settings in a line.
REFERENCE = """
import copy, json, sys, torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer
torch.set_num_threads(1)
given = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(given["model"])
kind = AutoModelForSeq2SeqLM if given["t5"] else AutoModelForCausalLM
first, teacher = (kind.from_pretrained(given[name], dtype=torch.float64).eval() for name in ("model", "teacher"))

def logits_of(model, row):
    ids = tokenizer(row["input"])["input_ids"]
    if given["t5"]:
        target = tokenizer(row["target"])["input_ids"]
        return model(input_ids=torch.tensor([ids]), labels=torch.tensor([target])).logits[0], target
    target = tokenizer(row["target"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    return model(torch.tensor([ids + target])).logits[0, len(ids) - 1:-1], target

# The likeliest tokens of the teacher and the rest, as log-probabilities of top + 1 tokens at temperature T.
def coarse(logits, ids, T):
    p = logits.log_softmax(-1)
    named = p.gather(1, ids)
    if ids.shape[1] == p.shape[1]:
        return (named / T).log_softmax(-1)
    rest = p.scatter(1, ids, float("-inf")).logsumexp(-1, keepdim=True)
    return (torch.cat([named, rest], 1) / T).log_softmax(-1)

for o in given["settings"]:
    model = copy.deepcopy(first)
    adam = torch.optim.AdamW(model.parameters(), lr=given["lr"], weight_decay=0)
    steps = []
    for step in range(given["steps"]):
        own = divergence = weights = 0
        for row in given["rows"]:
            logits, target = logits_of(model, row)
            with torch.no_grad():
                theirs = logits_of(teacher, row)[0]
            ids = theirs.topk(min(o["top_k"], theirs.shape[1])).indices
            p, q = coarse(logits, ids, o["temperature"]), coarse(theirs, ids, o["temperature"])
            kl = (p.exp() * (p - q) if o["divergence"] == "reverse" else q.exp() * (q - p)).sum(-1)
            ce = -logits.log_softmax(-1).gather(1, torch.tensor(target)[:, None])[:, 0]
            worth = row.get("worth", 1)
            own, divergence, weights = own + worth * ce.sum(), divergence + worth * kl.sum(), weights + worth * len(target)
        a, T = o["teacher_weight"], o["temperature"]
        loss = ((1 - a) * own + a * T * T * divergence) / weights
        adam.zero_grad()
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm().item()
        steps.append({"loss": loss.item(), "teacher_kl": (divergence / weights).item(), "grad_norm": norm, "label_loss": (own / weights).item()})
        adam.step()
    print(json.dumps(steps))
"""


def steps_of(output, kind="train"):
    return [row for row in read_rows(output / "metrics.jsonl") if row["kind"] == kind]


def write_safetensors(path, tensors, metadata):
    """tensors: name -> (type, shape, bytes)."""
    header, at = {"__metadata__": metadata}, 0
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(content)]}
        at += len(content)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(content for _, _, content in tensors.values()))


class OfAModel:
    preset = None
    t5 = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rows = read_rows(cls.data / "train.jsonl")[:ROWS]
        cls.rows = [{"input": row["input"], "target": row["target"], "worth": (0.5, 1, 2)[number % 3]} for number, row in enumerate(rows)]
        cls.file = cls.scratch / "rows.jsonl"
        write_rows(cls.file, cls.rows)
        cls.teacher = cls.scratch / "teacher"
        shutil.copytree(cls.model, cls.teacher)
        run_with(PYTHON, TEACHER, {"model": str(cls.model), "teacher": str(cls.teacher), "t5": cls.t5})

    def arguments(self, objective, *overrides):
        return (
            f"data.train={self.file}", "data.kind=auto", "data.loss_weight=worth", "data.shuffle=false",
            f"max_steps={STEPS}", f"training.effective_batch_size={ROWS}", "optimizer.learning_rate=1e-4", "training.dropout=0",
            "optimizer.lr_scheduler_type=constant", "training.max_grad_norm=0", "objective.name=distill", "lora=null",
            f"data.cache={self.scratch / 'cache'}", *self.lengths, *(f"objective.{key}={value}" for key, value in objective.items()),
            *overrides)

    def start(self, name, objective, *overrides):
        output = self.scratch / name
        return output, self.train(self.preset, output, *self.arguments(objective, *overrides))

    def run_steps(self, name, objective, *overrides):
        output, result = self.start(name, objective, *overrides)
        self.assert_done(result)
        return output

    def expected(self, settings):
        given = {"model": str(self.model), "teacher": str(self.teacher), "t5": self.t5, "rows": self.rows, "settings": settings,
                 "steps": STEPS, "lr": 1e-4}
        return run_with(PYTHON, REFERENCE, given)

    def test_it_is_the_formula_of_the_documents(self):
        settings = [{"top_k": 8, "temperature": 1, "teacher_weight": 1, "divergence": "forward"},
                    {"top_k": 5, "temperature": 2, "teacher_weight": 0.7, "divergence": "forward"},
                    {"top_k": 8, "temperature": 1.5, "teacher_weight": 0.5, "divergence": "reverse"},
                    {"top_k": 100000, "temperature": 2, "teacher_weight": 0.9, "divergence": "reverse"}]
        for number, (objective, expected) in enumerate(zip(settings, self.expected(settings), strict=True)):
            with self.subTest(**objective):
                output = self.run_steps(f"formula{number}", {"teacher": self.teacher, **objective}, f"training.batch_size={1 + 2 * (number % 2)}",
                                        f"data.eval={self.file}", "training.eval_strategy=steps", "training.eval_steps=1")
                for step, (a, b) in enumerate(zip(steps_of(output), expected, strict=True)):
                    for key in ("loss", "grad_norm", "teacher_kl"):
                        self.assertAlmostEqual(a[key] / b[key], 1, delta=TOLERANCE, msg=f"{key} of step {step + 1}")
                for a, b in zip(steps_of(output, "eval"), expected[1:]):
                    self.assertAlmostEqual(a["eval_loss"] / b["label_loss"], 1, delta=TOLERANCE, msg="evaluations have the labels' loss")
                    self.assertAlmostEqual(a["eval_teacher_kl"] / b["teacher_kl"], 1, delta=TOLERANCE)

    def test_files_say_the_same_as_the_directory(self):
        objective = {"temperature": 2, "teacher_weight": 0.8}
        whole = self.run_steps("directory", {"teacher": self.teacher, "top_k": 6, **objective})
        logits = self.scratch / "logits"
        config = self.scratch / "eval.yaml"
        config.write_text(f"model: {{dtype: fp32}}\ndata: {{kind: auto, loss_weight: worth, {', '.join(x.replace('data.', '').replace('=', ': ') for x in self.lengths)}}}\n")
        self.assert_done(trainer("eval", self.teacher, self.file, "--config", config, "device=cpu", "--save-logits", 6, "--logits", logits))
        found = self.run_steps("files", {"logits": logits, **objective})
        cut = self.run_steps("cut", {"logits": logits, **objective}, "training.batch_size=1", "training.micro_batching=samples", "data.packing=false")
        for a, b, c in zip(steps_of(whole), steps_of(found), steps_of(cut), strict=True):
            for key in ("loss", "grad_norm", "teacher_kl"):
                self.assertAlmostEqual(a[key] / b[key], 1, delta=1e-6, msg=f"{key} of step {a['step']}")
                self.assertAlmostEqual(a[key] / c[key], 1, delta=1e-5, msg=f"{key} of step {a['step']}")


@unittest.skipUnless(PYTHON, "needs transformers")
class Decoder(OfAModel, EndToEnd):
    family, preset = "qwen2", "tiny_qwen.yaml"
    lengths = ("data.max_length=512",)

    def test_with_an_adapter_and_after_a_kill(self):
        settings = {"teacher": self.teacher, "top_k": 6}, "lora={}", "save.strategy=steps", "save.steps=2"
        whole = self.run_steps("whole", *settings)
        self.run_steps("stopped", *settings, "max_steps=2")
        resumed = self.run_steps("stopped", *settings)
        for key in ("loss", "teacher_kl", "grad_norm"):
            self.assertEqual([row[key] for row in steps_of(whole)], [row[key] for row in steps_of(resumed)])
        self.assertLess(steps_of(whole)[-1]["loss"], steps_of(whole)[0]["loss"])

    def test_what_is_kept_is_read_again_and_what_is_damaged_is_named(self):
        cache = self.scratch / "kept_cache"
        settings = {"teacher": self.teacher, "top_k": 6}, f"data.cache={cache}", "max_steps=2"
        first = self.run_steps("kept0", *settings)
        files = sorted(cache.glob("teacher/*/*.safetensors"))
        self.assertEqual(len(files), 1)
        before = files[0].stat().st_mtime_ns
        output, result = self.start("kept1", *settings)
        self.assertIn("what the teacher says of the training data", result.stderr)
        self.assertEqual(read_rows(output / "metrics.jsonl")[0].keys(), read_rows(first / "metrics.jsonl")[0].keys())
        self.run_steps("kept_other", *settings, "data.max_length=500")
        self.assertEqual(len(sorted(cache.glob("teacher/*/*.safetensors"))), 2, "each of the settings has a file")
        content = bytearray(files[0].read_bytes())
        content[-3] ^= 1
        files[0].write_bytes(content)
        output, result = self.start("kept2", *settings)
        self.assert_done(result)
        self.assertRegex(result.stderr, "is damaged; what the teacher says is computed again")
        self.assertEqual([row["loss"] for row in steps_of(output)], [row["loss"] for row in steps_of(first)])

    def test_another_teacher_in_its_place_is_found(self):
        cache, teacher = self.scratch / "changed_cache", self.scratch / "changed_teacher"
        shutil.copytree(self.teacher, teacher)
        settings = {"teacher": teacher, "top_k": 6}, f"data.cache={cache}", "max_steps=1"
        self.run_steps("changed0", *settings)
        shutil.copy(self.model / "model.safetensors", teacher / "model.safetensors")
        output, result = self.start("changed1", *settings)
        self.assert_done(result)
        self.assertRegex(result.stderr, "no longer fits, because these have changed: .*objective.teacher")
        self.assertLess(steps_of(output)[0]["teacher_kl"], 1e-6, "the teacher is the model itself")

    def test_a_model_learns_from_the_answers_of_another(self):
        prompts, answers = self.scratch / "prompts.jsonl", self.scratch / "answers.jsonl"
        write_rows(prompts, [{"input": row["input"]} for row in self.rows])
        self.assert_done(trainer("generate", self.teacher, "--input", prompts, "--output", answers, "--max-new-tokens", 12, "--device", "cpu",
                                 "--save-logits", 7))
        found = read_rows(answers)
        self.assertEqual(len(found), ROWS)
        output = self.run_steps("answers", {"logits": f"{answers}.logits"}, f"data.train={answers}", "data.input=input", "data.target=prediction",
                                "data.loss_weight=", "data.max_length=1024")
        self.assertLess(steps_of(output)[-1]["loss"], steps_of(output)[0]["loss"])
        tensors = tensors_of(next((self.scratch / "answers.jsonl.logits").iterdir()))
        self.assertEqual(tensors["ids"][1][1], 7 + 1, "and all others together")
        self.assertEqual(tensors["ids"][1], tensors["log_probs"][1])

    def test_files_of_other_settings_are_made_again(self):
        """A folder that is there stays only if its rows became the same tokens."""
        logits = self.scratch / "made_twice"
        def save(*settings):
            result = trainer("eval", self.teacher, self.file, "device=cpu", "data.kind=auto", "data.max_length=20", *settings,
                             "--save-logits", 4, "--logits", logits)
            self.assert_done(result)
            return result.stderr
        save("data.truncation_side=right")
        self.assertNotIn("no longer fits", save("data.truncation_side=right"))
        self.assertRegex(save("data.truncation_side=left"), "no longer fits, because these have changed: .*data.truncation_side")
        left = {"logits": logits}, "data.max_length=20"
        self.run_steps("left", *left, "data.truncation_side=left", "max_steps=1")
        _, result = self.start("right", *left)
        self.assert_refused(result, 3, "rows.jsonl:", "made with other settings: ", "data.truncation_side: left there, right here")

    def test_tokens_that_the_teacher_does_not_know(self):
        token = "<answer>"
        rows = self.scratch / "added.jsonl"
        write_rows(rows, [*self.rows[:-1], {**self.rows[-1], "input": f"{token} {self.rows[-1]['input']}"}])
        settings = {"teacher": self.teacher}, f"model.add_tokens=[{token}]", "max_steps=1"
        self.run_steps("unused_token", *settings)
        _, result = self.start("unknown_token", *settings, f"data.train={rows}")
        self.assert_refused(result, 3, f"added.jsonl:{len(self.rows)}: has the token", "and the teacher knows", "model.add_tokens")

    def test_ranks_learn_from_the_same_files(self):
        """The first one compares the rows for all of them; what it finds ends all."""
        logits = self.scratch / "of_ranks"
        self.assert_done(trainer("eval", self.teacher, self.file, "device=cpu", "data.kind=auto", "data.max_length=512",
                                 "--save-logits", 4, "--logits", logits))
        def in_ranks(name, *overrides):
            arguments = self.arguments({"logits": logits}, "max_steps=1", *overrides)
            return InRanks(2, "--config", ROOT / "configs" / self.preset, f"model.path={self.model}", f"output_dir={self.scratch / name}", "device=cpu",
                           "logging_steps=1", *arguments).wait()
        codes, texts = in_ranks("two_ranks")
        self.assertEqual(codes, [0, 0], texts)
        alone = self.run_steps("one_rank", {"logits": logits}, "max_steps=1")
        for key in ("loss", "teacher_kl"):
            self.assertAlmostEqual(steps_of(self.scratch / "two_ranks")[0][key] / steps_of(alone)[0][key], 1, delta=1e-5)
        codes, texts = in_ranks("two_refused", "data.max_length=20", "data.truncation_side=left")
        self.assertEqual(codes, [3, 3], texts)
        self.assertIn("has no row with these tokens", texts[0])

    def stored(self, **other):
        """A file as another program writes it: fp16 and without tokens, so that rows are found by their number."""
        logits = self.scratch / "of_teacher"
        if not logits.exists():
            self.assert_done(trainer("eval", self.teacher, self.file, "device=cpu", "data.kind=auto", "data.max_length=512",
                                     "--save-logits", 4, "--logits", logits))
        tensors = tensors_of(next(logits.iterdir()))
        tensors = {name: tensors[name] for name in ("log_probs", "ids", "labels", "label_starts")}
        tensors.update(other)
        return tensors

    def test_files_of_other_programs(self):
        foreign = self.scratch / "foreign.safetensors"
        write_safetensors(foreign, self.stored(), {})
        own = self.run_steps("own_file", {"logits": self.scratch / "of_teacher"})
        output, result = self.start("foreign_file", {"logits": foreign})
        self.assert_done(result)
        self.assertIn("does not say of which vocabulary", result.stderr)
        self.assertEqual([row["loss"] for row in steps_of(output)], [row["loss"] for row in steps_of(own)])

    def test_what_is_refused(self):
        def refused(code, words, objective, *overrides):
            _, result = self.start("refused", objective, *overrides)
            self.assert_refused(result, code, *words)
        refused(2, ["objective.name", "distill needs what a teacher says"], {})
        refused(2, ["objective.logits", "set one of them"], {"teacher": self.teacher, "logits": self.file})
        refused(2, ["objective.teacher_weight"], {"teacher": self.teacher, "teacher_weight": 2})
        refused(2, ["objective.temperature"], {"name": "sft", "temperature": 2})
        refused(3, ["there is no such file"], {"logits": self.scratch / "none"})
        logits = self.scratch / "of_teacher"
        tensors = self.stored()
        others = self.scratch / "others.jsonl"
        write_rows(others, [{**self.rows[0], "target": "something else"}, *self.rows[1:]])
        refused(3, ["others.jsonl:1", "has no row with these tokens"], {"logits": logits}, f"data.train={others}")
        refused(3, ["rows.jsonl:", "has no row with these tokens"], {"logits": logits}, "data.max_length=20", "data.truncation_side=left")
        bad = self.scratch / "bad.safetensors"
        labels, top = tensors["ids"][1]
        for words, changed, metadata in (
                (["has no tensor \"labels\""], {"labels": None}, {}),
                (["is of another vocabulary"], {}, {"vocabulary": "0123456789abcdef", "vocabulary_size": "100"}),
                (["has the token 900000"], {"ids": ("I32", [labels, top], struct.pack("<i", 900000) * top * labels)}, {}),
                (["has a token twice"], {"ids": ("I32", [labels, top], struct.pack("<i", 5) * top * labels)}, {}),
                (["no logarithm of a probability"], {"log_probs": ("F32", [labels, top], struct.pack("<f", 3.5) * top * labels)}, {}),
                (["must rise from 0"], {"label_starts": ("I64", [2], struct.pack("<qq", 0, 1))}, {})):
            write_safetensors(bad, {name: value for name, value in self.stored(**changed).items() if value}, metadata)
            refused(3, ["bad.safetensors", *words], {"logits": bad})
        other = self.scratch / "other_words"
        text = self.scratch / "other.txt"
        text.write_text("zebra quartz vixen jumps over lazy dwarves " * 200)
        run_script("make/tiny_model", "--family", self.family, "--text", text, "--out", other)
        refused(2, ["objective.teacher", "has another vocabulary"], {"teacher": other})


@unittest.skipUnless(PYTHON, "needs transformers")
class T5(OfAModel, EndToEnd):
    family, preset, t5 = "t5", "tiny_t5.yaml", True
    lengths = ("data.max_source_length=512", "data.max_target_length=512")

if __name__ == "__main__":
    unittest.main()
