"""All stages, in the order in which they run: the most valuable first. On a card there are minutes for the first dozen of them
(gpu_check --minutes): whether it computes what it should, how fast, in how much memory, beside the fastest others."""
from . import answers, basics, decoder, endurance, numbers, profiles, recurrent, seq2seq

FIRST = ("machine", "unit-tests", "8b-lora", "8b-light", "8b-peer", "8b-liger", "t5xl-lora", "t5xl-full", "8b-fp8", "8b-repeat", "8b-graphs", "t5xl-graphs",
         "8b-cudnn", "answers", "8b-recompute", "recurrent", "profile-8b", "tiny-qwen", "tiny-t5", "nvrtc", "doctor", "8b-nf4", "profile-t5", "tiny-savings", "8b-limit", "repeat")
EVERY = [*basics.STAGES, *numbers.STAGES, *decoder.FIRST, *decoder.PEER, *seq2seq.STAGES, *recurrent.STAGES, *answers.STAGES,
         *profiles.STAGES, *endurance.STAGES, *decoder.SETTINGS, *decoder.PEER_MORE, *basics.LAST]
ALL = [*(next(stage for stage in EVERY if stage.name == name) for name in FIRST), *(stage for stage in EVERY if stage.name not in FIRST)]
