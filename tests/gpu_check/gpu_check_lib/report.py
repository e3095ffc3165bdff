"""Writes OUT/REPORT.md: all results on one page, readable as plain text."""
from . import since
from .kernels import TOP
from .results import FAILED, PASSED, SKIPPED

LOG_LINES = 40
ENOUGH = 0.7  # of the memory's rate: kernels below are named, because something else than memory holds them up


def first_line(machine):
    card = machine["card"]
    where = f"no card: {machine['processor']}"
    if card:
        where = (f"{card['name']}, compute capability {'.'.join(map(str, card['capability']))}, {gigabytes(card['free'])} free "
                 f"of {gigabytes(card['total'])}, driver {machine['driver']}")
    packages = ", ".join(f"{name} {machine[name] or 'missing'}" for name in ("transformers", "peft", "python"))
    return (f"{where}; {machine['cores']} processors, {gigabytes(machine['memory'])}; torch {machine['torch']} (CUDA "
            f"{machine['torch_cuda'] or 'none'}), {packages}")


def gigabytes(size):
    return "?" if size is None else f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.2f} MB"


def number(value, digits=0):
    return "" if value is None else f"{value:,.{digits}f}"


def table(headers, rows):
    """A table with columns as wide as their widest cell, so that it can be read as plain text."""
    if not rows:
        return ["None.", ""]
    cells = [headers, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    line = lambda row: "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |"  # noqa: E731
    return [line(headers), "| " + " | ".join("-" * width for width in widths) + " |", *map(line, cells[1:]), ""]


def gather(results, what):
    """{name: value} of all stages' figures of that kind."""
    found = {}
    for stage in results.stages.values():
        found.update(stage["figures"].get(what, {}))
    return found


def overview(results, stages, late):
    rows = []
    for stage in stages:
        result = results.stages.get(stage.name)
        if result is None:
            rows.append((stage.name, "not run", "", "no time was left" if stage.name in late else stage.does))
            continue
        bad = [one for one in result["checks"] if not one["ok"]]
        says = result["reason"] or (f"{len(bad)} of {len(result['checks'])} checks: {bad[0]['what']}" if bad else stage.does)
        status = result["status"].upper() if bad else result["status"]
        rows.append((stage.name, status, f"{result['seconds']:.0f} s", says[:130]))
    return table(["stage", "result", "time", "what"], rows)


def failures(results, stages):
    lines = []
    for stage in stages:
        result = results.stages.get(stage.name)
        if result is None or result["status"] != FAILED:
            continue
        lines += [f"### {stage.name}: {stage.does}", ""]
        lines += [f"- NOT {one['what']}" + (f": {one['found'][:600]}" if one["found"] else "")
                  for one in result["checks"] if not one["ok"]]
        for log in result["logs"][-1:]:
            lines += ["", "```", *log.splitlines()[-LOG_LINES:], "```"]
        lines.append("")
    return lines


def speed(results):
    """Every run next to the fastest comparable variant of the peer."""
    runs, peers, rows = gather(results, "runs"), gather(results, "peers"), []
    for name, run in runs.items():
        if not run.get("tokens_per_second") or not name.startswith(("8B", "T5-XL")):
            continue
        base = "T5-XL full" if name.startswith("T5-XL full") else "T5-XL LoRA" if name.startswith("T5-XL") else "8B LoRA"
        recomputes = bool(run.get("recomputed_blocks"))
        same = {peer: figures for peer, figures in peers.items() if peer.startswith(base + ",") and "error" not in figures
                and ("recompute" in peer) == recomputes and "compile" not in peer}
        best = max(same, key=lambda peer: same[peer]["tokens_per_second"]) if same else None
        is_alike = best and not any(word in name for word in ("spread", "short", "limit", "dropout", "NF4", "offload"))
        theirs = same[best]["tokens_per_second"] if is_alike else None
        rows.append((name, number(run["tokens_per_second"]), number(1000 * run["step_seconds"], 1),
                     number(run["start_seconds"], 1), number(theirs),
                     f"{run['tokens_per_second'] / theirs:.2f}" if theirs else ""))
    lines = table(["trainer", "tok/s", "ms a step", "start, s", "best peer tok/s", "ratio"], rows)
    if not peers:
        return lines
    return lines + table(["Transformers + PEFT", "tok/s", "ms a step", "peak", "reserved"],
                         [peer_row(name, one) for name, one in peers.items()])


def peer_row(name, one):
    if "error" in one:
        return name, "failed", one["error"][:60], "", ""
    return (name, number(one["tokens_per_second"]), number(1000 * one["step_seconds"], 1), gigabytes(one.get("peak")),
            gigabytes(one.get("reserved")))


def answers(results):
    return table(["answers", "tok/s"], [(name, number(rate, 1)) for name, rate in gather(results, "answers").items()])


def memory(results):
    rows = []
    for name, run in gather(results, "runs").items():
        has_moved = any(one["stage"] == "device" for one in run.get("recoveries", []))  # the plan is for the card
        if run.get("planned") and run.get("peak") and not has_moved and name.startswith(("8B", "T5-XL", "0.6B")):
            rows.append((name, gigabytes(run["planned"]), gigabytes(run["peak"]),
                         f"{100 * (run['planned'] / run['peak'] - 1):+.1f} %",
                         gigabytes(run["reserved"]), gigabytes(run["limit"]) if run["limit"] else "none",
                         gigabytes(run["card_used"]) if run["card_used"] else "?"))
    return table(["run", "planned", "measured", "plan off by", "reserved", "limit", "on the card, all"], rows)


def recoveries(results):
    rows = []
    for name, run in gather(results, "runs").items():
        for one in run.get("recoveries", []):
            rows.append((name, one["step"], one["stage"], gigabytes(one["asked"]), gigabytes(one["free"]),
                         f"{one['from_samples']} -> {one['to_samples']}", one["recomputed_blocks"] or 0))
    return table(["run", "after step", "in", "asked for", "free", "samples", "recomputed blocks"], rows)


def repeatability(results):
    lines = []
    for name in ("repeat", "8b-repeat", "kill-resume"):
        result = results.stages.get(name)
        if result is not None:
            lines += [f"- {name}: {result['status']}" + (f" ({result['reason']})" if result["reason"] else "")]
            lines += [f"  - {'' if one['ok'] else 'NOT '}{one['what']}" + (f": {one['found']}" if not one["ok"] else "")
                      for one in result["checks"] if "bit by bit" in one["what"]]
    return [*(lines or ["Not run."]), ""]


def rates(profile):
    """The kernels of ours beside what the card copies, and the names of those far below."""
    rows = profile.get("rates", [])
    if not rows:
        return []
    lines = [f"Kernels of ours: what their operators read and write, over their time. A large copy reads and writes "
             f"{profile['copy_rate'] / 1e9:,.0f} GB/s here.", ""]
    lines += table(["ms a step", "GB/s", "of a copy", "kernel"], [
        (number(row["milliseconds"], 2), number(row["rate"] / 1e9), f"{row['share']:.0%}", row["name"]) for row in rows])
    slow = [row["name"] for row in rows if row["share"] < ENOUGH]
    return [*lines, f"Below {ENOUGH:.0%} of a copy: {', '.join(slow) or 'none'}.", ""]


def profiles(results):
    lines = []
    for name, one in gather(results, "profiles").items():
        copies = ", ".join(f"{count:.1f} {kind}" for kind, count in one.get("copies", {}).items()) or "none"
        waits = ", ".join(f"{count:.1f} {kind}" for kind, count in one.get("waits", {}).items()) or "none"
        what = one.get("what", "kernels")
        lines += [f"### {name}", "", f"A step: {one['launches']:.0f} {what} in {one.get('milliseconds', 0):.1f} of "
                  f"{one.get('span', 0):.1f} ms; copies: "
                  f"{copies}; waits of the processor: {waits}.", ""]
        lines += table(["ms a step", "share", "calls", what], [
            (number(top["milliseconds"], 2), f"{top['share']:.1%}", number(top["calls"], 1), top["name"].replace("|", "/"))
            for top in one["top"][:TOP]])
        lines += rates(one)
    return lines or ["Not run.", ""]


def write(results, stages, late, last=None):
    count = results.count([stage.name for stage in stages])
    sections = [
        ("Since the last report", since.section(results, last or {}, table)),
        ("What failed", failures(results, stages)),
        ("Stages", overview(results, stages, late)),
        ("Speed, supervised tokens a second", speed(results)),
        ("Answers, tokens a second", answers(results)),
        ("Memory", memory(results)),
        ("Out of memory, and recovered", recoveries(results)),
        ("Repeatability", repeatability(results)),
        ("Kernels of a step, those that take longest first", profiles(results)),
    ]
    tiny = ["Tiny shapes (--quick): figures of speed and memory say nothing about real ones.", ""] if results.quick else []
    lines = ["# gpu_check", "", first_line(results.machine), "", *tiny,
             f"{count[PASSED]} passed, {count[FAILED]} failed, {count[SKIPPED]} skipped, "
             f"{len(stages) - sum(count.values())} not run", ""]
    for title, content in sections:
        if content:
            lines += [f"## {title}", "", *content]
    (results.out / "REPORT.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
