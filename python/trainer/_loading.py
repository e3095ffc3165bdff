"""The models of runs in Transformers and PEFT, where these are installed."""
from __future__ import annotations

import importlib
import os
import pathlib
from typing import Any, Union

from ._rows import read_json

Path = Union[str, "os.PathLike[str]"]


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"load() needs {name}: pip install {name} ({error})", name=name) from error


def _directory(run: Path) -> pathlib.Path:
    directory = pathlib.Path(run)
    if not ((directory / "config.json").is_file() or (directory / "adapter_config.json").is_file()):
        raise FileNotFoundError(f"{directory}: has no result: neither config.json nor adapter_config.json")
    return directory


def load(run: Path, **options: Any) -> Any:
    """The model of a finished run, or of a checkpoint: a PeftModel on its base for an adapter, otherwise the model of
    Transformers. options go to its from_pretrained(): torch_dtype=..., device_map=..., is_trainable=True."""
    directory = _directory(run)
    adapter = read_json(directory / "adapter_config.json")
    if adapter:
        kind = "Seq2SeqLM" if adapter.get("task_type") == "SEQ_2_SEQ_LM" else "CausalLM"
        return getattr(_package("peft"), f"AutoPeftModelFor{kind}").from_pretrained(os.fspath(directory), **options)
    config = read_json(directory / "config.json")
    kind = "Seq2SeqLM" if config.get("is_encoder_decoder") or config.get("model_type") in ("t5", "mt5", "umt5") else "CausalLM"
    return getattr(_package("transformers"), f"AutoModelFor{kind}").from_pretrained(os.fspath(directory), **options)


def load_tokenizer(run: Path, **options: Any) -> Any:
    """The tokenizer of a run, with its chat template."""
    return _package("transformers").AutoTokenizer.from_pretrained(os.fspath(_directory(run)), **options)
