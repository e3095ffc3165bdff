"""What a run shows on a terminal, in a pipe, with --plain and --quiet; seen by an emulator of a terminal."""
import os
import re
import signal
import subprocess
import unittest

from pseudo_terminal import PseudoTerminal
from support import ROOT, TRAINER, EndToEnd, read_rows, write_rows

STEP = re.compile(r"\d\d:\d\d:\d\d I step (\d+)/")
WAY = re.compile(r"step \d+/\d+ ")


class Live(EndToEnd):
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.spoilt = cls.scratch / "spoilt.jsonl"
        rows = read_rows(cls.data / "train.jsonl")
        write_rows(cls.spoilt, rows)
        with cls.spoilt.open("a", encoding="utf-8") as file:
            file.write("no JSON\n")

    def command(self, output, *overrides, options=()):
        return [str(part) for part in
                (TRAINER, *options, "--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}",
                 f"data.train={self.data / 'train.jsonl'}", f"data.eval={self.data / 'heldout.jsonl'}",
                 f"output_dir={output}", "device=cpu", "logging_steps=20", "training.num_threads=1", "save.strategy=no",
                 "training.eval_strategy=steps", "training.eval_steps=40", "memory.limit=4GB", *overrides)]

    def terminal(self, command, **options):
        terminal = PseudoTerminal(command, cwd=ROOT, **options)
        self.addCleanup(terminal.close)
        return terminal

    @staticmethod
    def block_of(screen):
        """The rows of the live block: those at the end that are no log lines."""
        rows = [row for row in screen.visible() if row]
        first = next((i for i, row in enumerate(rows)
                      if WAY.search(row) and not STEP.match(row) and not re.match(r"\d\d:\d\d:", row)), len(rows))
        return rows[first:]

    @staticmethod
    def ways(terminal):
        return sum(1 for row in terminal.screen.rows if WAY.search(row) and not STEP.match(row))

    def assert_clean_end(self, terminal):
        screen = terminal.screen
        self.assertEqual(self.block_of(screen), [], "\n".join(screen.rows))
        self.assertEqual((screen.column, screen.rows[screen.row]), (0, ""), "\n".join(screen.rows))
        self.assertNotIn(b"\x1b[?", terminal.raw, "no mode of the terminal is changed")

    def assert_words_are_whole(self, terminal, output):
        """Every message of the log is on the screen, with all its words, but for lines that were shortened to one row."""
        shown = " ".join(row.strip() for row in terminal.screen.rows)
        shown = re.sub(r"\s+", " ", shown)
        for line in (output / "log.txt").read_text(encoding="utf-8").splitlines():
            message = re.sub(r"\s+", " ", line.split(" ", 3)[3])
            if any(len(word) > terminal.screen.width - 12 for word in message.split()):
                continue  # a path that is longer than a row
            if message.startswith(("step ", "evaluation at step")):
                message = " ".join(message.split()[:2])
            self.assertIn(message, shown)

    def run_at(self, width, *overrides):
        output = self.scratch / f"at-{width}"
        terminal = self.terminal(self.command(output, "max_steps=400", *overrides), width=width)
        blocks = []

        def seen():
            block = self.block_of(terminal.screen)
            if block and (not blocks or blocks[-1] != block):
                blocks.append(block)
            return any(len(found) == 4 for found in blocks)

        terminal.wait_until(seen, "a whole live block")
        self.assertEqual(terminal.finish(), 0, "\n".join(terminal.screen.rows))
        self.assert_clean_end(terminal)
        return terminal, output, next(block for block in blocks if len(block) == 4)

    def test_at_80_columns_a_step_is_one_row_and_the_block_has_all(self):
        terminal, output, block = self.run_at(80, "lora.r=4")
        self.assertRegex(block[0], r"^\[=*>? *\]  \d+ %  step \d+/400 .* left \d+ ")
        self.assertRegex(block[1], r"^loss \d+\.\d+ [\u2581-\u2588]+  lr \d\.\d+e[-+]\d+  [\d,]+ tok/s")
        self.assertRegex(block[2], r"^\[=*>? *\]  memory .* peak .* %  of 4\.00 GB$")
        self.assertRegex(block[3], r"^evaluation \d+\.\d+")
        steps = [row for row in terminal.screen.rows if STEP.match(row)]
        self.assertEqual([int(STEP.match(row)[1]) for row in steps], list(range(20, 401, 20)))
        for row in steps:
            self.assertRegex(row, r"loss \d+\.\d{4}")
            if not re.search(r"left \d+ \w+ \d+ \w+ and \d+ evaluations", row):  # on a slow machine that takes the room
                self.assertRegex(row, r" tok/s")
            following = terminal.screen.rows[terminal.screen.rows.index(row) + 1]
            self.assertRegex(following, r"^(\d\d:\d\d:\d\d |$)", "a step is one row")
        self.assert_words_are_whole(terminal, output)
        log = (output / "log.txt").read_text(encoding="utf-8")
        self.assertRegex(log, r"LoRA weights are updating; the \d+ frozen tensors did not change")
        self.assertRegex(log, r"memory: peak of tensors in the first step .* planned for a step of the longest samples")
        self.assertNotRegex(log, r"0 of \d+ blocks")

    def test_at_40_columns_nothing_is_split(self):
        terminal, output, block = self.run_at(40)
        self.assertRegex(block[0], r"^\d+ %  step \d+/400  (epoch [\d.]+  )?left \d+ ")
        self.assertLess(max(map(len, block)), 40)
        self.assertEqual(len([row for row in terminal.screen.rows if STEP.match(row)]), 20)
        self.assert_words_are_whole(terminal, output)

    def test_a_new_width_is_used_at_once(self):
        terminal = self.terminal(self.command(self.scratch / "resized", "max_steps=1000000"), width=100)
        terminal.wait_until(lambda: len(self.block_of(terminal.screen)) == 4, "a block of 100 columns")
        terminal.resize(50, 24)
        terminal.wait_until(lambda: self.block_of(terminal.screen) and max(map(len, self.block_of(terminal.screen))) < 50,
                            "a block of 50 columns")
        terminal.resize(120, 24)
        terminal.wait_until(lambda: len(self.block_of(terminal.screen)) == 4
                            and "[" in self.block_of(terminal.screen)[0], "a block of 120 columns")
        # What was under way at the moment of a change may stay; nothing stays afterwards.
        before, seen = self.ways(terminal), set()

        def redrawn():
            seen.add(tuple(self.block_of(terminal.screen)))
            return len(seen) >= 6

        terminal.wait_until(redrawn, "more blocks")
        self.assertLessEqual(self.ways(terminal), before, "\n".join(terminal.screen.rows))

    def test_ctrl_c_leaves_a_clean_terminal_and_a_kill_leaves_a_row_for_the_prompt(self):
        output = self.scratch / "interrupted"
        terminal = self.terminal(self.command(output, "max_steps=1000000"))
        terminal.wait_until(lambda: len(self.block_of(terminal.screen)) == 4, "a live block")
        terminal.press(b"\x03")
        self.assertEqual(terminal.finish(), 75)
        self.assert_clean_end(terminal)
        self.assertTrue(any("Stopping after this step; Ctrl-C again quits now" in row for row in terminal.screen.rows))
        killed = self.terminal(self.command(self.scratch / "killed", "max_steps=1000000"))
        killed.wait_until(lambda: len(self.block_of(killed.screen)) == 4, "a live block")
        killed.process.send_signal(signal.SIGKILL)
        killed.finish()
        self.assertEqual((killed.screen.column, killed.screen.rows[killed.screen.row]), (0, ""))

    def test_without_utf8_there_is_only_ascii(self):
        terminal = self.terminal(self.command(self.scratch / "ascii", "max_steps=400"), environment={"LC_ALL": "C"})
        curve = re.compile(r"loss \d+\.\d+ [.:\-=+*#%]+  lr")
        terminal.wait_until(lambda: any(curve.search(row) for row in self.block_of(terminal.screen)), "a curve in ASCII")
        self.assertEqual(terminal.finish(), 0)
        terminal.raw.decode("ascii")

    def test_dumb_terminals_and_plain_get_lines_only(self):
        for name, environment, options in (("dumb", {"TERM": "dumb"}, ()), ("plain", {}, ("--plain",)),
                                           ("variable", {"TRAINER_PLAIN": "1"}, ())):
            with self.subTest(name):
                terminal = self.terminal(self.command(self.scratch / name, "max_steps=40", options=options),
                                         environment=environment, width=2000)
                self.assertEqual(terminal.finish(), 0, "\n".join(terminal.screen.rows))
                self.assertNotIn(b"\x1b", terminal.raw)
                self.assertEqual([row for row in terminal.screen.rows if row and not re.match(r"\d\d:\d\d:\d\d [IW] ", row)],
                                 [])

    def test_warnings_are_coloured_and_quiet_shows_them_alone(self):
        spoilt = (f"data.train={self.spoilt}", "data.bad_rows=skip", "max_steps=40")
        coloured = self.terminal(self.command(self.scratch / "coloured", *spoilt))
        self.assertEqual(coloured.finish(), 0)
        self.assertRegex(coloured.raw.decode(), r"\x1b\[33m\d\d:\d\d:\d\d W [^\x1b]*\x1b\[0m\r\n")
        grey = self.terminal(self.command(self.scratch / "grey", *spoilt), environment={"NO_COLOR": "1"})
        self.assertEqual(grey.finish(), 0)
        self.assertEqual(grey.screen.colours, [])
        self.assertTrue(any(re.match(r"\d\d:\d\d:\d\d W ", row) for row in grey.screen.rows))
        quiet = self.terminal(self.command(self.scratch / "quiet", *spoilt, options=("--quiet",)))
        self.assertEqual(quiet.finish(), 0)
        first = [row for row in quiet.screen.rows if re.match(r"\d\d:\d\d:\d\d ", row)]
        self.assertTrue(first and all(re.match(r"\d\d:\d\d:\d\d W ", row) for row in first), quiet.screen.rows)
        self.assertEqual(WAY.search("\n".join(quiet.screen.rows)), None)

    def test_a_pipe_gets_no_sequences_unless_colours_are_forced(self):
        for forced in ("", "1"):
            environment = dict(os.environ, OMP_NUM_THREADS="1", CLICOLOR_FORCE=forced)
            environment.pop("NO_COLOR", None)
            result = subprocess.run(self.command(self.scratch / f"pipe-{forced}", "max_steps=40"), cwd=ROOT, text=True,
                                    capture_output=True, timeout=240, env=environment, check=True)
            self.assertEqual("\x1b" in result.stderr, bool(forced))
            for command in re.findall(r"\x1b\[\d*([A-Za-z])", result.stderr):
                self.assertEqual(command, "m")


if __name__ == "__main__":
    unittest.main()
