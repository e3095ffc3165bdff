"""How results look: HTML and SVG for notebooks, one line for terminals. Needs no other package and loads nothing."""
from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, Tuple

from ._rows import Curve, number

if TYPE_CHECKING:
    from ._results import Result

Points = Sequence[Tuple[float, float]]

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 560, 150, 52, 20
_BLUE, _RED = "#2a78d6", "#e0563b"  # legible on white and on black
_FONT = "font:12px system-ui,sans-serif"


def size(value: float) -> str:
    for unit, bytes_of in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= bytes_of:
            return f"{value / bytes_of:.2f} {unit}"
    return f"{value:.0f} B"


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def table(rows: Sequence[Tuple[str, str]]) -> str:
    cells = "".join(f'<tr><th style="text-align:left;vertical-align:top">{html.escape(name)}</th>'
                    f'<td style="text-align:left;white-space:pre-wrap">{html.escape(value)}</td></tr>' for name, value in rows)
    return f"<table>{cells}</table>"


def _bounds(values: Sequence[float]) -> Tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def curve_svg(loss: Points, evaluations: Points, total_steps: int = 0) -> str:
    """The loss as a line, evaluations as dots."""
    everything = [*loss, *evaluations]
    if not everything:
        return ""
    low, high = _bounds([value for _, value in everything])
    last = max(total_steps, *(int(step) for step, _ in everything), 1)

    def place(step: float, value: float) -> str:
        x = _LEFT + (_WIDTH - _LEFT - 8) * step / last
        y = 8 + (_HEIGHT - _BOTTOM - 8) * (high - value) / (high - low)
        return f"{x:.1f},{y:.1f}"

    parts: List[str] = []
    for value in (high, low):
        y = place(0, value).split(",")[1]
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y}" y2="{y}" stroke="currentColor" opacity=".2"/>'
                     f'<text x="{_LEFT - 6}" y="{float(y) + 4:.0f}" text-anchor="end" fill="currentColor">{value:.3g}</text>')
    for step, anchor in ((0, "start"), (last, "end")):
        x = place(step, low).split(",")[0]
        parts.append(f'<text x="{x}" y="{_HEIGHT - 4}" text-anchor="{anchor}" fill="currentColor">{step:,}</text>')
    if loss:
        line = " ".join(place(*point) for point in loss)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{_BLUE}" stroke-width="1.6"/>')
    for point in evaluations:
        x, y = place(*point).split(",")
        parts.append(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{_RED}"><title>evaluation {point[1]:.4f} at step {point[0]:,}</title></circle>')
    label = f"loss {loss[-1][1]:.4f} at step {int(loss[-1][0])}" if loss else "evaluations"
    return (f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{label}" '
            f'style="max-width:100%;{_FONT}">{"".join(parts)}</svg>')


def bar_html(share: float) -> str:
    return (f'<div style="background:rgba(128,128,128,.25);border-radius:4px;height:10px;max-width:{_WIDTH}px" role="progressbar" '
            f'aria-valuenow="{100 * share:.0f}" aria-valuemin="0" aria-valuemax="100">'
            f'<div style="background:{_BLUE};border-radius:4px;height:10px;width:{100 * share:.1f}%"></div></div>')


def facts(state: str, last: Mapping[str, Any], total_steps: int, seconds_left: Optional[float]) -> List[str]:
    """What a line about a run says, in pieces."""
    step, loss = last.get("step", 0), number(dict(last), "loss")
    pieces = [f"step {step:,}/{total_steps:,}" if total_steps else f"step {step:,}"]
    if state != "running":
        pieces.insert(0, state)
    if step:
        pieces.append("loss –" if loss is None else f"loss {loss:.4f}")
        pieces.append(f"lr {last.get('learning_rate', 0.0):.2e}")
        pieces.append(f"{last.get('tokens_per_second', 0.0):,.0f} tok/s")
    if seconds_left is not None and state == "running":
        pieces.append(f"left {duration(seconds_left)}")
    return pieces


def evaluation_points(evaluations: Sequence[Mapping[str, Any]]) -> List[Tuple[float, float]]:
    return [(row["step"], row["eval_loss"]) for row in evaluations if number(dict(row), "eval_loss") is not None]


def run_html(title: str, pieces: Sequence[str], share: float, curve: str, notes: Sequence[str]) -> str:
    lines = "".join(f'<div style="opacity:.8;white-space:pre-wrap">{html.escape(note)}</div>' for note in notes)
    return (f'<div style="{_FONT}"><div><b>{html.escape(title)}</b> {html.escape("  ·  ".join(pieces))}</div>'
            f"{bar_html(share)}{curve}{lines}</div>")


def result_html(result: "Result") -> str:
    curve = Curve()
    evaluations = []
    for row in result.metrics():
        if row.get("kind") == "train":
            curve.add(row.get("step", 0), number(row, "loss"))
        elif row.get("kind") == "eval":
            evaluations.append(row)
    pieces = [result.state, f"step {result.step:,}/{result.total_steps:,}", duration(result.seconds)]
    if result.loss is not None:
        pieces.insert(2, f"loss {result.loss:.4f}")
    if result.best is not None:
        pieces.append(f"best evaluation {result.best.loss:.4f} at step {result.best.step}")
    share = result.step / result.total_steps if result.total_steps else 1.0
    return run_html(str(result.output_dir), pieces, share, curve_svg(curve.points(), evaluation_points(evaluations)), [])


def line(pieces: Sequence[str], share: float, width: int) -> str:
    """The same for a terminal: one row."""
    cells = 20
    full = math.floor(cells * share)
    text = f"[{'=' * full}{' ' * (cells - full)}]  " + "  ".join(pieces)
    return text[:max(width - 1, 1)]


def data_html(report: Mapping[str, Any]) -> str:
    """The main numbers of a data report, and its first samples with what is learned in colour."""
    rows = [(part, f"{report[part].get('samples', 0):,} samples, {report[part].get('supervised_tokens', 0):,} learned tokens")
            for part in ("train", "eval") if isinstance(report.get(part), Mapping)]
    shown = "".join(f"<li>{_pieces_html([*sample.get('input', []), *sample.get('target', [])])}</li>"
                    for sample in report.get("samples", []))
    return f"{table(rows)}<ol>{shown}</ol>" if shown else table(rows)


def _pieces_html(pieces: Sequence[Mapping[str, Any]]) -> str:
    styled = []
    for piece in pieces:
        text = html.escape(str(piece.get("text", ""))).replace("\n", "<br>")
        styled.append(f'<span style="background:rgba(42,120,214,.25)">{text}</span>' if piece.get("supervised") else text)
    return "".join(styled)
