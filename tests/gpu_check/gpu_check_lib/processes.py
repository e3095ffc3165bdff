"""Runs other programs, each with a time limit and a log. A program that hangs fails its stage and nothing else."""
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

from . import layout
from .driver import Nvml

TAIL = 6000  # characters of a log that are kept, at its beginning and at its end


@dataclasses.dataclass
class Ended:
    command: str
    code: int | None  # None: it reached its time limit and was killed
    seconds: float
    text: str  # stdout and stderr together

    @property
    def tail(self):
        what = "did not end in time" if self.code is None else f"exit code {self.code}"
        text = self.text if len(self.text) <= 2 * TAIL else f"{self.text[:TAIL]}\n[...]\n{self.text[-TAIL:]}"
        return f"$ {self.command}\n{text.rstrip()}\n({what}, {self.seconds:.1f} s)"


class Running:
    """A process in its own session, so that its children can be killed with it."""

    def __init__(self, command, extra=None):
        self.command = " ".join(map(str, command))
        self.output = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.begin = time.monotonic()
        self.process = subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=self.output,
                                        stderr=subprocess.STDOUT, env=layout.environment(command, extra), start_new_session=True)

    def is_over(self):
        return self.process.poll() is not None

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait(self, limit):
        """Waits until `limit` seconds after the start at most."""
        code = None
        try:
            code = self.process.wait(max(0.1, self.begin + limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:
            if self.process.returncode is None:
                self.kill()
        return self.ended(code)

    def ended(self, code):
        self.output.seek(0)
        with self.output:
            return Ended(self.command, code, time.monotonic() - self.begin, self.output.read())


def run(command, limit, extra=None):
    return Running(command, extra).wait(limit)


def python(script, *arguments):
    return [sys.executable, "-u", layout.HERE / "gpu_check_lib" / script, *arguments]


class CardMemory:
    """The peak of the memory in use on the card, by all processes together, minus that at the start. None without NVML."""

    def __init__(self, card):
        self.uuid = card["uuid"] if card else None
        self.over = threading.Event()
        self.most = None

    def __enter__(self):
        self.nvml = Nvml() if self.uuid else None
        self.start = self.used()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def used(self):
        return self.nvml.memory(self.uuid)[1] if self.nvml else None

    def watch(self):
        while self.start is not None and not self.over.wait(0.1):
            self.most = max(self.most or 0, (self.used() or 0) - self.start)

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
