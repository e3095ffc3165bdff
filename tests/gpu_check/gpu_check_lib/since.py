"""What changed since the last report: its figures are kept in last_report.json, beside gpu_check."""
import json
import pathlib

from . import layout
from .results import FAILED

LAST = layout.HERE / "last_report.json"
LEAST = 0.02  # a smaller change of speed or memory is none
FIGURES = ("tokens_per_second", "step_seconds", "peak")


def read(path=LAST):
    """The last report; {} if there is none. One that cannot be read is none either: the page says so."""
    try:
        found = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def seconds_of(last, stage, machine):
    """How long a stage took in the last report, if that was on the same card; None if it is not known."""
    card = (machine.get("card") or {}).get("name")
    return last.get("stages", {}).get(stage, {}).get("seconds") if card and last.get("card") == card else None


def kept(results):
    """What the next report is compared with: of this run, in few lines."""
    def figures(kind):
        found = {}
        for stage in results.stages.values():
            for name, one in stage["figures"].get(kind, {}).items():
                found[name] = {key: one[key] for key in FIGURES if one.get(key)}
        return {name: one for name, one in found.items() if one}
    return {"commit": layout.commit(), "card": (results.machine.get("card") or {}).get("name", "no card"),
            "runs": figures("runs"), "peers": figures("peers"),
            "stages": {name: {"status": one["status"], "seconds": one["seconds"]} for name, one in results.stages.items()}}


def change(before, now, unit, scale, digits):
    if not before or not now:
        return ""
    return f"{before / scale:,.{digits}f} -> {now / scale:,.{digits}f}{unit} ({100 * (now / before - 1):+.1f} %)"


def figure_rows(last, now):
    """A row for each run whose speed or memory differs by more than measuring it twice would."""
    rows = []
    for kind in ("runs", "peers"):
        for name, one in now[kind].items():
            before = last.get(kind, {}).get(name, {})
            changes = [change(before.get(key), one.get(key), *how) if is_other(before.get(key), one.get(key)) else ""
                       for key, how in (("tokens_per_second", ("", 1, 0)), ("peak", (" GB", 1e9, 2)))]
            if any(changes):
                rows.append((name, *changes))
    return rows


def is_other(before, now):
    return bool(before and now) and abs(now / before - 1) >= LEAST


def stage_lines(last, now):
    lines = []
    for name, one in now["stages"].items():
        before = last.get("stages", {}).get(name, {}).get("status")
        if before is not None and before != one["status"] and FAILED in (before, one["status"]):
            lines.append(f"- {name}: {before} -> {one['status'].upper()}")
    return lines


def section(results, last, table):
    """The lines of the page."""
    now = kept(results)
    if not last:
        return [f"Nothing to compare with: there is no readable {LAST.name} beside gpu_check. This is commit {now['commit']}.", ""]
    before, after = last.get("commit", "unknown"), now["commit"]
    if results.quick or now["card"] != last.get("card"):
        why = "tiny shapes" if results.quick else f"that was on {last.get('card', 'an unknown card')}"
        return [f"Commit {after}. Not compared with the last report, of commit {before}: {why}.", ""]
    lines = [f"From commit {before} to {after}, on {now['card']}.", ""]
    rows = figure_rows(last, now)
    lines += table(["run", "tok/s", "peak"], rows) if rows else [f"No run's speed or memory changed by {LEAST:.0%}.", ""]
    changed = stage_lines(last, now)
    new = sorted(name for name in now["runs"] if name not in last.get("runs", {}))
    lines += [*changed, ""] if changed else []
    return lines + ([f"Not in the last report: {', '.join(new)}.", ""] if new else [])


def write(results):
    """OUT/last_report.json, to be copied beside gpu_check for the next time."""
    (results.out / LAST.name).write_text(json.dumps(kept(results), indent=1) + "\n", encoding="utf-8")
