"""What the functions of the package return. All of it is plain data; `row`, `rows` and `report` have everything that the
program wrote, under its own names."""
from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple, Union

from . import _show
from ._rows import Row, number, read_rows

if TYPE_CHECKING:
    from ._chat import Chat


@dataclasses.dataclass(frozen=True)
class Step:
    """One optimizer step (docs/metrics.md)."""
    step: int
    total_steps: int
    epoch: float
    loss: Optional[float]  # None: it was not finite
    grad_norm: Optional[float]
    learning_rate: float
    tokens: int
    tokens_per_second: float
    step_seconds: float
    memory_peak: int  # bytes
    skipped: bool  # the step was skipped: its numbers were not finite
    row: Mapping[str, Any] = dataclasses.field(repr=False)

    @classmethod
    def of(cls, row: Row, total_steps: int) -> "Step":
        return cls(row["step"], total_steps, row.get("epoch", 0.0), number(row, "loss"), number(row, "grad_norm"),
                   row.get("learning_rate", 0.0), row.get("tokens", 0), row.get("tokens_per_second", 0.0),
                   row.get("step_seconds", 0.0), row.get("memory_peak", 0), bool(row.get("skipped", False)), row)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """An evaluation: of a run at a step, or of eval()."""
    loss: Optional[float]
    perplexity: Optional[float]
    token_accuracy: Optional[float]
    samples: int
    seconds: float
    scores: Mapping[str, float]  # of generated answers: exact_match, f1, rougeL, bleu, ...
    step: Optional[int] = None
    epoch: Optional[float] = None
    row: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, row: Row) -> "Evaluation":
        known = {"loss", "perplexity", "token_accuracy", "samples", "supervised_tokens", "seconds", "generated_samples", "gen_len",
                 "generation_seconds"}
        names = {key[5:]: key for key in row if key.startswith("eval_")}
        scores = {name: row[key] for name, key in names.items() if name not in known and number(row, key) is not None}
        return cls(number(row, "eval_loss"), number(row, "eval_perplexity"), number(row, "eval_token_accuracy"),
                   row.get("eval_samples", 0), row.get("eval_seconds", 0.0), scores, row.get("step"), row.get("epoch"), row)

    def _repr_html_(self) -> str:
        rows = [("loss", self.loss), ("perplexity", self.perplexity), ("token accuracy", self.token_accuracy), *self.scores.items()]
        return _show.table([(name, "–" if value is None else f"{value:.4g}") for name, value in rows] + [("samples", f"{self.samples:,}")])


@dataclasses.dataclass(frozen=True)
class Result:
    """A run that has ended, and where its model is. It can be given to generate(), chat(), eval(), export() and load()."""
    output_dir: pathlib.Path
    state: str  # finished; stopped: saved, and the same call resumes
    step: int
    total_steps: int
    loss: Optional[float]  # of the last step
    evaluations: Tuple[Evaluation, ...] = dataclasses.field(repr=False)
    seconds: float  # that this start took

    def __fspath__(self) -> str:
        return os.fspath(self.output_dir)

    @property
    def is_adapter(self) -> bool:
        return (self.output_dir / "adapter_config.json").is_file()

    @property
    def best(self) -> Optional[Evaluation]:
        """The evaluation with the smallest loss."""
        return min((e for e in self.evaluations if e.loss is not None), key=lambda e: e.loss or 0.0, default=None)

    def metrics(self) -> List[Dict[str, Any]]:
        """All rows of metrics.jsonl, for pandas.DataFrame(...) and others."""
        return read_rows(self.output_dir)

    def generate(self, prompts: Any, **options: Any) -> Any:
        """trainer.generate() with this model."""
        from ._commands import generate
        return generate(self, prompts, **options)

    def chat(self, system: Optional[str] = None, **options: Any) -> "Chat":
        """trainer.chat() with this model."""
        from ._chat import Chat
        return Chat(self, system, **options)

    def _repr_html_(self) -> str:
        return _show.result_html(self)


@dataclasses.dataclass(frozen=True)
class ConfigurationFile:
    """A configuration that init() has written. It can be given to train(), plan(), doctor() and data() as it is."""
    path: pathlib.Path
    text: str = dataclasses.field(repr=False)

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Plan:
    """The memory that a run will need, in bytes on each device."""
    model: str
    device: str
    total: int
    parts: Mapping[str, int]
    limit: Optional[int]
    fits: bool  # True also if there is no limit
    advice: str  # what to change so that it fits; "" if it does
    report: Mapping[str, Any] = dataclasses.field(repr=False)

    def _repr_html_(self) -> str:
        rows = [(name.replace("_", " "), _show.size(value)) for name, value in self.parts.items() if value]
        rows.append(("in all", _show.size(self.total)))
        if self.limit:
            rows.append(("limit", f"{_show.size(self.limit)}: {'fits' if self.fits else 'does not fit'}"))
        return _show.table(rows)


@dataclasses.dataclass(frozen=True)
class Check:
    name: str
    verdict: str  # ok, warning, failed
    text: str
    advice: str = ""


@dataclasses.dataclass(frozen=True)
class Checkup:
    """What doctor() found. It is true if the run could start."""
    ready: bool
    exit_code: int
    checks: Tuple[Check, ...]
    report: Mapping[str, Any] = dataclasses.field(repr=False)

    def __bool__(self) -> bool:
        return self.ready

    @property
    def problems(self) -> List[Check]:
        return [check for check in self.checks if check.verdict != "ok"]

    def _repr_html_(self) -> str:
        return _show.table([(f"{check.verdict} {check.name}", "\n".join(filter(None, [check.text, check.advice])))
                            for check in self.checks])


@dataclasses.dataclass(frozen=True)
class Status:
    """What a run is doing, from the files in its directory."""
    output_dir: pathlib.Path
    state: str  # starting, running, finished, stopped, failed, killed, silent, unknown
    step: int
    total_steps: Optional[int]
    loss: Optional[float]
    eval_loss: Optional[float]
    seconds_left: Optional[float]
    message: str  # why it stopped or failed
    report: Mapping[str, Any] = dataclasses.field(repr=False)

    @classmethod
    def of(cls, output_dir: Union[str, "os.PathLike[str]"], report: Row) -> "Status":
        return cls(pathlib.Path(output_dir), report.get("state", "unknown"), report.get("step", 0), report.get("total_steps"),
                   report.get("loss"), report.get("eval_loss"), report.get("seconds_left"), report.get("message", ""), report)

    @property
    def goes_on(self) -> bool:
        return self.state in ("starting", "running")


@dataclasses.dataclass(frozen=True)
class DataReport:
    """What data() found in the rows of a run (docs/data-report.md)."""
    samples: int
    supervised_tokens: int
    report: Mapping[str, Any] = dataclasses.field(repr=False)

    def _repr_html_(self) -> str:
        return _show.data_html(self.report)
