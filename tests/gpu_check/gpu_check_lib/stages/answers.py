"""Answers of an 8B shape: tokens a second for one prompt and for 32, each step launched and started as a CUDA graph."""
import random

from .. import layout
from ..models import sentence
from ..stage import Stage

SHAPE = "qwen3-8b"
GRAPHS = {"launched": {"TRAINER_GRAPHS": "off"}, "as a graph": {"TRAINER_GRAPHS": "on"}}


def answer(check, name, prompts, tokens, extra):
    """The answers as they are printed, and the seconds that the program took."""
    path = check.scratch / f"prompts-{len(prompts)}.jsonl"
    path.write_text("".join(f'{{"prompt": "{prompt}"}}\n' for prompt in prompts), encoding="utf-8")
    output = check.scratch / "answers.jsonl"
    output.unlink(missing_ok=True)
    ended = check.need_run(name, [layout.program(), "generate", check.model(SHAPE), "--input-file", path, "--output-file", output,
                                  "--batch-size", str(len(prompts)), "--device", check.device, "--dtype",
                                  "bf16" if check.machine["bf16"] else "fp32", "--max-new-tokens", str(tokens),
                                  "--min-new-tokens", str(tokens), "--num-threads", str(check.threads)], extra)
    return output.read_text(encoding="utf-8"), ended.seconds


def rates(check):
    """The time of long answers less that of short ones: loading and the prompts cancel out."""
    short, long = (4, 12) if check.quick else (32, 288)
    source, found = random.Random(5), check.figures.setdefault("answers", {})
    for count in (1, 4 if check.quick else 32):
        prompts = [sentence(source, 12 + i % 9) for i in range(count)]
        texts = {}
        for way, extra in GRAPHS.items():
            _, before = answer(check, f"{count} x {short}, {way}", prompts, short, extra)
            texts[way], after = answer(check, f"{count} x {long}, {way}", prompts, long, extra)
            found[f"{count} prompts, {way}" if count > 1 else f"one prompt, {way}"] = count * (long - short) / max(after - before, 1e-3)
        check.expect(f"{count} answers: the same {' and '.join(GRAPHS)}", len(set(texts.values())) == 1)


STAGES = [
    Stage("answers", "8B shape, bf16: answers of 288 tokens to one prompt and to 32, each step launched and as a CUDA graph; tok/s", rates, 3,
          gigabytes=22, models=(SHAPE,)),
]
