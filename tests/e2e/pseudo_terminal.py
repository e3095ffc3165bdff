"""A terminal for the program under test: a pty, and an emulator of what it shows. It knows the sequences that the program
may use, and fails at any other."""
import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

SEQUENCE = re.compile(r"\x1b\[(\d*)([A-Za-z])")


class Screen:
    """Rows of characters with a cursor; rows that scroll off are kept in `rows`, too. A row that is too long goes on in the
    next one. A terminal that becomes narrower keeps its rows as they are, as xterm does."""

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.rows, self.row, self.column = [""], 0, 0
        self.wrapped = set()  # rows that are the rest of the row above
        self.colours = []
        self.rest = ""

    def put(self, text):
        text, self.rest = self.rest + text, ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                match = SEQUENCE.match(text, at)
                if not match:
                    if len(text) - at < 8:
                        self.rest = text[at:]
                        return
                    raise AssertionError(f"unknown sequence: {text[at:at + 12]!r}")
                self.obey(match[2], int(match[1] or 0))
                at = match.end()
                continue
            self.letter(text[at])
            at += 1

    def obey(self, command, number):
        if command == "A":
            self.row = max(0, self.row - number, len(self.rows) - self.height)
        elif command == "J":
            assert number == 0, "clears more than what is below"
            del self.rows[self.row + 1:]
            self.rows[self.row] = self.rows[self.row][:self.column]
            self.wrapped = {row for row in self.wrapped if row <= self.row}
        elif command == "m":
            self.colours.append(number)
        else:
            raise AssertionError(f"unknown sequence: {number}{command}")

    def letter(self, letter):
        if letter == "\r":
            self.column = 0
        elif letter == "\n":
            self.next_row()
        elif letter == "\x07":
            pass
        else:
            if self.column >= self.width:
                self.next_row()
                self.column = 0
                self.wrapped.add(self.row)
            row = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = row[:self.column] + letter + row[self.column + 1:]
            self.column += 1

    def next_row(self):
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append("")

    def visible(self):
        return self.rows[-self.height:]


class PseudoTerminal:
    """Runs a command with stderr (and stdin and stdout) on a terminal."""

    def __init__(self, command, width=80, height=24, environment=(), cwd=None):
        self.master, slave = pty.openpty()
        self.screen = Screen(width, height)
        self.resize(width, height)
        self.raw = b""
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        variables = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE", TERM="xterm-256color", LC_ALL="C.UTF-8",
                         XTERM_VERSION="XTerm(379)")
        for name in ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TMUX", "TRAINER_PLAIN"):
            variables.pop(name, None)
        variables.update(environment)
        self.process = subprocess.Popen(list(map(str, command)), stdin=slave, stdout=slave, stderr=slave, env=variables,
                                        cwd=cwd, start_new_session=True, preexec_fn=self.take_terminal)
        os.close(slave)

    @staticmethod
    def take_terminal():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def resize(self, width, height):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen.width, self.screen.height = width, height

    def press(self, keys):
        os.write(self.master, keys)

    def read(self, seconds=0.2):
        """Takes in what comes; returns False at the end."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return True
        try:
            piece = os.read(self.master, 65536)
        except OSError:  # the other side is closed
            return False
        self.raw += piece
        self.screen.put(self.decoder.decode(piece))
        return bool(piece)

    def wait_until(self, is_so, what, seconds=120):
        """Reads until is_so() returns something true, and returns that."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = is_so()
            if found:
                return found
            if not self.read():
                break
        found = is_so()
        assert found, f"not seen: {what}\n" + "\n".join(self.screen.rows)
        return found

    def finish(self, seconds=240):
        """Reads to the end; returns the exit code."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.read():
            pass
        return self.process.wait(10)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
