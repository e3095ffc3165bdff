"""Ranks that are killed, with another number of them at each start, end with the bits of a run that nobody disturbed.

scripts/kill_anywhere --ranks 3 does it a hundred times, and at any moment.
"""
import unittest

from disturbed_ranks import DisturbedRanks, differences
from support import ROOT, EndToEnd


class Killed(EndToEnd):
    family = "t5"

    def test_five_kills_leave_the_bits_of_the_same_history_undisturbed(self):
        arguments = ["--config", ROOT / "configs/tiny_t5.yaml", f"model.path={self.model}",
                     f"data.train={self.data / 'train.jsonl'}", f"data.eval={self.data / 'heldout.jsonl'}",
                     "max_steps=60", "save.strategy=steps", "save.steps=3", "training.eval_strategy=steps",
                     "training.eval_steps=3", "device=cpu", "training.num_threads=1", "training.dropout=0.1",
                     "lr_scheduler_type=constant", "model.dtype=bf16"]
        run = DisturbedRanks(arguments, self.scratch / "killed", most=3, seed=1)
        run.run(kills=5, ways=["in_training"])
        run.replay(self.scratch / "replayed")
        self.assertEqual(differences(self.scratch / "replayed", self.scratch / "killed"), [], "\n".join(run.log))
        self.assertEqual(run.kills, 5)
        self.assertGreater(len(run.history()), 2)


if __name__ == "__main__":
    unittest.main()
