"""scripts/sync_metrics with stand-ins for the packages wandb and mlflow, which note what they are given."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from made_run import make_run
from support import ROOT, read_rows

# What scripts/sync_metrics uses of them. A run is a file of JSON lines.
STAND_INS = {"wandb": '''
import json, os, pathlib
class Run:
    def __init__(self, id, given):
        self.id, self.path = id or "made", pathlib.Path(os.environ["STAND_IN"])
        self.note(init=given)
        self.summary = {"step": max((r["log"]["step"] for r in self.rows() if "log" in r), default=-1)} if id else {}
    def rows(self):
        return [json.loads(line) for line in self.path.read_text().splitlines()]
    def note(self, **row):
        with open(self.path, "a") as out:
            out.write(json.dumps(row) + "\\n")
    def define_metric(self, name, step_metric=None):
        self.note(axis=[name, step_metric])
    def log(self, values):
        self.note(log=values)
    def finish(self):
        self.note(finish=True)
def init(project=None, name=None, config=None, id=None, resume=None):
    assert resume == "allow"
    return Run(id, {"project": project, "name": name, "config": config, "id": id})
''', "mlflow": '''
import json, os, pathlib, types
path = pathlib.Path(os.environ["STAND_IN"])
def note(**row):
    with open(path, "a") as out:
        out.write(json.dumps(row) + "\\n")
def Metric(key, value, timestamp, step):
    return {"key": key, "value": value, "step": step}
entities = types.SimpleNamespace(Metric=Metric)
class MlflowClient:
    def get_metric_history(self, run_id, key):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return [types.SimpleNamespace(step=m["step"]) for r in rows for m in r.get("batch", []) if m["key"] == key]
    def log_batch(self, run_id, metrics):
        assert len(metrics) <= 1000
        note(batch=metrics)
def set_experiment(name):
    note(experiment=name)
def start_run(run_id=None, run_name=None):
    note(start=[run_id, run_name])
    return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id or "made"))
def log_params(values):
    assert len(values) <= 100
    note(params=values)
def end_run():
    note(end=True)
'''}


class SyncMetrics(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="trainer-e2e-"))
        self.addCleanup(shutil.rmtree, self.scratch)
        self.packages = self.scratch / "packages"
        self.packages.mkdir()
        for name, text in STAND_INS.items():
            (self.packages / f"{name}.py").write_text(text)
        self.run_directory = make_run(self.scratch / "my run", steps=40, evaluations=4)
        self.metrics = self.run_directory / "metrics.jsonl"

    def command(self, to, *arguments):
        return [sys.executable, "-B", ROOT / "scripts" / "sync_metrics", self.run_directory, "--to", to, *arguments]

    def environment(self, to):
        return dict(os.environ, PYTHONPATH=str(self.packages), STAND_IN=str(self.scratch / f"{to}.jsonl"))

    def sync(self, to, *arguments):
        done = subprocess.run(self.command(to, *arguments), capture_output=True, text=True, timeout=60, env=self.environment(to))
        self.assertEqual(done.returncode, 0, done.stderr)

    def received(self, to, key):
        """The (step, value) of a metric, in the order in which they came."""
        rows = read_rows(self.scratch / f"{to}.jsonl")
        if to == "wandb":
            return [(row["log"]["step"], row["log"][key]) for row in rows if key in row.get("log", {})]
        return [(entry["step"], entry["value"]) for row in rows for entry in row.get("batch", []) if entry["key"] == key]

    def expected(self, kind, key, rows=None):
        return [(row["step"], row[key]) for row in rows or read_rows(self.metrics) if row["kind"] == kind and row[key] is not None]

    def test_sends_every_number_once_also_when_started_again(self):
        for to in STAND_INS:
            for _ in range(2):
                self.sync(to, "--project", "kitchen")
            self.assertEqual(self.received(to, "train/loss"), self.expected("train", "loss"))
            self.assertEqual(self.received(to, "eval/rougeL"), self.expected("eval", "eval_rougeL"))
        first = read_rows(self.scratch / "wandb.jsonl")
        self.assertEqual((first[0]["init"]["project"], first[0]["init"]["name"], first[0]["init"]["id"]), ("kitchen", "my run", None))
        self.assertIn({"axis": ["*", "step"]}, first)
        self.assertEqual([row["init"]["id"] for row in first if "init" in row], [None, "made"])
        starts = read_rows(self.scratch / "mlflow.jsonl")
        self.assertEqual([row["start"] for row in starts if "start" in row], [[None, "my run"], ["made", None]])
        self.assertEqual([row["experiment"] for row in starts if "experiment" in row], ["kitchen"])

    def test_what_was_sent_but_not_noted_is_not_sent_again(self):
        for to in STAND_INS:
            self.sync(to)
            (state,) = self.run_directory.glob(f".sync-{to}.json")
            state.write_text(json.dumps({"id": "made", "sent": {"train": 20, "eval": 40}}))
            self.sync(to)
            self.assertEqual(self.received(to, "train/loss"), self.expected("train", "loss"))

    def test_follows_a_run_that_resumes_until_it_has_finished(self):
        lines = self.metrics.read_text().splitlines(keepends=True)
        steps = [json.loads(line)["step"] for line in lines]
        at = lambda step: steps.index(step)
        for to in STAND_INS:
            self.metrics.write_text("".join(lines[:at(20)]) + lines[at(20)][:15])  # the last line is half written
            process = subprocess.Popen(self.command(to, "--follow"), stderr=subprocess.PIPE, env=self.environment(to))
            self.addCleanup(process.kill)
            self.addCleanup(process.stderr.close)
            self.wait_for(lambda: (self.scratch / f"{to}.jsonl").exists() and len(self.received(to, "train/grad_norm")) == 19)
            os.truncate(self.metrics, len("".join(lines[:at(11)]).encode()))  # the run resumes after step 10
            self.wait_for(lambda: json.loads((self.run_directory / f".sync-{to}.json").read_text()).get("sent", {}).get("train") == 19)
            with open(self.metrics, "a") as out:
                for line in lines[at(11):]:
                    out.write(line)
                    out.flush()
            self.assertEqual(process.wait(60), 0)
            self.assertEqual(self.received(to, "train/grad_norm"), self.expected("train", "grad_norm"))
            self.assertEqual(self.received(to, "eval/loss"), self.expected("eval", "eval_loss"))

    def wait_for(self, condition):
        end = time.monotonic() + 30
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def test_ctrl_c_ends_it_and_the_next_start_continues(self):
        lines = self.metrics.read_text().splitlines(keepends=True)
        self.metrics.write_text("".join(lines[:-1]))  # the run has not finished
        process = subprocess.Popen(self.command("wandb", "--follow"), stderr=subprocess.PIPE, text=True, env=self.environment("wandb"))
        self.addCleanup(process.kill)
        self.wait_for(lambda: (self.scratch / "wandb.jsonl").exists() and len(self.received("wandb", "train/grad_norm")) == 40)
        process.send_signal(signal.SIGINT)
        self.assertIn("the same command continues", process.communicate(timeout=30)[1])
        self.assertEqual(process.returncode, 0)
        self.assertTrue(read_rows(self.scratch / "wandb.jsonl")[-1]["finish"])

    def test_says_what_is_missing(self):
        bare = dict(os.environ, PYTHONPATH="")
        done = subprocess.run([sys.executable, "-S", *self.command("mlflow")[1:]], capture_output=True, text=True, env=bare)
        self.assertEqual(done.returncode, 1)
        self.assertIn("pip install mlflow", done.stderr)
        done = subprocess.run([*self.command("wandb")[:3], self.scratch, "--to", "wandb"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("output_dir of a run", done.stderr)


if __name__ == "__main__":
    unittest.main()
