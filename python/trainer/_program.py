"""The program: where it is, and running it."""
from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import warnings
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ._errors import InstallationError, TrainerWarning, error_of, level_and_text, without_colours

_PACKAGES = pathlib.Path(__file__).resolve().parents[1]
_VARIABLE = "TRAINER_PROGRAM"


def program() -> pathlib.Path:
    """The program that the functions of this package run: that of the variable TRAINER_PROGRAM, the one that pip installed
    beside the package, the one of a build, or the one on the PATH."""
    named = os.environ.get(_VARIABLE)
    if named:
        return pathlib.Path(named)
    for place in (_PACKAGES / "trainer_program" / "bin" / "trainer", _PACKAGES.parent / "build" / "trainer"):
        if place.is_file():
            return place
    found = shutil.which("trainer")
    if found:
        return pathlib.Path(found)
    raise InstallationError(f"the program trainer is neither in {_PACKAGES / 'trainer_program'} nor on the PATH; install the "
                            f"wheel again, or set {_VARIABLE} to its path")


def environment() -> Dict[str, str]:
    """That of the program: no colours and no lines that change in place, because it is read by a program; and the Python
    whose packages its helpers use (observe.report_to)."""
    return {"TRAINER_PYTHON": sys.executable, **os.environ, "TRAINER_PLAIN": "1"}


def warn_of(output: str, stacklevel: int) -> None:
    """Hands the warnings in the program's log to Python."""
    for line in without_colours(output).splitlines():
        level, text = level_and_text(line)
        if level == "W":
            warnings.warn(text, TrainerWarning, stacklevel=stacklevel + 1)


def run(arguments: Sequence[str], text: Optional[str] = None, accept: Sequence[int] = (0,)) -> "subprocess.CompletedProcess[str]":
    """Runs a command of the program to its end. Raises the exception of an exit code that is not accepted, and shows
    warnings of the program as those of Python."""
    command: List[str] = [str(program()), *arguments]
    try:
        done = subprocess.run(command, input=text, stdin=None if text is not None else subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8", errors="replace", env=environment())
    except OSError as error:
        raise InstallationError(f"{command[0]} does not start: {error}", command=command) from error
    if done.returncode not in accept:
        raise error_of(done.returncode, done.stderr, command)
    warn_of(done.stderr, stacklevel=3)
    return done


def options(given: Mapping[str, Any]) -> List[str]:
    """Keyword arguments as options: max_new_tokens=20 is --max-new-tokens 20, sample=True is --sample; a list repeats it."""
    words: List[str] = []
    for name, value in given.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        for item in value if isinstance(value, (list, tuple)) else [value]:
            words.append(option if item is True else f"{option}={os.fspath(item) if isinstance(item, os.PathLike) else item}")
    return words
