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

    def test_the_code_of_a_signal_has_a_page_however_it_is_asked_for(self):
        for words in (["exit-137"], ["exit", "code", "137"], ["exit", "status", "139"], ["exit", "134"]):
            with self.subTest(words):
                answer = trainer("help", *words)
                self.assert_done(answer)
                self.assertIn("killed by signal code - 128", " ".join(answer.stdout.split()))
        self.assertIn("Exit code 139: ", trainer("explain", "139").stdout)
        self.assertNotIn("128", trainer("help", "exit", "code", "5").stdout.split("See also")[0])
        self.assert_refused(trainer("help", "exit-256"), 2, "exit-256")

    def test_a_letter_beyond_ascii_is_a_letter(self):
        self.assert_refused(trainer("help", "ünï"), 2, "ünï")

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
            "files": ["status", nowhere],
        }.items():
            with self.subTest(code):
                result = trainer(*arguments)
                self.assertIn(f"Help: trainer help {code}\n", result.stderr)
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

    # The word, and what must be among the first lines of the answer; what other three answers are named.
    QUESTIONS = {
        "checkpoint": "heckpoint", "tokenizer": "tokenizer", "hyperparameters learning": "learning rate", "nan": "NaN", "inf": "NaN", "oom": "out of memory", "out of memory": "out of memory", "resume": "resume",
        "lora.r": "lora.r", "lora": "LoRA", "rank": "rank", "which rank": "rank", "vram": "memory|needs|GPU", "ollama": "GGUF|Ollama",
        "gpu": "# GPUs", "stop": "stop a run", "docker": "Docker", "ssh": "SSH", "windows": "Windows", "mac": "Mac", "wsl": "Windows",
        "container": "Docker", "tmux": "SSH", "loss": "loss", "slow": "slow", "wandb": "Weights & Biases|wandb", "chat template": "template",
        "epochs": "epochs", "epoch": "epoch", "learning rate": "learning rate", "lr": "learning rate", "batch size": "batch",
        "notebook": "notebook", "python": "Python", "benchmark": "[Bb]enchmark", "lm-eval": "lm-eval|[Bb]enchmark",
        "7b": "7B", "qlora": "QLoRA|4 bits", "multi gpu": "GPUs", "ddp": "GPUs", "fsdp": "GPUs|shard", "deepspeed": "GPUs|shard",
        "gguf": "GGUF", "vllm": "Export", "merge": "merge", "cpu": "CPU", "seed": "seed", "dropout": "dropout",
        "early stopping": "early_stopping|evaluations", "tensorboard": "TensorBoard", "mlflow": "MLflow", "csv": "CSV|Sources",
        "parquet": "Parquet", "flash attention": "attention", "gradient checkpointing": "gradient_checkpointing|recompute",
        "gradient accumulation": "gradient_accumulation|effective", "fp16": "fp16|bf16", "bf16": "bf16", "overfitting": "evaluation",
        "ctrl-c": "SIGINT|[Ss]ignals", "cancel": "[Ss]ignals", "abort": "[Ss]ignals", "slurm": "Slurm", "dpo": "[Pp]referenc", "install": "Install", "temperature": "temperature|tokens are chosen",
        "packing": "[Pp]acking", "truncation": "trunca|Lengths", "scheduler": "schedule", "per_device_train_batch_size": "training.batch_size",
        "huggingface": "Hugging Face|hub", "download": "[Dd]ownload", "save": "save|checkpoint", "reproducible": "same bits|repeat",
    }

    def test_a_word_is_answered_and_three_others_are_named(self):
        for word, expected in self.QUESTIONS.items():
            with self.subTest(word):
                answer = trainer("help", *word.split())
                self.assert_done(answer)
                self.assertRegex("\n".join(answer.stdout.splitlines()[:4]), expected)
                others = answer.stdout.split("\nSee also:\n")[1].splitlines()
                self.assertEqual(len(others), 3)
                for other in others:
                    command = re.split("  +", other.strip())[0]
                    self.assert_done(trainer(*command.split()[1:]))

    def test_an_answer_is_a_part_of_a_page(self):
        answer = trainer("help", "memory#a-limit")
        self.assert_done(answer)
        self.assertTrue(answer.stdout.startswith("## A limit\n"), answer.stdout)
        self.assertNotIn("\n## ", answer.stdout)

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


class Explain(EndToEnd):
    def explain(self, *arguments):
        result = trainer("explain", *arguments)
        self.assert_done(result)
        return re.sub(r"\s+", " ", result.stdout)

    def test_every_key_section_and_code(self):
        for name in trainer("complete", "trainer explain ").stdout.split():
            with self.subTest(name):
                self.assert_done(trainer("explain", name))

    def test_a_key(self):
        said = self.explain("learning_rate")
        for words in ("optimizer.learning_rate ", "Peak learning rate", "a number, at least 0", "1.0e-04 for T5", "0.001 with optimizer.name: adafactor", "2.0e-04 with lora",
                      "No effect with optimizer.relative_step: true.", "lr, peak_lr (Hugging Face)", "below `optimizer:`"):
            self.assertIn(words, said)
        self.assertIn("(samples)", self.explain("training.batch_size"))
        self.assertIn("training.batch_size", self.explain("per_device_train_batch_size"))
        self.assertIn("model.dtype", self.explain("fp16"))

    def test_where_a_key_is_set(self):
        path = self.scratch / "my.yaml"
        path.write_text("save:\n  strategy: epoch\nevaluation:\n  num_beams: 4\n")
        self.assertIn(f"Here: epoch, set by {path}:2:13.", self.explain("save.strategy", "--config", path))
        self.assertIn("Here: 3, set by override 'save.total_limit=3'.", self.explain("total_limit", "-c", path, "save.total_limit=3"))
        self.assertIn("which nothing sets", self.explain("seed", "--config", path))
        self.assertIn("has no effect without evaluation.generate: true", self.explain("num_beams", "--config", path))

    def test_codes(self):
        for name in ("5", "exit-5"):
            self.assertIn("Exit code 5: Out of memory", self.explain(name))
        self.assertIn("# Error nan-steps", self.explain("nan-steps"))

    def test_an_unknown_name(self):
        self.assert_refused(trainer("explain", "batch_sise"), 2, "did you mean batch_size?")
        self.assert_refused(trainer("explain"), 2, "NAME")


class Completion(EndToEnd):
    def complete(self, line):
        result = trainer("complete", line)
        self.assert_done(result)
        return result.stdout.split()

    def test_commands_and_options(self):
        self.assertEqual(self.complete("trainer ge"), ["generate"])
        self.assertEqual(self.complete("trainer generate --num-b"), ["--num-beam-groups", "--num-beams"])
        self.assertIn("chat", self.complete("trainer "))
        self.assertNotIn("complete", self.complete("trainer compl"))

    def test_values_of_options(self):
        self.assertEqual(self.complete("trainer generate m --dtype "), ["auto", "bf16", "fp32"])
        self.assertEqual(self.complete("trainer completion z"), ["zsh"])
        self.assertEqual(self.complete("trainer help disk"), ["disk-full"])
        self.assertIn("exit-75", self.complete("trainer help exit-"))

    def test_keys_and_their_values(self):
        self.assertEqual(self.complete("trainer train training.batch_s"), ["training.batch_size="])
        self.assertEqual(self.complete("trainer --config x.yaml learning_r"), ["learning_rate="])
        self.assertEqual(self.complete("trainer plan optimizer.name="),
                         ["optimizer.name=adafactor", "optimizer.name=adamw", "optimizer.name=adamw_8bit"])
        self.assertEqual(self.complete("trainer plan tf32="), ["tf32=false", "tf32=true"])
        self.assertIn("training.", self.complete("trainer plan "))
        self.assertEqual(self.complete("trainer plan device="), ["device=auto", "device=cpu", "device=cuda"])
        self.assertEqual(self.complete("trainer device=c"), ["device=cpu", "device=cuda"])
        self.assertEqual(self.complete("trainer plan lora.target_modules="), ["lora.target_modules=all-linear"])
        self.assertIn("memory.gradient_checkpointing=auto", self.complete("trainer plan memory.gradient_checkpointing="))
        self.assertIn("training.metric_for_best_model=rougeL", self.complete("trainer plan training.metric_for_best_model="))
        self.assertEqual(self.complete("trainer plan save.steps="), ["save.steps=500"])

    def test_names_to_explain(self):
        self.assertIn("lora.r", self.complete("trainer explain lora."))
        self.assertEqual(self.complete("trainer explain learning_"), ["learning_rate"])
        self.assertIn("exit-75", self.complete("trainer explain exit-"))
        self.assertEqual(self.complete("trainer explain lora.r optimizer.name=adamw_"), ["optimizer.name=adamw_8bit"])

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
