"""What the documents tell people to type: the tutorial runs, and every other command has options and keys that exist."""
import json
import os
import pathlib
import re
import shlex
import subprocess
import unittest

from support import ROOT, TRAINER, EndToEnd, trainer

TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}"
            "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def commands():
    """(page, words) of every command line of `trainer` in a block of a page; synopses with [ or … are not commands."""
    for page in PAGES:
        for _, block in FENCE.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                line = re.sub(r"\s#.*", "", line.strip().removeprefix("$ "))
                if re.match(r"(build/)?trainer\s", line) and not re.search(r"[\[…]\S*key|…|\.\.\.", line):
                    yield page.name, shlex.split(line)[1:]


class Tutorial(EndToEnd):
    family = "qwen2"

    def test_it_runs_as_written(self):
        place = self.scratch / "tutorial"
        model = place / "Qwen" / "Qwen2.5-0.5B-Instruct"
        model.parent.mkdir(parents=True)
        self.model.rename(model)
        (model / "chat_template.jinja").write_text(TEMPLATE)
        (place / "bin").mkdir()
        (place / "bin" / "trainer").symlink_to(TRAINER)
        page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
        script = "\n".join(block for kind, block in FENCE.findall(page) if kind == "sh")
        environment = dict(os.environ, PATH=f"{place / 'bin'}:{os.environ['PATH']}", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="",
                           OMP_WAIT_POLICY="PASSIVE")
        result = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=place, env=environment, text=True,
                                capture_output=True, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr[-3000:])
        for name in ("runs/shop/adapter_model.safetensors", "shop-merged/model.safetensors", "shop.gguf", "shop-lora.gguf",
                     "base.gguf", "Modelfile"):
            self.assertTrue((place / name).exists(), name)


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

    def test_the_documents_have_commands(self):
        self.assertGreater(len(list(commands())), 60)

    def test_options_and_keys_exist(self):
        for page, words in commands():
            known = words[0] if words and re.fullmatch(r"[a-z][a-z-]*", words[0]) else None
            help_text = self.help_of((known,) if known else ("train",)) + self.help_of(())
            for word in words:
                with self.subTest(page=page, command=" ".join(words)):
                    if re.match(r"--?[a-z]", word):
                        option = word.split("=")[0]
                        self.assertRegex(help_text, rf"(^|[\s,]){re.escape(option)}\b")
                    elif match := re.match(r"([a-z_]+(?:\.[a-z_0-9]+)*)=", word):
                        self.assert_key(match[1])

    def assert_key(self, key):
        by_end = [known for known in self.keys if known.endswith("." + key)]
        self.assertTrue(key in self.keys or len(by_end) == 1, f"'{key}' is no key of the configuration {by_end}")

    def test_presets_exist(self):
        for page, words in commands():
            for name in re.findall(r"configs/\w+\.yaml", " ".join(words)):
                self.assertTrue((ROOT / name).exists(), f"{page}: {name}")


if __name__ == "__main__":
    unittest.main()
