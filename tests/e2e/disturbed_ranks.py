"""Runs of several ranks, one of which is killed again and again, restarted with another number of ranks each time."""
import random
import re
import shutil
import signal
import time

from disturbed import EXIT_OF_A_PLANNED_CRASH, comparable_rows, last_checkpoint, log_history
from in_ranks import InRanks
from support import tensors_of

LOST_ANOTHER = 8
# When a kill comes at the latest: in seconds, in rows of metrics.jsonl that this start has written, in operations on files
# (of rank 0, which writes most, and of another).
SECONDS, ROWS, OPERATIONS = 3, 15, (200, 50)
# Seconds until the other ranks are killed, too, as a launcher does. They may wait longer: for a rank that was killed before
# it met them, or to tell it why they end.
PATIENCE = 3


class DisturbedRanks:
    """Runs one command until it is done, and keeps which number of ranks trained which steps."""

    def __init__(self, arguments, output, most, seed):
        """arguments: with max_steps, on which the learning rate must not depend; most: the largest number of ranks."""
        self.arguments = list(map(str, arguments))
        self.steps = int([value for value in self.arguments if value.startswith("max_steps=")][-1].split("=")[1])
        self.output, self.most = output, most
        self.random = random.Random(seed)
        self.starts = []  # (ranks, the step after which they began), of all that began
        self.last_number = None
        self.had_checkpoint = False
        self.kills = 0
        self.log = []

    def start(self, count, output, *overrides, environment=None):
        self.had_checkpoint = any(path.suffix == "" for path in output.glob("checkpoint-*"))
        return InRanks(count, *self.arguments, f"output_dir={output}", *overrides, environment=environment)

    def another_number(self):
        self.last_number = self.random.choice([count for count in range(1, self.most + 1) if count != self.last_number])
        return self.last_number

    def started(self, count, run, killed):
        """Waits for the ranks, and returns whether the run is done."""
        if killed is not None:
            self.wait_for_others(run, killed)
        codes, texts = run.wait()
        self.log.append(f"{count} ranks, rank {killed} killed: exit codes {codes}\n" + "\n".join(texts))
        resumed = re.search(r"resumes after step ([\d,]+)", texts[0])
        if resumed:
            self.starts.append((count, int(resumed[1].replace(",", ""))))
        elif not self.had_checkpoint:
            self.starts.append((count, 0))
        others = {code for rank, code in enumerate(codes) if rank != killed}
        was_killed = killed is not None and codes[killed] in (-signal.SIGKILL, EXIT_OF_A_PLANNED_CRASH)
        self.kills += was_killed
        if not was_killed and set(codes) != {0} or others - {0, LOST_ANOTHER, -signal.SIGKILL}:
            raise AssertionError(self.log[-1])
        return codes[0] == 0

    @staticmethod
    def wait_for_others(run, killed):
        run.processes[killed].wait()
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and any(process.poll() is None for process in run.processes):
            time.sleep(0.01)
        if run.processes[killed].returncode != 0:
            for process in run.processes:
                process.kill()

    def kill_any_time(self, count):
        """Between the start and the end."""
        run, rank = self.start(count, self.output), self.random.randrange(count)
        self.wait_until(run, time.monotonic() + self.random.uniform(0, SECONDS))
        run.processes[rank].kill()
        return self.started(count, run, rank)

    def kill_in_training(self, count):
        """When this start has written some rows."""
        rows = self.rows() + self.random.randint(1, ROWS)
        run, rank = self.start(count, self.output), self.random.randrange(count)
        self.wait_until(run, time.monotonic() + 60, lambda: self.rows() >= rows)
        run.processes[rank].kill()
        return self.started(count, run, rank)

    def kill_at_a_file(self, count):
        """By itself, before it opens, writes, renames or removes a file."""
        rank = self.random.randrange(count)
        fault = f"{self.random.randint(1, OPERATIONS[rank > 0])}:crash"
        return self.started(count, self.start(count, self.output, environment={rank: {"TRAINER_FILE_FAULT": fault}}), rank)

    def rows(self):
        metrics = self.output / "metrics.jsonl"
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    @staticmethod
    def wait_until(run, end, reached=lambda: False):
        while time.monotonic() < end and not reached() and all(process.poll() is None for process in run.processes):
            time.sleep(0.005)

    def run(self, kills, ways=("any_time", "in_training", "at_a_file")):
        """Runs it until it is done, with at most so many kills."""
        shutil.rmtree(self.output, ignore_errors=True)
        while self.kills < kills:
            kill = getattr(self, f"kill_{self.random.choice(ways)}")
            if kill(self.another_number()):
                return
        count = self.another_number()
        self.started(count, self.start(count, self.output), None)

    def history(self):
        """Which number of ranks trained the steps of the result: (ranks, last step) of each part."""
        ends = [begin for _, begin in self.starts[1:]] + [self.steps]
        parts = []
        for (count, begin), end in zip(self.starts, ends):
            if end == begin:
                continue
            if parts and parts[-1][0] == count:
                parts.pop()
            parts.append((count, end))
        return parts

    def replay(self, output):
        """Trains the same parts undisturbed."""
        shutil.rmtree(output, ignore_errors=True)
        for count, end in self.history():
            codes, texts = self.start(count, output, f"max_steps={end}").wait()
            if set(codes) != {0}:
                raise AssertionError("\n".join(texts))


def differences(expected, found):
    """The differences between two results that were trained by the same numbers of ranks, in words."""
    said = []
    rows = [[row for row in comparable_rows(output) if row["kind"] in ("train", "eval")] for output in (expected, found)]
    said += [f"metrics.jsonl: {one} and {other}" for one, other in zip(*rows) if one != other][:1]
    if len(rows[0]) != len(rows[1]):
        said.append(f"metrics.jsonl: {len(rows[0])} and {len(rows[1])} rows")
    for one, other in ((expected, found), (last_checkpoint(expected), last_checkpoint(found))):
        names = [{path.name for path in directory.glob("*.safetensors")} for directory in (one, other)]
        if names[0] != names[1] or not names[0]:
            said.append(f"{one.name}: files {names[0]} and {names[1]}")
        said += [f"{one.name}/{name}" for name in names[0] & names[1] if tensors_of(one / name) != tensors_of(other / name)]
        if log_history(one) != log_history(other):
            said.append(f"{one.name}: log_history")
    return said + [f"litter: {path}" for path in found.rglob("*.tmp")]
