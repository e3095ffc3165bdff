"""`trainer chat`: a conversation in a pipe and on a terminal, with editing, commands and Ctrl-C."""
import csv
import json
import os
import pty
import select
import signal
import subprocess
import time
import unittest

from support import TRAINER, EndToEnd, trainer

TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# What surrounds a line that is read: pasted text is marked meanwhile.
PROMPT, LINE_IS_READ = b"\x1b[?2004h> ", b"\x1b[?2004l"
UP, LEFT, HOME, CTRL_C, CTRL_D, CTRL_K, CTRL_W = b"\x1b[A", b"\x1b[D", b"\x1b[H", b"\x03", b"\x04", b"\x0b", b"\x17"


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, *arguments):
        self.ours, theirs = pty.openpty()
        command = [TRAINER, *map(str, arguments)]
        self.program = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                                        preexec_fn=lambda: os.close(os.open(os.ttyname(theirs), os.O_RDWR)),
                                        env=dict(os.environ, TERM="xterm", OMP_NUM_THREADS="1"))
        os.close(theirs)
        self.shown = b""

    def type(self, keys):
        os.write(self.ours, keys)

    def wait_for(self, words, seconds=60):
        """Returns what was shown up to these words, and forgets it."""
        end = time.monotonic() + seconds
        while words not in self.shown:
            ready, _, _ = select.select([self.ours], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"{words!r} was not shown, only {self.shown[-2000:]!r}")
            try:
                self.shown += os.read(self.ours, 65536)
            except OSError:  # the other end is closed
                raise AssertionError(f"{words!r} was not shown before the end, only {self.shown[-2000:]!r}") from None
        at = self.shown.index(words) + len(words)
        before, self.shown = self.shown[:at], self.shown[at:]
        return before

    def close(self):
        code = self.program.wait(timeout=60)
        os.close(self.ours)
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.program.poll() is None:
            self.program.kill()
            self.program.wait()


class Chat(EndToEnd):
    family = "qwen2"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.model / "chat_template.jinja").write_text(TEMPLATE)

    def chat(self, text, *arguments):
        return trainer("chat", self.model, "--device", "cpu", "--dtype", "fp32", "--max-new-tokens", 8, *arguments, text=text)

    def answer_to(self, *messages):
        row = json.dumps({"messages": [{"role": role, "content": content} for role, content in messages]}) + "\n"
        result = trainer("generate", self.model, "--device", "cpu", "--dtype", "fp32", "--max-new-tokens", 8, "--input-file", "-",
                         text=row)
        self.assert_done(result)
        return json.loads(result.stdout)["prediction"]

    def test_conversations_in_a_table_are_answered_as_in_lines(self):
        messages = [{"role": "user", "content": "Fry onions."}]
        table = self.scratch / "chats.csv"
        with table.open("w", newline="") as file:
            csv.writer(file).writerows([["messages"], [json.dumps(messages)]])
        result = trainer("generate", self.model, "--device", "cpu", "--dtype", "fp32", "--max-new-tokens", 8, "--input-file", table)
        self.assert_done(result)
        self.assertEqual(json.loads(result.stdout)["prediction"], self.answer_to(("user", "Fry onions.")))

    def on_terminal(self, *arguments):
        return Terminal("chat", self.model, "--device", "cpu", "--dtype", "fp32", *arguments)

    def test_a_pipe_is_answered_line_by_line(self):
        result = self.chat("Fry onions.\n\nAgain.\n/exit\nMore.\n")
        self.assert_done(result)
        first = self.answer_to(("user", "Fry onions."))
        second = self.answer_to(("user", "Fry onions."), ("assistant", first), ("user", "Again."))
        self.assertEqual(result.stdout, f"{first}\n{second}\n")

    def test_commands_change_the_conversation(self):
        result = self.chat("/system Be brief.\nFry onions.\n/clear\nBake.\n/system\n/clear\nBake.\n")
        self.assert_done(result)
        system = ("system", "Be brief.")
        expected = [self.answer_to(system, ("user", "Fry onions.")), self.answer_to(system, ("user", "Bake.")),
                    self.answer_to(("user", "Bake."))]
        self.assertEqual(result.stdout, "".join(answer + "\n" for answer in expected))
        self.assertEqual(self.chat("Bake.\n", "--system", "Be brief.").stdout, expected[1] + "\n")

    def test_help_lists_the_commands(self):
        for word in ("/clear", "/system", "/temperature", "//", "/exit"):
            self.assertIn(word, self.chat("/help\n").stdout)

    def test_settings_of_answers_are_commands(self):
        greedy, hot = self.chat("Fry onions.\n").stdout, self.chat("Fry onions.\n", "--temperature", "20").stdout
        self.assertNotEqual(hot, greedy)
        self.assertEqual(self.chat("/temperature 20\nFry onions.\n").stdout, hot)
        self.assertEqual(self.chat("Fry onions.\n/temperature 0\n", "--temperature", "20").stdout, hot)
        self.assertEqual(self.chat("/temperature 0\nFry onions.\n", "--temperature", "20").stdout, greedy)
        short = self.chat("/max_new_tokens 1\nFry onions.\n").stdout.rstrip("\n")
        self.assertTrue(greedy.startswith(short) and len(short) + 1 < len(greedy), (short, greedy))
        refused = self.chat("/temperature high\nFry onions.\n")
        self.assertEqual(refused.stdout, greedy)
        self.assertIn("/temperature: give a number", refused.stderr)

    def test_an_unknown_command_is_named_and_two_slashes_say_one(self):
        result = self.chat("/temprature 1\nFry onions.\n")
        self.assertEqual(result.stdout, self.chat("Fry onions.\n").stdout)
        self.assertIn("There is no command /temprature", result.stderr)
        self.assertEqual(self.chat("//temprature 1\n").stdout, self.answer_to(("user", "/temprature 1")) + "\n")

    def test_a_path_is_a_message(self):
        self.assertEqual(self.chat("/usr/bin\n").stdout, self.answer_to(("user", "/usr/bin")) + "\n")

    def test_a_line_is_edited_on_a_terminal(self):
        with self.on_terminal("--max-new-tokens", "2") as terminal:
            terminal.wait_for(PROMPT)
            terminal.type(b"/hexx" + LEFT + LEFT + CTRL_K + b"lp nothing" + CTRL_W + b"\x7f\r")
            terminal.wait_for(b"/clear")
            terminal.wait_for(PROMPT)
            terminal.type(UP + HOME + "ü".encode() + b"\x7f" + b"\r")  # /help once more
            terminal.wait_for(b"/clear")
            terminal.wait_for(PROMPT)
            terminal.type(b"/nothing\r")
            terminal.wait_for(b"There is no command /nothing")
            terminal.wait_for(PROMPT)
            terminal.type(CTRL_D)
            self.assertEqual(terminal.close(), 0)

    def test_ctrl_c_twice_at_the_prompt_ends(self):
        with self.on_terminal() as terminal:
            terminal.wait_for(PROMPT)
            terminal.type(b"typed in vain" + CTRL_C)
            terminal.wait_for(PROMPT)
            terminal.type(CTRL_C)
            terminal.wait_for(b"Ctrl-C again")
            terminal.wait_for(PROMPT)
            terminal.type(CTRL_C)
            self.assertEqual(terminal.close(), 0)

    def test_ctrl_c_ends_an_answer_and_not_the_conversation(self):
        with self.on_terminal("--min-new-tokens", "100000", "--max-new-tokens", "100000") as terminal:
            terminal.wait_for(PROMPT)
            terminal.type(b"Fry onions.\r")
            terminal.wait_for(LINE_IS_READ)
            while not terminal.shown:  # of the answer
                terminal.shown += os.read(terminal.ours, 4096)
            os.kill(terminal.program.pid, signal.SIGINT)
            terminal.wait_for(PROMPT)
            terminal.type(b"/help\r")
            terminal.wait_for(b"/clear")
            terminal.wait_for(PROMPT)
            terminal.type(b"/exit\r")
            self.assertEqual(terminal.close(), 0)

    def test_the_terminal_is_as_before_however_it_ends(self):
        import termios
        for end in (lambda t: t.type(CTRL_D), lambda t: t.program.terminate()):
            with self.on_terminal() as terminal:
                before = termios.tcgetattr(terminal.ours)[3]
                terminal.wait_for(PROMPT)
                end(terminal)
                terminal.program.wait(timeout=60)
                self.assertEqual(termios.tcgetattr(terminal.ours)[3], before)
                terminal.close()

    def test_a_model_is_required(self):
        self.assert_refused(trainer("chat"), 2, "MODEL")


if __name__ == "__main__":
    unittest.main()
