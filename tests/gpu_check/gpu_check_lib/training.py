"""Runs trainer, and reads its results."""
import dataclasses
import hashlib
import json
import shutil
import statistics
import time

from . import layout, processes

LARGEST_COMPARED = 1e9
CONTEXT = 512e6  # bytes of a limit that are set aside for it (include/trainer/memory/limit.h)
WARM_UP = 2  # steps that do not count for the speed


@dataclasses.dataclass
class Run:
    code: int | None
    rows: list
    figures: dict  # what the report shows
    files: dict    # SHA-256 of its result's safetensors
    text: str

    def of(self, kind):
        return [row for row in self.rows if row["kind"] == kind]

    @property
    def losses(self):
        return [row["loss"] for row in self.of("train")]

    @property
    def norms(self):
        return [row["grad_norm"] for row in self.of("train")]


def settings(check, shape, output, **changes):
    """The settings of a run on the model's own rows, in file order. `changes` are further keys; None removes a key."""
    folder = check.model(shape)
    seq2seq = "t5" in shape
    keys = {"model.path": folder, "data.train": folder / "rows.jsonl", "data.shuffle": "false", "device": check.device,
            "data.kind": "seq2seq" if seq2seq else "text", "data.input": "input" if seq2seq else "text",
            "output_dir": output, "overwrite_output_dir": "true", "save.strategy": "no", "logging_steps": 1,
            "optimizer.learning_rate": 1e-4, "optimizer.lr_scheduler_type": "linear", "optimizer.warmup_ratio": 0,
            "memory.gradient_checkpointing": "false", "memory.rehearse": "true", "save.total_limit": 0,
            "data.cache": check.scratch / "cache"}
    if seq2seq:
        keys["data.target"] = "target"
    if check.device == "cpu":
        keys["training.num_threads"] = check.threads
    keys.update(changes)
    return [f"{key}={value}" for key, value in keys.items() if value is not None]


LORA = {"lora.r": 16, "lora.lora_alpha": 32, "lora.target_modules": "all-linear"}


def output_of(check, name):
    return check.scratch / "runs" / name


def read(output):
    """The complete lines of metrics.jsonl."""
    path = output / "metrics.jsonl"
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def hashes(output):
    """The checksums of a result's files. A large model has none, because nothing compares them."""
    found = {}
    for path in sorted(path for path in output.glob("*.safetensors") if path.stat().st_size < LARGEST_COMPARED):
        found[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def rate(rows, key="supervised_tokens"):
    """Tokens per second over all steps except the first ones."""
    steps = rows[WARM_UP:] or rows
    seconds = sum(row["step_seconds"] for row in steps)
    return sum(row[key] for row in steps) / seconds if seconds else None


def figures_of(rows, seconds, card_used):
    steps = [row for row in rows if row["kind"] == "train"]
    if not steps:
        return {"steps": 0, "seconds": round(seconds, 1)}
    memory = next((row for row in rows if row["kind"] == "memory"), {})
    recoveries = [{key: row.get(key) for key in ("step", "stage", "asked", "free", "from_samples", "to_samples",
                                                 "recomputed_blocks")} for row in rows if row["kind"] == "recovery"]
    return {"steps": len(steps), "tokens_per_second": rate(steps), "all_tokens_per_second": rate(steps, "tokens"),
            "step_seconds": statistics.median(row["step_seconds"] for row in (steps[WARM_UP:] or steps)),
            "start_seconds": round(seconds - sum(row["step_seconds"] for row in steps), 1),
            "micro_batch_sizes": steps[-1]["micro_batch_sizes"], "recomputed_blocks": steps[-1].get("recomputed_blocks"),
            "planned": memory.get("planned_peak"), "planned_reserve": memory.get("planned_reserve"),
            "peak": max(row["memory_peak"] for row in steps),
            "reserved": max(row["memory_reserved"] for row in steps), "limit": steps[-1].get("memory_limit"),
            "card_used": card_used, "recoveries": recoveries,
            "losses": [row["loss"] for row in steps], "grad_norms": [row["grad_norm"] for row in steps]}


def command(keys):
    return [layout.program(), "train", *keys]


def train(check, name, keys, extra=None, keep=False, limit=None):
    """Runs the program once, and adds its figures to the stage's under this name. keep: keeps its output folder."""
    output = output_of(check, name)
    shutil.rmtree(output, ignore_errors=True)
    with processes.CardMemory(check.machine["card"]) as card:
        ended = check.run(command(keys), extra, limit)
    run = finished(check, name, ended, card.most)
    if not keep:
        shutil.rmtree(output, ignore_errors=True)
    return run


def finished(check, name, ended, card_used=None):
    output = output_of(check, name)
    rows = read(output)
    run = Run(ended.code, rows, figures_of(rows, ended.seconds, card_used), hashes(output), ended.text)
    check.figures.setdefault("runs", {})[name] = run.figures
    return run


def need_train(check, name, keys, extra=None, keep=False):
    """Runs the program once, and ends the stage if the run fails."""
    run = train(check, name, keys, extra, keep)
    check.need(f"{name}: the run ends with exit code 0", run.code == 0, "no end in time" if run.code is None else run.code)
    check.need(f"{name}: the losses are numbers", run.losses and all(isinstance(loss, float) for loss in run.losses), run.losses)
    return run


def furthest(one, other):
    """The largest relative difference of two lists of numbers; infinite if their lengths differ."""
    if len(one) != len(other) or not one:
        return float("inf")
    return max(abs(a - b) / max(abs(a), abs(b), 1e-30) for a, b in zip(one, other))


def expect_near(check, what, one, other, tolerance):
    difference = furthest(one, other)
    return check.expect(f"{what} (at most {tolerance:g} apart)", difference <= tolerance, f"{difference:.2g} apart")


def expect_same_rows(check, what, one, other):
    """Compares losses and gradient norms of every step of two runs. Returns the first step that differs, if any."""
    pairs = list(zip(zip(one["losses"], one["grad_norms"]), zip(other["losses"], other["grad_norms"])))
    differs = next((step for step, (a, b) in enumerate(pairs, 1) if a != b), None)
    steps = [len(one["losses"]), len(other["losses"])]
    check.expect(f"{what}: the same losses and norms, bit by bit", differs is None and steps[0] == steps[1] > 0,
                 f"step {differs} differs: {pairs[differs - 1]}" if differs else f"{steps[0]} and {steps[1]} steps")
    return differs


def wait_for_step(running, output, step, limit):
    """Waits until metrics.jsonl has that step. Returns whether this happened while the run was in progress."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if any(row["kind"] == "train" and row["step"] >= step for row in read(output)):
            return not running.is_over()
        if running.is_over():
            return False
        time.sleep(0.02)
    return False
