"""Which kernels take the time, how close ours come to the memory's rate, how many are launched in a step, and what the CPU waits for: trainer's and the peer's."""
import json

from .. import layout, peers, processes, training
from ..stage import Skip, Stage
from . import decoder, seq2seq

STEPS = 5


def ours(check, name, keys):
    if not layout.IN_PROCESS.exists():
        raise Skip(f"there is no {layout.IN_PROCESS.name}: build the target train_in_process")
    command = processes.python("profile_run.py", check.device, STEPS, layout.CORE, layout.IN_PROCESS, *keys)
    ended = check.need_run(f"{name} under the profiler", command)
    line = next((line for line in ended.text.splitlines() if line.startswith('{"profile"')), None)
    check.need("it reports kernels", line)
    profile = json.loads(line)["profile"]
    store(check, f"{name}, trainer", profile)
    check.expect(f"{name}: the bytes of its own kernels are known", profile["rates"])


def store(check, name, profile):
    check.figures.setdefault("profiles", {})[name] = profile
    check.expect(f"{name}: the profiler saw something", profile["top"], profile["launches"])


def theirs(check, name, case):
    case = {**case, "steps": STEPS, "variants": [{"name": "profiled", "profile": True}]}
    figures = peers.measure(check, name, case)
    store(check, f"{name}, Transformers + PEFT", figures["profiled"]["profile"])
    check.figures.pop("peers")  # its speed is that of a profiled run


def settings(check, shape, sizes, **more):
    output = training.output_of(check, "profiled")
    return training.settings(check, shape, output, **{**sizes, **more, "model.dtype": "bf16", "training.max_steps": STEPS,
                                                      "memory.rehearse": "false", "memory.empty_cache_steps": 0})


def decoder_ours(check):
    ours(check, "8B LoRA", settings(check, decoder.SHAPE, decoder.case(check), **training.LORA))


def decoder_theirs(check):
    theirs(check, "8B LoRA", decoder.peer_case(check))


def seq2seq_ours(check):
    ours(check, "T5-XL LoRA", settings(check, seq2seq.SHAPE, seq2seq.case(check), **training.LORA))


PACKAGES = ("transformers", "peft")
STAGES = [
    Stage("profile-8b", "the 20 kernels that take longest, launches and waits of a step, 8B LoRA", decoder_ours, 1,
          needs_bf16=True, gigabytes=60, models=(decoder.SHAPE,)),
    Stage("profile-8b-peer", "the same of Transformers + PEFT", decoder_theirs, 1.2, needs_bf16=True, gigabytes=80,
          packages=PACKAGES, models=(decoder.SHAPE,)),
    Stage("profile-t5", "the same of ours, T5-XL LoRA with dropout", seq2seq_ours, 1, needs_bf16=True, gigabytes=40, models=(seq2seq.SHAPE,)),
]
