"""Configurations as dicts and keyword arguments, and what the program takes for them: --config FILE key=value."""
from __future__ import annotations

import json
import os
from typing import Any, List, Mapping, Optional, Union

Configuration = Union[str, "os.PathLike[str]", Mapping[str, Any]]


def _plain(value: Any) -> Any:
    """The same in the types of JSON: paths as text, numbers of numpy as Python's."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is not None and not isinstance(value, (str, bool, int, float)) and hasattr(value, "item"):
        return value.item()
    return value


def _text(value: Any) -> str:
    value = _plain(value)
    if value is None:
        return "null"
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # JSON is YAML
    # What the program would not take as it stands for a key of text.
    looks_like_yaml = value in ("", "null") or (value[0] in "[\"'" and value[-1] in "]\"'")
    return json.dumps(value, ensure_ascii=False) if looks_like_yaml else value


def key_arguments(keys: Mapping[str, Any], section: str = "") -> List[str]:
    """key=value for each key. {"training": {"batch_size": 4}}, {"training.batch_size": 4} and training__batch_size=4 mean the
    same; None is null."""
    arguments: List[str] = []
    for name, value in keys.items():
        name = section + str(name).replace("__", ".")
        if "=" in name:
            raise ValueError(f"{name!r} is no key: give its value as a value")
        if isinstance(value, Mapping) and value and not section and "." not in name:
            arguments += key_arguments(value, name + ".")
        else:
            arguments.append(f"{name}={_text(value)}")
    return arguments


def arguments_of(configurations: "tuple[Configuration, ...]", keys: Mapping[str, Any]) -> List[str]:
    """Files and dicts in their order, then keywords; at most one file. Later keys override earlier ones."""
    file: Optional[str] = None
    arguments: List[str] = []
    for given in configurations:
        if isinstance(given, Mapping):
            arguments += key_arguments(given)
        elif file is not None:
            raise ValueError(f"two files, {file} and {os.fspath(given)}: give one, and what differs as keys")
        else:
            file = os.fspath(given)
    arguments += key_arguments(keys)
    return (["--config", file] if file is not None else []) + arguments
