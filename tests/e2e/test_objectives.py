"""Weights of rows, messages, parts of them and sources, z_loss, focal loss and noise on the embeddings: a step's loss and gradient are those of Transformers in fp64, however it is split."""
import json
import unittest

from support import EndToEnd, python_with, read_rows, run_with, tensors_of, write_rows

PYTHON = python_with("transformers")
SAMPLES, STEPS = 12, 3
TEMPLATE = ("{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }};{% endgeneration %}"
            "{% else %}{{ m.content }}={% endif %}{% endfor %}")
# Gets a model and parts of texts with weights (None: not learned); prints loss, z_loss and the norm of the gradient.
REFERENCE = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
torch.set_num_threads(1)
given = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(given["model"])
model = AutoModelForCausalLM.from_pretrained(given["model"], dtype=torch.float64).eval()
loss = squares = weights = 0
for row in given["rows"]:
    ids, learned = [], []
    if "text" in row:
        found = tokenizer(row["text"], add_special_tokens=False, return_offsets_mapping=True)
        for token, (begin, end) in zip(found["input_ids"], found["offset_mapping"]):
            ids.append(token)
            learned.append(next((weight for first, last, weight in row["answers"] if begin < last and end > first), 0))
    else:
        ids = tokenizer(row["input"])["input_ids"]
        target = tokenizer(row["target"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        learned = [0] * len(ids) + [row["worth"]] * len(target)
        ids += target
    learned = torch.tensor(learned[1:], dtype=torch.float64)
    logits = model(torch.tensor([ids])).logits[0, :-1]
    log_z = logits.logsumexp(-1)
    nll = log_z - logits.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    loss = loss + (nll * (1 - (-nll).exp()) ** given["gamma"] * learned).sum()
    squares = squares + (given["z_loss"] * log_z ** 2 * learned).sum()
    weights += learned.sum()
((loss + squares) / weights).backward()
norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
print(json.dumps({"loss": ((loss + squares) / weights).item(), "z_loss": (squares / weights).item(), "grad_norm": norm.item()}))
"""


def reference(model, rows, z_loss=0.0, gamma=0.0):
    given = {"model": str(model), "rows": rows, "z_loss": z_loss, "gamma": gamma}
    return run_with(PYTHON, REFERENCE, given)[0]


def train_rows(output):
    return [row for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"]


class Objectives(EndToEnd):
    family = "qwen2"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rows = [{**row, "worth": (0.25, 1, 2.5, 0)[number % 4]}
                    for number, row in enumerate(read_rows(cls.data / "train.jsonl")[:SAMPLES])]
        cls.weighted = cls.scratch / "weighted.jsonl"
        write_rows(cls.weighted, cls.rows)
        cls.chat, cls.texts = cls.scratch / "chat.jsonl", []
        cls.template = cls.scratch / "template.jinja"
        cls.template.write_text(TEMPLATE)
        conversations = []
        for number, row in enumerate(cls.rows):
            messages = [{"role": "user", "content": row["input"]},
                        {"role": "assistant", "content": row["target"], "weight": (0.5, 1, 0)[number % 3]},
                        {"role": "user", "content": "and"}, {"role": "assistant", "content": f"{number} more"}]
            conversations.append({"messages": messages})
            text, answers = "", []
            for message in messages:
                said = message["content"] + (";" if message["role"] == "assistant" else "=")
                if message["role"] == "assistant":
                    answers.append([len(text), len(text) + len(said), message.get("weight", 1)])
                text += said
            cls.texts.append({"text": text, "answers": answers})
        write_rows(cls.chat, conversations)

    def run_steps(self, name, *overrides):
        output = self.scratch / name
        self.assert_done(self.train("tiny_qwen.yaml", output, "lora=null", "data.shuffle=false", f"max_steps={STEPS}",
                                    f"training.effective_batch_size={SAMPLES}", "optimizer.learning_rate=1e-3",
                                    "data.max_length=1000", "save.strategy=no", *overrides))
        return output

    def assert_first_step(self, output, expected):
        row = train_rows(output)[0]
        for key in ("loss", "grad_norm", *(["z_loss"] if expected["z_loss"] else [])):
            self.assertAlmostEqual(row[key] / expected[key], 1, delta=2e-5, msg=key)

    def assert_same(self, one, other):
        for a, b in zip(train_rows(one), train_rows(other), strict=True):
            self.assertAlmostEqual(a["loss"] / b["loss"], 1, delta=1e-5)
            self.assertAlmostEqual(a["grad_norm"] / b["grad_norm"], 1, delta=1e-3)

    @unittest.skipUnless(PYTHON, "needs transformers")
    def test_weights_of_rows(self):
        settings = f"data.train={self.weighted}", "data.loss_weight=worth"
        whole = self.run_steps("rows", *settings, f"training.batch_size={SAMPLES}")
        self.assert_first_step(whole, reference(self.model, self.rows))
        for name, packing in (("rows_packed", "true"), ("rows_padded", "false")):
            cut = self.run_steps(name, *settings, "training.batch_size=2", "training.micro_batching=samples",
                                 f"data.packing={packing}")
            self.assertGreater(len(train_rows(cut)[0]["micro_batch_sizes"]), 1)
            self.assert_same(whole, cut)

    @unittest.skipUnless(PYTHON, "needs transformers")
    def test_weights_of_messages(self):
        output = self.run_steps("messages", f"data.train={self.chat}", "data.kind=chat",
                                f"data.chat_template={self.template}", "training.batch_size=3",
                                f"data.eval={self.chat}", "training.eval_strategy=steps", "training.eval_steps=1",
                                "optimizer.learning_rate=0")
        expected = reference(self.model, self.texts)
        self.assert_first_step(output, expected)
        evaluated = next(row for row in read_rows(output / "metrics.jsonl") if row["kind"] == "eval")
        self.assertAlmostEqual(evaluated["eval_loss"] / expected["loss"], 1, delta=2e-5, msg="evaluation has weights too")

    @unittest.skipUnless(PYTHON, "needs transformers")
    def test_z_loss(self):
        settings = f"data.train={self.weighted}", "data.loss_weight=worth", "training.z_loss=0.01"
        whole = self.run_steps("z_loss", *settings, f"training.batch_size={SAMPLES}")
        self.assert_first_step(whole, reference(self.model, self.rows, z_loss=0.01))
        cut = self.run_steps("z_loss_cut", *settings, "training.batch_size=1", "training.micro_batching=samples")
        self.assert_same(whole, cut)
        for a, b in zip(train_rows(whole), train_rows(cut), strict=True):
            self.assertAlmostEqual(a["z_loss"] / b["z_loss"], 1, delta=1e-5)

    @unittest.skipUnless(PYTHON, "needs transformers")
    def test_focal_loss(self):
        settings = f"data.train={self.weighted}", "data.loss_weight=worth", "training.focal_gamma=1.5"
        whole = self.run_steps("focal", *settings, f"training.batch_size={SAMPLES}")
        self.assert_first_step(whole, reference(self.model, self.rows, gamma=1.5))
        self.assert_same(whole, self.run_steps("focal_cut", *settings, "training.batch_size=1", "training.micro_batching=samples"))

    @unittest.skipUnless(PYTHON, "needs transformers")
    def test_weights_of_parts(self):
        """Each part of a content is learned as if it were an answer with its weight; what ends the answer has the message's."""
        rows, texts = [], []
        for row in self.rows:
            first, second = row["target"][:4], row["target"][4:]
            rows.append({"messages": [{"role": "user", "content": row["input"]},
                                      {"role": "assistant", "content": [{"type": "text", "text": first, "weight": 0.3},
                                                                        {"type": "text", "text": second}]}]})
            begin = len(row["input"]) + 1
            ends = begin + len(first), begin + len(row["target"]) + 1
            texts.append({"text": f"{row['input']}={row['target']};", "answers": [[begin, ends[0], 0.3], [*ends, 1]]})
        parts = self.scratch / "parts.jsonl"
        write_rows(parts, rows)
        output = self.run_steps("parts", f"data.train={parts}", "data.kind=chat", f"data.chat_template={self.template}")
        self.assert_first_step(output, reference(self.model, texts))

    def test_weights_of_sources(self):
        halves = [self.scratch / name for name in ("first.jsonl", "second.jsonl")]
        write_rows(halves[0], [{**row, "worth": 1} for row in self.rows[:6]])
        write_rows(halves[1], [{**row, "worth": 1} for row in self.rows[6:]])
        together = self.scratch / "together.jsonl"
        write_rows(together, [{**row, "worth": 1 if number < 6 else 0.25} for number, row in enumerate(self.rows)])
        by_row = self.run_steps("by_row", f"data.train={together}", "data.loss_weight=worth")
        by_source = self.run_steps("by_source", f"data.train=[{halves[0]}, {{path: {halves[1]}, loss_weight: 0.25}}]")
        for a, b in zip(train_rows(by_row), train_rows(by_source), strict=True):
            self.assertEqual((a["loss"], a["grad_norm"]), (b["loss"], b["grad_norm"]))

    def test_noise_on_the_embeddings(self):
        """It is of a step and a sample: another split and a stop change nothing, and evaluations are without it."""
        settings = (f"data.train={self.weighted}", "training.neftune_noise_alpha=15", "optimizer.lr_scheduler_type=constant", f"data.eval={self.weighted}", "training.eval_strategy=steps",
                    "training.eval_steps=1")
        whole = self.run_steps("noise", *settings, f"training.batch_size={SAMPLES}")
        self.assert_same(whole, self.run_steps("noise_cut", *settings, "training.batch_size=1", "training.micro_batching=samples", "data.packing=false"))
        still = self.run_steps("still", *settings, "training.neftune_noise_alpha=0", "optimizer.learning_rate=0")
        frozen = self.run_steps("frozen", *settings, "optimizer.learning_rate=0")
        self.assertNotAlmostEqual(train_rows(still)[0]["loss"], train_rows(frozen)[0]["loss"], delta=1e-4)
        self.assertNotEqual(train_rows(frozen)[0]["loss"], train_rows(frozen)[1]["loss"], "another step has another noise")
        evaluated = lambda output: [row["eval_loss"] for row in read_rows(output / "metrics.jsonl") if row["kind"] == "eval"]
        self.assertEqual(evaluated(still), evaluated(frozen))
        saving = *settings, f"training.batch_size={SAMPLES}", "save.strategy=steps", "save.steps=1"
        self.run_steps("noise_stopped", *saving, "max_steps=2")
        resumed = self.run_steps("noise_stopped", *saving)
        self.assertEqual([row["loss"] for row in train_rows(whole)], [row["loss"] for row in train_rows(resumed)])

    def test_segments(self):
        """As axolotl has them: the same as a prompt and a completion whose tokens are these."""
        segments = self.scratch / "segments.jsonl"
        write_rows(segments, [{"segments": [{"text": row["input"], "label": False}, {"text": row["target"], "label": True}]} for row in self.rows])
        output = self.run_steps("segments", f"data.train={segments}", "data.kind=auto")
        self.assertLess(train_rows(output)[-1]["loss"], train_rows(output)[0]["loss"])

    def test_weights_that_are_all_the_same_change_nothing(self):
        ones = self.scratch / "ones.jsonl"
        write_rows(ones, [{**row, "worth": 1} for row in self.rows])
        plain = self.run_steps("plain", f"data.train={ones}", "training.batch_size=3")
        weighted = self.run_steps("of_one", f"data.train={ones}", "training.batch_size=3", "data.loss_weight=worth")
        self.assertEqual(tensors_of(plain / "model.safetensors"), tensors_of(weighted / "model.safetensors"))
        self.assertNotIn("z_loss", train_rows(plain)[0])

    def test_a_weight_that_is_no_number_is_refused(self):
        bad = self.scratch / "bad.jsonl"
        write_rows(bad, [{**self.rows[0], "worth": "much"}])
        result = self.train("tiny_qwen.yaml", self.scratch / "bad", f"data.train={bad}", "data.loss_weight=worth")
        self.assert_refused(result, 3, "bad.jsonl:1", 'field "worth" is "much"', "data.loss_weight")


if __name__ == "__main__":
    unittest.main()
