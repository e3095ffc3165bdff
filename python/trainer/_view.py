"""Showing a run while it goes on: a display that changes in place in a notebook, one row on a terminal."""
from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, Optional, Protocol

from . import _show

if TYPE_CHECKING:
    from ._run import Run

_SECONDS_BETWEEN_UPDATES = 0.5


class View(Protocol):
    lines: bool  # whether the program's own lines are shown

    def update(self, final: bool = False) -> None: ...


class Nothing:
    lines = False

    def update(self, final: bool = False) -> None:
        pass


class Lines(Nothing):
    """For files and pipes: the program's own lines."""
    lines = True


class _InPlace:
    lines = False

    def __init__(self, run: "Run") -> None:
        self._run, self._next = run, 0.0

    def update(self, final: bool = False) -> None:
        now = time.monotonic()
        if final or now >= self._next:
            self._show(final)
            self._next = time.monotonic() + _SECONDS_BETWEEN_UPDATES

    def _show(self, final: bool) -> None:
        raise NotImplementedError


class Notebook(_InPlace):
    def __init__(self, run: "Run", display: Any) -> None:
        super().__init__(run)
        self._handle = display(_Shown(run), display_id=True)

    def _show(self, final: bool) -> None:
        if self._handle is not None:
            self._handle.update(_Shown(self._run))


class _Shown:
    """A run as it is now, for IPython."""

    def __init__(self, run: "Run") -> None:
        self._bundle = run.shown()

    def _repr_mimebundle_(self, **_: Any) -> Dict[str, str]:
        return self._bundle


class Terminal(_InPlace):
    def _show(self, final: bool) -> None:
        pieces, share = self._run.outline()
        text = _show.line(pieces, share, shutil.get_terminal_size().columns)
        sys.stderr.write(f"\r{text}\x1b[J" + ("\n" if final else ""))
        sys.stderr.flush()


def _notebook_display() -> Optional[Any]:
    """IPython's display(), if this is a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display  # type: ignore[import-not-found, unused-ignore]
    return display


def is_interactive() -> bool:
    """Whether somebody types: the session goes on after an error, and ends when its user wants it to."""
    return hasattr(sys, "ps1") or "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None


def view_of(run: "Run", show: Optional[bool]) -> View:
    if show is False:
        return Nothing()
    display = _notebook_display()
    if display is not None:
        return Notebook(run, display)
    return Terminal(run) if sys.stderr.isatty() else Lines()
