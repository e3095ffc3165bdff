"""Stores the results of the long runs in a file, and makes the table in benchmarks/NOTES.md from it."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "tests" / "goldens" / "parity" / "long_runs.json"
PAGE = ROOT / "benchmarks" / "NOTES.md"
BEGIN, END = "<!-- table: tests/parity/training --record -->", "<!-- end of table -->"
FIGURES = ("losses", "evaluation losses", "gradient norms", "final weights", "distance to fp32")


def read():
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def rounded(value):
    """A measurement with two digits, a loss with five."""
    if isinstance(value, dict):
        return {key: [float(f"{x:.5g}") for x in v] if key == "loss" else rounded(v) for key, v in value.items()}
    return float(f"{value:.2g}") if isinstance(value, float) else value


def write(measured):
    """Adds to the record, replacing older results, and writes the table again."""
    record = read() | {name: rounded(case) for name, case in measured.items()}
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in record.items()) + "\n}\n")
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n\n" + table(record) + "\n" + END + rest.split(END)[1])


def table(record):
    lines = ["| run | schedule | steps clipped | loss | " + " | ".join(FIGURES) + " |"]
    lines.append("|" + " --- |" * (4 + len(FIGURES)))
    for name, case in record.items():
        cells = [name.removeprefix("long_"), case["schedule"], f"{case['clipped']} of {case['steps']}"]
        cells.append(" → ".join(f"{loss:.2f}" for loss in case["loss"]))
        for figure in FIGURES:
            values = [case[run].get(figure) for run in ("own", "samples", "tokens")]
            cells.append("" if None in values else " / ".join(f"{value:.0e}" for value in values))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
