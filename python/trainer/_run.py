"""A run: the process that trains, its steps as they come, and its end."""
from __future__ import annotations

import atexit
import collections
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any, Deque, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from . import _show
from ._program import environment, run as run_program
from ._rows import History, Rows, number, read_json
from ._view import Nothing, View, is_interactive, view_of
from ._errors import InstallationError, Stopped, TrainerError, error_of, level_and_text, without_colours
from ._results import Evaluation, Result, Status, Step

_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_BETWEEN_QUESTIONS = 2.0  # to `trainer status`
_LINES_KEPT = 400
_WARNINGS_SHOWN = 3
_OWN_RUNS: "weakref.WeakSet[Run]" = weakref.WeakSet()


def status(output_dir: Union[str, "os.PathLike[str]"]) -> Status:
    """What the run in this directory is doing, as `trainer status` says it. Reads files only."""
    import json
    return Status.of(output_dir, json.loads(run_program(["status", os.fspath(output_dir), "--json"]).stdout))


class Run:
    """A run of train(), or one that watch() looks at. Iterating gives its steps, from the first of this start, each as soon as
    it is over; at the end of the run an error of the program is raised. Leaving the loop early lets the run go on.

    While a run of train() is iterated or waited for, Ctrl-C stops it: it saves its state and ends, and KeyboardInterrupt is
    raised then. A second Ctrl-C ends it at once. As a context manager, a run is stopped when an exception leaves the block."""

    def __init__(self, output_dir: pathlib.Path, command: Sequence[str] = (), show: Optional[bool] = None) -> None:
        self.output_dir = output_dir
        self.command = list(command)
        self.warnings: List[str] = []
        self._show, self._view = show, None  # type: Tuple[Optional[bool], Optional[View]]
        self._history = History(output_dir)
        self._interrupts, self._stop_asked = 0, False
        self._lines: Deque[str] = collections.deque(maxlen=_LINES_KEPT)
        self._asked_at, self._status = -_SECONDS_BETWEEN_QUESTIONS, None  # type: Tuple[float, Optional[Status]]
        self._begin = time.time()
        self._seconds: Optional[float] = None
        self._process: Optional["subprocess.Popen[str]"] = self._start() if command else None

    def _start(self) -> "subprocess.Popen[str]":
        try:
            # A session of its own: Ctrl-C reaches this process alone, which hands it on once.
            process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                       encoding="utf-8", errors="replace", env=environment(), start_new_session=True)
        except OSError as error:
            raise InstallationError(f"{self.command[0]} does not start: {error}", command=self.command) from error
        self._reader = threading.Thread(target=self._listen, args=(process,), daemon=True)
        self._reader.start()
        _OWN_RUNS.add(self)
        return process

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self._lines.append(line)
                level, text = level_and_text(without_colours(line.rstrip()))
                if level == "W":
                    self.warnings.append(text)
                view = self._view
                if view is not None and view.lines:
                    sys.stderr.write(line)

    # What it is doing.

    @property
    def pid(self) -> Optional[int]:
        """The process of a run of train()."""
        return self._process.pid if self._process else None

    @property
    def state(self) -> str:
        """starting, running, stopping, finished, stopped or failed; for watch() also the others of `trainer status`."""
        if self._process is None:
            return self._asked().state
        code = self._process.poll()
        if code is None:
            return "stopping" if self._interrupts or self._stop_asked else "running" if self._beginning() else "starting"
        return {0: "finished", 75: "stopped"}.get(code, "failed")

    @property
    def is_over(self) -> bool:
        if self._process is not None:
            return self._process.poll() is not None
        return not self._asked().goes_on

    @property
    def evaluations(self) -> List[Evaluation]:
        self._history.refresh()
        return [Evaluation.of(row) for row in self._history.evaluations]

    def _asked(self) -> Status:
        now = time.monotonic()
        if self._status is None or now - self._asked_at >= _SECONDS_BETWEEN_QUESTIONS:
            self._status, self._asked_at = status(self.output_dir), now
        return self._status

    def _beginning(self) -> Optional[Tuple[int, int]]:
        """(step before the first one of this start, steps in all), once the files of the directory are those of this start:
        until then they may be of an earlier one."""
        noted = read_json(self.output_dir / "status.json")
        starts = read_json(self.output_dir / "environment.json").get("starts") or [{}]
        if self._process is None:
            return 0, noted.get("total_steps") or starts[-1].get("total_steps") or 0
        if noted.get("started", 0.0) < self._begin or "total_steps" not in noted:
            return None
        return starts[-1].get("after_step", 0), noted["total_steps"]

    # Following it.

    def __iter__(self) -> Iterator[Step]:
        rows, beginning = Rows(self.output_dir / "metrics.jsonl"), None
        with self._attended() as view:
            while True:
                over = self.is_over  # asked before reading: then all is there
                beginning = beginning or self._beginning()
                if beginning:
                    for row in rows.new():
                        if row.get("kind") == "train" and row.get("step", 0) > beginning[0]:
                            yield Step.of(row, beginning[1])
                            view.update()
                view.update()
                if over:
                    break
                time.sleep(_SECONDS_BETWEEN_LOOKS)
        self._raise_problem()

    def wait(self) -> Result:
        """Waits for the end of the run, and shows it in the meantime. Raises the error that it ended with."""
        for _ in self:
            pass
        return self.result()

    def result(self) -> Result:
        """The result of a run that is over. Raises the error that it ended with."""
        if not self.is_over:
            raise RuntimeError("the run goes on; wait() waits for its end")
        self._raise_problem()
        self._history.refresh()
        last, beginning = self._history.last, self._beginning() or (0, 0)
        if self._seconds is None:
            self._seconds = time.time() - self._begin
        state = "finished" if self._process is None else self.state
        return Result(self.output_dir, state, last.get("step", 0), beginning[1] or last.get("step", 0), number(last, "loss"),
                      tuple(self.evaluations), self._seconds)

    def _raise_problem(self) -> None:
        if self._process is None:
            ended = self._asked()
            if ended.state != "finished":
                kind = Stopped if ended.state == "stopped" else TrainerError
                text = ended.message or f"the run in {self.output_dir} is {ended.state}"
                raise kind(text, int(ended.report.get("exit_code", 1)))
            return
        code = self._process.wait()
        if self._seconds is None:
            self._seconds = time.time() - self._begin
        if code == 0 or code == 75 and self._stop_asked and not self._interrupts:
            return
        self._reader.join(10)
        error = error_of(code, "".join(self._lines), self.command)
        if self._interrupts:
            raise KeyboardInterrupt(error.text) from error
        raise error

    # Ending it.

    def stop(self, now: bool = False) -> Result:
        """Lets the run save its state after the step and end, and waits for that; the same train() resumes it. now: does not
        save, and goes back to the last checkpoint then."""
        process = self._own_process()
        self._stop_asked = True
        process.send_signal(signal.SIGKILL if now else signal.SIGINT)
        if now:
            process.wait()
            return Result(self.output_dir, "killed", self._history.last.get("step", 0), 0, None, (), time.time() - self._begin)
        return self.wait()

    def _own_process(self) -> "subprocess.Popen[str]":
        if self._process is None:
            raise RuntimeError(f"another process has started this run; `trainer status {self.output_dir}` says which")
        return self._process

    def _interrupt(self, number: int, frame: Any) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            raise KeyboardInterrupt
        self._interrupts += 1
        process.send_signal(signal.SIGINT)
        if self._interrupts > 1:
            raise KeyboardInterrupt
        sys.stderr.write("\nThe run stops after this step and saves its state; Ctrl-C again ends it now.\n")

    @contextlib.contextmanager
    def _attended(self) -> Iterator[View]:
        """While it is iterated: Ctrl-C is for the run, and it is shown."""
        # Signals are those of the main thread; in others Ctrl-C does not arrive.
        handled = self._process is not None and threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, self._interrupt) if handled else None
        shown = self._view is None
        view = self._view or view_of(self, self._show)
        self._view = view
        for line in list(self._lines) if shown and view.lines else ():
            sys.stderr.write(line)
        try:
            yield view
        finally:
            if shown:
                view.update(final=True)
                self._view = None
            if handled:
                signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None and self._process is not None and self._process.poll() is None:
            self._show, self._view = False, Nothing()
            with contextlib.suppress(TrainerError):
                self.stop()

    # Showing it.

    def outline(self) -> Tuple[List[str], float]:
        """What a line about the run says, in pieces, and the share of its steps that are done."""
        self._history.refresh()
        last, total = self._history.last, (self._beginning() or (0, 0))[1]
        left = read_json(self.output_dir / "status.json").get("seconds_left") or self._history.seconds_left(total)
        share = min(last.get("step", 0) / total, 1.0) if total else 0.0
        return _show.facts(self.state, last, total, left), share

    def _repr_mimebundle_(self, **_: Any) -> Dict[str, str]:
        # What is shown does not change by itself.
        notes = [] if self.is_over else ["it goes on in the background; .wait() shows it as it goes"]
        return self.shown(notes)

    def shown(self, notes: Sequence[str] = ()) -> Dict[str, str]:
        """The run as it is now, as text and as HTML."""
        pieces, share = self.outline()
        total = (self._beginning() or (0, 0))[1]
        curve = _show.curve_svg(self._history.loss.points(), _show.evaluation_points(self._history.evaluations), total)
        name = str(self.output_dir)
        return {"text/plain": f"{name}  " + "  ".join(pieces),
                "text/html": _show.run_html(name, pieces, share, curve, [*self.warnings[-_WARNINGS_SHOWN:], *notes])}

    def __repr__(self) -> str:
        return f"<Run {self.shown()['text/plain']}>"


def watch(output_dir: Union[str, "os.PathLike[str]"], show: Optional[bool] = None) -> Run:
    """A run that another process has started, from the files in its directory, also on another machine: iterate it, wait for
    it, or let a notebook show it. Ctrl-C only ends the watching."""
    return Run(pathlib.Path(output_dir), show=show)


@atexit.register
def _wait_for_runs() -> None:
    """A script ends when its runs have ended, as with threads; an interactive session leaves them to themselves."""
    for run in list(_OWN_RUNS):
        if run.is_over:
            continue
        if is_interactive():
            sys.stderr.write(f"the run in {run.output_dir} goes on as process {run.pid}\n")
            continue
        try:
            run.wait()
        except (TrainerError, KeyboardInterrupt) as problem:
            sys.stderr.write(f"{problem}\n")
