"""The page of `trainer report` in headless Chromium: both themes, a phone, hover, zoom, keys, no network, no errors."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from made_run import make_run
from support import python_with, trainer

CHROMIUM = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome")) if path), None)
PYTHON = python_with("playwright")


@unittest.skipUnless(CHROMIUM, "no Chromium on this machine: apt install chromium, or scripts/setup --parity")
@unittest.skipUnless(PYTHON, "no Python with the package playwright: scripts/setup --parity")
class ReportPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp(prefix="trainer-e2e-"))
        cls.addClassCleanup(shutil.rmtree, cls.scratch)
        one = make_run(cls.scratch / "one")
        other = make_run(cls.scratch / "other", seed=2, config="optimizer:\n  learning_rate: 3e-4\nseed: 7\n")
        cls.single = cls.look(cls.scratch / "single.html", one)
        cls.compared = cls.look(cls.scratch / "compared.html", one, other)

    @classmethod
    def look(cls, page, *runs, options=()):
        made = trainer("report", *runs, "-o", page)
        assert made.returncode == 0, made.stderr
        pictures = os.environ.get("PAGE_PICTURES")  # a folder, for people who change the page
        more = ["--pictures", pathlib.Path(pictures, page.stem)] if pictures else []
        if pictures:
            pathlib.Path(pictures, page.stem).mkdir(parents=True, exist_ok=True)
        script = pathlib.Path(__file__).with_name("look_at_page.py")
        looked = subprocess.run([PYTHON, "-B", script, CHROMIUM, page, *options, *more], capture_output=True, text=True, timeout=300)
        assert looked.returncode == 0, looked.stderr
        return json.loads(looked.stdout)

    def each_view(self):
        return [*self.single.values(), *self.compared.values()]

    def test_no_error_and_no_request(self):
        for view in self.each_view():
            self.assertEqual(view["errors"], [])
            self.assertEqual(view["requests"], [])

    def test_text_of_users_stays_text(self):
        for view in self.each_view():
            self.assertNotEqual(view["seen"]["title"], "taken")
            self.assertEqual(view["seen"]["scripts"], 2)
            self.assertIn("</script><script>document.title='taken'</script>", view["used"]["details"])

    def test_curves_are_drawn(self):
        charts = self.single["light"]["seen"]["charts"]
        for title in ("Loss", "ROUGE-L", "Learning rate", "Gradient norm", "Throughput, tokens per second", "Memory"):
            self.assertIn(title, charts)
        self.assertGreater(self.single["light"]["seen"]["lines"], len(charts))

    def test_hover_shows_step_and_values(self):
        for view in self.each_view():
            self.assertFalse(view["used"]["tip_before"])
            self.assertRegex(view["used"]["tip"], r"(?s)step 1\d\d\n.*\n1\.\d+")
            tip, plot = view["used"]["tip_box"], view["used"]["plot_box"]
            self.assertGreaterEqual(tip["y"], plot["y"])
            self.assertLess(tip["y"], plot["y"] + plot["height"] / 3)
            self.assertGreaterEqual(tip["x"], plot["x"] - 10)
            self.assertLessEqual(tip["x"] + tip["width"], plot["x"] + plot["width"] + 10)
            self.assertGreater(view["used"]["cursors"], 3)  # the place shows in all charts

    def test_drag_and_keys_zoom_all_charts_and_back(self):
        for view in self.each_view():
            used = view["used"]
            self.assertEqual(used["selection"], 1)
            self.assertNotEqual(used["zoomed"], used["ticks"])
            for ticks in (used["zoomed"], used["others_zoomed"]):
                self.assertIn("100", ticks)
                self.assertNotIn("300", ticks)
            self.assertEqual(used["reset"], used["ticks"])
            self.assertIn("step", used["tip_of_keys"])
            self.assertNotEqual(used["zoomed_by_keys"], used["ticks"])
            self.assertEqual(used["reset_by_keys"], used["ticks"])
            self.assertTrue(any("min" in tick or " s" in tick for tick in used["over_time"]), used["over_time"])

    def test_themes_differ_and_a_phone_does_not_scroll_sideways(self):
        for views in (self.single, self.compared):
            self.assertNotEqual(views["light"]["seen"]["paper"], views["dark"]["seen"]["paper"])
            self.assertNotEqual(views["light"]["seen"]["ink"], views["dark"]["seen"]["ink"])
            self.assertLessEqual(views["phone"]["seen"]["width"], 360)
            self.assertLessEqual(views["phone"]["used"]["width_with_details"], 360)

    def test_a_run_that_has_just_begun_and_one_of_a_single_step(self):
        begun, single = self.scratch / "begun", self.scratch / "single"
        for run, rows in ((begun, ""), (single, '{"kind":"train","step":1,"loss":null}\n{"kind":"eval","step":1,"eval_loss":2.5}\n')):
            run.mkdir()
            (run / "metrics.jsonl").write_text(rows)
        for runs in ([begun], [single], [begun, single]):
            for view in self.look(self.scratch / "early.html", *runs, options=["--only-look"]).values():
                self.assertEqual(view["errors"], [])
                self.assertIn("running", view["seen"]["text"])
                self.assertIn("Memory", view["seen"]["charts"])
                self.assertLessEqual(view["seen"]["width"], 1280)

    def test_details_are_there(self):
        text = self.single["light"]["used"]["details"]
        for words in ("finished", "300 / 300", "cake 1", "180 – 300", "none at 60", "planned", "backward", "cpu (2 threads)", "optimizer.learning_rate",
                      "what is learned is marked"):
            self.assertIn(words.lower(), text.lower())

    def test_a_comparison_begins_with_what_differs(self):
        text = self.compared["light"]["seen"]["text"]
        self.assertLess(text.index("What differs"), text.index("Results"))
        differing = text[text.index("What differs"):text.index("Results")]
        for words in ("optimizer.learning_rate", "1.0e-04", "3.0e-04", "seed", "42", "7"):
            self.assertIn(words, differing)
        self.assertNotIn("weight_decay", differing)


if __name__ == "__main__":
    unittest.main()
