"""scripts/demo --chat, with a tiny model: from a hub on this machine where there is no network, and from a directory."""
import os
import re
import subprocess
import unittest

from support import ROOT, TRAINER, EndToEnd


class Chat(EndToEnd):
    def demo(self, *arguments):
        """A copy of what the demo needs, so that its files lie in the scratch folder."""
        home = self.scratch / f"tree-{len(list(self.scratch.glob('tree-*')))}"
        home.mkdir()
        for name, place in (("configs", ROOT / "configs"), ("tests", ROOT / "tests"), ("build", TRAINER.parent)):
            (home / name).symlink_to(place)
        (home / "scripts").mkdir()  # it works in the folder above its own, so it is a copy
        for entry in (ROOT / "scripts").iterdir():
            if entry.name in ("demo", "lib.sh"):
                (home / "scripts" / entry.name).write_bytes(entry.read_bytes())
                (home / "scripts" / entry.name).chmod(0o755)
            else:
                (home / "scripts" / entry.name).symlink_to(entry)
        environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(self.scratch / "hub"), "COLUMNS": "100",
                       "OMP_NUM_THREADS": "1"}
        done = subprocess.run(["scripts/demo", "--chat", "--no-build", *map(str, arguments)], cwd=home, text=True, capture_output=True,
                              timeout=500, env=environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return home, done.stdout

    def test_without_a_network_a_tiny_model_learns_the_facts(self):
        home, said = self.demo()
        self.assertIn("a tiny model with random weights", said)
        before, after = map(int, re.search(r"know the fact: (\d+) of 8 before, (\d+) of 8 after", said).groups())
        self.assertEqual(before, 0)
        self.assertGreaterEqual(after, 6)
        self.assertRegex(said, r"BEFORE +AFTER\n\n> Tell me who founded the Larkfield museum.\n.* {2}The Larkfield Clock Museum was founded")
        self.assertIn("build/trainer chat runs/chat/output", said)
        self.assertFalse((self.scratch / "hub").exists(), "the stand-in is no download of yours")
        self.assertTrue((home / "runs" / "chat" / "output" / "model.safetensors").is_file())

    def test_a_directory_is_taken_as_it_is(self):
        model = self.scratch / "own"
        subprocess.run([ROOT / "scripts" / "make" / "tiny_model", "--family", "llama", "--text", self.data / "text.txt", "--out", model],
                       check=True, capture_output=True)
        home, said = self.demo("--model", model, "max_steps=2")
        self.assertIn(f"model.path={model} max_steps=2", said)
        self.assertTrue((home / "runs" / "chat" / "output" / "adapter_model.safetensors").is_file())


class Words(unittest.TestCase):
    def test_the_first_lines_say_how_long_and_how_much(self):
        said = subprocess.run([ROOT / "scripts" / "demo", "--help"], text=True, capture_output=True, check=True).stdout
        self.assertRegex(said, r"\d+ to \d+ minutes and a download of 1\.2 GB")
        self.assertRegex(said, r"SmolLM2-135M-Instruct \(270 MB\)")

    def test_wrong_words_are_named(self):
        for arguments, word in ((["--chats"], "unknown option '--chats'"), (["chat"], "unexpected argument 'chat'"), (["--model"], "--model needs")):
            done = subprocess.run([ROOT / "scripts" / "demo", *arguments], text=True, capture_output=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
