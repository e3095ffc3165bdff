"""Runs that are killed and restarted until they are done, compared with a run that was not disturbed."""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

from support import ROOT, TRAINER, read_rows, tensors_of

EXIT_OF_A_PLANNED_CRASH = 86
# Times and memory are not the same twice; nor is what depends on them.
NOT_COMPARED = ("seconds", "per_second", "memory")


def comparable_row(row):
    kept = {key: value for key, value in row.items() if not any(word in key for word in NOT_COMPARED)}
    if "path" in kept:
        kept["path"] = pathlib.Path(kept["path"]).name if "checkpoint-" in kept["path"] else "OUT"
    return kept


def comparable_rows(output):
    rows = read_rows(output / "metrics.jsonl")
    return [comparable_row(row) for row in rows if row["kind"] not in ("memory", "memory_growth")]


def log_history(directory):
    state = json.loads((directory / "trainer_state.json").read_text())
    return [comparable_row(row) for row in state["log_history"]]


def last_checkpoint(output):
    return max(output.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))


def differences(expected, found):
    """The differences between two output directories, in words."""
    said = []
    for row, (one, other) in enumerate(zip(comparable_rows(expected), comparable_rows(found))):
        if one != other:
            said.append(f"metrics.jsonl, row {row + 1}: {one} and {other}")
            break
    counts = [len(comparable_rows(output)) for output in (expected, found)]
    if counts[0] != counts[1]:
        said.append(f"metrics.jsonl: {counts[0]} and {counts[1]} rows")
    pairs = [(expected, found)]
    if list(expected.glob("checkpoint-*")):
        pairs.append((last_checkpoint(expected), last_checkpoint(found)))
    for one, other in pairs:
        files = [{path.name for path in directory.glob("*.safetensors")} for directory in (one, other)]
        if files[0] != files[1]:
            said.append(f"{one.name}: files {files[0]} and {files[1]}")
        for name in files[0] & files[1]:
            if tensors_of(one / name) != tensors_of(other / name):
                said.append(f"{one.name}/{name}")
        if log_history(one) != log_history(other):
            said.append(f"{one.name}: log_history")
    litter = [path for path in found.rglob("*") if path.name.endswith(".tmp")]
    if litter:
        said.append(f"litter: {litter}")
    return said


class Disturbance:
    """Starts one command again and again, and kills it somewhere each time except the last."""

    def __init__(self, arguments, output, seed, threads=1):
        self.arguments = [str(argument) for argument in arguments] + [f"output_dir={output}"]
        self.output = pathlib.Path(output)
        self.random = random.Random(seed)
        self.threads = threads
        self.kills = 0
        self.log = []

    def start(self, fault=None):
        environment = dict(os.environ, OMP_NUM_THREADS=str(self.threads), OMP_WAIT_POLICY="PASSIVE")
        environment.pop("TRAINER_FILE_FAULT", None)
        if fault:
            environment["TRAINER_FILE_FAULT"] = fault
        return subprocess.Popen([TRAINER, *self.arguments], cwd=ROOT, env=environment, text=True,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def undisturbed(self):
        """Runs it to the end once; returns the seconds that it took."""
        shutil.rmtree(self.output, ignore_errors=True)
        begin = time.monotonic()
        self.finish(self.start(), 0)
        return time.monotonic() - begin

    def finish(self, process, *allowed):
        _, said = process.communicate(timeout=300)
        self.log.append(said)
        if process.returncode not in allowed:
            raise AssertionError(f"{self.arguments}: exit code {process.returncode}\n{said}")
        return process.returncode

    def kill_by_clock(self, longest):
        process = self.start()
        try:
            _, said = process.communicate(timeout=self.random.uniform(0, longest))
            self.log.append(said)
            if process.returncode != 0:
                raise AssertionError(f"{self.arguments}: exit code {process.returncode}\n{said}")
            return False
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            self.log.append(process.communicate()[1])
            return True

    def kill_at_a_file(self, operations):
        fault = f"{self.random.randint(1, operations)}:crash"
        return self.finish(self.start(fault), 0, EXIT_OF_A_PLANNED_CRASH) == EXIT_OF_A_PLANNED_CRASH

    def run(self, kills, longest, operations):
        """Runs it until it is done, with at most `kills` kills."""
        shutil.rmtree(self.output, ignore_errors=True)
        while self.kills < kills:
            by_clock = self.random.random() < 0.4
            killed = self.kill_by_clock(longest) if by_clock else self.kill_at_a_file(operations)
            if not killed:
                return
            self.kills += 1
        self.finish(self.start(), 0)
