"""`trainer status` and `trainer runs`: what a run is doing, from its files alone."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import unittest

from support import ROOT, TRAINER, EndToEnd, trainer


class Status(EndToEnd):
    family = "t5"

    def command(self, output, *overrides):
        return [str(part) for part in
                (TRAINER, "--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}",
                 f"data.train={self.data / 'train.jsonl'}", f"data.eval={self.data / 'heldout.jsonl'}",
                 f"output_dir={output}", "device=cpu", "training.num_threads=1", "save.strategy=no",
                 "training.eval_strategy=steps", "training.eval_steps=5", "memory.limit=4GB", *overrides)]

    @contextlib.contextmanager
    def running(self, output, *overrides):
        """A run that has evaluated once."""
        process = subprocess.Popen(self.command(output, *overrides), stderr=subprocess.PIPE, text=True, cwd=ROOT,
                                   env=dict(os.environ, OMP_NUM_THREADS="1"))
        try:
            said = ""
            for line in process.stderr:
                said += line
                if "evaluation at step" in line:
                    break
            else:
                self.fail(said)
            yield process
        finally:
            process.kill()
            os.set_blocking(process.stderr.fileno(), True)
            process.stderr.read()
            process.wait()
            process.stderr.close()

    def status(self, output):
        result = trainer("status", output, "--json")
        self.assert_done(result)
        return json.loads(result.stdout)

    def finished(self, name):
        output = self.scratch / name
        result = subprocess.run(self.command(output, "max_steps=10"), cwd=ROOT, capture_output=True, text=True, check=True)
        self.assertEqual(result.returncode, 0)
        return output

    def test_a_run_that_goes_on(self):
        output = self.scratch / "running"
        with self.running(output, "max_steps=1000000"):
            status = self.status(output)
            text = trainer("status", output)
            self.assert_done(text)
        self.assertEqual(status["state"], "running")
        self.assertEqual(status["total_steps"], 1000000)
        self.assertGreaterEqual(status["step"], 5)
        self.assertEqual(status["evaluation_step"] % 5, 0)
        for key in ("loss", "eval_loss", "learning_rate", "tokens_per_second", "memory_peak", "started", "updated", "pid",
                    "host"):
            self.assertIn(key, status)
        self.assertEqual(status["memory_limit"], 4e9)
        for words in ("state            running\n", "/1,000,000 (0 %)", "tok/s", "of 4.00 GB", "evaluation     "):
            self.assertIn(words, text.stdout)

    def test_status_json_is_written_again_and_again(self):
        output = self.scratch / "heartbeat"
        with self.running(output, "max_steps=1000000") as process:
            first = json.loads((output / "status.json").read_text(encoding="utf-8"))["updated"]
            end = time.monotonic() + 120
            while time.monotonic() < end:
                now = json.loads((output / "status.json").read_text(encoding="utf-8"))
                if now["updated"] > first:
                    break
                os.set_blocking(process.stderr.fileno(), False)
                with contextlib.suppress(TypeError, BlockingIOError):
                    process.stderr.read()
                time.sleep(0.2)
        self.assertGreater(now["updated"], first)
        self.assertGreater(now["seconds_left"], 0)
        self.assertEqual(now["state"], "running")

    def test_ends_of_runs(self):
        stopped = self.scratch / "stopped"
        with self.running(stopped, "max_steps=1000000") as process:
            process.send_signal(signal.SIGTERM)
            process.stderr.read()
            self.assertEqual(process.wait(120), 75)
        killed = self.scratch / "killed"
        with self.running(killed, "max_steps=1000000") as process:
            process.kill()
            process.wait()
            status = self.status(killed)
        self.assertEqual(status["state"], "killed")
        self.assertGreaterEqual(status["step"], 5, "from metrics.jsonl, which is newer")
        self.assertNotIn("seconds_left", status)
        status = self.status(stopped)
        self.assertEqual((status["state"], status["exit_code"]), ("stopped", 75))
        self.assertIn("SIGTERM", status["message"])
        finished = self.status(self.finished("finished"))
        self.assertEqual((finished["state"], finished["step"], finished["exit_code"]), ("finished", 10, 0))
        failed = self.scratch / "failed"
        result = subprocess.run(self.command(failed, "max_steps=50", "optimizer.learning_rate=1e30", "optimizer.warmup_steps=0",
                                             "training.max_bad_steps=2"), cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(result.returncode, 7, result.stderr)
        status = self.status(failed)
        self.assertEqual((status["state"], status["exit_code"]), ("failed", 7))
        self.assertIn("step ", status["message"])

    def test_a_run_on_another_machine_runs_as_long_as_it_is_heard_of(self):
        output = self.scratch / "elsewhere"
        shutil.copytree(self.finished("here"), output)
        path = output / "status.json"
        status = json.loads(path.read_text(encoding="utf-8"))
        status.update(state="running", host="another-machine", updated=time.time())
        path.write_text(json.dumps(status), encoding="utf-8")
        self.assertEqual(self.status(output)["state"], "running")
        path.write_text(json.dumps(dict(status, updated=time.time() - 3600)), encoding="utf-8")
        self.assertEqual(self.status(output)["state"], "silent")
        path.write_text(json.dumps(status)[:50], encoding="utf-8")
        self.assertEqual(self.status(output)["state"], "finished", "a damaged file counts as none")

    def test_runs_lists_all_below_a_directory(self):
        folder = self.scratch / "many"
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "none").mkdir()
        shutil.copytree(self.finished("one"), folder / "one")
        shutil.copytree(self.finished("two"), folder / "deep" / "er" / "two")
        table = trainer("runs", folder)
        self.assert_done(table)
        head, *rows = table.stdout.splitlines()
        self.assertEqual(head.split(), ["run", "state", "step", "loss", "eval", "left", "last", "update"])
        self.assertEqual([row.split()[:3] for row in rows],
                         [["one", "finished", "10/10"], ["deep/er/two", "finished", "10/10"]])
        listed = json.loads(trainer("runs", folder, "--json").stdout)
        self.assertEqual([(run["path"], run["state"]) for run in listed],
                         [(str(folder / "one"), "finished"), (str(folder / "deep/er/two"), "finished")])

    def test_what_is_no_run_is_refused(self):
        self.assert_refused(trainer("status", self.data), 4, "is not the output directory of a run", "trainer runs")
        self.assert_refused(trainer("status"), 2, "OUT")
        self.assert_refused(trainer("runs", self.scratch / "nowhere"), 4, "not a directory")
        empty = trainer("runs", self.data)
        self.assert_done(empty)
        self.assertIn("no runs", empty.stdout)


if __name__ == "__main__":
    unittest.main()
