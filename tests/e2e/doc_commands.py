"""The commands that the documents tell people to type: lines of blocks marked `sh`, lines behind `$` in blocks marked
`console`, and whole blocks marked `bash`."""
import dataclasses
import re

from support import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "benchmarks" / "NOTES.md",
         ROOT / "tests" / "gpu_check" / "README.md"]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.M | re.S)

# Commands that no test can run, by their beginning, and why.
NOT_RUN = {
    r"scripts/(demo|test|setup|build|package)\b": "installs or builds: network, root and minutes; .ci/run does both",
    r"pip |python3 -m venv|env/bin/": "installs from the network; scripts/check/package does it",
    r"tar |TORCH_DIR=\S+ trainer-0|python3 trainer-0": "needs a package; scripts/check/package and tests/gpu_check/gpu_check have tests",
    r"cmake ": "test_install.py does it",
    r"(\.venv/bin/python )?benchmarks/|\.venv/bin/python -m pip": "measures for minutes; needs Transformers",
    r"tests/parity/": "needs Transformers; .ci/run runs it",
    r"scripts/(kill_anywhere|limits_anywhere)": "minutes; test_limits.py and .ci/run have a short form",
    r"scripts/sync_metrics": "needs wandb or mlflow; test_sync_metrics.py has stand-ins",
    r"scripts/make/dictionary_data": "needs a Debian package",
    r"tensorboard ": "a server that does not end",
    r"trainer ui": "the same; test_ui.py does it",
    r"llama-|ollama ": "needs llama.cpp or Ollama",
    r"lm_eval ": "needs lm-eval, and data from the network",
    r"trainer --gpus": "needs GPUs",
    r"torchrun |srun --nodes": "needs torchrun, or Slurm and two machines; test_ranks_run.py has stand-ins",
    r"trainer init$": "asks on a terminal; test_init.py does it",
    r"trainer model\.path=runs/real/": "needs what benchmarks/ make",
}


@dataclasses.dataclass
class Command:
    page: str
    line: int
    text: str  # one line, or a script

    @property
    def why_not(self):
        """Why it is not run, or None."""
        text = self.text.removeprefix("build/")
        return next((reason for start, reason in NOT_RUN.items() if re.match(start, text)), None)


def blocks():
    """(path of the page, number of the first line, kind, text without indentation) of every block of the documents."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            indent, kind, body = match.groups()
            yield page.relative_to(ROOT).as_posix(), text.count("\n", 0, match.start()) + 2, kind, re.sub(f"^{indent}", "", body, flags=re.M)


def logical_lines(body):
    """(offset, line) with continued lines joined."""
    begin, parts = 0, []
    for offset, line in enumerate(body.splitlines()):
        begin = begin if parts else offset
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            yield begin, " ".join(part.strip() for part in parts)
            parts = []


def commands():
    for page, first, kind, body in blocks():
        if kind == "bash":
            yield Command(page, first, body)
        elif kind in ("sh", "console") and "<<" not in body:
            for offset, line in logical_lines(body):
                if kind == "console" and not line.startswith("$ "):
                    continue
                line = re.sub(r"\s+#.*", "", line.removeprefix("$ "))
                if line:
                    yield Command(page, first + offset, line)
