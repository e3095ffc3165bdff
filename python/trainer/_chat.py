"""Conversations with a model, which stays loaded between the messages."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from typing import IO, Any, Dict, Iterator, List, Mapping, Optional, Union

from ._errors import InstallationError, TrainerError, error_of
from ._program import environment, options as as_options, program


class Chat:
    """A conversation: call it with a message, and it answers with all earlier messages as context. stream() gives the answer in
    pieces. `messages` may be changed. options are those of `trainer chat`, with _ for -: temperature=0.7, device="cpu". The
    model is loaded with the first message, and until close(); `with trainer.chat(model) as chat` closes it."""

    def __init__(self, model: Union[str, "os.PathLike[str]"], system: Optional[str] = None, **options: Any) -> None:
        self.messages: List[Mapping[str, Any]] = [{"role": "system", "content": system}] if system else []
        self._command = [str(program()), "chat", f"--model={os.fspath(model)}", "--json", *as_options(options)]
        self._process: Optional["subprocess.Popen[str]"] = None
        self._said: Optional[IO[bytes]] = None  # what it writes to stderr

    def __call__(self, message: str) -> str:
        return "".join(self.stream(message))

    def stream(self, message: str) -> Iterator[str]:
        """The answer in pieces, as they come. Ctrl-C ends the answer; what there is of it stays in the conversation. Leaving
        the loop early ends it, too."""
        asked: Dict[str, Any] = {"role": "user", "content": message}
        process = self._open()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps({"messages": [*self.messages, asked]}) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and why is read below
        given, interrupted, left = "", False, False
        while True:
            try:
                line = process.stdout.readline()
                if not line:
                    problem = self._problem(process)
                    if interrupted:  # while it was loaded
                        raise KeyboardInterrupt from problem
                    raise problem
                row = json.loads(line)
                if "error" in row:
                    raise TrainerError(row["error"], 1, self._command)
                if "answer" in row:
                    break
                given += row["piece"]
                if not left:
                    yield row["piece"]
            except KeyboardInterrupt:
                interrupted = True
                process.send_signal(signal.SIGINT)
            except GeneratorExit:
                left = True
                process.send_signal(signal.SIGINT)
        # Both, or none if it failed.
        self.messages += [asked, {"role": "assistant", "content": row["answer"]}]
        if left:
            return
        if row["answer"] != given:
            yield row["answer"][len(given):]
        if interrupted:
            raise KeyboardInterrupt

    def clear(self) -> None:
        """Begins a new conversation; the system message stays."""
        self.messages = [message for message in self.messages if message.get("role") == "system"]

    def close(self) -> None:
        """Frees the model. The next message loads it again."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        process.wait()
        if self._said is not None:
            self._said.close()

    def _open(self) -> "subprocess.Popen[str]":
        if self._process is None:
            self._said = tempfile.TemporaryFile()
            try:
                # A session of its own: Ctrl-C reaches this process alone, which ends the answer with it.
                self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
                                                 encoding="utf-8", env=environment(), start_new_session=True)
            except OSError as error:
                raise InstallationError(f"{self._command[0]} does not start: {error}", command=self._command) from error
        return self._process

    def _problem(self, process: "subprocess.Popen[str]") -> TrainerError:
        """Of a program that has ended."""
        assert self._said is not None
        code = process.wait()
        self._said.seek(0)
        error = error_of(code, self._said.read().decode(errors="replace"), self._command)
        self.close()
        return error

    def __enter__(self) -> "Chat":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.close()
