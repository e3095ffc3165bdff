"""Runs with several processes on the CPU: what a user starts, sees and ends. What they compute is in test_ranks.py."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest

from pseudo_terminal import PseudoTerminal
from support import ROOT, TRAINER, EndToEnd, python_with, read_rows
from test_ranks_launch import environment

TIMEOUT = 240
ENDLESS = "max_steps=1000000"


def ranks_of(launcher):
    """The processes that a launcher has started, by their rank; without those that do not run the program yet."""
    children = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    places = {int(pid): variables_of(pid).get("RANK") for pid in children}
    return {int(rank): pid for pid, rank in places.items() if rank is not None}


def variables_of(pid):
    text = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def state_of(pid):
    """The letter of the process's state; Z if it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


class RunOfRanks(EndToEnd):
    family = "t5"

    def setUp(self):
        self.output = self.scratch / self._testMethodName

    def arguments(self, *more):
        return [str(part) for part in
                (TRAINER, "--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}",
                 f"data.train={self.data / 'train.jsonl'}", f"output_dir={self.output}", "logging_steps=1", "lora.r=4",
                 "training.num_threads=1", "memory.rehearse=true", *more)]

    @contextlib.contextmanager
    def running(self, *more, command=None, variables=None):
        process = subprocess.Popen(command or self.arguments("--ranks", "2", *more), stderr=subprocess.PIPE, text=True, cwd=ROOT,
                                   env=environment(**(variables or {})))
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            process.stderr.close()

    def wait_for(self, process, *words):
        said = ""
        for line in process.stderr:
            said += line
            if all(word in line for word in words):
                return said
        self.fail(f"ended with {process.wait()} before it said {words}:\n{said}")

    def wait_until(self, is_so, what):
        end = time.monotonic() + TIMEOUT
        while not is_so():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.02)

    def end_of(self, process):
        said = process.stderr.read()
        return process.wait(TIMEOUT), said

    def steps(self):
        return [row["step"] for row in read_rows(self.output / "metrics.jsonl") if row["kind"] == "train"]

    def checkpoints(self):
        return sorted(int(path.name.split("-")[1]) for path in self.output.glob("checkpoint-*") if path.suffix != ".tmp")

    def assert_resumes(self, steps, *more):
        """Checks that the same command with an end, alone or with other ranks, goes on to it."""
        with self.running(command=self.arguments(*more, f"max_steps={steps}")) as process:
            code, said = self.end_of(process)
        self.assertEqual(code, 0, said)
        self.assertEqual(self.steps(), list(range(1, steps + 1)))


class Ranks(RunOfRanks):
    def test_rank_0_alone_speaks(self):
        with self.running("max_steps=4") as process:
            code, said = self.end_of(process)
        self.assertEqual(code, 0, said)
        self.assertEqual(self.steps(), [1, 2, 3, 4])
        self.assertEqual(said.count("step 3/4"), 1, said)
        self.assertEqual(said.count("done: "), 1, said)
        self.assertNotIn("rank 1", said)
        self.assertTrue((self.output / "adapter_model.safetensors").exists())

    def test_each_rank_has_its_share_of_the_cores(self):
        with self.running(ENDLESS, "training.num_threads=0") as process:
            self.wait_for(process, "step 1/")
            shares = [variables_of(pid)["OMP_NUM_THREADS"] for pid in ranks_of(process.pid).values()]
        self.assertEqual(shares, [str(max(1, len(os.sched_getaffinity(0)) // 2))] * 2)

    def test_a_signal_stops_all_and_they_save(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            shutil.rmtree(self.output, ignore_errors=True)
            with self.running(ENDLESS) as process:
                self.wait_for(process, "step 3/")
                process.send_signal(number)
                code, said = self.end_of(process)
            self.assertEqual(code, 75, said)
            self.assertEqual(said.count("topping after this step"), 1, said)
            self.assertEqual(self.checkpoints(), [self.steps()[-1]])
            self.assertIn("To go on: ", said.splitlines()[-1])
        self.assert_resumes(self.steps()[-1] + 2)

    def test_a_signal_to_one_rank_stops_all(self):
        with self.running(ENDLESS) as process:
            self.wait_for(process, "step 3/")
            os.kill(ranks_of(process.pid)[1], signal.SIGTERM)
            code, said = self.end_of(process)
        self.assertEqual(code, 75, said)
        self.assertEqual(self.checkpoints(), [self.steps()[-1]])

    def test_a_signal_to_one_rank_that_starts_stops_all(self):
        with self.running(ENDLESS) as process:
            self.wait_until(lambda: len(ranks_of(process.pid)) == 2, "two ranks")
            os.kill(ranks_of(process.pid)[1], signal.SIGTERM)
            code, said = self.end_of(process)
        self.assertEqual(code, 75, said)

    def test_a_signal_to_save_saves_once(self):
        with self.running(ENDLESS) as process:
            self.wait_for(process, "step 3/")
            process.send_signal(signal.SIGUSR1)
            said = self.wait_for(process, "saved", "checkpoint-")
            said += self.wait_for(process, "step")
            process.send_signal(signal.SIGTERM)
            code, rest = self.end_of(process)
        self.assertEqual(code, 75, rest)
        self.assertEqual((said + rest).count("SIGUSR1: the run saves"), 1)

    def test_a_second_interrupt_ends_all_at_once(self):
        with self.running(ENDLESS, "effective_batch_size=400") as process:
            self.wait_for(process, "step 1/")
            ranks = ranks_of(process.pid)
            process.send_signal(signal.SIGINT)
            self.wait_for(process, "Ctrl-C again quits now")
            process.send_signal(signal.SIGINT)
            code, said = self.end_of(process)
        self.assertIn(code, (-signal.SIGINT, 75), said)  # it may have saved before
        self.assertEqual([state_of(pid) for pid in ranks.values()], ["Z", "Z"])

    def test_a_rank_that_is_killed_ends_the_run_and_is_named(self):
        for rank in (1, 0):
            shutil.rmtree(self.output, ignore_errors=True)
            with self.running(ENDLESS, "save.strategy=steps", "save.steps=2") as process:
                self.wait_for(process, "step 5/")
                ranks = ranks_of(process.pid)
                os.kill(ranks[rank], signal.SIGKILL)
                code, said = self.end_of(process)
            self.assertEqual(code, 128 + signal.SIGKILL, said)
            self.assertIn(f"rank {rank} was killed by signal 9", said.splitlines()[-1])
            self.assertEqual([state_of(pid) for pid in ranks.values()], ["Z", "Z"])
            last = self.checkpoints()[-1]
            self.assertGreaterEqual(last, 2)
        self.assert_resumes(last + 3)

    def test_a_rank_that_hangs_is_noticed_and_ended(self):
        with self.running(ENDLESS, "parallel.timeout=2") as process:
            self.wait_for(process, "step 3/")
            ranks = ranks_of(process.pid)
            os.kill(ranks[1], signal.SIGSTOP)
            code, said = self.end_of(process)
        self.assertEqual(code, 8, said)
        self.assertEqual([state_of(pid) for pid in ranks.values()], ["Z", "Z"])

    def test_no_rank_outlives_its_launcher(self):
        with self.running(ENDLESS) as process:
            self.wait_for(process, "step 1/")
            ranks = ranks_of(process.pid)
            self.assertEqual(len(ranks), 2)
            process.kill()
            self.wait_until(lambda: all(state_of(pid) == "Z" for pid in ranks.values()), "the ranks' end")

    def test_an_error_of_the_run_is_said_once_and_gives_its_code(self):
        with self.running("data.train=" + str(self.model / "config.json")) as process:
            code, said = self.end_of(process)
        self.assertEqual(code, 3, said)
        self.assertEqual(said.count("rows cannot be used"), 1, said)

    def test_on_a_terminal(self):
        terminal = PseudoTerminal(self.arguments("--ranks", "2", ENDLESS), height=40, environment=environment(TERM="xterm-256color"),
                                  cwd=ROOT)
        self.addCleanup(terminal.close)

        def live_step(least):
            rows = (re.search(r"\d %.* step (\d+)/", row) for row in terminal.screen.visible())
            steps = [int(found[1]) for found in rows if found]
            return steps[-1] if steps and steps[-1] >= least else None

        step = terminal.wait_until(lambda: live_step(1), "the live block")
        ranks = ranks_of(terminal.process.pid)
        terminal.press(b"\x1a")  # Ctrl-Z
        processes = [terminal.process.pid, *ranks.values()]
        terminal.wait_until(lambda: all(state_of(pid) == "T" for pid in processes), "all stand still")
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_until(lambda: live_step(step + 3), "the live block goes on")
        terminal.press(b"\x03")  # Ctrl-C
        self.assertEqual(terminal.finish(), 75)
        text = "\n".join(terminal.screen.rows)
        self.assertEqual(text.count("topping after this step"), 1, text)
        self.assertNotIn("rank 1", text)
        self.assertEqual(self.checkpoints(), [self.steps()[-1]])

    def places(self, **variables):
        """Variables of two processes."""
        common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        return [dict(common, RANK=str(rank), LOCAL_RANK=str(rank), **variables) for rank in range(2)]

    def ends_of(self, commands, places):
        """Starts a command at each place; returns their codes and what they say."""
        processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment(**place))
                     for command, place in zip(commands, places)]
        try:
            said = [process.communicate(timeout=TIMEOUT)[1] for process in processes]
            return [process.returncode for process in processes], said
        finally:
            for process in processes:
                process.kill()

    def test_processes_of_slurm_find_each_other(self):
        step = {"SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7", "MASTER_PORT": str(free_port()), "SLURM_NTASKS": "2",
                "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NODEID": "0"}
        places = [dict(step, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank)) for rank in range(2)]
        codes, said = self.ends_of([self.arguments("max_steps=3")] * 2, places)
        self.assertEqual(codes, [0, 0], said)
        self.assertEqual(self.steps(), [1, 2, 3])
        self.assertEqual(said[1], "")

    def test_processes_that_were_started_differently_end_with_one_message(self):
        codes, said = self.ends_of([self.arguments("max_steps=3"), self.arguments("max_steps=3", "seed=7")], self.places())
        self.assertEqual(codes, [2, 2], said)
        self.assertIn("rank 1 was started differently", said[0])
        self.assertIn("seed", said[0])
        self.assertEqual(said[1], "")

    def test_a_port_in_use_is_named(self):
        places = self.places()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", int(places[0]["MASTER_PORT"])))
            taken.listen()
            codes, said = self.ends_of([self.arguments("max_steps=3", "parallel.timeout=5")], places[:1])
        self.assertEqual(codes, [2], said)
        self.assertIn(places[0]["MASTER_PORT"], said[0])

    def test_a_rank_that_does_not_come_is_named(self):
        codes, said = self.ends_of([self.arguments("max_steps=3", "parallel.timeout=2")], self.places()[:1])
        self.assertEqual(codes, [8], said)
        self.assertIn("rank 1 of 2 did not start within 2 s", said[0])
        places = self.places()
        codes, said = self.ends_of([self.arguments("max_steps=3", "parallel.timeout=2")], places[1:])
        self.assertEqual(codes, [8], said)
        self.assertIn(f"rank 1: rank 0 does not answer at 127.0.0.1:{places[0]['MASTER_PORT']}", said[0])
        for stack in ("frame #", "[c10d]", "Exception raised"):
            self.assertNotIn(stack, said[0])


TORCHRUN = pathlib.Path(python_with("torch.version") or "/").parent / "torchrun"


@unittest.skipUnless(TORCHRUN.exists(), "needs torchrun")
class Torchrun(RunOfRanks):
    def torchrun(self, *more):
        return [str(TORCHRUN), "--no-python", "--nproc-per-node", "2", "--master-port", str(free_port()), *self.arguments(*more)]

    def test_it_trains_saves_and_resumes(self):
        with self.running(command=self.torchrun(ENDLESS)) as process:
            self.wait_for(process, "step 3/")
            process.send_signal(signal.SIGTERM)
            _, said = self.end_of(process)
        self.assertEqual(self.checkpoints(), [self.steps()[-1]], said)
        last = self.steps()[-1]
        with self.running(command=self.torchrun(f"max_steps={last + 2}")) as process:
            code, said = self.end_of(process)
        self.assertEqual(code, 0, said)
        self.assertEqual(self.steps(), list(range(1, last + 3)))
        self.assertEqual(said.count(f"step {last + 1}/"), 1, said)

    def test_what_it_starts_again_resumes(self):
        command = self.torchrun("max_steps=200", "save.strategy=steps", "save.steps=5", "save.total_limit=2")
        command[1:1] = ["--max-restarts", "1"]
        with self.running(command=command) as process:
            self.wait_for(process, "step 20/")
            os.kill(ranks_of(process.pid)[1], signal.SIGKILL)
            code, said = self.end_of(process)
        self.assertEqual(code, 0, said)
        self.assertEqual(self.steps(), list(range(1, 201)))
        self.assertIn("resum", said)


if __name__ == "__main__":
    unittest.main()
