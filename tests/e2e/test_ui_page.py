"""The page of `trainer ui` in headless Chromium: clicks, a run that goes on, a phone, hostile rows, no errors, nothing from elsewhere."""
import json
import os
import pathlib
import shutil
import subprocess
import time
import unittest

from made_run import HOSTILE, make_run
from served_ui import ServedUi
from support import ROOT, TRAINER, EndToEnd
from test_report_page import CHROMIUM, PYTHON


@unittest.skipUnless(CHROMIUM, "no Chromium on this machine: apt install chromium, or scripts/setup --parity")
@unittest.skipUnless(PYTHON, "no Python with the package playwright: scripts/setup --parity")
class UiPage(EndToEnd):
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        runs = cls.scratch / "runs"
        common = [str(part) for part in (TRAINER, "--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={cls.model}",
                                         f"data.train={cls.data / 'train.jsonl'}", f"data.eval={cls.data / 'heldout.jsonl'}", "device=cpu",
                                         "training.num_threads=1", "training.eval_strategy=steps", "logging_steps=1")]
        done = subprocess.run([*common, f"output_dir={runs / 'ended'}", "max_steps=20", "training.eval_steps=10", "evaluation.generate=true"],
                              cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        make_run(runs / "other", seed=2, config="optimizer:\n  learning_rate: 3e-4\n")
        hostile = make_run(runs / "hostile <script>document.title='taken'</script>")
        (hostile / "log.txt").write_text(f"12:00:00 W {HOSTILE}\n", encoding="utf-8")
        make_run(runs / "deleted")
        live = subprocess.Popen([*common, f"output_dir={runs / 'live'}", "max_steps=1000000", "save.strategy=no", "training.eval_steps=100000"], cwd=ROOT,
                                stderr=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))
        try:
            with ServedUi(runs) as ui:
                deadline = time.monotonic() + 120
                while "live" not in ui.ids() and time.monotonic() < deadline:
                    time.sleep(.2)
                cls.seen = cls.look(ui.address, "--live", "live", "--ended", "ended", "--other", "other", "--deleted", "deleted", runs / "deleted")
            cls.code_of_live = live.wait(60)
        finally:
            live.kill()
            live.wait()

    @classmethod
    def look(cls, address, *options):
        pictures = os.environ.get("PAGE_PICTURES")  # a folder, for people who change the page
        if pictures:
            pathlib.Path(pictures).mkdir(parents=True, exist_ok=True)
            options = [*options, "--pictures", pictures]
        script = pathlib.Path(__file__).with_name("look_at_ui.py")
        looked = subprocess.run([PYTHON, "-B", script, CHROMIUM, address, *map(str, options)], capture_output=True, text=True, timeout=420)
        assert looked.returncode == 0, looked.stderr
        return json.loads(looked.stdout)

    def test_no_error_and_nothing_from_elsewhere(self):
        self.assertEqual(self.seen["errors"], [])
        self.assertEqual(self.seen["phone"]["errors"], [])
        self.assertEqual(self.seen["elsewhere"], [])

    def test_the_list_shows_every_run(self):
        for words in ("live", "running", "ended", "finished", "20 / 20", "5 runs"):
            self.assertIn(words, self.seen["list"])
        self.assertIn("other", self.seen["found"])

    def test_a_run_that_goes_on_moves_by_itself_and_is_stopped(self):
        live = self.seen["live"]
        self.assertGreater(live["second"], live["first"])
        self.assertTrue(live["moved"], "the curve has not changed")
        self.assertTrue(live["zoom_stays"])
        self.assertIn("step", live["log"])
        self.assertEqual((live["state"], self.code_of_live), ("stopped", 75))

    def test_parts_of_a_run(self):
        ended = self.seen["ended"]
        self.assertIn("Learning rate", ended["Curves"])
        for words in ("Prediction", "Target"):
            self.assertIn(words, ended["Samples"])
        for words in ("peak, measured", "peak, planned", "measured peak"):
            self.assertIn(words, ended["Memory"])
        self.assertIn("First samples: what is learned is marked", ended["Data"])
        self.assertTrue(any('"do"' in text for text in ended["marked"]), ended["marked"])
        self.assertIn("training.max_steps", ended["Configuration"])

    def test_runs_are_compared(self):
        text = self.seen["compared"]
        self.assertLess(text.index("What differs"), text.index("Results"))
        self.assertIn("optimizer.learning_rate", text)

    def test_plans_by_card(self):
        plan = self.seen["plan"]
        self.assertEqual(plan["cards"], 10)
        self.assertIn("does not fit", plan["full"])
        self.assertIn("fits", plan["on_141GB"])

    def test_chat_shows_result_and_base(self):
        for side in ("result", "base"):
            asked, answer = self.seen["chat"][side]
            self.assertEqual(asked, "Please bake peas.")
            self.assertNotIn("Error", answer)
            self.assertTrue(answer)

    def test_a_run_that_is_deleted_while_it_is_shown(self):
        self.assertIn("This run is no longer there. What is shown here is the last that was known.", self.seen["deleted"])

    def test_text_of_users_stays_text(self):
        self.assertNotEqual(self.seen["title"], "taken")
        self.assertEqual(self.seen["scripts"], 1)
        self.assertIn("<script>", self.seen["list"])

    def test_themes_differ_and_a_phone_does_not_scroll_sideways(self):
        self.assertNotEqual(*self.seen["papers"])
        for view, width in self.seen["phone"]["widths"].items():
            self.assertLessEqual(width, 360, view)


if __name__ == "__main__":
    unittest.main()
