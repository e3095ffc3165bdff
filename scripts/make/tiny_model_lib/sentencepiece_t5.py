"""A T5 tokenizer: spiece.model, trained by spm_train (Debian's package sentencepiece), and its companion files."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

EXTRA_IDS = 100


def train(text_file, vocab_size, directory):
    """Writes spiece.model and the tokenizer's configuration; returns the number of ids, extra ones included."""
    if not shutil.which("spm_train"):
        sys.exit("spm_train is missing: apt-get install sentencepiece (scripts/setup does)")
    with tempfile.TemporaryDirectory() as scratch:
        # pad 0, </s> 1, <unk> 2 and no <s>, as in T5's own file. All characters are covered, including { and }, which
        # T5's own file lacks.
        trained = subprocess.run(
            ["spm_train", f"--input={text_file}", f"--model_prefix={scratch}/spiece", f"--vocab_size={vocab_size}",
             "--model_type=unigram", "--character_coverage=1.0", "--pad_id=0", "--eos_id=1", "--unk_id=2",
             "--bos_id=-1", "--hard_vocab_limit=false", "--num_threads=1", "--minloglevel=2", "--input_sentence_size=100000",
             "--shuffle_input_sentence=false", "--max_sentence_length=16384"],
            check=False)
        if trained.returncode:
            sys.exit(f"spm_train could not learn {vocab_size} pieces from {text_file}; see its message above")
        vocabulary = pathlib.Path(scratch, "spiece.vocab").read_text(encoding="utf-8")
        shutil.copyfile(f"{scratch}/spiece.model", directory / "spiece.model")
    write_configuration(directory)
    return len(re.findall("\n", vocabulary)) + EXTRA_IDS


def write_configuration(directory):
    extra = [f"<extra_id_{i}>" for i in range(EXTRA_IDS)]
    special = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "additional_special_tokens": extra}
    settings = dict(special, extra_ids=EXTRA_IDS, model_max_length=512, tokenizer_class="T5Tokenizer")
    for name, content in (("special_tokens_map.json", special), ("tokenizer_config.json", settings)):
        (directory / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
