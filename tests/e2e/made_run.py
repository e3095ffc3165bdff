"""A directory as a run leaves it, without a run: for tests of what reads it."""
import json
import math
import random

HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)> & \u2028"


def train_rows(steps, seed=1):
    noise = random.Random(seed)
    for step in range(1, steps + 1):
        loss = 4 * math.exp(-step / (steps / 4)) + .4 + noise.gauss(0, .08)
        yield {"kind": "train", "step": step, "epoch": step / steps * 3, "loss": loss, "grad_norm": abs(noise.gauss(1.2, .2)),
               "learning_rate": 1e-4 * min(1, 20 * step / steps) * (1 - step / steps), "tokens": 4000 + step % 7,
               "tokens_per_second": noise.gauss(9000, 400), "samples": 32, "step_seconds": .45, "data_wait_seconds": .01,
               "memory_allocated": 6_100_000_000, "memory_reserved": 7_900_000_000, "memory_peak": 7_400_000_000 + 1000 * step,
               "memory_resident": 2_300_000_000, "memory_limit": 8_000_000_000, "retries": 0, "recomputed_blocks": 0}


def evaluation(step, steps):
    done = step / steps
    return {"kind": "eval", "step": step, "epoch": 3 * done, "eval_loss": 4 * math.exp(-4 * done) + .5, "eval_perplexity": 2.0,
            "eval_token_accuracy": .3 + .6 * done, "eval_samples": 200, "eval_seconds": 3.0, "eval_exact_match": .7 * done,
            "eval_rougeL": .2 + .6 * done, "eval_generated_samples": 3}


def make_run(directory, steps=300, evaluations=5, seed=1, config="", finished=True, hostile=HOSTILE):
    directory.mkdir(parents=True)
    (directory / "predictions").mkdir()
    every = steps // evaluations
    with open(directory / "metrics.jsonl", "w", encoding="utf-8") as out:
        def write(row):
            out.write(json.dumps(row) + "\n")
        for row in train_rows(steps, seed):
            step = row["step"]
            if step == steps // 3:
                write({"kind": "recovery", "step": step - 1, "stage": "backward", "asked": 2e8, "free": 1e8, "allocated": 7e9,
                       "from_samples": 8, "to_samples": 4, "recomputed_blocks": 0, "message": f"out of memory {hostile}"})
            if step == steps // 2:
                row.update(loss=None, skipped=True)
            write(row)
            if step == 1:
                write({"kind": "memory", "step": 1, "peak": 7_400_000_000, "planned_peak": 7_500_000_000, "planned_weights": 5_000_000_000,
                       "planned_gradients": 1_500_000_000, "batch_size": 8, "recompute_blocks": 12, "limit": 8_000_000_000})
            if step % every == 0:
                write(evaluation(step, steps))
                with open(directory / "predictions" / f"step-{step}.jsonl", "w", encoding="utf-8") as answers:
                    for i in range(3):
                        answers.write(json.dumps({"origin": f"rows.jsonl:{i + 1}", "input": f"Bake {i} cakes {hostile}", "target": f"cake {i}",
                                                  "prediction": f"cake {i}" if step * 2 > steps else f"none at {step} {hostile}"}) + "\n")
        if finished:
            write({"kind": "save", "step": steps, "path": str(directory), "bytes": 1_000_000, "seconds": .5})
    (directory / "config.yaml").write_text(config or "optimizer:\n  learning_rate: 1e-4\n", encoding="utf-8")
    (directory / "environment.json").write_text(json.dumps({"starts": [
        {"time": 1790000000, "after_step": 0, "total_steps": steps, "model": "t5", "device": "cpu (2 threads)", "host": hostile},
        {"time": 1790009000, "after_step": steps // 4, "total_steps": steps, "model": "t5", "device": "cpu (2 threads)"}]}))
    lengths = {"mean": 21.5, "p50": 20, "p90": 30, "p99": 44, "max": 47,
               "histogram": [{"from": 8 * i, "to": 8 * i + 7, "count": 100 - (i - 3) ** 2 * 10} for i in range(6)]}
    counted = {"count": 2, "share": .01, "first": []}
    one = {"name": f"train {hostile}", "kind": "seq2seq", "rows": 200, "samples": 200, "tokens": 4300, "supervised_tokens": 2100,
           "truncated": counted, "malformed": counted, "unknown": counted, "duplicates": counted, "nothing_to_learn": {"count": 0, "share": 0},
           "input": {"lengths": lengths}, "target": {"lengths": lengths}}
    (directory / "data_report.json").write_text(json.dumps({"train": one, "eval": one, "epoch": {
        "effective_batch_size": 32, "steps": 100, "padding": {"share": .08}}, "samples": [
            {"origin": "rows.jsonl:1", "input": [{"text": f"Bake {hostile}", "supervised": False}], "target": [{"text": "cake", "supervised": True}]}]}))
    return directory
