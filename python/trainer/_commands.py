"""The commands of the program as functions."""
from __future__ import annotations

import json
import os
import pathlib
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from ._keys import Configuration, arguments_of
from ._program import options as as_options, program, run
from ._errors import TrainerError, last_message
from ._results import Check, Checkup, ConfigurationFile, DataReport, Evaluation, Plan, Status
from ._run import Run

Path = Union[str, "os.PathLike[str]"]
Message = Mapping[str, Any]
_OUTPUT_DIR = re.compile(r"^output_dir: (.*)$", re.M)


def _paths(given: Union[None, Path, Sequence[Path]]) -> List[str]:
    if given is None:
        return []
    return [os.fspath(given)] if isinstance(given, (str, os.PathLike)) else [os.fspath(path) for path in given]


def _output_dir(configuration: str) -> pathlib.Path:
    """That of a configuration as the program writes it."""
    found = _OUTPUT_DIR.search(configuration)
    value = found[1] if found else "runs/output"
    return pathlib.Path(json.loads(value) if value.startswith('"') else value)


def init(model: Path, data: Union[Path, Sequence[Path]], out: Path = "trainer.yaml", card: Optional[str] = None,
         method: Optional[str] = None, **options: Any) -> ConfigurationFile:
    """Writes a first configuration, as `trainer init --yes` does: from a look at the rows, and a memory plan for the GPU
    ("24GB", "cpu"). An existing file is never overwritten. options: any option of the command, with _ for -."""
    given = {"model": os.fspath(model), "card": card, "method": method, **options}
    words = [f"--data={path}" for path in _paths(data)]
    run(["init", *as_options(given), *words, f"--out={os.fspath(out)}", "--yes"])
    path = pathlib.Path(out)
    return ConfigurationFile(path, path.read_text(encoding="utf-8"))


def config(*configurations: Configuration, **keys: Any) -> str:
    """The resolved configuration as YAML, with comments. Raises ConfigError with all mistakes at once."""
    return run(["config", *arguments_of(configurations, keys)]).stdout


def train(*configurations: Configuration, show: Optional[bool] = None, gpus: Union[None, int, str] = None,
          ranks: Optional[int] = None, **keys: Any) -> Run:
    """Starts a run and returns it at once: iterate it for its steps, or wait() for its end. A script that does neither waits
    when it ends. If its output_dir has an interrupted run of the same settings, that is resumed.

    A configuration is a file (also the name of a preset), a dict, or both; keywords override them: training__batch_size=4 and
    training={"batch_size": 4} are training.batch_size. lora={} turns LoRA on. Mistakes in them raise ConfigError here.
    show: False shows nothing; by default a notebook has a progress bar and the curve, a terminal one row.
    gpus, ranks: several processes, as --gpus and --ranks."""
    arguments = arguments_of(configurations, keys)
    output_dir = _output_dir(run(["config", *arguments]).stdout)
    return Run(output_dir, [str(program()), "train", *arguments, *as_options({"gpus": gpus, "ranks": ranks})], show)


def plan(*configurations: Configuration, search: bool = False, gpus: Optional[str] = None, **keys: Any) -> Plan:
    """The memory that a run will need, within a second, without weights, data or GPU. search: also plans with other settings,
    in `report`. gpus: sizes of GPUs, as --gpus of `trainer plan` ("8x80GB")."""
    arguments = [*arguments_of(configurations, keys), "--json", *as_options({"search": search, "gpus": gpus})]
    done = run(["plan", *arguments], accept=(0, 5))
    if not done.stdout.strip():
        raise TrainerError(last_message(done.stderr, "E"), done.returncode, done.args, done.stderr)
    report = json.loads(done.stdout)
    advice = last_message(done.stderr, "E") if done.returncode == 5 else ""
    return Plan(report["model"], report["device"], report["total"], report["bytes"], report.get("limit"),
                report.get("fits", True), advice, report)


def doctor(*configurations: Configuration, **keys: Any) -> Checkup:
    """Checks this machine and, given a configuration, whether its run could start. Trains nothing."""
    # Its exit code is in the report.
    done = run(["doctor", "--json", *arguments_of(configurations, keys)], accept=range(9))
    report = json.loads(done.stdout)
    checks = tuple(Check(check["name"], check["verdict"], check["text"], check.get("advice", "")) for check in report["checks"])
    return Checkup(report["ready"], report["exit_code"], checks, report)


def data(*configurations: Configuration, **keys: Any) -> DataReport:
    """Reads all rows of a run, and reports on them: lengths, what is cut, what is learned. Raises DataError for rows and
    shares that would end the run."""
    report = json.loads(run(["data", "--json", *arguments_of(configurations, keys)]).stdout)
    return DataReport(report["train"]["samples"], report["train"]["supervised_tokens"], report)


def eval(model: Optional[Path] = None, data: Union[None, Path, Sequence[Path]] = None, *, config: Optional[Configuration] = None,
         generate: bool = False, max_new_tokens: Optional[int] = None, predictions: Optional[Path] = None,
         against: Optional[Path] = None, **keys: Any) -> Evaluation:
    """Evaluates a model, an adapter, or the result of a run on files of rows: loss, perplexity, token accuracy, with
    generate=True also scores of its answers. config: a file or dict that says how rows are read, and which, if none are given.
    predictions: a file for the answers. against: another model, or such a file, whose answers to the same rows are compared
    (the differences are in .row["differences"]). Other keywords are keys, as in train()."""
    words = [*_paths(model), *_paths(data)]
    given = {"generate": generate, "max_new_tokens": max_new_tokens, "predictions": predictions, "against": against}
    arguments = arguments_of((config,) if config is not None else (), keys)
    row = json.loads(run(["eval", *words, "--json", *as_options(given), *arguments]).stdout)
    return Evaluation.of(row)


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and "role" in value


def generate(model: Path, prompts: Union[str, Sequence[Any]], **options: Any) -> Any:
    """Answers prompts. A text gives a text; a list of texts, of rows (dicts), or of conversations gives a list; a conversation,
    a list of {"role": ..., "content": ...}, gives a text. options: any option of `trainer generate`, with _ for -, such as
    max_new_tokens=50, temperature=0.7, chat=True, system="...". With num_return_sequences each answer is a list."""
    alone = isinstance(prompts, str) or bool(prompts) and _is_message(prompts[0])
    given: Sequence[Any] = [prompts] if alone else prompts
    if not given:
        return []
    lines = []
    for prompt in given:
        row: Dict[str, Any] = {"prompt": prompt} if isinstance(prompt, str) else \
            dict(prompt) if isinstance(prompt, Mapping) else {"messages": list(prompt)}
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    done = run(["generate", f"--model={os.fspath(model)}", "--input-file=-", *as_options(options)], text="".join(lines))
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
    answers = [row["predictions"] if "predictions" in row else row["prediction"] for row in rows]
    return answers[0] if alone else answers


def export(source: Path, out: Path, **options: Any) -> pathlib.Path:
    """Writes a model for other programs, as `trainer export`: format="gguf", dtype="q8_0", quantize="nf4", ... Returns `out`."""
    run(["export", os.fspath(source), os.fspath(out), *as_options(options)])
    return pathlib.Path(out)


def runs(directory: Path = ".") -> List[Status]:
    """The runs in and below a directory, the newest last."""
    return [Status.of(report["path"], report) for report in json.loads(run(["runs", os.fspath(directory), "--json"]).stdout)]
