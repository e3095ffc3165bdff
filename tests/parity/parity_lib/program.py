"""The built program, driven as a user drives it."""

import json
import subprocess


class ProgramError(Exception):
    pass


class Program:
    def __init__(self, path):
        self.path = path

    def run(self, *arguments):
        """Returns its standard output. If it fails, raises ProgramError with the last lines of its output."""
        done = subprocess.run([self.path, *map(str, arguments)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = "\n    ".join(done.stderr.strip().splitlines()[-8:])
            raise ProgramError(f"{' '.join(map(str, arguments))}: exit code {done.returncode}\n    {last}")
        return done.stdout

    def train(self, config, config_file, *options):
        """Trains with `config` (nested dictionaries) and command line options. Returns the rows of metrics.jsonl."""
        config_file.write_text(json.dumps(config, indent=1))  # JSON is valid YAML
        self.run("train", "--config", config_file, *options)
        metrics = config_file.parent / config["output_dir"] / "metrics.jsonl"
        return [json.loads(line) for line in metrics.read_text().splitlines()]

    def rows(self, *arguments):
        return [json.loads(line) for line in self.run(*arguments).split("\n") if line]

    def tokenize(self, model, texts, scratch):
        write_rows(scratch, [{"text": text} for text in texts])
        return [row["ids"] for row in self.rows("tokenize", "--model", model, "--input", scratch)]

    def offsets(self, model, texts, scratch):
        write_rows(scratch, [{"text": text} for text in texts])
        return [row["offsets"] for row in self.rows("tokenize", "--model", model, "--input", scratch, "--offsets")]

    def decode(self, model, ids, scratch):
        write_rows(scratch, [{"ids": row} for row in ids])
        options = ["--decode", "--skip-special-tokens"]
        return [row["text"] for row in self.rows("tokenize", "--model", model, "--input", scratch, *options)]

    def generate(self, model, prompts, max_new_tokens, scratch):
        write_rows(scratch, [{"input": prompt} for prompt in prompts])
        options = ["--max-new-tokens", max_new_tokens, "--dtype", "fp32", "--device", "cpu", "--batch-size", 3]
        rows = self.rows("generate", "--model", model, "--input", scratch, *options)
        return [row["prediction"] for row in rows]


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
