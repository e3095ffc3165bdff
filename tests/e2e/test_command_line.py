"""The command line and the configuration: quick help, all mistakes at once, nothing written."""
import subprocess
import time
import unittest

from support import ROOT, TRAINER, EndToEnd, read_rows, trainer


class CommandLine(EndToEnd):
    def test_help_is_quick_and_names_the_commands(self):
        times = []
        for _ in range(7):
            start = time.perf_counter()
            result = trainer("--help")
            times.append(time.perf_counter() - start)
        self.assert_done(result)
        for command in ("train", "eval", "config", "generate", "tokenize"):
            self.assertIn(command, result.stdout)
        # 50 ms is the aim; a loaded machine gets some more, LibTorch alone would take 200.
        self.assertLess(min(times), 0.15)

    def test_every_mistake_is_reported_at_once(self):
        config = self.scratch / "mistakes.yaml"
        config.write_text("training:\n  bacth_size: 4\n  max_steps: many\noptimizer:\n  learning_rate: -1\n")
        output = self.scratch / "nothing"
        result = trainer("--config", config, f"output_dir={output}")
        self.assert_refused(result, 2, "mistakes.yaml:2:3", "batch_size", "mistakes.yaml:3:", "mistakes.yaml:5:",
                            "model.path", "data.train")
        self.assertFalse(output.exists())

    def test_names_of_other_trainers_are_answered_with_ours(self):
        result = trainer("--config", ROOT / "configs" / "tiny_t5.yaml", "training.per_device_train_batch_size=4")
        self.assert_refused(result, 2, "per_device_train_batch_size", "training.batch_size")

    def test_train_may_be_left_out(self):
        short, long = (trainer(*words, "--config", ROOT / "configs" / "tiny_t5.yaml") for words in ([], ["train"]))
        self.assertEqual((short.returncode, short.stderr), (long.returncode, long.stderr))

    def test_the_resolved_configuration_reads_back(self):
        first = trainer("config", "--config", ROOT / "configs" / "flan_t5_xl.yaml", "learning_rate=7e-5")
        self.assert_done(first)
        saved = self.scratch / "saved.yaml"
        saved.write_text(first.stdout)
        second = trainer("config", "--config", saved)
        self.assert_done(second)
        self.assertEqual(first.stdout, second.stdout)
        self.assertIn("7e-05", first.stdout.replace("7.0e-05", "7e-05").replace("7e-5", "7e-05"))

    def test_every_preset_loads(self):
        presets = sorted((ROOT / "configs").glob("*.yaml"))
        self.assertGreater(len(presets), 5)
        for preset in presets:
            with self.subTest(preset.name):
                self.assert_done(trainer("config", "--config", preset))

    def test_a_directory_that_is_none_is_told(self):
        rows, file = self.data / "heldout.jsonl", self.data / "text.txt"
        for path, words in ((self.scratch / "nodir", "there is no such directory"), (file, "is a file, not a directory")):
            for arguments in (("eval", path, rows, "device=cpu"), ("generate", path, "Hello.", "--device", "cpu"),
                              ("export", path, self.scratch / "out"), ("tokenize", "--model", path, "--input", rows)):
                with self.subTest(arguments[0]):
                    self.assert_refused(trainer(*arguments), 4, f"{path}: {words}")

    def test_an_unknown_command_or_flag_is_a_usage_error(self):
        self.assert_refused(trainer("trian", "--config", "x.yaml"), 2)
        self.assert_refused(trainer("generate", "--model", "m", "--no-such-flag"), 2, "no-such-flag")


class ClosedStreams(EndToEnd):
    family = "t5"

    def run_closed(self, redirections, *arguments):
        return subprocess.run(["sh", "-c", f'exec "$0" "$@" {redirections}', TRAINER, *map(str, arguments)], cwd=ROOT,
                              timeout=300).returncode

    def test_files_of_a_run_hold_their_own_content_alone(self):
        output = self.scratch / "output"
        code = self.run_closed(">&- 2>&-", "train", "--config", "configs/tiny_t5.yaml", f"model.path={self.model}",
                               f"data.train={self.data / 'train.jsonl'}", f"output_dir={output}", "device=cpu", "max_steps=2",
                               "logging_steps=1", "training.num_threads=1")
        self.assertEqual(code, 0)
        rows = read_rows(output / "metrics.jsonl")
        self.assertEqual([row["step"] for row in rows if row["kind"] == "train"], [1, 2])

    def test_a_result_that_goes_nowhere_is_an_error(self):
        self.assertEqual(self.run_closed(">&- 2>&-", "config"), 4)


if __name__ == "__main__":
    unittest.main()
