"""What goes wrong in the program, as exceptions: one class for each exit code (`trainer help errors`)."""
from __future__ import annotations

import re
import signal
from typing import Dict, List, Optional, Sequence, Tuple, Type

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(r"(?:\d\d:\d\d:\d\d ([IWE]) |trainer: )")
_CODE = re.compile(r"^(?:Error ([a-z0-9-]+): |Help: trainer help ([a-z0-9-]+))", re.M)


class TrainerWarning(UserWarning):
    """A warning of the program."""


class TrainerError(RuntimeError):
    """The program ended with an error. As text, it is what the program said: what is wrong, where, and what to do."""

    def __init__(self, text: str, exit_code: int = 1, command: Sequence[str] = (), output: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.exit_code = exit_code
        self.command: List[str] = list(command)
        self.output = output  # all that it wrote to stderr, or the end of it

    @property
    def code(self) -> Optional[str]:
        """The word that `trainer help WORD` explains ("config-key"), or None."""
        found = _CODE.search(self.text)
        return (found[1] or found[2]) if found else None


class ConfigError(TrainerError):
    """Command line or configuration (exit code 2)."""


class DataError(TrainerError):
    """Training or evaluation data (3)."""


class FormatError(TrainerError):
    """Files of a model, tokenizer, adapter or checkpoint, or the output directory (4)."""


class OutOfMemoryError(TrainerError):
    """Out of memory, or a plan above the limit (5)."""


class DeviceError(TrainerError):
    """No device (6)."""


class NumericsError(TrainerError):
    """NaN or Inf (7)."""


class DeviceFault(TrainerError):
    """The GPU failed, or a process of the run is lost (8)."""


class Stopped(TrainerError):
    """A signal or training.max_hours ended the run after a step, and it is saved (75): the same call resumes."""


class InstallationError(TrainerError):
    """The program or its LibTorch is missing, or of another version (1)."""


_CLASSES: Dict[int, Type[TrainerError]] = {2: ConfigError, 3: DataError, 4: FormatError, 5: OutOfMemoryError, 6: DeviceError,
                                           7: NumericsError, 8: DeviceFault, 75: Stopped}


def without_colours(text: str) -> str:
    return _COLOURS.sub("", text)


def level_and_text(line: str) -> Tuple[str, str]:
    """("W", "text") of a line of the log; ("", line) of any other."""
    found = _PREFIX.match(line)
    return (found[1] or "E", line[found.end():]) if found else ("", line)


def last_message(output: str, levels: str) -> str:
    """The last message of one of these levels, with the lines that follow it; all of the output if there is none."""
    lines = without_colours(output).rstrip().split("\n")
    for first in range(len(lines) - 1, -1, -1):
        level, text = level_and_text(lines[first])
        if level and level in levels:
            return "\n".join([text, *lines[first + 1:]])
    return "\n".join(lines)


def error_of(returncode: int, output: str, command: Sequence[str]) -> TrainerError:
    """The exception for a program that ended with this code (negative: by that signal) and wrote this to stderr."""
    if returncode < 0:
        name = signal.Signals(-returncode).name
        said = without_colours(output).rstrip().split("\n")[-1]
        return TrainerError(f"the program was ended by {name}; its last line: {said}", 128 - returncode, command, output)
    text = last_message(output, "WE" if returncode == 75 else "E")
    error = _CLASSES.get(returncode, TrainerError)(text, returncode, command, output)
    if error.code == "installation":
        return InstallationError(text, returncode, command, output)
    return error
