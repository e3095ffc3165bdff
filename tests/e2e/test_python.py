"""`import trainer`: the commands as functions, configurations as dicts and keywords, results, errors, types."""
import ast
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest
import warnings

from support import ROOT, TRAINER, EndToEnd, python_with, read_rows, write_rows
from support import trainer as run_trainer
from test_chat import TEMPLATE

PACKAGE = ROOT / "python" / "trainer"
sys.path.insert(0, str(PACKAGE.parent))
os.environ.update(TRAINER_PROGRAM=str(TRAINER), OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
import trainer  # noqa: E402

MYPY, PEFT = python_with("mypy"), python_with("peft")

# The mean loss of the rows' target tokens, with the adapter and without it.
LOSS_IN_PEFT = """
import json, sys, torch, trainer
model, tokenizer = trainer.load(sys.argv[1]).eval(), trainer.load_tokenizer(sys.argv[1])

def loss():
    total, count = 0.0, 0
    for row in map(json.loads, open(sys.argv[2])):
        ids, labels = (torch.tensor([tokenizer(row[field]).input_ids]) for field in ("input", "target"))
        with torch.no_grad():
            total += model(input_ids=ids, labels=labels).loss.item() * labels.numel()
        count += labels.numel()
    return total / count

with_adapter = loss()
with model.disable_adapter():
    print(with_adapter, loss())
"""


class Package(unittest.TestCase):
    def test_it_has_the_version_of_the_program_and_needs_no_other_package(self):
        self.assertIn(f'kVersion = "{trainer.__version__}"', (ROOT / "include" / "trainer" / "base" / "version.h").read_text())
        said = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); "
                               "import trainer; print(sorted(set(sys.modules) & {'torch', 'numpy', 'IPython', 'yaml'}))"],
                              capture_output=True, text=True, check=True)
        self.assertEqual(said.stdout, "[]\n")

    def test_its_syntax_is_that_of_python_3_9(self):
        for file in PACKAGE.glob("*.py"):
            ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 9))

    @unittest.skipUnless(MYPY, "no Python with mypy (TEST_PYTHON names one)")
    def test_its_types_are_right(self):
        done = subprocess.run([MYPY, "-m", "mypy", "--strict", "--cache-dir", os.devnull, PACKAGE], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_everything_public_says_what_it_is(self):
        for name in trainer.__all__:
            self.assertTrue(getattr(trainer, name).__doc__, name)

    def test_a_missing_program_is_an_exception(self):
        os.environ["TRAINER_PROGRAM"] = "/nope/trainer"
        self.addCleanup(os.environ.update, TRAINER_PROGRAM=str(TRAINER))
        with self.assertRaisesRegex(trainer.InstallationError, "/nope/trainer does not start"):
            trainer.config()


class Configurations(unittest.TestCase):
    """What is given here arrives in the program as it was meant."""

    def value(self, key, *configurations, **keys):
        section, _, name = key.rpartition(".")
        text = trainer.config(*configurations, **keys)
        body = text if not section else re.search(rf"^{section}:\n((?:  .*\n|\n)*)", text, re.M)[1]
        return re.search(rf"^ *{name}: (.*)$", body, re.M)[1].split("  #")[0]

    def test_a_dict_keywords_and_names_with_dots_mean_the_same(self):
        for configurations, keys in (([], {"training__batch_size": 3}), ([{"training": {"batch_size": 3}}], {}),
                                     ([{"training.batch_size": 3}], {}), ([], {"training": {"batch_size": 3}}),
                                     ([{"batch_size": 3}], {}), ([{"training": {"batch_size": 5}}], {"training__batch_size": 3})):
            self.assertEqual(self.value("training.batch_size", *configurations, **keys), "3")

    def test_every_type_arrives(self):
        for key, value, written in (("optimizer.learning_rate", 1e-05, "1.0e-05"), ("save.async", False, "false"),
                                    ("model.dtype", "bf16", "bf16"), ("memory.limit", None, '""'),
                                    ("training.num_train_epochs", 2, "2"), ("lora.target_modules", ["q_proj", "v_proj"], None),
                                    ("output_dir", pathlib.Path("a b/ü"), '"a b/ü"')):
            keys = {key.replace(".", "__"): value, "lora": {}}
            found = self.value(key, **keys)
            self.assertEqual(found, written) if written else self.assertIn("q_proj", found)

    def test_texts_that_look_like_yaml_stay_texts(self):
        for text in ("[a]", '"quoted"', "'x'", "null", "yes", "1e5", "{german}: x", "a # b", "-", "a=b", "", "two\nlines", "\\n"):
            found = self.value("notify.command", {"notify": {"command": text}})
            self.assertEqual(json.loads(found) if found.startswith('"') else found, text)

    def test_a_section_is_turned_on_and_off(self):
        self.assertIn("\nlora:\n", trainer.config(lora={}))
        self.assertIn("\nlora: null\n", trainer.config({"lora": {"r": 3}}, lora=None))
        self.assertEqual(self.value("lora.r", "qwen3_0_6b_lora_8gb.yaml", {"lora": {"r": 3}}), "3")

    def test_mistakes_come_all_at_once_with_the_programs_text_and_code(self):
        with self.assertRaises(trainer.ConfigError) as raised:
            trainer.train(training={"batch_size": 0, "learning_rte": 1})
        error = raised.exception
        self.assertEqual((error.exit_code, error.code), (2, "usage"))
        for words in ("2 problems", "training.batch_size: must be at least 1", "learning_rte"):
            self.assertIn(words, str(error))
        self.assertNotIn("trainer: ", error.text.split("\n")[0])
        self.assertIn("training.batch_size=0", error.command)
        with self.assertRaisesRegex(ValueError, "two files"):
            trainer.config("a.yaml", "b.yaml")


class Commands(EndToEnd):
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.keys = {"model": {"path": cls.model}, "device": "cpu", "output_dir": cls.scratch / "run", "max_steps": 30,
                    "data": {"train": cls.data / "train.jsonl", "eval": cls.data / "heldout.jsonl"}, "eval_steps": 10,
                    "training": {"eval_strategy": "steps"}, "logging_steps": 1}
        cls.training = trainer.train("tiny_t5.yaml", cls.keys, show=False)
        cls.steps = list(cls.training)
        cls.result = cls.training.result()

    def test_training_gives_every_step_and_a_result(self):
        rows = read_rows(self.result.output_dir / "metrics.jsonl")
        losses = [(row["step"], row["loss"]) for row in rows if row["kind"] == "train"]
        self.assertEqual([(step.step, step.loss) for step in self.steps], losses)
        self.assertEqual({step.total_steps for step in self.steps}, {30})
        self.assertGreater(self.steps[0].tokens_per_second, 0)
        self.assertEqual((self.result.state, self.result.step, self.result.total_steps), ("finished", 30, 30))
        self.assertEqual(self.result.loss, losses[-1][1])
        self.assertEqual([e.step for e in self.result.evaluations], [10, 20, 30])
        self.assertEqual(self.result.best.loss, min(row["eval_loss"] for row in rows if row["kind"] == "eval"))
        self.assertEqual(self.result.metrics(), rows)
        self.assertFalse(self.result.is_adapter)
        self.assertEqual(list(self.training), self.steps)  # once more

    def test_notebooks_are_shown_the_curve_and_nothing_is_loaded(self):
        for shown in (self.result._repr_html_(), self.training._repr_mimebundle_()["text/html"]):
            self.assertRegex(shown, r"<svg .*<polyline points=\"[\d., ]+\"")
            self.assertEqual(shown.count("<circle"), 3)
            self.assertNotRegex(shown, r"<script|http|url\(")
        self.assertIn('aria-valuenow="100"', shown)
        self.assertIn("step 30/30", self.training._repr_mimebundle_()["text/plain"])

    def test_it_answers_as_the_program_does(self):
        prompts = [row["input"] for row in read_rows(self.data / "heldout.jsonl")[:3]]
        theirs = run_trainer("generate", self.result.output_dir, *prompts, "--max-new-tokens", 12).stdout.splitlines()
        self.assertEqual(trainer.generate(self.result, prompts, max_new_tokens=12), theirs)
        self.assertEqual(self.result.generate(prompts[0], max_new_tokens=12), theirs[0])
        rows = trainer.generate(self.result.output_dir, [{"input": prompts[0]}], num_beams=2, num_return_sequences=2, max_new_tokens=5)
        self.assertEqual([len(answers) for answers in rows], [2])
        self.assertEqual(trainer.generate(self.result, []), [])

    def test_it_evaluates_as_the_program_does(self):
        ours = trainer.eval(self.result, self.data / "heldout.jsonl", generate=True, max_new_tokens=4, device="cpu")
        theirs = json.loads(run_trainer("eval", self.result.output_dir, self.data / "heldout.jsonl", "--generate", "--json",
                                        "--max-new-tokens", 4, "device=cpu").stdout)
        self.assertEqual((ours.loss, ours.perplexity, ours.samples), (theirs["eval_loss"], theirs["eval_perplexity"], 24))
        self.assertEqual(ours.scores["rougeL"], theirs["eval_rougeL"])
        self.assertNotIn("loss", ours.scores)
        self.assertIn("rougeL", ours._repr_html_())

    def test_a_plan_says_whether_it_fits(self):
        plan = trainer.plan("tiny_t5.yaml", self.keys)
        self.assertEqual((plan.fits, plan.limit, plan.device, plan.advice), (True, None, "cpu", ""))
        self.assertEqual(plan.total, plan.report["total"])
        self.assertIn("in all", plan._repr_html_())
        tight = trainer.plan("tiny_t5.yaml", self.keys, memory__limit="1MB")
        self.assertFalse(tight.fits)
        self.assertIn("more than memory.limit allows", tight.advice)
        with self.assertRaises(trainer.FormatError):
            trainer.plan(model__path="/nope/model")

    def test_doctor_and_data_report_on_a_run(self):
        checkup = trainer.doctor("tiny_t5.yaml", self.keys, output_dir=self.scratch / "new")
        self.assertTrue(checkup, checkup.problems)
        self.assertIn("model", [check.name for check in checkup.checks])
        missing = trainer.doctor("tiny_t5.yaml", self.keys, model__path="/nope/model")
        self.assertFalse(missing)
        self.assertEqual((missing.exit_code, [check.verdict for check in missing.checks].count("failed") > 0), (4, True))
        report = trainer.data("tiny_t5.yaml", self.keys)
        self.assertEqual(report.samples, 400)
        self.assertRegex(report._repr_html_(), r"400 samples.*<span style=")

    def test_a_first_configuration_can_be_trained(self):
        out = self.scratch / "first.yaml"
        first = trainer.init(self.model, self.data / "train.jsonl", out, card="cpu", method="lora")
        self.assertEqual(str(first), out.read_text())
        self.assertIn("lora:", str(first))
        run = trainer.train(first, max_steps=2, output_dir=self.scratch / "from-first", show=False, memory__rehearse=False)
        result = run.wait()
        self.assertTrue(result.is_adapter)
        with self.assertRaises(trainer.TrainerError):
            trainer.init(self.model, self.data / "train.jsonl", out)  # it exists
        self.assertEqual({status.state for status in trainer.runs(self.scratch)}, {"finished"})
        self.assertEqual(trainer.status(self.result).step, 30)
        merged = trainer.export(result, self.scratch / "merged")
        self.assertTrue((merged / "model.safetensors").is_file())

    def test_errors_are_exceptions_with_the_programs_words(self):
        bad = self.scratch / "bad.jsonl"
        bad.write_text('{"input": 3}\n')
        cases = ((trainer.DataError, 3, {"data": {"train": bad}}), (trainer.FormatError, 4, {"model__path": self.scratch / "nope"}),
                 (trainer.OutOfMemoryError, 5, {"memory__limit": "50kB"}), (trainer.Stopped, 75, {"max_hours": 1e-9}))
        for kind, code, keys in cases:
            with self.subTest(kind.__name__):
                output = self.scratch / f"error-{code}"
                run = trainer.train("tiny_t5.yaml", {**self.keys, "output_dir": output}, keys, show=False)
                with self.assertRaises(kind) as raised:
                    run.wait()
                self.assertEqual(raised.exception.exit_code, code)
                words = run_trainer(*run.command[1:]).stderr
                for line in raised.exception.text.splitlines():
                    self.assertIn(re.sub(r"\d+", "N", line), re.sub(r"\d+", "N", words))
                self.assertEqual(run.state, "stopped" if code == 75 else "failed")

    def test_warnings_of_the_program_are_warnings_here(self):
        rows = [{"input": "x", "target": "y"}] * 4
        write_rows(self.scratch / "spoilt.jsonl", rows)
        with (self.scratch / "spoilt.jsonl").open("a") as file:
            file.write("no JSON\n")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer.eval(self.result, self.scratch / "spoilt.jsonl", data__bad_rows="skip", device="cpu")
        self.assertTrue([w for w in caught if w.category is trainer.TrainerWarning and w.filename == __file__], caught)

    @unittest.skipUnless(PEFT, "no Python with peft: scripts/setup --parity")
    def test_the_model_of_a_run_is_that_of_transformers_and_peft(self):
        output = self.scratch / "adapter"
        trainer.train("tiny_t5.yaml", {**self.keys, "output_dir": output}, lora={}, max_steps=1, show=False).wait()
        script = ("import sys, trainer\nfor run in sys.argv[1:]: print(type(trainer.load(run)).__name__, "
                  "len(trainer.load_tokenizer(run)) > 0)")
        done = subprocess.run([PEFT, "-c", script, self.result.output_dir, output], capture_output=True, text=True,
                              env=dict(os.environ, PYTHONPATH=str(PACKAGE.parent)))
        self.assertEqual(done.stdout, "T5ForConditionalGeneration True\nPeftModelForSeq2SeqLM True\n", done.stderr)

    @unittest.skipUnless(PEFT, "no Python with peft: scripts/setup --parity")
    def test_the_loaded_model_has_the_loss_that_the_program_measures(self):
        output, rows = self.scratch / "learned", self.data / "heldout.jsonl"
        trainer.train("tiny_t5.yaml", {**self.keys, "output_dir": output}, lora={"target_modules": "all-linear", "r": 4}, max_steps=20,
                      learning_rate=1e-2, show=False).wait()
        done = subprocess.run([PEFT, "-c", LOSS_IN_PEFT, output, rows], capture_output=True, text=True,
                              env=dict(os.environ, PYTHONPATH=str(PACKAGE.parent)))
        with_adapter, without = map(float, done.stdout.split())
        ours = trainer.eval(output, rows, device="cpu", model__dtype="fp32", data__max_target_length=128).loss
        self.assertAlmostEqual(with_adapter, ours, delta=1e-5 * ours)
        self.assertGreater(without, with_adapter + 0.1)  # what was learned is in the adapter

    def test_what_loading_needs_is_named(self):
        script = f"import trainer\ntrainer.load({str(self.result.output_dir)!r})"
        done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True,
                              env=dict(os.environ, PYTHONPATH=str(PACKAGE.parent)))
        self.assertIn("ImportError: load() needs transformers: pip install transformers", done.stderr)
        with self.assertRaisesRegex(FileNotFoundError, "has no result"):
            trainer.load(self.scratch)


class Conversations(EndToEnd):
    family = "qwen2"

    def test_a_conversation_has_a_memory(self):
        (self.model / "chat_template.jinja").write_text("{% if messages[0].role == 'nobody' %}{{ raise_exception('nobody speaks') }}{% endif %}" + TEMPLATE)
        chat = trainer.chat(self.model, "Be brief.", max_new_tokens=6, device="cpu")
        first, second = chat("Hello."), chat("Why?")
        self.assertEqual([message["role"] for message in chat.messages], ["system", "user", "assistant", "user", "assistant"])
        whole = chat.messages[:-1]
        self.assertEqual(trainer.generate(self.model, whole, max_new_tokens=6, device="cpu"), second)
        self.assertEqual(chat.messages[2]["content"], first)
        chat.clear()
        self.assertEqual(chat.messages, [{"role": "system", "content": "Be brief."}])
        chat.close()
        pieces = list(chat.stream("Hello."))  # loads it again
        self.assertGreater(len(pieces), 1)
        self.assertEqual(("".join(pieces), chat.messages[-1]["content"]), (first, first))
        kept, chat.messages = chat.messages, [{"role": "nobody", "content": "?"}]
        with self.assertRaisesRegex(trainer.TrainerError, "nobody speaks"):
            chat("Hello?")
        self.assertEqual(len(chat.messages), 1)
        chat.messages = kept
        self.assertNotEqual(chat("And now?"), "")  # it goes on
        chat.close()

    def test_a_long_answer_is_interrupted(self):
        (self.model / "chat_template.jinja").write_text(TEMPLATE)
        script = ("import sys, trainer\nchat = trainer.chat(sys.argv[1], max_new_tokens=4000, min_new_tokens=3999, device='cpu')\n"
                  "try:\n    for piece in chat.stream('Hello.'): print('piece', flush=True)\n"
                  "except KeyboardInterrupt:\n    print('interrupted', len(chat.messages))\n")
        process = subprocess.Popen([sys.executable, "-c", script, self.model], stdout=subprocess.PIPE, text=True, start_new_session=True,
                                   env=dict(os.environ, PYTHONPATH=str(PACKAGE.parent)))
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "piece\n")
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
        self.assertRegex(said, r"interrupted 2\n$")
        self.assertEqual(process.returncode, 0)

    def test_a_model_that_is_not_there_is_an_exception(self):
        with trainer.chat(self.scratch / "nope") as chat, self.assertRaises(trainer.FormatError):
            chat("Hello?")
        self.assertEqual(chat.messages, [])


if __name__ == "__main__":
    unittest.main()
