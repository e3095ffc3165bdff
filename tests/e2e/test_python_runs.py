"""Runs of `import trainer` while they go on: steps as they come, Ctrl-C, stopping and resuming, notebooks, runs of others."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types
import unittest

from pseudo_terminal import PseudoTerminal
from support import ROOT, TRAINER, EndToEnd, read_rows

PACKAGES = ROOT / "python"
sys.path.insert(0, str(PACKAGES))
os.environ.update(TRAINER_PROGRAM=str(TRAINER), OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
import trainer  # noqa: E402

ENDLESS = 1_000_000


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Runs(EndToEnd):
    family = "t5"

    def keys(self, output, **keys):
        return {"model": {"path": self.model}, "data": {"train": self.data / "train.jsonl"}, "device": "cpu", "max_steps": ENDLESS,
                "output_dir": self.scratch / output, "training.num_threads": 1, **keys}

    def plain(self, output, **keys):
        return json.loads(json.dumps(self.keys(output, **keys), default=os.fspath))

    def start(self, output, show=False, **keys):
        run = trainer.train("tiny_t5.yaml", self.keys(output, **keys), show=show)
        self.addCleanup(lambda: run.is_over or run.stop(now=True))
        return run

    def script(self, output, body, **keys):
        """A Python program that has started a run."""
        text = f"import trainer\nrun = trainer.train('tiny_t5.yaml', {self.plain(output, **keys)!r})\nprint(run.pid, flush=True)\n{body}"
        process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
                                   env=dict(os.environ, PYTHONPATH=str(PACKAGES)), start_new_session=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        pid = int(process.stdout.readline())
        self.addCleanup(lambda: is_alive(pid) and os.kill(pid, signal.SIGKILL))
        return process, pid

    def test_steps_come_while_it_runs_and_a_stopped_run_resumes(self):
        run = self.start("steps", **{"save.strategy": "steps"})
        for step in run:
            self.assertEqual(run.state, "running")
            self.assertIn(".wait()", run._repr_mimebundle_()["text/html"])
            if step.step == 5:
                break
        self.assertFalse(run.is_over)  # leaving the loop does not end it
        stopped = run.stop()
        self.assertEqual((stopped.state, run.state, stopped.total_steps), ("stopped", "stopped", ENDLESS))
        last = stopped.step
        self.assertTrue((self.scratch / "steps" / f"checkpoint-{last}").is_dir())
        again = self.start("steps", **{"save.strategy": "steps", "max_steps": last + 3})
        self.assertEqual([step.step for step in again], [last + 1, last + 2, last + 3])
        self.assertEqual(again.result().state, "finished")
        self.assertEqual(list(self.start("steps", **{"save.strategy": "steps", "max_steps": last + 3})), [])  # nothing is left to do

    def test_ctrl_c_in_a_loop_saves_and_is_raised_afterwards(self):
        process, pid = self.script("ctrl-c", "for step in run:\n    if step.step == 3: print('three', flush=True)\nprint('not reached')\n")
        self.assertEqual(process.stdout.readline(), "three\n")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said, problems = process.communicate(timeout=120)
        self.assertEqual((process.returncode, said), (-signal.SIGINT, ""), problems)
        self.assertIn("The run stops after this step", problems)
        self.assertRegex(problems, r"KeyboardInterrupt: .*and is saved in .*checkpoint-")
        self.assertFalse(is_alive(pid))
        status = trainer.status(self.scratch / "ctrl-c")
        self.assertEqual((status.state, status.report["exit_code"]), ("stopped", 75))

    def test_a_second_ctrl_c_ends_it_now(self):
        process, pid = self.script("twice", "for step in run:\n    if step.step == 3: print('three', flush=True); import time; time.sleep(60)\n")
        self.assertEqual(process.stdout.readline(), "three\n")
        os.killpg(process.pid, signal.SIGINT)
        while "Ctrl-C again ends it now" not in process.stderr.readline():
            pass
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertFalse(is_alive(pid))

    def test_a_script_waits_for_its_run_when_it_ends(self):
        process, pid = self.script("waits", "del run\n", max_steps=8)
        _, problems = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, problems)
        self.assertIn("step 8/8", problems)  # not on a terminal: the program's own lines
        self.assertEqual(trainer.status(self.scratch / "waits").state, "finished")

    def test_an_exception_in_a_with_block_stops_it(self):
        with self.assertRaisesRegex(ZeroDivisionError, "division"):
            with self.start("with") as run:
                for step in run:
                    step.step / (3 - step.step)
        self.assertTrue(run.is_over)
        self.assertEqual(trainer.status(run.output_dir).state, "stopped")

    def test_an_earlier_run_in_the_same_place_is_not_taken_for_this_one(self):
        list(self.start("same", max_steps=4))
        steps = list(self.start("same", max_steps=2, overwrite_output_dir=True))
        self.assertEqual([step.step for step in steps], [1, 2])
        with self.assertRaises(trainer.FormatError):  # refused; the steps of the other run are not its own
            for step in self.start("same", max_steps=9, resume="never"):
                self.fail(step)

    def test_a_run_of_another_process_is_watched(self):
        command = [TRAINER, "--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}", "device=cpu", "max_steps=400",
                   f"data.train={self.data / 'train.jsonl'}", f"output_dir={self.scratch / 'other'}", "training.num_threads=1"]
        with subprocess.Popen([*map(str, command)], stderr=subprocess.DEVNULL) as process:
            self.addCleanup(process.kill)
            while not (self.scratch / "other" / "status.json").exists():
                self.assertIsNone(process.poll())
                time.sleep(0.02)
            run = trainer.watch(self.scratch / "other", show=False)
            self.assertEqual([step.step for step in run], list(range(1, 401)))
        self.assertEqual(run.result().state, "finished")
        with self.assertRaisesRegex(RuntimeError, "another process"):
            run.stop()

    def test_a_run_that_is_killed_says_so(self):
        run = self.start("killed")
        next(iter(run))
        os.kill(run.pid, signal.SIGKILL)
        with self.assertRaisesRegex(trainer.TrainerError, "SIGKILL") as raised:
            run.wait()
        self.assertEqual(raised.exception.exit_code, 137)

    def test_a_terminal_has_one_row_that_changes(self):
        text = f"import trainer; trainer.train('tiny_t5.yaml', {self.plain('terminal', max_steps=200)!r}).wait()"
        terminal = PseudoTerminal([sys.executable, "-c", text], cwd=ROOT, width=70, environment={"PYTHONPATH": str(PACKAGES)})
        self.addCleanup(terminal.close)
        self.assertEqual(terminal.finish(), 0, "\n".join(terminal.screen.rows))
        rows = [row for row in terminal.screen.rows if row]
        self.assertEqual(len(rows), 1, rows)
        self.assertRegex(rows[0], r"^\[=+\]  finished  step 200/200  loss \d+\.\d+")

    def test_a_notebook_has_a_display_that_changes(self):
        shown = []

        class Handle:
            def update(self, thing):
                shown.append(thing._repr_mimebundle_())

        def display(thing, display_id):
            self.assertTrue(display_id)
            shown.append(thing._repr_mimebundle_())
            return Handle()

        notebook, of_display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        notebook.get_ipython = lambda: types.SimpleNamespace(kernel=object())
        of_display.display = display
        sys.modules.update({"IPython": notebook, "IPython.display": of_display})
        self.addCleanup(lambda: [sys.modules.pop(name) for name in ("IPython", "IPython.display")])
        self.start("notebook", show=None, max_steps=300).wait()
        self.assertIn("starting", shown[0]["text/html"])
        self.assertTrue(any("running" not in row["text/plain"] and "<polyline" in row["text/html"] for row in shown[1:-1]), len(shown))
        self.assertIn('aria-valuenow="100"', shown[-1]["text/html"])
        self.assertIn("finished  step 300/300", shown[-1]["text/plain"])

    def test_what_a_page_is_shown_is_text(self):
        output = self.scratch / "<script>alert(1)<"
        run = self.start(output.name, max_steps=1)
        result = run.wait()
        for shown in (run._repr_mimebundle_()["text/html"], result._repr_html_()):
            self.assertIn("&lt;script&gt;", shown)
            self.assertNotIn("<script", shown)

    def test_rows_are_those_of_the_file(self):
        run = self.start("rows", max_steps=3)
        self.assertEqual([dict(step.row) for step in run],
                         [row for row in read_rows(run.output_dir / "metrics.jsonl") if row["kind"] == "train"])


if __name__ == "__main__":
    unittest.main()
