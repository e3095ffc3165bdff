"""The built program when a file operation fails or is the last one: a clear end, and no half-written file.

A line of metrics may be cut by the end of the process; readers skip it, and the next start removes it.
"""
import os
import shutil
import unittest

from limited import half_written
from support import EndToEnd

# Spread over a run of two steps with checkpoints; the 41st writes a row of metrics, the 400th does not happen.
OPERATIONS = (1, 4, 9, 16, 25, 36, 41, 49, 64, 81, 400)


class FileFaults(EndToEnd):
    family = "t5"

    def start(self, output):
        return self.train("tiny_t5.yaml", output, "max_steps=2", "save.strategy=steps", "save.steps=1", "lora.r=4", "lora.target_modules=[q, v]")

    def run_with(self, fault):
        output = self.scratch / "output"
        shutil.rmtree(output, ignore_errors=True)
        os.environ["TRAINER_FILE_FAULT"] = fault
        try:
            return self.start(output), output
        finally:
            del os.environ["TRAINER_FILE_FAULT"]

    def test_a_full_disk_is_named_and_leaves_no_half_of_a_file(self):
        for n in OPERATIONS:
            result, output = self.run_with(f"{n}+:ENOSPC")
            self.assertIn(result.returncode, (0, 4), result.stderr)
            if result.returncode == 4:
                self.assert_refused(result, 4, "No space left on device")
            self.assertEqual(half_written(output), [], result.stderr)

    def test_the_end_of_the_process_leaves_at_most_a_line_cut_which_the_next_start_removes(self):
        for n in OPERATIONS:
            result, output = self.run_with(f"{n}:crash")
            self.assertIn(result.returncode, (0, 86), result.stderr)
            self.assertTrue(n > 50 or result.returncode == 86, result.stderr)
            self.assertEqual(half_written(output, but_last_lines=True), [], result.stderr)
            self.assert_done(self.start(output))
            self.assertEqual(half_written(output), [], result.stderr)

    def test_a_fault_that_is_none_is_refused(self):
        result, _ = self.run_with("17")
        self.assert_refused(result, 2, "TRAINER_FILE_FAULT")


if __name__ == "__main__":
    unittest.main()
