"""scripts/sync_metrics with stand-ins for the packages wandb, mlflow and trackio, which note what they are given, and with the
packages themselves, where they are installed."""
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
from support import ROOT, python_with, read_rows

# What scripts/sync_metrics uses of them. A run is a file of JSON lines. A service whose file has the ending .down beside it
# cannot be reached.
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
        if self.path.with_suffix(".down").exists():
            raise ConnectionError("no route to host")
        self.note(log=values)
    def finish(self, exit_code=0):
        self.note(finish=exit_code)
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
        if path.with_suffix(".down").exists():
            note(batch=metrics[:len(metrics) // 3])  # some of it arrived
            raise ConnectionError("no route to host")
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
def end_run(status="FINISHED"):
    note(end=status)
''', "trackio": '''
import json, os, pathlib
path = pathlib.Path(os.environ["STAND_IN"])
class Run:
    def __init__(self, name, given):
        self.name = name
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        self._next_step = 1 + max((row["step"] for row in rows if "log" in row), default=-1)
        self.note(init=given)
    def note(self, **row):
        with open(path, "a") as out:
            out.write(json.dumps(row) + "\\n")
    def log(self, values, step=None):
        if path.with_suffix(".down").exists():
            raise ConnectionError("no route to host")
        self.note(log=values, step=step)
    def finish(self):
        self.note(finish=True)
def init(project, name=None, config=None, resume=None):
    assert resume == "allow"
    return Run(name, {"project": project, "name": name, "config": config})
'''}


class Synced(unittest.TestCase):
    """A run that was made, and the packages that note what they are given."""

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
        if to == "trackio":
            return [(row["step"], row["log"][key]) for row in rows if key in row.get("log", {})]
        return [(entry["step"], entry["value"]) for row in rows for entry in row.get("batch", []) if entry["key"] == key]

    def expected(self, kind, key, rows=None):
        return [(row["step"], row[key]) for row in rows or read_rows(self.metrics) if row["kind"] == kind and row[key] is not None]


class SyncMetrics(Synced):
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
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        self.wait_for(lambda: (self.scratch / "wandb.jsonl").exists() and len(self.received("wandb", "train/grad_norm")) == 40)
        process.send_signal(signal.SIGINT)
        self.assertIn("the same command continues", process.communicate(timeout=30)[1])
        self.assertEqual(process.returncode, 0)
        self.assertEqual(read_rows(self.scratch / "wandb.jsonl")[-1], {"finish": 0})

    def start_with_run(self, to):
        """As a run starts it: it sees the end of the run by the end of its standard input."""
        process = subprocess.Popen(self.command(to, "--with-run"), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=self.environment(to))
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def end_run(self, process, **status):
        (self.run_directory / "status.json").write_text(json.dumps(status))
        process.stdin.close()
        self.assertEqual(process.wait(60), 0, process.stderr.read())

    def test_it_ends_with_its_run_and_says_how_that_ended(self):
        lines = self.metrics.read_text().splitlines(keepends=True)
        for to, state, ending in (("wandb", "failed", {"finish": 1}), ("mlflow", "stopped", {"end": "KILLED"}),
                                  ("mlflow", "running", {"end": "FAILED"}), ("trackio", "finished", {"finish": True})):
            with self.subTest(to=to, state=state):
                (self.scratch / f"{to}.jsonl").unlink(missing_ok=True)
                (self.run_directory / f".sync-{to}.json").unlink(missing_ok=True)
                self.metrics.write_text("".join(lines[:10]))
                process = self.start_with_run(to)
                self.wait_for(lambda: (self.scratch / f"{to}.jsonl").exists() and self.received(to, "train/loss"))
                self.metrics.write_text("".join(lines))  # what came between its last look and the end is sent, too
                self.end_run(process, state=state)
                self.assertEqual(self.received(to, "train/loss"), self.expected("train", "loss"))
                self.assertEqual(read_rows(self.scratch / f"{to}.jsonl")[-1], ending)

    def test_a_lost_connection_loses_nothing(self):
        for to in STAND_INS:
            with self.subTest(to):
                down = self.scratch / f"{to}.down"
                down.touch()
                process = self.start_with_run(to)
                self.assertIn("ConnectionError: no route to host; tries again", process.stderr.readline())
                down.unlink()
                self.end_run(process, state="finished")
                self.assertEqual(sorted(set(self.received(to, "train/loss"))), self.expected("train", "loss"))
                self.assertEqual(self.received(to, "train/loss")[-1], self.expected("train", "loss")[-1])

    def test_what_another_try_does_not_change_ends_it(self):
        (self.packages / "wandb.py").write_text("class UsageError(Exception): pass\ndef init(**_): raise UsageError('api_key not configured')")
        process = self.start_with_run("wandb")
        self.assertEqual(process.wait(60), 3)
        self.assertEqual(process.stderr.read(), "UsageError: api_key not configured\n")

    def test_one_process_at_a_time_sends(self):
        first = self.start_with_run("wandb")
        self.wait_for(lambda: (self.scratch / "wandb.jsonl").exists() and self.received("wandb", "train/loss"))
        second = self.start_with_run("wandb")
        self.end_run(first, state="stopped")
        self.end_run(second, state="finished")
        self.assertEqual(self.received("wandb", "train/loss"), self.expected("train", "loss"))

    def test_says_what_is_missing(self):
        bare = dict(os.environ, PYTHONPATH="")
        done = subprocess.run([sys.executable, "-S", *self.command("mlflow")[1:]], capture_output=True, text=True, env=bare)
        self.assertEqual(done.returncode, 1)
        self.assertIn("pip install mlflow", done.stderr)
        done = subprocess.run([*self.command("wandb")[:3], self.scratch, "--to", "wandb"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("output_dir of a run", done.stderr)


# Reads back what a package has stored in the working directory: {name: [[step, value], ...]}.
READ = {"mlflow": """
import json, mlflow
client = mlflow.MlflowClient()
run, = client.search_runs([e.experiment_id for e in client.search_experiments()])
print(json.dumps({"status": run.info.status, **{key: [[m.step, m.value] for m in client.get_metric_history(run.info.run_id, key)]
                                                for key in ("train/loss", "eval/rougeL")}}))
""", "trackio": """
import json, trackio
run, = trackio.Api().runs("trainer")
from trackio.sqlite_storage import SQLiteStorage
rows = SQLiteStorage.get_logs("trainer", run.name)
print(json.dumps({"status": "FINISHED", **{key: [[row["step"], row[key]] for row in rows if key in row] for key in ("train/loss", "eval/rougeL")}}))
"""}
PYTHONS = {to: python_with(to) for to in STAND_INS}


class RealPackages(Synced):
    """The packages themselves, with local files."""

    def setUp(self):
        super().setUp()
        home = self.scratch / "home"
        home.mkdir()
        self.variables = dict(os.environ, HOME=str(home), MLFLOW_TRACKING_URI=f"sqlite:///{self.scratch}/mlflow.db", WANDB_MODE="offline",
                              WANDB_DIR=str(self.scratch), WANDB_SILENT="true", TRACKIO_DIR=str(self.scratch / "trackio"))

    def run_by(self, to, *arguments):
        return subprocess.run([PYTHONS[to], *arguments], capture_output=True, text=True, timeout=300, env=self.variables, cwd=self.scratch)

    def check(self, to):
        if not PYTHONS[to]:
            self.skipTest(f"no Python with {to} (TEST_PYTHON names one)")
        for _ in range(2):
            done = self.run_by(to, "-B", ROOT / "scripts" / "sync_metrics", self.run_directory, "--to", to)
            self.assertEqual(done.returncode, 0, done.stderr)
        if to == "wandb":
            self.assertEqual(len(list(self.scratch.glob("wandb/offline-run-*/*.wandb"))), 2)  # both continue one run
            return
        read = self.run_by(to, "-c", READ[to])
        stored = json.loads(read.stdout.splitlines()[-1]) if read.returncode == 0 else self.fail(read.stderr)
        self.assertEqual(sorted(map(tuple, stored["train/loss"])), self.expected("train", "loss"))
        self.assertEqual(sorted(map(tuple, stored["eval/rougeL"])), self.expected("eval", "eval_rougeL"))
        self.assertEqual(stored["status"], "FINISHED")

    def test_wandb(self):
        self.check("wandb")

    def test_mlflow(self):
        self.check("mlflow")

    def test_trackio(self):
        self.check("trackio")


if __name__ == "__main__":
    unittest.main()
