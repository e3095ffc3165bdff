"""trainer report, and the page that a run writes: from the files of runs, with whatever is missing or damaged."""
import json
import re
import shutil
import subprocess
import time
import unittest

from made_run import make_run, train_rows
from support import ROOT, TRAINER, EndToEnd, read_rows, trainer


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.S)[1])


class Report(EndToEnd):
    family = "t5"

    def report(self, *arguments):
        result = trainer("report", *arguments)
        self.assert_done(result)
        return result

    def test_a_hundred_thousand_steps_are_a_small_page_with_every_extreme(self):
        run = self.scratch / "long"
        run.mkdir()
        rows = list(train_rows(100_000))
        rows[54_321]["loss"] = 99.0
        with open(run / "metrics.jsonl", "w", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
        begin = time.monotonic()
        self.report(run)
        print(f"100,000 steps in {time.monotonic() - begin:.1f} s, {(run / 'report.html').stat().st_size / 1e6:.2f} MB")
        self.assertLess((run / "report.html").stat().st_size, 3e6)
        train = data_of(run / "report.html")["runs"][0]["train"]
        self.assertLessEqual(len(train["step"]), 3000)
        self.assertEqual(train["step"][-1], 100_000)
        loss = train["series"]["loss"]
        self.assertEqual(max(loss["max"]), 99.0)
        first = [row["loss"] for row in rows[:train["steps_per_point"]]]
        self.assertAlmostEqual(loss["mean"][0], sum(first) / len(first), places=4)
        self.assertAlmostEqual(loss["min"][0], min(first), places=4)
        self.assertAlmostEqual(train["seconds"][-1], 45_000, delta=1)

    def test_text_of_users_cannot_end_the_script(self):
        run = make_run(self.scratch / "hostile")
        self.report(run)
        page = (run / "report.html").read_text(encoding="utf-8")
        self.assertEqual(len(re.findall(r"</script", page)), 2)
        self.assertNotIn("<img", page)
        self.assertIn("</script>", data_of(run / "report.html")["runs"][0]["predictions"]["samples"][0]["input"])
        strange = self.scratch / "<b>&amp; run"
        shutil.copytree(run, strange)
        self.report(strange)
        self.assertIn("<title>&lt;b&gt;&amp;amp; run</title>", (strange / "report.html").read_text(encoding="utf-8"))

    def test_names_nothing_outside_the_page(self):
        run = make_run(self.scratch / "alone")
        self.report(run)
        page = (run / "report.html").read_text(encoding="utf-8")
        addresses = set(re.findall(r"(?:https?:)?//[a-z][\w.]+\.[a-z]+[\w/]*", re.sub(r'id="data">.*?</script>', "", page, flags=re.S)))
        self.assertLessEqual(addresses, {"http://www.w3.org/2000/svg"})  # a name, not an address
        self.assertNotIn("src=", page.replace("img src=x", ""))

    def test_several_runs_have_the_shortest_names_that_differ(self):
        runs = [make_run(self.scratch / group / name, steps=20) for group, name in (("a", "lr1"), ("a", "lr2"), ("b", "lr1"))]
        page = self.scratch / "all.html"
        self.report(*runs[:2], "-o", page)
        self.assertEqual([run["name"] for run in data_of(page)["runs"]], ["lr1", "lr2"])
        self.report(*runs, "-o", page)
        self.assertEqual([run["name"] for run in data_of(page)["runs"]], ["a/lr1", "a/lr2", "b/lr1"])
        shown = self.report(runs[0], "-o", "-").stdout
        self.assertTrue(shown.startswith("<!doctype html>") and shown.rstrip().endswith("</html>"))

    def test_what_is_missing_or_damaged_is_said(self):
        run = make_run(self.scratch / "damaged", steps=20)
        (run / "environment.json").write_text('{"starts": [')
        (run / "config.yaml").write_text("training:\n  key_of_tomorrow: 1\n")
        (run / "data_report.json").unlink()
        shutil.rmtree(run / "predictions")
        with open(run / "metrics.jsonl", "ab") as out:
            out.write(b'{"kind":"tomorrow","step":21}\nno json\n[1]\n{"kind":"train","step":21,"loss":\xff\n{"kind":"tr')
        self.report(run)
        found = data_of(run / "report.html")["runs"][0]
        self.assertEqual(found["step"], 20)
        self.assertIsNone(found["data"])
        self.assertIsNone(found["predictions"])
        self.assertEqual(len(found["problems"]), 2)
        self.assertIn("key_of_tomorrow", " ".join(found["problems"]))

    def test_says_what_is_no_run(self):
        self.assert_refused(trainer("report"), 2, "OUT")
        self.assert_refused(trainer("report", self.scratch / "nowhere"), 4, "nowhere", "output_dir of a run")
        make_run(self.scratch / "many" / "one", steps=20)
        self.assert_refused(trainer("report", self.scratch / "many"), 4, "many", "holds runs", "one")
        self.assert_refused(trainer("report", self.scratch / "many" / "one", "-o", self.scratch / "no" / "x.html"), 4, "x.html")

    def test_says_whether_a_run_has_finished(self):
        for finished, state in ((True, "finished"), (False, "running")):
            run = make_run(self.scratch / f"state_{state}", steps=20, finished=finished)
            self.report(run)
            self.assertEqual(data_of(run / "report.html")["runs"][0]["state"], state)

    def test_a_run_writes_its_page_while_it_runs_and_at_the_end(self):
        output = self.scratch / "live"
        command = [TRAINER, "--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}", f"data.train={self.data / 'train.jsonl'}",
                   f"output_dir={output}", "device=cpu", "max_steps=100000", "batch_size=2", "observe.report_minutes=0.005"]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        page, seen = output / "report.html", set()
        end = time.monotonic() + 120
        while len(seen) < 3 and time.monotonic() < end:
            if page.exists():
                run = data_of(page)["runs"][0]  # whole at any time
                self.assertEqual(run["state"], "running")
                seen.add(run["step"])
            time.sleep(0.05)
        self.assertGreaterEqual(len(seen), 3, "the page is not written anew")
        process.terminate()
        self.assertEqual(process.wait(60), 75)
        run = data_of(page)["runs"][0]
        self.assertEqual(run["state"], "stopped")
        self.report(output)
        again = data_of(page)["runs"][0]
        self.assertEqual(again["state"], "stopped")
        self.assertIn("SIGTERM", again["message"])
        self.assertEqual(run["step"], read_rows(output / "metrics.jsonl")[-1]["step"])
        start = run["environment"]["starts"][0]
        self.assertEqual((start["model"], start["total_steps"], start["after_step"]), ("t5", 100000, 0))

    def test_a_finished_run_has_its_page(self):
        output = self.scratch / "short"
        self.assert_done(self.train("tiny_t5.yaml", output, "max_steps=3", "lora.r=4"))
        run = data_of(output / "report.html")["runs"][0]
        self.assertEqual((run["state"], run["step"], run["problems"]), ("finished", 3, []))
        self.assertEqual(run["data"]["train"]["samples"], 400)
        for key in (["lora.r", "4", True], ["lora.lora_alpha", "32", False], ["training.max_steps", "3", True]):
            self.assertIn(key, run["config"])

    def test_a_page_that_cannot_be_written_ends_no_run(self):
        output = self.scratch / "blocked"
        (output / "report.html" / "in the way").mkdir(parents=True)
        (output / "tensorboard").write_text("no folder")
        result = self.train("tiny_t5.yaml", output, "max_steps=3", "lora.r=4")
        self.assert_done(result)
        self.assertEqual(result.stderr.count("the page with the curves is not written"), 1, result.stderr)
        self.assertEqual(result.stderr.count("an event for TensorBoard is lost"), 1, result.stderr)
        self.assertTrue((output / "adapter_model.safetensors").exists())


if __name__ == "__main__":
    unittest.main()
