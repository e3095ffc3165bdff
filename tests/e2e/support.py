"""What the end-to-end tests share: the program, tiny models and data, and readers of a run's output."""
import atexit
import concurrent.futures
import functools
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAINER = pathlib.Path(os.environ.get("TRAINER", ROOT / "build" / "trainer"))


def run_script(name, *arguments):
    subprocess.run([sys.executable, "-B", ROOT / "scripts" / name, *map(str, arguments)], check=True,
                   stdout=subprocess.DEVNULL)


def python_with(package):
    """Returns a Python that has the package, this one, that of the variable TEST_PYTHON or that of .venv, or None.

    It is looked for, not imported, which would take seconds; of a name with a dot the part before it is imported.
    """
    find = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    for python in (sys.executable, os.environ.get("TEST_PYTHON", sys.executable), ROOT / ".venv" / "bin" / "python"):
        if pathlib.Path(python).exists() and not subprocess.run([python, "-c", find], capture_output=True).returncode:
            return str(python)
    return None


# Gets scripts with their input, a line each, and answers with what they printed and their error.
RUN_SCRIPTS = """
import contextlib, io, json, os, sys, traceback
asked, answers = sys.stdin, os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # for libraries that print by themselves
for line in asked:
    script, given = json.loads(line)
    sys.stdin, printed, error = io.StringIO(given), io.StringIO(), None
    try:
        with contextlib.redirect_stdout(printed):
            exec(script, {"__name__": "__main__"})
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps([printed.getvalue(), error]), file=answers, flush=True)
"""


@functools.cache
def script_runner(python):
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
    runner = subprocess.Popen([python, "-c", RUN_SCRIPTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, env=environment)
    atexit.register(runner.communicate)  # its input ends, and so does it
    return runner


def run_with(python, script, given):
    """Runs a script in a Python that stays for the next ones: torch and transformers take seconds to import. The script gets
    `given` as JSON on stdin; returns the lines of JSON that it prints."""
    runner = script_runner(python)
    runner.stdin.write(json.dumps([script, json.dumps(given)]) + "\n")
    runner.stdin.flush()
    answer = runner.stdout.readline()
    assert answer, f"{python} has ended"
    printed, error = json.loads(answer)
    assert error is None, error
    return [json.loads(line) for line in printed.splitlines()]


def trainer(*arguments, text=None, timeout=300):
    """Runs the program; the result has returncode, stdout and stderr."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
    return subprocess.run([TRAINER, *map(str, arguments)], input=text, text=True, capture_output=True, timeout=timeout,
                          env=environment, cwd=ROOT)


def at_once(*works):
    """Calls functions that mostly wait, side by side; returns what they return, or raises what the first raised."""
    with concurrent.futures.ThreadPoolExecutor(len(works)) as threads:
        return [result.result() for result in [threads.submit(work) for work in works]]


def read_rows(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def tensors_of(path):
    """Reads a safetensors file: name -> (type, shape, bytes)."""
    content = pathlib.Path(path).read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    content = content[start:]
    return {name: (entry["dtype"], entry["shape"], content[slice(*entry["data_offsets"])]) for name, entry in header.items()}


class EndToEnd(unittest.TestCase):
    """A scratch folder for the tests of a class, with data and, if `family` is set, a tiny model of that family."""
    family = None
    model_arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp(prefix="trainer-e2e-"))
        cls.addClassCleanup(shutil.rmtree, cls.scratch)
        cls.data = cls.scratch / "data"
        run_script("make/demo_data", "--out", cls.data, "--train", 400, "--heldout", 24)
        cls.model = cls.scratch / "model"
        if cls.family:
            cls.make_model(cls.model, *cls.model_arguments)

    @classmethod
    def make_model(cls, directory, *arguments):
        run_script("make/tiny_model", "--family", cls.family, "--text", cls.data / "text.txt", "--out", directory,
                   *arguments)

    def train(self, preset, output, *overrides):
        """Trains with a preset, the arguments that every run needs and overrides; returns the program's result."""
        return trainer("--config", ROOT / "configs" / preset, f"model.path={self.model}",
                       f"data.train={self.data / 'train.jsonl'}", f"output_dir={output}", "device=cpu",
                       "logging_steps=1", *overrides)

    def assert_done(self, result):
        self.assertEqual(result.returncode, 0, f"stdout:\n{result.stdout}\nstderr:\n{result.stderr}")
        self.assertNotIn("no memory plan", result.stderr)  # a run goes on without one, which nobody would notice

    def assert_refused(self, result, code, *words):
        """Checks the exit code, and that stderr has all the words and shows no crash."""
        said = f"stdout:\n{result.stdout}\nstderr:\n{result.stderr}"
        self.assertEqual(result.returncode, code, said)
        for word in words:
            self.assertIn(str(word), result.stderr, said)
        for crash in ("terminate called", "Exception raised from", "frame #", "Segmentation"):
            self.assertNotIn(crash, result.stderr, said)

    def assert_loss_falls(self, output, steps, to):
        """Checks that there is one row a step, and that the last loss is less than `to` times the first one."""
        rows = [row for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"]
        self.assertEqual([row["step"] for row in rows], list(range(1, steps + 1)))
        for key in ("loss", "grad_norm", "learning_rate", "tokens", "supervised_tokens", "micro_batch_sizes"):
            self.assertIn(key, rows[0])
        first, last = rows[0]["loss"], sum(row["loss"] for row in rows[-5:]) / 5
        self.assertLess(last, to * first)
        return rows
