"""What the documents tell people to type exists: the tutorial runs, every command is marked as one, and its options, keys,
presets and scripts are there. test_docs_commands.py runs the commands."""
import json
import os
import re
import shlex
import shutil
import subprocess
import unittest

from doc_commands import FENCE, NOT_RUN, PAGES, blocks, commands
from support import ROOT, TRAINER, EndToEnd, trainer

TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}"
            "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")


def programs():
    """(command, words after `trainer`) of every command of the program; synopses with … are none."""
    for command in commands():
        if re.match(r"(build/)?trainer\s", command.text) and "…" not in command.text:
            yield command, shlex.split(command.text)[1:]


class Page(EndToEnd):
    """Runs the commands of a page, with a tiny model of this name."""

    def run_page(self, page, name, *made):
        place = self.scratch / page
        model = place / name
        shutil.copytree(self.model, model)
        if self.family == "qwen2":
            (model / "chat_template.jinja").write_text(TEMPLATE)
        (place / "bin").mkdir()
        (place / "bin" / "trainer").symlink_to(TRAINER)
        script = "\n".join(body for name, _, kind, body in blocks() if name == f"docs/{page}.md" and kind == "sh")
        script = re.sub(r"^(llama-|ollama ).*\n", "", script, flags=re.M)
        environment = dict(os.environ, PATH=f"{place / 'bin'}:{os.environ['PATH']}", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="",
                           OMP_WAIT_POLICY="PASSIVE")
        result = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=place, env=environment, text=True,
                                capture_output=True, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr[-3000:])
        for name in made:
            self.assertTrue((place / name).exists(), name)


class Tutorial(Page):
    family = "qwen2"

    def test_it_runs_as_written(self):
        self.run_page("tutorial", "Qwen/Qwen2.5-0.5B-Instruct", "runs/shop/adapter_model.safetensors",
                      "shop-merged/model.safetensors", "shop.gguf", "shop-lora.gguf", "base.gguf", "Modelfile")

    def test_that_of_preferences_runs_as_written(self):
        self.run_page("tutorial-preferences", "Qwen/Qwen2.5-0.5B-Instruct", "runs/shop/adapter_model.safetensors",
                      "before.jsonl", "after.jsonl")


class TranslationTutorial(Page):
    family = "t5"

    def test_it_runs_as_written(self):
        self.run_page("tutorial-translation", "google/flan-t5-base", "runs/translate/model.safetensors", "answers.jsonl",
                      "beams.jsonl", "translate-fp32/model.safetensors")


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        schema = json.loads((ROOT / "configs" / "schema.json").read_text(encoding="utf-8"))
        cls.keys = set()
        cls.add_keys(schema, schema, "")
        cls.help = {}

    @classmethod
    def add_keys(cls, schema, node, prefix):
        for choice in node.get("anyOf", node.get("oneOf", [])):
            cls.add_keys(schema, choice, prefix)
        for name, child in node.get("properties", {}).items():
            cls.keys.add(prefix + name)
            cls.add_keys(schema, child, f"{prefix}{name}.")

    def help_of(self, command):
        if command not in self.help:
            result = trainer(*command, "--help")
            self.assertEqual(result.returncode, 0, f"{command}: {result.stderr}")
            self.help[command] = result.stdout
        return self.help[command]

    def test_commands_are_marked_as_such(self):
        begins = re.compile(r"(\$ |(build/)?trainer [a-z-]|scripts/|benchmarks/|pip |python3 )")
        for page, line, kind, body in blocks():
            if kind:
                continue
            with self.subTest(page=page, line=line):
                unmarked = [text for text in body.splitlines() if begins.match(text) and "…" not in text]
                self.assertEqual(unmarked, [], "mark the block with sh or console")

    def test_only_commands_that_are_there_are_left_out(self):
        for start in NOT_RUN:
            self.assertTrue(any(re.match(start, command.text.removeprefix("build/")) for command in commands()), start)

    def test_options_and_keys_exist(self):
        for command, words in programs():
            known = words[0] if words and re.fullmatch(r"[a-z][a-z-]*", words[0]) else None
            help_text = self.help_of((known,) if known else ("train",)) + self.help_of(())
            for word in words:
                with self.subTest(page=command.page, line=command.line, command=command.text):
                    if re.match(r"--?[a-z]", word):
                        option = word.split("=")[0]
                        self.assertRegex(help_text, rf"(^|[\s,]){re.escape(option)}\b")
                    elif match := re.match(r"([a-z_]+(?:\.[a-z_0-9]+)*)=", word):
                        self.assert_key(match[1])

    def test_commands_in_sentences_exist(self):
        for page in PAGES:
            sentences = FENCE.sub("", page.read_text(encoding="utf-8"))
            for name, rest in re.findall(r"`trainer\s([a-z][a-z-]*)(\s[^`]*)?`", sentences):
                with self.subTest(page=page.name, command=name + rest):
                    help_text = self.help_of((name,)) + self.help_of(())
                    for option in re.findall(r"--[a-z0-9-]+", rest):
                        self.assertRegex(help_text, rf"(^|[\s,]){option}\b")

    def assert_key(self, key):
        by_end = [known for known in self.keys if known.endswith("." + key)]
        self.assertTrue(key in self.keys or len(by_end) == 1, f"'{key}' is no key of the configuration {by_end}")

    def test_scripts_and_their_options_exist(self):
        for command in commands():
            for part in command.text.split("&&"):
                match = re.search(r"(?:^|\s)((?:scripts|benchmarks)/\S+)(.*)", part)
                if not match:
                    continue
                script = ROOT / match[1]
                sources = [script, *script.parent.glob("*lib*/*.py"), *script.parent.glob("*_lib.py")]
                text = "".join(source.read_text(encoding="utf-8") for source in sources if source.is_file())
                for option in re.findall(r"\s(--[a-z-]+)", match[2]):
                    with self.subTest(page=command.page, line=command.line, script=match[1]):
                        self.assertIn(option, text)

    def test_presets_exist(self):
        for command, words in programs():
            for name in re.findall(r"configs/\w+\.yaml", " ".join(words)):
                self.assertTrue((ROOT / name).exists(), f"{command.page}:{command.line}: {name}")


if __name__ == "__main__":
    unittest.main()
