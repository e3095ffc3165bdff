"""Signals and training.max_hours: what a run does when it is asked to stop or to save, and how it resumes."""
import contextlib
import os
import pty
import signal
import subprocess
import unittest

from support import ROOT, TRAINER, EndToEnd, read_rows, tensors_of, write_rows

ENDLESS = ("max_steps=1000000",)
TIMEOUT = 240
TRIES = 5  # where the program may be quicker than the signal


class Signals(EndToEnd):
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.long = cls.scratch / "long.jsonl"
        write_rows(cls.long, read_rows(cls.data / "train.jsonl") * 50)

    def command(self, output, *overrides):
        return [str(part) for part in
                (TRAINER, "--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}",
                 f"data.train={self.data / 'train.jsonl'}", f"output_dir={output}", "device=cpu", "logging_steps=1",
                 "lora.r=4", "save.strategy=no", "training.num_threads=1", *overrides)]

    @contextlib.contextmanager
    def running(self, output, *overrides, **options):
        environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
        process = subprocess.Popen(self.command(output, *overrides), stderr=subprocess.PIPE, text=True, cwd=ROOT,
                                   env=environment, **options)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            process.stderr.close()

    def wait_for(self, process, *words):
        """Reads stderr up to a line that contains all the words; returns everything that was read."""
        said = ""
        for line in process.stderr:
            said += line
            if all(word in line for word in words):
                return said
        self.fail(f"ended with {process.wait()} before it said {words}:\n{said}")

    def end_of(self, process):
        """Returns the exit code and the rest of stderr."""
        said = process.stderr.read()
        return process.wait(TIMEOUT), said

    @staticmethod
    def steps(output, kind="train"):
        return [row["step"] for row in read_rows(output / "metrics.jsonl") if row["kind"] == kind]

    @staticmethod
    def checkpoints(output):
        return sorted(int(path.name.split("-")[1]) for path in output.glob("checkpoint-*") if path.suffix != ".tmp")

    def assert_saved_and_ended(self, output, code, said, name):
        """Checks that the run ended with code 75 after a saved step; returns that step."""
        self.assertEqual(code, 75, said)
        step = self.steps(output)[-1]
        self.assertEqual(self.checkpoints(output), [step])
        last = said.splitlines()[-1]
        for words in (name, f"after step {step} of", f"checkpoint-{step}", "To go on: trainer --config"):
            self.assertIn(words, last)
        self.assertFalse((output / "adapter_model.safetensors").exists(), "a run that is not complete has no result")
        return step

    def test_a_signal_to_stop_ends_the_run_after_the_step_and_saves(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            output = self.scratch / f"stopped-by-{number.name}"
            with self.running(output, *ENDLESS) as process:
                self.wait_for(process, "step 3/")
                process.send_signal(number)
                code, said = self.end_of(process)
            self.assertIn("topping after this step", said)
            self.assert_saved_and_ended(output, code, said, number.name)

    def test_a_run_that_is_stopped_again_and_again_is_the_undisturbed_one(self):
        evaluated = ("training.eval_strategy=steps", "training.eval_steps=3", f"data.eval={self.data / 'heldout.jsonl'}",
                     "max_steps=7", "effective_batch_size=48", "training.dropout=0.1")
        whole, parts = self.scratch / "whole", self.scratch / "parts"
        with self.running(whole, *evaluated) as process:
            self.assertEqual(self.end_of(process)[0], 0)
        stops = 0
        for _ in range(8):
            with self.running(parts, *evaluated) as process:
                with contextlib.suppress(AssertionError):  # complete before it could be stopped
                    self.wait_for(process, "step ", "loss")
                    process.send_signal((signal.SIGTERM, signal.SIGINT)[stops % 2])
                code, said = self.end_of(process)
            if code == 0:
                break
            self.assertEqual(code, 75, said)
            stops += 1
        self.assertEqual(code, 0, said)
        self.assertGreaterEqual(stops, 3)
        self.assertEqual(tensors_of(parts / "adapter_model.safetensors"), tensors_of(whole / "adapter_model.safetensors"))
        self.assertEqual(self.lasting(parts), self.lasting(whole))

    @staticmethod
    def lasting(output):
        """Rows of steps and evaluations without times and memory figures."""
        of_the_moment = ("seconds", "per_second", "memory")
        return [{key: value for key, value in row.items() if not any(word in key for word in of_the_moment)}
                for row in read_rows(output / "metrics.jsonl") if row["kind"] in ("train", "eval")]

    def test_before_the_first_step_it_ends_at_once_with_nothing_saved(self):
        output = self.scratch / "not-begun"
        for _ in range(TRIES):
            with self.running(output, *ENDLESS, f"data.train={self.long}", "overwrite_output_dir=true") as process:
                self.wait_for(process, "weights:")  # then the data is read
                process.send_signal(signal.SIGTERM)
                code, said = self.end_of(process)
            self.assertEqual(code, 75, said)
            if "before a step was made" in said:
                break
        self.assertNotIn("step 1/", said)
        self.assertEqual(self.checkpoints(output), [])

    def test_a_second_interrupt_ends_it_at_once(self):
        output = self.scratch / "interrupted"
        steps = "effective_batch_size=400"
        for _ in range(TRIES):
            with self.running(output, *ENDLESS, steps, "overwrite_output_dir=true") as process:
                self.wait_for(process, "step 1/")  # the next one takes a while
                process.send_signal(signal.SIGINT)
                self.wait_for(process, "Ctrl-C again quits now")
                process.send_signal(signal.SIGINT)
                code, said = self.end_of(process)
            if code != 75:
                break
        self.assertEqual(code, -signal.SIGINT, said)
        self.assertIn("Stopped at once", said)
        self.assertEqual(self.checkpoints(output), [])
        with self.running(output, "max_steps=2", steps) as process:
            code, said = self.end_of(process)
        self.assertEqual(code, 0, said)
        self.assertEqual(list(output.glob("*.tmp")), [], "what was being written when it was ended")

    def test_a_signal_that_is_ignored_stays_ignored(self):
        output = self.scratch / "nohup"
        with self.running(output, "max_steps=8",
                          preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as process:
            self.wait_for(process, "step 2/")
            process.send_signal(signal.SIGHUP)
            code, said = self.end_of(process)
        self.assertEqual(code, 0, said)
        self.assertEqual(self.steps(output), list(range(1, 9)))

    def test_when_its_terminal_is_closed_it_saves_and_ends(self):
        output = self.scratch / "terminal"
        controller, terminal = pty.openpty()
        environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
        helper = "import fcntl, os, sys, termios\nfcntl.ioctl(2, termios.TIOCSCTTY, 0)\nos.execv(sys.argv[1], sys.argv[1:])"
        process = subprocess.Popen(["python3", "-c", helper, *self.command(output, *ENDLESS)], stdin=terminal,
                                   stdout=terminal, stderr=terminal, cwd=ROOT, env=environment, start_new_session=True)
        try:
            os.close(terminal)
            said = b""
            while b"step 3/" not in said:
                said += os.read(controller, 4096)
            os.close(controller)
            self.assertEqual(process.wait(TIMEOUT), 75)
        finally:
            process.kill()
            process.wait()
        self.assertEqual(self.checkpoints(output), [self.steps(output)[-1]])

    def test_who_reads_the_messages_may_go_away(self):
        output = self.scratch / "unread"
        with self.running(output, "max_steps=30") as process:
            self.wait_for(process, "step 2/")
            process.stderr.close()
            self.assertEqual(process.wait(TIMEOUT), 0)
            process.stderr = open(os.devnull)
        self.assertEqual(self.steps(output), list(range(1, 31)))

    def test_sigusr1_saves_and_the_run_goes_on(self):
        output = self.scratch / "warned"
        with self.running(output, *ENDLESS) as process:
            self.wait_for(process, "step 3/")
            process.send_signal(signal.SIGUSR1)
            self.wait_for(process, "SIGUSR1")
            self.wait_for(process, "saved", "checkpoint-")
            saved = self.checkpoints(output)
            self.wait_for(process, "step")
            process.send_signal(signal.SIGUSR1)
            self.wait_for(process, "saved", "checkpoint-")
            process.send_signal(signal.SIGTERM)
            code, said = self.end_of(process)
        self.assertEqual(code, 75, said)
        self.assertEqual(len(saved), 1)
        self.assertGreaterEqual(len(self.checkpoints(output)), 2)
        last = self.steps(output)[-1]
        self.assertEqual(self.steps(output), list(range(1, last + 1)))

    def test_in_an_evaluation_it_does_not_wait_for_its_end(self):
        output = self.scratch / "evaluating"
        evaluated = ("training.eval_strategy=steps", "training.eval_steps=2", f"data.eval={self.long}", "eval_batch_size=1",
                     "max_steps=4")
        with self.running(output, *evaluated) as process:
            self.wait_for(process, "step 2/")
            process.send_signal(signal.SIGUSR1)
            self.wait_for(process, "saved", "checkpoint-2")
            process.send_signal(signal.SIGTERM)
            code, said = self.end_of(process)
        self.assertEqual(self.assert_saved_and_ended(output, code, said, "SIGTERM"), 2)
        self.assertEqual(self.steps(output, "eval"), [])
        with self.running(output, *evaluated, "max_steps=3", "eval_batch_size=64") as process:  # it is made first
            code, said = self.end_of(process)
        self.assertEqual(code, 0, said)
        self.assertEqual(self.steps(output, "eval"), [2, 3])
        self.assertEqual(self.steps(output), [1, 2, 3])

    def test_max_hours(self):
        output = self.scratch / "hours"
        with self.running(output, *ENDLESS, "training.max_hours=0.001") as process:
            code, said = self.end_of(process)
        step = self.assert_saved_and_ended(output, code, said, "training.max_hours")
        self.assertGreaterEqual(step, 1)

    def test_an_evaluation_that_never_fits_does_not_stop_it_for_ever(self):
        output = self.scratch / "late"
        settings = ("training.eval_strategy=steps", "training.eval_steps=1", f"data.eval={self.data / 'heldout.jsonl'}",
                    "eval_batch_size=1", "max_steps=2", "training.max_hours=1e-9")
        codes = []
        while codes[-1:] != [0] and len(codes) < 4:
            with self.running(output, *settings) as process:
                codes.append(self.end_of(process)[0])
        self.assertEqual(codes, [75, 75, 0])
        self.assertEqual(self.steps(output), [1, 2])
        self.assertEqual(self.steps(output, "eval"), [1, 2])

    def test_two_runs_never_write_to_one_directory(self):
        output = self.scratch / "shared"
        with self.running(output, *ENDLESS) as first:
            self.wait_for(first, "step 1/")
            for overrides in ((), ("overwrite_output_dir=true",)):
                with self.running(output, *ENDLESS, *overrides) as second:
                    code, said = self.end_of(second)
                self.assertEqual(code, 4, said)
                self.assertIn(f"in use by process {first.pid}", said)
            first.kill()
            self.assertEqual(first.wait(TIMEOUT), -signal.SIGKILL)
        with self.running(output, *ENDLESS, "overwrite_output_dir=true") as third:  # the dead one holds no lock
            self.wait_for(third, "step 1/")


if __name__ == "__main__":
    unittest.main()
