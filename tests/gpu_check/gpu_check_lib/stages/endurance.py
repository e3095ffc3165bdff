"""Runs that share a card, are killed, or lose the card; and small runs that must give the same bits twice."""
import signal
import shutil

from .. import processes, training
from ..stage import Skip, Stage
from .decoder import BF16_ALL

STEPS, STEPS_ON_A_CARD = 60, 200  # a card needs little time for them
SAVE = 10
KILLED_AT = 25


def small(check, shape, name, **changes):
    """A run of a small model with dropout, checkpoints and mixed lengths."""
    steps = STEPS if check.device == "cpu" else STEPS_ON_A_CARD
    return training.settings(check, shape, training.output_of(check, name), **{
        "data.max_length": 96, "data.max_source_length": 96, "data.max_target_length": 48, "training.batch_size": 4,
        "training.effective_batch_size": 8, "data.train": check.model(shape) / "spread.jsonl", "data.shuffle": "true",
        "training.max_steps": steps, "save.strategy": "steps", "save.steps": SAVE, "training.num_threads": 1, **changes})


def expect_same_bits(check, what, one, other):
    training.expect_same_rows(check, what, one.figures, other.figures)
    check.expect(f"{what}: the same result, bit by bit", one.files == other.files and one.files)


def repeat(check):
    """The same run twice gives the same bits: T5's trained bias and dropout, full and LoRA, fp32 and bf16."""
    types = ["fp32", "bf16"] if check.machine["bf16"] else ["fp32"]
    for dtype in types:
        for shape, more in (("t5", {}), ("qwen3", training.LORA)):
            name = f"{shape} {dtype} twice"
            keys = small(check, shape, name, **{"model.dtype": dtype, "save.strategy": "no", "training.max_steps": 12, **more})
            keys = [key for key in keys if not key.startswith("save.steps=")]
            expect_same_bits(check, f"{shape} {dtype}", *[training.need_train(check, name, keys) for _ in range(2)])
    check.figures.pop("runs")


def kill_and_resume(check):
    expected = training.need_train(check, "alone", small(check, "t5", "alone", **training.LORA))
    output = training.output_of(check, "killed")
    shutil.rmtree(output, ignore_errors=True)
    keys = [key for key in small(check, "t5", "killed", **training.LORA) if not key.startswith("overwrite_output_dir")]
    running = processes.Running(training.command(keys))
    was_running = training.wait_for_step(running, output, KILLED_AT, check.left())
    running.kill()
    ended = running.ended(running.process.returncode)
    check.results.log(ended.tail)
    check.need(f"it is killed after step {KILLED_AT}, while it runs", was_running and ended.code == -signal.SIGKILL, ended.code)
    check.need("a checkpoint was complete", list(output.glob("checkpoint-*")))
    again = training.finished(check, "killed", check.run(training.command(keys)))
    check.need("the same command resumes it", again.code == 0, again.code)
    check.expect("it did not start from the beginning", "resum" in again.text)
    expect_same_bits(check, "killed and resumed, against undisturbed", again, expected)
    check.figures.pop("runs")


def two_at_once(check):
    """Both must finish, whether they run out of memory or not, with the losses of a run that is alone."""
    shape = "qwen3-0.6b"
    sizes = {"data.max_length": 64 if check.quick else 2048, "training.batch_size": 4, "training.effective_batch_size": 4,
             "training.max_steps": 6, "model.dtype": "bf16", **training.LORA}
    keys = lambda name: training.settings(check, shape, training.output_of(check, name), **sizes)  # noqa: E731
    alone = training.need_train(check, "0.6B LoRA, alone", keys("0.6B LoRA, alone"))
    names = ["0.6B LoRA, first of two", "0.6B LoRA, second of two"]
    running = [processes.Running(training.command(keys(name))) for name in names]
    for name, process in zip(names, running):
        ended = process.wait(check.left())
        check.keep(ended)
        run = training.finished(check, name, ended)
        check.expect(f"{name}: it ends with exit code 0", run.code == 0, run.code)
        training.expect_near(check, f"{name}: the losses of the run alone", run.losses, alone.losses, BF16_ALL)


def fall_back(check):
    """If the card has too little memory for even one sample, the run continues on the CPU, with the same losses."""
    if check.device == "cpu":
        raise Skip("there is no card to fall back from (--device cpu)")
    sizes = {"data.max_length": 1024, "training.batch_size": 1, "training.effective_batch_size": 1, "training.max_steps": 3,
             "model.dtype": "fp32", "training.tf32": "false", "recovery.cpu_fallback": "true", **training.LORA}
    shape, name = "qwen3-0.6b", "0.6B LoRA, on the card"
    plain = training.need_train(check, name, training.settings(check, shape, training.output_of(check, name), **sizes,
                                                               **{"memory.gradient_checkpointing": "true"}))
    memory = plain.of("memory")[0]
    needed = sum(memory.get(f"planned_{part}") or 0 for part in ("weights", "adapters", "gradients", "optimizer_state"))
    for share in (0.6, 0.4, 0.2, 0.1):
        limit = f"{(needed + share * max(0, memory['peak'] - needed) + training.CONTEXT) / 1e6:.0f}MB"
        run = run_with(check, shape, f"0.6B LoRA, falling back from {limit}", sizes, limit, rehearse=True)
        if run.code != 0 or moved(run):
            break
    expect_moved(check, run, limit, plain)
    run = run_with(check, shape, f"0.6B LoRA, falling back from {limit} in a step", sizes, limit, rehearse=False)
    expect_moved(check, run, limit, plain)


def run_with(check, shape, name, sizes, limit, rehearse):
    more = {"memory.limit": limit, "memory.rehearse": "true" if rehearse else "false"}
    return training.train(check, name, training.settings(check, shape, training.output_of(check, name), **sizes, **more))


def moved(run):
    return [row for row in run.of("recovery") if row["stage"] == "device"]


def expect_moved(check, run, limit, plain):
    check.need(f"with memory.limit={limit} the run ends with exit code 0", run.code == 0, run.code)
    check.need("it went on on the CPU", moved(run), f"{len(run.of('recovery'))} recoveries")
    training.expect_near(check, "the losses of the run on the card", run.losses, plain.losses, 1e-3)


STAGES = [
    Stage("repeat", "small models run twice: the same bits", repeat, 0.8, gigabytes=3, models=("qwen3", "t5")),
    Stage("kill-resume", "a run is killed and resumed: the bits of an undisturbed one", kill_and_resume, 0.6, gigabytes=3, models=("t5",)),
    Stage("two-runs", "two runs share the card: both get through, with the losses of one alone", two_at_once, 1, needs_bf16=True,
          gigabytes=30, models=("qwen3-0.6b",)),
    Stage("cpu-fallback", "a run without room on the card goes on on the CPU", fall_back, 1.5, needs_card=True, gigabytes=12, models=("qwen3-0.6b",)),
]
