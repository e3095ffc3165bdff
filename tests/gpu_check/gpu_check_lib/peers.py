"""Runs Transformers and PEFT in a separate process, with several variants of one model one after another."""
import json

from . import processes


def measure(check, name, case):
    """Runs peer.py. Returns {variant: figures}. Every variant is stored, even if a later one fails."""
    ended = check.run(processes.python("peer.py", json.dumps(case)))
    found = {}
    for line in ended.text.splitlines():
        if line.startswith('{"variant"'):
            figures = json.loads(line)
            found[figures.pop("variant")] = figures
    stored = check.figures.setdefault("peers", {})
    for variant, figures in found.items():
        stored[f"{name}, {variant}"] = figures
    for variant in case["variants"]:
        figures = found.get(variant["name"], {"error": "it did not get there"})
        check.expect(f"Transformers + PEFT, {variant['name']}: it runs", "error" not in figures, figures.get("error", ""))
    check.need("the peer's process ends with exit code 0", ended.code == 0, ended.code)
    check.need("some of it runs", any("error" not in figures for figures in found.values()))
    return {variant: found.get(variant, {}) | {"losses": found.get(variant, {}).get("losses", [])}
            for variant in (one["name"] for one in case["variants"])}
