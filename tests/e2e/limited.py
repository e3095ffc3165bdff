"""Starts of the program under a limit of the system: how it is set, and what such a start may do."""
import array
import json
import os
import pathlib
import resource
import shutil
import struct
import subprocess

import disturbed
from support import ROOT, TRAINER, tensors_of

SECONDS = 60  # a start that takes longer hangs; undisturbed, each takes a second
CODES = (0, 2, 3, 4, 5)  # docs/errors.md, without those of devices, numbers and signals
CRASHES = ("terminate called", "Exception raised from", "frame #", "Segmentation", "internal error", "libgomp:")
LOADER = "error while loading shared libraries"  # of ld.so, which runs before the program: code 127
USER = 61_917  # no other process has it, so that only the threads of the start count


KB, MB = (" kB", 1 << 10), (" MB", 1 << 20)


class Limit:
    """A limit of the process. `words`: one of them is in the message. `unit`: its name and how many bytes it has."""

    def __init__(self, name, number, values, words, user=None, unit=("", 1)):
        self.name, self.number, self.values, self.words, self.user = name, number, values, words, user
        self.unit, self.bytes = unit

    def why_not(self, scratch):
        """Why it cannot be tried here; "" if it can."""
        if self.user is None:
            return ""
        if os.geteuid() != 0:
            return "only root can start a program as another user, whose threads are counted"
        try:
            ended = subprocess.run([TRAINER, "--version"], user=self.user, group=self.user, extra_groups=[], cwd="/",
                                   capture_output=True, timeout=SECONDS)
            return "" if ended.returncode == 0 else "another user cannot start the program"
        except OSError as error:
            return f"another user cannot start the program: {error}"

    def set_up(self, place, value):
        place.mkdir()
        place.chmod(0o777)

    def lift(self, place):
        pass

    def clean_up(self, place):
        shutil.rmtree(place)

    def start(self, arguments, place, value):
        """Runs the program, without the limit if value is None; returns exit code, stdout and stderr."""
        identity = {} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": []}

        def limit():
            if value is not None and self.number is not None:
                resource.setrlimit(self.number, (value * self.bytes, value * self.bytes))
        environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE", XDG_CACHE_HOME=str(place / "cache"))
        process = subprocess.Popen([TRAINER, *map(str, arguments)], cwd=ROOT, env=environment, preexec_fn=limit,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   **identity)
        try:
            out, said = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return None, "", process.communicate()[1]
        return process.returncode, out, said


class FullDisk(Limit):
    """A small file system in memory, which holds the output and the cache."""

    def __init__(self, values):
        super().__init__("a full disk", None, values, ("space",), unit=KB)

    def why_not(self, scratch):
        place = scratch / "trial"
        try:
            self.set_up(place, 64)
        except (OSError, subprocess.CalledProcessError) as error:
            place.rmdir()
            return f"no small file system can be mounted: {error}"
        self.clean_up(place)
        return ""

    def set_up(self, place, value):
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={value}k", "tmpfs", place], check=True, capture_output=True)

    def lift(self, place):
        subprocess.run(["mount", "-o", "remount,size=64m", place], check=True)

    def clean_up(self, place):
        subprocess.run(["umount", place], check=True)
        place.rmdir()


LIMITS = (
    Limit("threads (`ulimit -u`)", resource.RLIMIT_NPROC, range(1, 9), ("threads",), user=USER),
    Limit("open files (`ulimit -n`)", resource.RLIMIT_NOFILE, range(3, 17), ("open files",)),
    Limit("address space (`ulimit -v`)", resource.RLIMIT_AS, range(40, 1600, 120), ("memory",), unit=MB),
    Limit("data (`ulimit -d`)", resource.RLIMIT_DATA, [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512], ("memory",), unit=MB),
    Limit("size of a file (`ulimit -f`)", resource.RLIMIT_FSIZE, [0, *(1 << power for power in range(11))], ("ulimit -f",),
          unit=KB),
    FullDisk([8 << power for power in range(11)]),
)


class Command:
    """A command line, and what of its result is compared."""

    def __init__(self, name, arguments, result):
        self.name, self.arguments = name, arguments  # arguments: a function of the folder for output
        self.result = result  # a function of stdout and that folder


def files_of(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def commands(model, data):
    """`model`: a tiny T5."""
    preset = ("--config", ROOT / "configs/tiny_t5.yaml", f"model.path={model}", f"data.train={data / 'train.jsonl'}")

    def train(place):
        return (*preset, f"output_dir={place / 'out'}", f"data.cache={place / 'cache'}", f"data.eval={data / 'heldout.jsonl'}",
                "device=cpu", "training.num_threads=2", "lora.r=4", "lora.target_modules=[q, v]", "max_steps=6", "save.strategy=steps", "save.steps=2",
                "training.eval_strategy=steps", "training.eval_steps=3", "memory.rehearse=true")
    return (
        Command("train", train, lambda out, place: place / "out"),
        Command("data", lambda place: ("data", *preset, f"data.cache={place / 'cache'}"), lambda out, place: out),
        Command("plan", lambda place: ("plan", *preset), lambda out, place: out),
        Command("generate", lambda place: ("generate", model, "--input", data / "heldout.jsonl", "--max-new-tokens", 4,
                                           "--device", "cpu", "--num-threads", 2), lambda out, place: out),
        Command("eval", lambda place: ("eval", model, data / "heldout.jsonl", "--json", "device=cpu", "training.num_threads=2",
                                       f"data.cache={place / 'cache'}"),
                lambda out, place: disturbed.comparable_row(json.loads(out))),
        Command("export", lambda place: ("export", model, place / "out"), lambda out, place: files_of(place / "out")),
    )


def half_written(directory, but_last_lines=False):
    """The files under their final names that are not complete. `but_last_lines`: the last line of a .jsonl file may be cut."""
    broken = []
    for path in directory.rglob("*"):
        if not path.is_file() or any(".tmp" in part for part in path.relative_to(directory).parts):
            continue
        content = path.read_bytes()
        try:
            if path.suffix == ".json":
                json.loads(content)
            elif path.suffix == ".jsonl":
                lines = content.splitlines(keepends=True)
                if but_last_lines and lines and not lines[-1].endswith(b"\n"):
                    lines.pop()
                [json.loads(line) for line in lines]
            elif path.suffix == ".safetensors":
                size = struct.unpack("<Q", content[:8])[0]
                header = json.loads(content[8:8 + size])
                header.pop("__metadata__", None)
                if len(content) != 8 + size + max(entry["data_offsets"][1] for entry in header.values()):
                    broken.append(path)
        except (ValueError, struct.error):
            broken.append(path)
    return broken


def problems_of(code, said, words):
    """What is wrong with the end of a start under a limit."""
    if code is None:
        return [f"did not end within {SECONDS} s"]
    if code < 0:
        return [f"ended by signal {-code}"]
    if code == 127 and LOADER in said:
        return []
    problems = [f"says '{crash}'" for crash in CRASHES if crash in said]
    if code not in CODES:
        problems.append(f"exit code {code}")
    if code != 0 and not any(word in said for word in words):
        problems.append(f"names none of {', '.join(words)}")
    return problems


def near(one, other):
    """Whether two files of fp32 tensors differ by no more than what another split of a step rounds differently."""
    tensors, others = tensors_of(one), tensors_of(other)
    if {name: tensor[:2] for name, tensor in tensors.items()} != {name: tensor[:2] for name, tensor in others.items()}:
        return False
    pairs = [(a, b) for name in tensors for a, b in zip(*(array.array("f", each[name][2]) for each in (tensors, others)))]
    return sum((a - b) ** 2 for a, b in pairs) <= 1e-8 * sum(a ** 2 for a, b in pairs)


class Trial:
    """One command under one limit with one value."""

    def __init__(self, command, limit, value, expected):
        self.command, self.limit, self.value, self.expected = command, limit, value, expected
        self.code, self.said = None, ""

    def difference(self, out, place):
        if isinstance(self.expected, pathlib.Path):
            found = self.command.result(out, place)
            weights = [directory / "adapter_model.safetensors" for directory in (self.expected, found)]
            if self.code == 0 and "is split into smaller ones" in self.said:  # it ran out of memory
                return [] if near(*weights) else ["another result"]
            if self.code == 0 and "is not saved" in self.said:  # the run went on without a checkpoint
                return [] if tensors_of(weights[0]) == tensors_of(weights[1]) else ["another result"]
            return disturbed.differences(self.expected, found)
        return [] if self.command.result(out, place) == self.expected else ["another result"]

    def problems(self, place):
        """Runs it under the limit, then without; returns what is wrong, in words."""
        self.limit.set_up(place, self.value)
        try:
            arguments = self.command.arguments(place)
            self.code, out, self.said = self.limit.start(arguments, place, self.value)
            problems = problems_of(self.code, self.said, self.limit.words)
            problems += [f"half-written: {path}" for path in half_written(place)]
            self.limit.lift(place)
            if self.code != 0:
                code, out, said = self.limit.start(arguments, place, None)
                if code != 0:
                    return [*problems, f"exit code {code} without the limit: {said}"]
            return problems + self.difference(out, place)
        finally:
            self.limit.clean_up(place)
