"""The built program when a file operation fails or is the last one: a clear end, and no half-written file."""
import os
import shutil
import unittest

from limited import half_written
from support import EndToEnd

# Spread over a run of two steps with a checkpoint; a number beyond the last operation does nothing.
OPERATIONS = (1, 4, 9, 16, 25, 36, 49, 64, 81, 400)


class FileFaults(EndToEnd):
    family = "t5"

    def run_with(self, fault):
        output = self.scratch / "output"
        shutil.rmtree(output, ignore_errors=True)
        os.environ["TRAINER_FILE_FAULT"] = fault
        self.addCleanup(os.environ.pop, "TRAINER_FILE_FAULT", None)
        result = self.train("tiny_t5.yaml", output, "max_steps=2", "save.strategy=steps", "save.steps=1", "lora.r=4")
        return result, output

    def test_a_full_disk_is_named_and_leaves_no_half_of_a_file(self):
        for n in OPERATIONS:
            result, output = self.run_with(f"{n}+:ENOSPC")
            self.assertIn(result.returncode, (0, 4), result.stderr)
            if result.returncode == 4:
                self.assert_refused(result, 4, "No space left on device")
            self.assertEqual(half_written(output), [], result.stderr)

    def test_the_end_of_the_process_leaves_no_half_of_a_file(self):
        for n in OPERATIONS:
            result, output = self.run_with(f"{n}:crash")
            self.assertIn(result.returncode, (0, 86), result.stderr)
            self.assertTrue(n == 400 or n > 50 or result.returncode == 86, result.stderr)
            self.assertEqual(half_written(output), [], result.stderr)

    def test_a_fault_that_is_none_is_refused(self):
        result, _ = self.run_with("17")
        self.assert_refused(result, 2, "TRAINER_FILE_FAULT")


if __name__ == "__main__":
    unittest.main()
