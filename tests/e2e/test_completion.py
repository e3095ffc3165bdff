"""Tab in bash, zsh and fish, on a pseudo-terminal, with the scripts that `trainer completion` prints."""
import os
import pty
import re
import select
import shutil
import signal
import tempfile
import time
import unittest

from support import ROOT, TRAINER

SHELLS = {"bash": (["bash", "--norc", "--noprofile", "-i"], "source <(trainer completion bash)"),
          "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -D -u; source <(trainer completion zsh)"),
          "fish": (["fish", "--no-config", "-i"], "trainer completion fish | source")}
# What is typed, and the command line that it becomes.
TYPED = {"trainer gene\tm": "trainer generate m",
         "trainer plan training.batch_s\t4 optimizer.name=adaf\tx": "trainer plan training.batch_size=4 optimizer.name=adafactor x",
         "trainer plan tf32=t\tx": "trainer plan tf32=true x",
         "trainer plan memory.grad\tauto": "trainer plan memory.gradient_checkpointing=auto",
         "trainer --config flan_t5_xl_l\tx": "trainer --config flan_t5_xl_lora_16gb.yaml x",
         "trainer explain lora.lora_a\tx": "trainer explain lora.lora_alpha x",
         "trainer generate READ\tx": "trainer generate README.md x"}


class Shell:
    def __init__(self, command, home):
        self.said = b""
        environment = dict(os.environ, PATH=f"{TRAINER.parent}:{os.environ['PATH']}", TERM="dumb", HOME=home, EDITOR="emacs")
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.chdir(ROOT)
            os.execvpe(command[0], command, environment)

    def type(self, text):
        os.write(self.terminal, text.encode())

    def line_after(self, words):
        """Waits for a line of output that begins with these words, and returns the rest of it."""
        end, pattern = time.monotonic() + 60, re.compile(rb"(?:^|[\r\n])" + re.escape(words.encode()) + rb"([^\r\n]*)[\r\n]")
        while not (found := pattern.search(self.said)):
            if time.monotonic() > end:
                raise AssertionError(f"no line {words!r} in {self.said!r}")
            if select.select([self.terminal], [], [], 1)[0]:
                self.said += os.read(self.terminal, 65536)
        self.said = self.said[found.end():]
        return found[1].decode()

    def close(self):
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.terminal)


class Tab(unittest.TestCase):
    def press_tab_in(self, name):
        if shutil.which(name) is None:
            self.skipTest(f"no {name}")
        command, start = SHELLS[name]
        home = tempfile.mkdtemp(prefix="trainer-shell-")
        self.addCleanup(shutil.rmtree, home, ignore_errors=True)
        shell = Shell(command, home)
        self.addCleanup(shell.close)
        shell.type(f"{start}; echo re''ady\n")
        shell.line_after("ready")
        for number, (typed, line) in enumerate(TYPED.items()):
            with self.subTest(typed):
                # Ctrl-A: what stands there is shown instead of run.
                shell.type(f"{typed}\x01echo line {number}: \n")
                self.assertEqual(shell.line_after(f"line {number}: "), line)

    def test_bash(self):
        self.press_tab_in("bash")

    def test_zsh(self):
        self.press_tab_in("zsh")

    def test_fish(self):
        self.press_tab_in("fish")


if __name__ == "__main__":
    unittest.main()
