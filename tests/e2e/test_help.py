"""`trainer help`, completion in shells, and manual pages: all made from the commands and keys themselves."""
import os
import re
import shutil
import subprocess
import unittest

from pseudo_terminal import PseudoTerminal
from support import ROOT, TRAINER, EndToEnd, trainer


class Help(EndToEnd):
    def test_every_page_is_listed_and_shown(self):
        listed = trainer("help")
        self.assert_done(listed)
        for page in (ROOT / "docs").glob("*.md"):
            if page.stem == "README":  # the list of the others
                continue
            with self.subTest(page.stem):
                self.assertIn(page.stem, listed.stdout)
                shown = trainer("help", page.stem)
                self.assert_done(shown)
                self.assertIn(page.read_text().splitlines()[0], shown.stdout)
                self.assertNotIn("](", shown.stdout.replace("`", ""))

    def without_code(self, text):
        return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)

    def test_tables_are_columns(self):
        for page in (ROOT / "docs").glob("*.md"):
            if page.stem == "README":
                continue
            source, shown = page.read_text(), trainer("help", page.stem).stdout
            with self.subTest(page.stem):
                self.assertEqual([line for line in self.without_code(shown).splitlines() if line.startswith("|")], [])
                for first in re.findall(r"^\| ([^|[]+) \|.*\n(?!\| ---)", self.without_code(source), re.M):
                    for word in first.split():
                        self.assertTrue(word in shown or word == "---", word)

    def test_the_columns_of_a_table_begin_below_each_other(self):
        lines = trainer("help", "errors").stdout.splitlines()
        head = next(number for number, line in enumerate(lines) if re.match("Code +Meaning", line))
        self.assertRegex(lines[head + 1], "^-+  -+  -+$")
        place, retry = lines[head].index("Meaning"), lines[head].index("Retry")
        table = lines[head:lines.index("", head)]
        self.assertGreater(len(table), 20)
        for line in table:
            self.assertLessEqual(len(line), 100)
            self.assertEqual(line[place - 2:place].strip() + line[retry - 2:retry].strip(), "", line)

    def test_a_table_too_wide_for_the_terminal_is_a_list(self):
        terminal = PseudoTerminal([TRAINER, "help", "config"], width=60, height=200)
        self.assertEqual(terminal.finish(), 0)
        rows = terminal.screen.rows
        name = rows.index("`gpu.wait_for_gpu`")
        self.assertEqual(rows[name + 1:name + 3], ["    Type: true or false", "    Default: `false`"])
        self.assertTrue(rows[name + 3].startswith("    Meaning: Wait until"))
        self.assertTrue(rows[name + 4].startswith("    "))

    def test_an_exit_code_has_a_page(self):
        for code, word in ((2, "configuration"), (5, "memory"), (75, "SIGTERM")):
            result = trainer("help", f"exit-{code}")
            self.assert_done(result)
            self.assertIn(f"Exit code {code}: ", result.stdout)
            self.assertIn(word, result.stdout)

    def test_an_error_names_its_code_and_the_code_has_a_page(self):
        nowhere = self.scratch / "nowhere"
        (self.scratch / "config.json").write_text("{}")
        (self.scratch / "broken.yaml").write_text("training: [\n")
        for code, arguments in {
            "command-line": ["trian"],
            "config-file": ["--config", self.scratch / "broken.yaml"],
            "config-key": ["config", "batch_sise=4"],
            "config-value": ["config", "batch_size=many"],
            "config-conflict": ["config", "effective_batch_size=8", "gradient_accumulation_steps=2"],
            "model-files": [f"data.train={self.data / 'train.jsonl'}", f"model.path={nowhere}"],
            "data-file": [f"model.path={self.scratch}", f"data.train={nowhere}"],
            "files": ["export", nowhere, self.scratch / "out"],
        }.items():
            with self.subTest(code):
                result = trainer(*arguments)
                self.assertIn(f"Error {code}: `trainer help {code}` says more", result.stderr)
                page = trainer("help", code)
                self.assert_done(page)
                self.assertTrue(page.stdout.startswith(f"# Error {code}\n"), page.stdout)
                self.assertIn("**What to do.**", page.stdout)
                self.assertNotIn("\n## ", page.stdout)
                self.assertNotIn("](", page.stdout)

    def test_a_command_without_a_page_shows_its_options(self):
        self.assertIn("--num-beams", trainer("help", "chat").stdout)

    def test_an_unknown_topic_names_the_nearest(self):
        self.assert_refused(trainer("help", "memroy"), 2, "memory")
        self.assert_refused(trainer("help", "exit-99"), 2, "exit-99")

    def test_manual_pages_are_written_for_all_commands(self):
        folder = self.scratch / "man"
        self.assert_done(trainer("help", "--man", folder))
        self.assertIn("--temperature", (folder / "trainer-chat.1").read_text().replace("\\-", "-"))
        self.assertIn("import", (folder / "trainer.1").read_text())
        if shutil.which("groff") is None:
            self.skipTest("no groff to check them with")
        for page in folder.iterdir():
            with self.subTest(page.name):
                checked = subprocess.run(["groff", "-man", "-Tutf8", "-ww", page], capture_output=True, text=True, check=True)
                self.assertEqual(checked.stderr, "")


class Completion(EndToEnd):
    def complete(self, line):
        result = trainer("complete", line)
        self.assert_done(result)
        return result.stdout.split()

    def test_commands_and_options(self):
        self.assertEqual(self.complete("trainer ge"), ["generate"])
        self.assertEqual(self.complete("trainer generate --num-b"), ["--num-beams"])
        self.assertIn("chat", self.complete("trainer "))
        self.assertNotIn("complete", self.complete("trainer compl"))

    def test_values_of_options(self):
        self.assertEqual(self.complete("trainer generate m --dtype "), ["auto", "bf16", "fp32"])
        self.assertEqual(self.complete("trainer completion z"), ["zsh"])
        self.assertEqual(self.complete("trainer help disk"), ["disk-full"])

    def test_keys_and_their_values(self):
        self.assertEqual(self.complete("trainer train training.batch_s"), ["training.batch_size="])
        self.assertEqual(self.complete("trainer --config x.yaml learning_r"), ["learning_rate="])
        self.assertEqual(self.complete("trainer plan optimizer.name="),
                         ["optimizer.name=adafactor", "optimizer.name=adamw", "optimizer.name=adamw_8bit"])
        self.assertEqual(self.complete("trainer plan tf32="), ["tf32=false", "tf32=true"])
        self.assertIn("training.", self.complete("trainer plan "))

    def test_presets(self):
        self.assertIn("flan_t5_xl.yaml", self.complete("trainer --config flan"))
        self.assertIn("configs/flan_t5_xl.yaml", self.complete("trainer plan -c configs/flan"))

    def in_shell(self, *command):
        path = f"{TRAINER.parent}:{os.environ['PATH']}"
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=dict(os.environ, PATH=path), timeout=60)

    def test_bash(self):
        script = ("source <(trainer completion bash); COMP_LINE='{0}'; COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=(trainer); "
                  "_trainer 2>/dev/null; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        for line, words in (("trainer ge", ["generate"]), ("trainer plan optimizer.name=ada", ["adafactor", "adamw", "adamw_8bit"]),
                            ("trainer plan training.batch_s", ["training.batch_size="])):
            with self.subTest(line):
                result = self.in_shell("bash", "--norc", "-c", script.format(line))
                self.assertEqual(result.stdout.split(), words, result.stderr)

    def test_fish(self):
        if shutil.which("fish") is None:
            self.skipTest("no fish")
        result = self.in_shell("fish", "--no-config", "-c", "trainer completion fish | source; complete -C 'trainer generate --num-b'")
        self.assertIn("--num-beams", result.stdout.split(), result.stderr)

    def test_zsh(self):
        if shutil.which("zsh") is None:
            self.skipTest("no zsh")
        script = ("autoload -U compinit; compinit -D -u; source <(trainer completion zsh); compadd() { print -l -- \"$@\" }; "
                  "words=(trainer gene); CURRENT=2; _trainer")
        result = self.in_shell("zsh", "-f", "-c", script)
        self.assertIn("generate", result.stdout.split(), result.stderr)

    def test_another_shell_is_refused(self):
        self.assert_refused(trainer("completion", "tcsh"), 2, "bash")


if __name__ == "__main__":
    unittest.main()
