"""Limits of the system: threads, open files, memory, file size and a full disk (scripts/limits_anywhere)."""
import os
import subprocess
import sys
import unittest

from in_ranks import InRanks
from support import ROOT, TRAINER, EndToEnd


class Limits(unittest.TestCase):
    def test_a_start_under_a_limit_ends_clearly_and_changes_nothing(self):
        ended = subprocess.run([sys.executable, "-B", ROOT / "scripts" / "limits_anywhere", "--short"], text=True,
                               capture_output=True, env=dict(os.environ, TRAINER=str(TRAINER)))
        said = ended.stdout + ended.stderr
        self.assertEqual(ended.returncode, 0, said)
        last = ended.stdout.splitlines()[-1]
        self.assertIn(", 0 failed", last)
        self.assertGreater(int(last.split()[0]), 30, said)


class OneRank(EndToEnd):
    """A limit on the address space (`ulimit -v`) of one rank."""
    family = "t5"

    def test_a_rank_without_room_ends_with_words_or_trains(self):
        limits, ends = (450, 600, 1600), set()
        for megabytes in limits:
            with self.subTest(megabytes):
                output = self.scratch / f"limited-{megabytes}"
                limit = f'[ "$RANK" = 1 ] && ulimit -v {megabytes * 1024}; exec "$0" "$@"'
                codes, texts = InRanks(2, "--config", ROOT / "configs/tiny_t5.yaml", f"model.path={self.model}",
                                       f"data.train={self.data / 'train.jsonl'}", f"output_dir={output}", "device=cpu",
                                       "training.num_threads=2", "max_steps=3", "lora.r=4", "lora.target_modules=[q, v]", "parallel.timeout=20",
                                       before=("bash", "-c", limit)).wait()
                self.assertIn(codes[1], (0, 5), texts)
                self.assertIn(codes[0], (0, 5, 8), texts)  # 8: the other never came
                if codes[1] == 5:
                    self.assertIn("memory", texts[1] + texts[0])
                ends.add(codes[1])
        self.assertEqual(ends, {0, 5}, "the limits are on both sides of what a rank needs")


if __name__ == "__main__":
    unittest.main()
