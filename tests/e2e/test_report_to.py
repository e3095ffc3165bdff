"""observe.report_to: metrics go to wandb, mlflow and trackio while a run goes on, and no service makes it slower or ends it. The
packages are stand-ins, those of test_sync_metrics.py."""
import json
import os
import signal
import subprocess
import sys
import time
import unittest

from support import ROOT, TRAINER, EndToEnd, read_rows
from test_sync_metrics import STAND_INS

LONGEST_WAIT = 10  # seconds at the end of a run, and noise


class ReportTo(EndToEnd):
    family = "t5"

    def setUp(self):
        self.place = self.scratch / self._testMethodName
        self.packages = self.place / "packages"
        for name, text in STAND_INS.items():
            (self.packages / name).mkdir(parents=True)
            (self.packages / name / "__init__.py").write_text(text)
        self.output = self.place / "out"

    def start(self, *overrides, steps=20, **variables):
        command = [TRAINER, "--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}", "device=cpu", "logging_steps=1",
                   f"data.train={self.data / 'train.jsonl'}", f"data.eval={self.data / 'heldout.jsonl'}", f"output_dir={self.output}",
                   "training.num_threads=1", "training.num_workers=1", "training.eval_strategy=steps", f"max_steps={steps}", *overrides]
        environment = dict(os.environ, PYTHONPATH=str(self.packages), STAND_IN=str(self.place / "sent.jsonl"), TRAINER_PYTHON=sys.executable,
                           OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE") | variables
        process = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_to_end(self, *overrides, code=0, **options):
        process = self.start(*overrides, **options)
        said = process.communicate(timeout=200)[1]
        self.assertEqual(process.returncode, code, said)
        return said

    def losses(self):
        return [[row["step"], row["loss"]] for row in read_rows(self.output / "metrics.jsonl") if row["kind"] == "train"]

    def sent(self):
        path = self.place / "sent.jsonl"
        rows = read_rows(path) if path.exists() else []
        return [[row["log"]["step"], row["log"]["train/loss"]] for row in rows if "train/loss" in row.get("log", {})]

    def wait_for(self, condition):
        end = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def test_the_metrics_arrive_while_it_runs_and_all_of_them_at_the_end(self):
        process = self.start("observe.report_to=[wandb]", steps=1_000_000)
        self.wait_for(lambda: len(self.sent()) > 20)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=120)[1]
        self.assertEqual(process.returncode, 75, said)
        self.assertIn("observe.report_to: wandb: gets the metrics from process", said)
        self.wait_for(lambda: {"finish": 0} in read_rows(self.place / "sent.jsonl"))
        self.assertEqual(self.sent(), self.losses())
        rows = read_rows(self.place / "sent.jsonl")
        self.assertEqual(rows[0]["init"]["name"], "out")
        last = self.losses()[-1][0]
        self.run_to_end("observe.report_to=wandb", steps=last + 5)  # resumes, here and there
        self.assertEqual(self.sent(), self.losses())
        self.assertEqual([row["init"]["id"] for row in read_rows(self.place / "sent.jsonl") if "init" in row], [None, "made"])
        self.run_to_end("observe.report_to=wandb", "overwrite_output_dir=true", steps=3)  # another run, also there
        self.assertEqual([row["init"]["id"] for row in read_rows(self.place / "sent.jsonl") if "init" in row], [None, "made", None])
        self.assertEqual(self.sent()[-3:], self.losses())

    def test_a_killed_run_ends_its_helper(self):
        process = self.start("observe.report_to=[wandb]", steps=1_000_000)
        self.wait_for(lambda: len(self.sent()) > 3)
        process.kill()
        process.wait()
        self.wait_for(lambda: {"finish": 1} in read_rows(self.place / "sent.jsonl"))  # it has failed, as the service sees it
        self.assertEqual(self.sent(), self.losses())

    def test_a_service_that_is_down_costs_a_few_seconds_and_nothing_else(self):
        begin = time.monotonic()
        self.run_to_end()
        alone, losses = time.monotonic() - begin, self.losses()
        (self.place / "sent.down").touch()
        begin = time.monotonic()
        said = self.run_to_end("observe.report_to=[wandb]", "overwrite_output_dir=true")
        self.assertLess(time.monotonic() - begin, 2 * alone + LONGEST_WAIT)
        self.assertEqual(self.losses(), losses)
        self.assertIn("goes on and sends the rest", said)
        (self.place / "sent.down").unlink()
        self.wait_for(lambda: {"finish": 0} in read_rows(self.place / "sent.jsonl"))
        self.assertEqual(self.sent(), losses)

    def test_what_cannot_be_sent_is_one_warning(self):
        (self.packages / "wandb" / "__init__.py").write_text(
            "class UsageError(Exception): pass\ndef init(**_): raise UsageError('api_key not configured')")
        (self.packages / "trackio" / "__init__.py").unlink()
        (self.packages / "trackio").rmdir()
        said = self.run_to_end("observe.report_to=[wandb, trackio]")
        warnings = [line for line in said.splitlines() if " W observe.report_to" in line]
        self.assertEqual(len(warnings), 2, said)
        for words in ("trackio: is not installed: ", f"{sys.executable} -m pip install trackio", "wandb: UsageError: api_key not configured",
                      f"sync_metrics {self.output} --to wandb` sends what is missing"):
            self.assertIn(words, said)
        self.assertEqual(len(self.losses()), 20)
        doctor = subprocess.run([TRAINER, "doctor", "--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}", "device=cpu",
                                 f"data.train={self.data / 'train.jsonl'}", f"output_dir={self.place / 'new'}", "report_to=[wandb, trackio]"],
                                text=True, capture_output=True, env=dict(os.environ, PYTHONPATH=str(self.packages),
                                                                         TRAINER_PYTHON=sys.executable))
        self.assertRegex(doctor.stdout, r"ok +report to +wandb\n.*trackio is not installed")

    def test_a_python_that_is_not_there_is_a_warning(self):
        said = self.run_to_end("observe.report_to=[wandb]", TRAINER_PYTHON="/nope/python")
        self.assertIn("observe.report_to: wandb: is not installed: /nope/python -m pip install wandb", said)

    def test_the_key_takes_services_only(self):
        for value, words in (("tensorboard", "TensorBoard is observe.tensorboard"), ("[wandb, comet]", "wandb, mlflow or trackio")):
            said = self.run_to_end(f"observe.report_to={value}", code=2)
            self.assertIn(words, said)
        said = self.run_to_end("report_to_=wandb", code=2)
        self.assertIn("did you mean", said)
        dumped = subprocess.run([TRAINER, "config", "report_to=wandb"], capture_output=True, text=True, check=True).stdout
        self.assertIn("report_to: [wandb]", dumped)

    def test_several_processes_send_once(self):
        said = self.run_to_end("observe.report_to=[wandb]", "--ranks=2", steps=6)
        self.assertEqual(said.count("gets the metrics from process"), 1)
        self.wait_for(lambda: {"finish": 0} in read_rows(self.place / "sent.jsonl"))
        self.assertEqual(self.sent(), self.losses())
        self.assertFalse(json.loads((self.output / ".sync-wandb.json").read_text())["sent"]["train"] < 6)


if __name__ == "__main__":
    unittest.main()
