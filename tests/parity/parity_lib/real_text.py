"""Real text from Debian's packages: verses of the King James Bible, and German words with their translations."""

import random
import re
import runpy
import subprocess
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
DICTIONARY = "/usr/share/dictd/freedict-deu-eng.dict.dz"
MISSING = "the long runs train on real text: apt-get install bible-kjv dict-freedict-deu-eng"


class TextMissing(Exception):
    pass


def verses():
    """Every verse without its number."""
    try:
        done = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise TextMissing(MISSING) from error
    return [re.sub(r"^\S+ ", "", line).strip() for line in done.stdout.splitlines() if " " in line]


def halves(verse):
    """A verse as prompt and completion, split after the word in its middle."""
    words = verse.split()
    middle = (len(words) + 1) // 2
    return {"input": " ".join(words[:middle]), "target": " ".join(words[middle:])}


def bible_rows(count, seed, longest=40):
    """Halves of verses of 4 to `longest` words."""
    usable = [verse for verse in verses() if 4 <= len(verse.split()) <= longest]
    return [halves(verse) for verse in random.Random(seed).sample(usable, count)]


def dictionary_rows(count, seed):
    """German and English words, as scripts/make/dictionary_data pairs them."""
    if not Path(DICTIONARY).is_file():
        raise TextMissing(MISSING)
    pairs = runpy.run_path(str(SCRIPTS / "make" / "dictionary_data"))["pairs"](DICTIONARY)
    return [{"input": german, "target": english} for german, english in random.Random(seed).sample(pairs, count)]
