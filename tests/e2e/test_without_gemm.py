"""The program without the layer gemm, as -DTRAINER_GEMM=OFF builds it: MKL and oneDNN multiply, and training goes the same way."""
import os
import pathlib
import shutil
import unittest
from unittest import mock

import support
from support import TRAINER, EndToEnd, read_rows, trainer

LIBRARY = TRAINER.parent / "without_gemm" / "libtrainer_core.so"
STEPS = 4


class WithoutGemm(EndToEnd):
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not LIBRARY.exists():
            raise unittest.SkipTest("another library is installed with the program")
        folder = cls.scratch / "program"
        folder.mkdir()
        shutil.copy2(TRAINER, folder / "trainer")
        os.symlink(LIBRARY, folder / "libtrainer_core.so")
        cls.program = pathlib.Path(folder / "trainer")

    def test_doctor_says_that_the_libraries_multiply(self):
        for wanted in ("auto", "builtin", "by_type"):
            with mock.patch.object(support, "TRAINER", self.program):
                result = trainer("doctor", "device=cpu", f"training.cpu_products={wanted}")
            self.assertIn("MKL fp32", result.stdout + result.stderr)
            self.assertNotIn("built-in", result.stdout + result.stderr)

    def test_a_run_has_the_losses_of_the_usual_program(self):
        losses = []
        for name, program in (("usual", TRAINER), ("without", self.program)):
            output = self.scratch / name
            with mock.patch.object(support, "TRAINER", program):
                self.assert_done(self.train("tiny_t5.yaml", output, f"max_steps={STEPS}", "optimizer.learning_rate=3e-3"))
            losses.append([row["loss"] for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"])
        self.assertEqual(len(losses[0]), STEPS)
        for usual, without in zip(*losses):
            self.assertAlmostEqual(usual, without, delta=1e-5 * usual)


if __name__ == "__main__":
    unittest.main()
