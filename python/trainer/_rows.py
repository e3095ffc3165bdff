"""Reading what a run writes about itself: metrics.jsonl, status.json, environment.json (docs/metrics.md)."""
from __future__ import annotations

import json
import math
import pathlib
from typing import Any, Dict, Iterator, List, Optional, Tuple

Row = Dict[str, Any]


def read_json(path: pathlib.Path) -> Row:
    """The object in the file; {} if it is not there, or none yet."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


class Rows:
    """The rows of a metrics.jsonl, each once, also of one that is still written."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._offset = 0

    def new(self) -> Iterator[Row]:
        """The rows since the last call; all of them if the file became shorter: the run has resumed, or is replaced."""
        try:
            file = open(self.path, "rb")
        except OSError:
            return
        with file:
            if file.seek(0, 2) < self._offset:
                self._offset = 0
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict):
                    yield row


def read_rows(output_dir: pathlib.Path) -> List[Row]:
    return list(Rows(output_dir / "metrics.jsonl").new())


def number(row: Row, key: str) -> Optional[float]:
    """A number of a row that can be drawn, or None."""
    value = row.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None


class Curve:
    """A curve of any length in at most `most` points: means of more and more steps each."""

    def __init__(self, most: int = 400) -> None:
        self._most, self._width = most, 1
        self._points: List[List[float]] = []  # last step, sum, count

    def add(self, step: float, value: Optional[float]) -> None:
        if value is None:
            return
        if self._points and self._points[-1][2] < self._width:
            last = self._points[-1]
            last[0], last[1], last[2] = step, last[1] + value, last[2] + 1
        else:
            self._points.append([step, value, 1])
        if len(self._points) > self._most:
            pairs = [self._points[i:i + 2] for i in range(0, len(self._points), 2)]
            self._points = [[pair[-1][0], sum(p[1] for p in pair), sum(p[2] for p in pair)] for pair in pairs]
            self._width *= 2

    def points(self) -> List[Tuple[float, float]]:
        return [(step, total / count) for step, total, count in self._points]


class History:
    """The curves of a run, as far as its file goes."""

    def __init__(self, output_dir: pathlib.Path) -> None:
        self._rows = Rows(output_dir / "metrics.jsonl")
        self._clear()

    def _clear(self) -> None:
        self.loss = Curve()
        self.last: Row = {}  # of the last step
        self.evaluations: List[Row] = []
        self._seconds: List[float] = []

    def refresh(self) -> None:
        for row in self._rows.new():
            step = row.get("step", 0)
            if row.get("kind") == "train":
                if step <= self.last.get("step", 0):
                    self._clear()  # another run, or the steps after a checkpoint once more
                self.loss.add(step, number(row, "loss"))
                self.last = row
                self._seconds = [*self._seconds[-49:], number(row, "step_seconds") or 0.0]
            elif row.get("kind") == "eval":
                self.evaluations.append(row)

    def seconds_left(self, total_steps: int) -> Optional[float]:
        """An estimate from the last steps; it counts no evaluations."""
        left = total_steps - self.last.get("step", 0)
        return left * sum(self._seconds) / len(self._seconds) if self._seconds and left > 0 else None
