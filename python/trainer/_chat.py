"""Conversations with a model."""
from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Union

from . import _commands


class Chat:
    """A conversation: call it with a message, and it answers with all earlier messages as context. `messages` may be changed.
    options are those of generate()."""

    def __init__(self, model: Union[str, "os.PathLike[str]"], system: Optional[str] = None, **options: Any) -> None:
        self.model, self.options = model, options
        self.messages: List[Mapping[str, Any]] = [{"role": "system", "content": system}] if system else []

    def __call__(self, message: str) -> str:
        asked: Dict[str, Any] = {"role": "user", "content": message}
        answer = str(_commands.generate(self.model, [*self.messages, asked], **self.options))
        self.messages += [asked, {"role": "assistant", "content": answer}]  # both, or none if it failed
        return answer

    def clear(self) -> None:
        """Begins a new conversation; the system message stays."""
        self.messages = [message for message in self.messages if message.get("role") == "system"]
