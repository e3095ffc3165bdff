"""The pages about Python: the blocks of docs/python.md run, and docs/notebook.ipynb is what examples/notebook.py gives."""
import os
import re
import subprocess
import sys
import unittest

from support import ROOT, TRAINER, EndToEnd, python_with

SCRIPT = ROOT / "scripts" / "make" / "notebook"
EXECUTES = python_with("nbclient") if python_with("ipykernel") == python_with("nbclient") else None


class Pages(EndToEnd):
    family = "t5"

    def test_the_page_runs_as_written(self):
        (self.scratch / "rows.jsonl").write_text((self.data / "train.jsonl").read_text())
        blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "python.md").read_text(encoding="utf-8"), re.M | re.S)
        self.assertGreater(len(blocks), 3)
        environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"), TRAINER_PROGRAM=str(TRAINER), OMP_NUM_THREADS="1",
                           CUDA_VISIBLE_DEVICES="")
        done = subprocess.run([sys.executable, "-c", "\n".join(blocks)], cwd=self.scratch, env=environment, text=True,
                              capture_output=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertRegex(done.stdout, r"(?s)^1 \d.*\n20 \d.*\nstopped \d+\n2 config-key\n$")

    def test_the_notebook_is_up_to_date(self):
        done = subprocess.run([sys.executable, SCRIPT, "--check"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        page = (ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8")
        for shown in ("<svg", "<polyline", 'aria-valuenow=\\"100\\"', "learned tokens", "rougeL", "did you mean"):
            self.assertIn(shown, page)

    @unittest.skipUnless(EXECUTES, "no Python with nbclient and ipykernel (TEST_PYTHON names one)")
    def test_the_notebook_runs(self):
        done = subprocess.run([EXECUTES, SCRIPT, "--out", self.scratch / "page.ipynb", "--replace", "max_steps=800=>max_steps=30",
                               "--replace", f"runs/notebook=>{self.scratch / 'runs'}"], text=True, capture_output=True, timeout=500,
                              env=dict(os.environ, TRAINER_PROGRAM=str(TRAINER), OMP_NUM_THREADS="1"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-3000:])


if __name__ == "__main__":
    unittest.main()
