"""Data as users have them: compressed tables, several sets, a held-out share, bad rows, files that change."""
import csv
import gzip
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from support import ROOT, TRAINER, EndToEnd, read_rows, trainer, write_rows


class DataSources(EndToEnd):
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rows = read_rows(cls.data / "train.jsonl")
        cls.sets = cls.scratch / "sets"
        (cls.sets / "more").mkdir(parents=True)
        write_rows(cls.sets / "a.jsonl", cls.rows[:100])
        with gzip.open(cls.sets / "more" / "b.csv.gz", "wt", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, ["target", "input"], extrasaction="ignore")
            table.writeheader()
            table.writerows(cls.rows[100:200])

    def start(self, name, *overrides):
        return self.train("tiny_t5.yaml", self.scratch / name, "max_steps=3", f"data.cache={self.scratch / 'cache'}",
                          *overrides)

    def test_a_folder_with_a_compressed_table_and_a_held_out_share(self):
        result = self.start("folder", f"data.train={self.sets}", "data.eval=0.1", "training.eval_strategy=steps",
                            "training.eval_steps=3")
        self.assert_done(result)
        samples = [int(line.split("data: ")[1].split(" ")[0]) for line in result.stderr.splitlines()
                   if " samples, seq2seq" in line]
        self.assertEqual(sum(samples), 200, result.stderr)
        self.assertTrue(any(row["kind"] == "eval" for row in read_rows(self.scratch / "folder" / "metrics.jsonl")))
        # The same command with evaluation on what was held out.
        measured = trainer("eval", "--config", self.scratch / "folder" / "config.yaml", "--json")
        self.assert_done(measured)
        self.assertIn("0.1 held out of", json.loads(measured.stdout)["data"])

    def test_of_much_data_there_is_a_first_look(self):
        path = self.scratch / "much.jsonl"
        row = json.dumps({"input": "fry onions " * 20, "target": "onions", "note": "x" * 1500}) + "\n"
        with open(path, "w", encoding="utf-8") as file:
            file.write("not a row\n")
            for _ in range((64 << 20) // len(row) + 1):
                file.write(row)
        first, again = (self.start("much", f"data.train={path}", "data.bad_rows=skip", "data.max_source_length=16",
                                   "overwrite_output_dir=true") for _ in range(2))
        self.assert_done(first)
        self.assert_done(again)
        lines = first.stderr.splitlines()
        look = next(i for i, line in enumerate(lines) if "a first look at " in line)
        self.assertIn("2,000 samples, seq2seq", lines[look + 1])
        self.assertTrue(any("source truncated at" in line for line in lines[look:look + 7]), first.stderr)
        self.assertTrue(any(f"{path}:1" in line for line in lines[look:look + 7]), first.stderr)
        # Rows may be books.
        with open(path, "w", encoding="utf-8") as file:
            for _ in range(65):
                file.write(json.dumps({"input": "fry", "target": "onions", "note": "x" * (1 << 20)}) + "\n")
        books = self.start("books", f"data.train={path}")
        self.assert_done(books)
        look = next(line for line in books.stderr.splitlines() if "samples, seq2seq" in line)
        self.assertIn("data:   4 samples", look)
        # What is read already needs none.
        self.assertNotIn("a first look", again.stderr)

    def test_what_nobody_used_for_long_leaves_the_cache(self):
        cache = self.scratch / "old-cache"
        a, b = (self.sets / name for name in ("old.csv.gz", "new.csv.gz"))
        for path in (a, b):
            path.write_bytes((self.sets / "more" / "b.csv.gz").read_bytes())
        def unpack(path):
            before = set(cache.glob("unpacked/*"))
            self.assert_done(trainer("data", "--config", ROOT / "configs/tiny_t5.yaml", f"model.path={self.model}",
                                     f"data.train={path}", f"data.cache={cache}"))
            return set(cache.glob("unpacked/*")) - before
        (old,) = unpack(a)
        month = 30 * 24 * 3600
        for age, stays in ((month, True), (4 * month, False)):
            changed = old.stat().st_mtime
            os.utime(old, (time.time() - age, changed - age))
            os.utime(b, (time.time(), time.time() - age))  # another file: it is unpacked anew
            unpack(b)
            self.assertEqual(old.exists(), stays)

    def test_weights_make_an_epoch(self):
        sets = [{"path": str(self.sets / "a.jsonl"), "weight": 0.5}, {"path": str(self.sets / "more"), "weight": 2}]
        result = self.start("weights", f"data.train={json.dumps(sets)}", "training.effective_batch_size=50",
                            "max_steps=-1", "num_train_epochs=1")
        self.assert_done(result)
        steps = [row for row in read_rows(self.scratch / "weights" / "metrics.jsonl") if row["kind"] == "train"]
        self.assertEqual(len(steps), (100 // 2 + 2 * 100) // 50)
        def report(train):
            result = trainer("data", "--json", "--config", ROOT / "configs/tiny_t5.yaml", f"model.path={self.model}",
                             f"data.train={train}")
            self.assert_done(result)
            return json.loads(result.stdout)["epoch"]
        whole, half, twice = report(json.dumps(sets)), *(report(one["path"]) for one in sets)
        for key in ("tokens", "supervised_tokens"):
            self.assertEqual(whole[key], (half[key] + 1) // 2 + 2 * twice[key])
        changed = self.start("weights", f"data.train={self.sets}", "training.effective_batch_size=50", "max_steps=10")
        self.assert_refused(changed, 4, "data.train: ", "weight 0.5")

    def test_bad_rows_are_skipped_and_listed(self):
        path = self.scratch / "bad.jsonl"
        lines = [json.dumps(row) for row in self.rows[:20]]
        lines[3], lines[7] = '{"input": ', '{"input": 4, "target": "b"}'
        path.write_text("\n".join(lines), encoding="utf-8")
        self.assert_refused(self.start("bad", f"data.train={path}"), 3, f"{path}:4: malformed JSON", "2 of 20 rows")
        result = self.start("bad", f"data.train={path}", "data.bad_rows=skip")
        self.assert_done(result)
        self.assertIn("skipped 2 rows; their places and reasons", result.stderr)
        skipped = read_rows(self.scratch / "bad" / "skipped_rows.jsonl")
        self.assertEqual([(row["file"], row["line"], row["row"]) for row in skipped],
                         [(str(path), 4, lines[3].rstrip()), (str(path), 8, lines[7])])

    def test_a_file_that_is_cut_short_ends_the_run_with_its_name(self):
        path, output = self.scratch / "changing.jsonl", self.scratch / "changing"
        write_rows(path, self.rows)
        with open(self.scratch / "changing.log", "w") as log:
            process = subprocess.Popen(
                [TRAINER, "--config", ROOT / "configs/tiny_t5.yaml", f"model.path={self.model}", f"data.train={path}",
                 f"output_dir={output}", "device=cpu", "max_steps=1000000", "logging_steps=1"], cwd=ROOT, stderr=log,
                stdout=log)
            try:
                metrics, patience = output / "metrics.jsonl", time.monotonic() + 240
                while time.monotonic() < patience and process.poll() is None:
                    if metrics.exists() and '"kind":"train"' in metrics.read_text():
                        break
                    time.sleep(0.05)
                os.truncate(path, 5000)
                self.assertEqual(process.wait(240), 3)
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
        self.assertIn("changing.jsonl", pathlib.Path(log.name).read_text())


if __name__ == "__main__":
    unittest.main()
