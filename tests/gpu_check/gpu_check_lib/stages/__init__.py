"""All stages, in the order in which they run: the most valuable first."""
from . import basics, decoder, endurance, numbers, profiles, seq2seq

ALL = [*basics.STAGES, *numbers.STAGES, *decoder.FIRST, *decoder.PEER, *seq2seq.STAGES, *profiles.STAGES, *endurance.STAGES,
       *decoder.SETTINGS, *basics.LAST]
