"""Limits of the system: threads, open files, memory, file size and a full disk (scripts/limits_anywhere)."""
import os
import subprocess
import sys
import unittest

from support import ROOT, TRAINER


class Limits(unittest.TestCase):
    def test_a_start_under_a_limit_ends_clearly_and_changes_nothing(self):
        ended = subprocess.run([sys.executable, "-B", ROOT / "scripts" / "limits_anywhere", "--short"], text=True,
                               capture_output=True, env=dict(os.environ, TRAINER=str(TRAINER)))
        said = ended.stdout + ended.stderr
        self.assertEqual(ended.returncode, 0, said)
        last = ended.stdout.splitlines()[-1]
        self.assertIn(", 0 failed", last)
        self.assertGreater(int(last.split()[0]), 30, said)


if __name__ == "__main__":
    unittest.main()
