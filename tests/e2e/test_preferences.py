"""Preferences and feedback: losses, rewards and gradients are those of the papers' formulas in fp64, for decoders and
for T5; where the reference comes from, what is reported, and what is refused."""
import csv
import json
import math
import shutil
import subprocess
import time
import unittest

from support import ROOT, TRAINER, EndToEnd, python_with, read_rows, run_with, write_rows

PYTHON = python_with("transformers")
ROWS, STEPS = 6, 5
# The answers have up to 60 tokens, whose log-probabilities are 10 at most and off by 10 * 2^-24 each: 4e-5 together, 7e-5 for a pair.
# AdamW turns the rounding of gradients near 0 into updates, which 5 steps add up.
TOLERANCE = 1e-4
# Gets a model, rows and objectives; prints loss, rewards and the norm of the gradient of each step of AdamW, for each objective
# in a line.
REFERENCE = """
import copy, json, sys, torch
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer
torch.set_num_threads(1)
given = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(given["model"])
kind = AutoModelForSeq2SeqLM if given["t5"] else AutoModelForCausalLM
first = kind.from_pretrained(given["model"], dtype=torch.float64).eval()

def logp(model, prompt, answer):
    ids = tokenizer(prompt)["input_ids"]
    if given["t5"]:
        target = tokenizer(answer)["input_ids"]
        logits = model(input_ids=torch.tensor([ids]), labels=torch.tensor([target])).logits[0]
    else:
        target = tokenizer(answer, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        logits = model(torch.tensor([ids + target])).logits[0, len(ids) - 1:-1]
    return logits.log_softmax(-1).gather(1, torch.tensor(target)[:, None]).sum(), len(target)

def pair(row):
    (c, nc), (r, nr) = logp(model, row["prompt"], row["chosen"]), logp(model, row["prompt"], row["rejected"])
    with torch.no_grad():
        c0, r0 = logp(first, row["prompt"], row["chosen"])[0], logp(first, row["prompt"], row["rejected"])[0]
    b, e, name = o["beta"], o.get("label_smoothing", 0), o["name"]
    h = (c - c0) - (r - r0)
    if name == "dpo":
        loss = {"sigmoid": lambda: -(1 - e) * logsigmoid(b * h) - e * logsigmoid(-b * h),
                "hinge": lambda: torch.relu(1 - b * h),
                "robust": lambda: (-(1 - e) * logsigmoid(b * h) + e * logsigmoid(-b * h)) / (1 - 2 * e),
                "apo_zero": lambda: 1 - torch.sigmoid(b * (c - c0)) + torch.sigmoid(b * (r - r0)),
                "apo_down": lambda: torch.sigmoid(b * (c - c0)) + 1 - torch.sigmoid(b * h)}[o.get("loss_type", "sigmoid")]()
    elif name == "ipo":
        loss = ((c - c0) / nc - (r - r0) / nr - 1 / (2 * b)) ** 2
    elif name == "simpo":
        loss = -logsigmoid(b * (c / nc - r / nr) - o["gamma"])
    elif name == "cpo":
        loss = -logsigmoid(b * (c - r))
    elif name == "orpo":
        odds = lambda p: p.log() - (1 - p).log()
        loss = -c / nc - b * logsigmoid(odds((c / nc).exp()) - odds((r / nr).exp()))
    loss = loss - o.get("rpo_alpha", 0) * c / nc
    reward = {"simpo": b * (c / nc - r / nr), "cpo": b * (c - r), "orpo": b * (c / nc - r / nr)}.get(name, b * h)
    return loss, reward.item()

def judged(rows):
    ratio = [logp(model, row["prompt"], row["completion"])[0] - logp(first, row["prompt"], row["completion"])[0].detach()
             for row in rows]
    others = [rows[i - 1]["completion"] for i in range(len(rows))]
    with torch.no_grad():
        kl = torch.stack([logp(model, row["prompt"], other)[0] - logp(first, row["prompt"], other)[0]
                          for row, other in zip(rows, others)]).mean().clamp(min=0)
    b = o["beta"]
    losses = [o["desirable_weight"] * (1 - torch.sigmoid(b * (x - kl))) if row["label"] else 1 - torch.sigmoid(b * (kl - x))
              for row, x in zip(rows, ratio)]
    mean = lambda label: sum(b * x.item() for row, x in zip(rows, ratio) if row["label"] == label) / sum(
        row["label"] == label for row in rows)
    return torch.stack(losses).mean(), mean(True) - mean(False), kl.item()

for o in given["objectives"]:
    model = copy.deepcopy(first)
    rows = given["judged" if o["name"] == "kto" else "pairs"]
    trained = list(model.parameters())
    adam = torch.optim.AdamW(trained, lr=given["lr"], weight_decay=0)
    steps = []
    for step in range(given["steps"]):
        kl = None
        if o["name"] == "kto":
            loss, margin, kl = judged(rows)
        else:
            pairs = [pair(row) for row in rows]
            loss, margin = torch.stack([x for x, _ in pairs]).mean(), sum(x for _, x in pairs) / len(pairs)
        adam.zero_grad()
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in trained if p.grad is not None]).norm().item()
        steps.append({"loss": loss.item(), "reward_margin": margin, "grad_norm": norm, "kl": kl})
        adam.step()
    print(json.dumps(steps))
"""


def steps_of(output, kind="train"):
    return [row for row in read_rows(output / "metrics.jsonl") if row["kind"] == kind]


class OfAModel:
    preset = None
    t5 = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rows = read_rows(cls.data / "train.jsonl")
        cls.pairs = [{"prompt": a["input"], "chosen": a["target"], "rejected": b["target"]}
                     for a, b in zip(rows[:ROWS], rows[ROWS:2 * ROWS])]
        cls.judged = [{"prompt": row["prompt"], "completion": row["chosen" if number % 2 else "rejected"], "label": bool(number % 2)}
                      for number, row in enumerate(cls.pairs)]
        cls.pairs_file, cls.judged_file = cls.scratch / "pairs.jsonl", cls.scratch / "judged.jsonl"
        write_rows(cls.pairs_file, cls.pairs)
        write_rows(cls.judged_file, cls.judged)

    def run_steps(self, name, objective, *overrides):
        rows = self.judged_file if objective["name"] == "kto" else self.pairs_file
        output = self.scratch / name
        result = self.train(self.preset, output, f"data.train={rows}", "data.kind=auto", "data.shuffle=false", f"max_steps={STEPS}",
                            f"training.effective_batch_size={ROWS}", "optimizer.learning_rate=1e-4", "training.dropout=0",
                            "optimizer.lr_scheduler_type=constant", "training.max_grad_norm=0",
                            f"data.cache={self.scratch / 'cache'}", *self.lengths,
                            *(f"objective.{key}={value}" for key, value in objective.items()), *overrides)
        self.assert_done(result)
        self.said = result.stderr
        return output

    def expected(self, *objectives):
        given = {"model": str(self.model), "t5": self.t5, "objectives": objectives, "steps": STEPS, "lr": 1e-4, "judged": self.judged,
                 "pairs": self.pairs}
        return run_with(PYTHON, REFERENCE, given)

    @unittest.skipUnless(PYTHON, "needs transformers")
    def test_objectives_are_those_of_the_papers(self):
        for number, (objective, expected) in enumerate(zip(self.objectives, self.expected(*self.objectives), strict=True)):
            with self.subTest(**objective):
                found = steps_of(self.run_steps(f"paper{number}", objective, "lora=null", f"training.batch_size={2 if number % 2 else 1}"))
                for step, (a, b) in enumerate(zip(found, expected, strict=True)):
                    for key in ("loss", "grad_norm"):
                        self.assertAlmostEqual(a[key] / b[key], 1, delta=TOLERANCE, msg=f"{key} of step {step + 1}")
                    self.assertAlmostEqual(a["reward_margin"], b["reward_margin"], delta=TOLERANCE, msg=f"step {step + 1}")
                    if b["kl"] is not None:
                        self.assertAlmostEqual(a["kl"], b["kl"], delta=TOLERANCE * max(1, b["kl"]), msg=f"step {step + 1}")


class Decoder(OfAModel, EndToEnd):
    family, preset = "qwen2", "tiny_qwen.yaml"
    lengths = ("data.max_length=512",)
    objectives = ({"name": "dpo", "beta": 0.3, "label_smoothing": 0.1, "rpo_alpha": 0.5},
                  {"name": "dpo", "beta": 0.3, "loss_type": "hinge"},
                  {"name": "dpo", "beta": 0.3, "loss_type": "robust", "label_smoothing": 0.2},
                  {"name": "dpo", "beta": 0.3, "loss_type": "apo_zero"}, {"name": "dpo", "beta": 0.3, "loss_type": "apo_down"},
                  {"name": "ipo", "beta": 0.3}, {"name": "orpo", "beta": 0.3}, {"name": "simpo", "beta": 2, "gamma": 0.5},
                  {"name": "cpo", "beta": 0.3, "rpo_alpha": 1}, {"name": "kto", "beta": 0.3, "desirable_weight": 1.5})

    def test_the_reference_is_the_base_or_is_kept(self):
        off = self.run_steps("off", {"name": "dpo"})
        self.assertAlmostEqual(steps_of(off)[0]["loss"], math.log(2), delta=1e-6)
        self.assertGreater(steps_of(off)[-1]["reward_margin"], 0)
        kept = self.run_steps("kept", {"name": "dpo", "reference": "kept"})
        files = list((self.scratch / "cache" / "references").iterdir())
        again = self.run_steps("again", {"name": "dpo", "reference": "kept"})
        self.assertEqual(files, list((self.scratch / "cache" / "references").iterdir()))
        for a, b, c in zip(steps_of(off), steps_of(kept), steps_of(again), strict=True):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=2e-6)
            self.assertEqual(b["loss"], c["loss"])
        damaged = next(path for path in files if path.stat().st_size)
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
        mended = self.run_steps("mended", {"name": "dpo", "reference": "kept"})
        self.assertEqual([row["loss"] for row in steps_of(mended)], [row["loss"] for row in steps_of(kept)])

    @unittest.skipUnless(PYTHON, "needs transformers")
    def test_feedback(self):
        """Of the first step all is known without the adapter: it begins as nothing."""
        objective = {"name": "kto", "beta": 0.3, "desirable_weight": 1.5}
        found = steps_of(self.run_steps("kto", objective))[0]
        self.assertAlmostEqual(found["loss"], self.expected(objective)[0][0]["loss"], delta=1e-5)
        self.assertEqual(found["kl"], 0)

    def test_evaluations_choose_the_best_model(self):
        output = self.run_steps("evaluated", {"name": "dpo"}, f"data.eval={self.pairs_file}", "training.eval_strategy=steps",
                                "training.eval_steps=1", "training.metric_for_best_model=reward_accuracy",
                                "training.load_best_model_at_end=true", "save.strategy=steps")
        evaluated, trained = steps_of(output, "eval"), steps_of(output)
        self.assertNotIn("eval_perplexity", evaluated[0])
        self.assertAlmostEqual(evaluated[0]["eval_loss"], trained[1]["loss"], delta=1e-5)
        self.assertAlmostEqual(evaluated[0]["eval_reward_margin"], trained[1]["reward_margin"], delta=1e-5)

    def test_a_run_that_resumes_has_the_same_losses(self):
        for reference in ("adapter_off", "kept"):
            whole = self.run_steps(f"whole_{reference}", {"name": "dpo", "reference": reference})
            settings = {"name": "dpo", "reference": reference}, "save.strategy=steps", "save.steps=2"
            self.run_steps(f"stopped_{reference}", *settings, "max_steps=2")
            resumed = self.run_steps(f"stopped_{reference}", *settings)
            self.assertEqual([row["loss"] for row in steps_of(whole)], [row["loss"] for row in steps_of(resumed)])

    def test_runs_that_take_turns_keep_their_references(self):
        """Those with other lengths of rows have files of their own; a new adapter of another size has the same reference."""
        cache = self.scratch / "turns_cache"
        settings = {"name": "dpo", "reference": "kept"}, f"data.cache={cache}", "max_steps=1"
        def passes(name, *overrides):
            self.run_steps(name, *settings, *overrides)
            return self.said.count("one pass over")
        self.assertEqual([passes("turn0"), passes("turn1", "data.max_length=500")], [1, 1])
        self.assertEqual([passes("turn2", "lora.r=4"), passes("turn3", "data.max_length=500")], [0, 0])

    def test_references_of_other_weights_are_named_and_not_used(self):
        model, cache = self.scratch / "changing", self.scratch / "changing_cache"
        shutil.copytree(self.model, model)
        settings = {"name": "dpo", "reference": "kept"}, f"model.path={model}", f"data.cache={cache}"
        self.run_steps("changing0", *settings)
        head = json.loads(next((cache / "references").iterdir()).read_bytes().split(b"\n")[0])
        self.assertTrue(any("weights" in name for name in head["made_of"]), head)
        weights = model / "model.safetensors"
        bytes_ = bytearray(weights.read_bytes())
        bytes_[-2] ^= 1  # a bit of the last weight
        weights.write_bytes(bytes_)
        result = self.train(self.preset, self.scratch / "changing1", f"data.train={self.pairs_file}", "data.kind=auto", "max_steps=1",
                            "objective.name=dpo", "objective.reference=kept", *settings[1:], *self.lengths)
        self.assert_done(result)
        self.assertRegex(result.stderr, "no longer fits, because these have changed: .*weights")

    def test_an_interrupted_pass_goes_on(self):
        """Killed as soon as a part of the log-probabilities is kept."""
        many, cache = self.scratch / "many.jsonl", self.scratch / "many_cache"
        write_rows(many, self.pairs * 400)
        arguments = [TRAINER, "--config", ROOT / "configs" / self.preset, f"model.path={self.model}", f"data.train={many}", "data.kind=auto",
                     "objective.name=dpo", "objective.reference=kept", "max_steps=2", "device=cpu", f"data.cache={cache}",
                     "training.eval_batch_size=1", "training.deterministic=true", *self.lengths]
        running = subprocess.Popen([*map(str, arguments), f"output_dir={self.scratch / 'killed'}"], stderr=subprocess.DEVNULL)
        while running.poll() is None and not list(cache.glob("references/*.references")):
            time.sleep(0.01)
        running.kill()
        running.wait()
        result = subprocess.run([*map(str, arguments), f"output_dir={self.scratch / 'killed'}"], text=True, capture_output=True)
        self.assert_done(result)
        self.assertRegex(result.stderr, "has those of [0-9,]+ of 2,400 rows; the rest is computed now")
        whole = [argument for argument in map(str, arguments) if "data.cache" not in argument]
        result = subprocess.run([*whole, f"data.cache={self.scratch / 'other_cache'}", f"output_dir={self.scratch / 'whole'}"], text=True,
                                capture_output=True)
        self.assert_done(result)
        for a, b in zip(steps_of(self.scratch / "killed"), steps_of(self.scratch / "whole"), strict=True):
            self.assertEqual(a["loss"], b["loss"])

    def test_rows_of_a_table(self):
        """Lists of messages are JSON in a text there."""
        message = lambda role, text: json.dumps([{"role": role, "content": text}])
        rows = [{"prompt": message("user", row["prompt"]), "chosen": message("assistant", row["chosen"]),
                 "rejected": message("assistant", row["rejected"])} for row in self.pairs]
        losses = []
        for name in ("pairs.csv", "pairs_chat.jsonl"):
            with open(self.scratch / name, "w", newline="", encoding="utf-8") as file:
                if name.endswith("csv"):
                    table = csv.DictWriter(file, ["prompt", "chosen", "rejected"])
                    table.writeheader()
                    table.writerows(rows)
                else:
                    file.writelines(json.dumps({key: json.loads(value) for key, value in row.items()}) + "\n" for row in rows)
            losses.append([row["loss"] for row in steps_of(self.run_steps(
                name.replace(".", "_"), {"name": "dpo"}, f"data.train={self.scratch / name}", "data.chat_template=chatml"))])
        self.assertEqual(*losses)

    def test_what_is_refused(self):
        def refused(code, words, *overrides):
            self.assert_refused(self.train(self.preset, self.scratch / "refused", *overrides), code, *words)
        refused(2, ["data.kind", "objective.name: dpo needs rows of kind preference"], "objective.name=dpo")
        refused(2, ["data.kind", "needs objective.name: dpo"], "data.kind=preference")
        refused(2, ["objective.gamma"], "objective.name=dpo", "data.kind=auto", "objective.gamma=1")
        refused(2, ["kto compares with a reference"], "objective.name=kto", "data.kind=auto", "objective.reference=none")
        refused(2, ["is for sft", "objective.label_smoothing"], "objective.name=dpo", "data.kind=auto", "training.label_smoothing=0.1")
        refused(3, ["rows of preferences need", "train.jsonl:1"], "objective.name=dpo", "data.kind=auto")
        refused(3, ["these rows are preferences", "objective.name=dpo"], f"data.train={self.pairs_file}", "data.kind=auto")
        refused(3, ["these rows are judged answers", "objective.name=kto"], f"data.train={self.judged_file}", "data.kind=auto")


class T5(OfAModel, EndToEnd):
    family, preset, t5 = "t5", "tiny_t5.yaml", True
    lengths = ("data.max_source_length=512", "data.max_target_length=512")
    objectives = ({"name": "dpo", "beta": 0.3}, {"name": "ipo", "beta": 0.3}, {"name": "orpo", "beta": 0.3},
                  {"name": "simpo", "beta": 2, "gamma": 0.5}, {"name": "kto", "beta": 0.3, "desirable_weight": 1.5})


if __name__ == "__main__":
    unittest.main()
