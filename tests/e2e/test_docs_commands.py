"""Every command of README.md and docs/ runs, in a folder with small stand-ins for the models and data that it names."""
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
import unittest

from doc_commands import commands
from made_run import make_run
from support import ROOT, TRAINER, EndToEnd, read_rows, write_rows
from test_docs import TEMPLATE

# Training is cut short, and takes place on the CPU.
QUICK = f"""#!/bin/sh
case "$1" in
  --config|train|*=*) exec {TRAINER} "$@" max_steps=2 device=cpu ;;
  *) exec {TRAINER} "$@" ;;
esac
"""
# Stand-ins for other programs.
PROGRAMS = {"trainer": QUICK, "srun": '#!/bin/sh\nexec "$@"\n', "scontrol": "#!/bin/sh\n"}
CONFIG = """
model: {path: models/Qwen2.5-7B}
lora: {}
data: {kind: completion, train: train.jsonl, eval: heldout.jsonl, max_length: 64}
training: {batch_size: 4, effective_batch_size: 4}
evaluation: {generate: true, max_new_tokens: 8}
output_dir: runs/my
"""
BROKEN = """model:
  dtype: fp32
training:
  batch_size: 0
  per_device_train_batch_size: 4
  num_train_epochs: 1
optimizer:
  learning_rte: 1.0e-4
  warmup_steps: ten
"""
AXOLOTL = """
base_model: /models/Qwen2.5-7B
load_in_4bit: true
datasets:
  - {path: rows.jsonl, type: alpaca}
adapter: qlora
lora_r: 32
sequence_len: 512
micro_batch_size: 2
learning_rate: 2e-4
"""
ARGUMENTS = {"output_dir": "out", "per_device_train_batch_size": 2, "learning_rate": 1e-4, "num_train_epochs": 3.0}
# Commands that show an error.
ENDS_WITH = {"trainer --config broken.yaml model.path=/models/flan-t5-xl": 2}
HOOK = "https://discord.com/api/webhooks/…"


class Hook(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):  # noqa: N802: http.server's name
        self.server.messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()


class DocCommands(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.place = cls.scratch / "template"
        models = {"t5": ("flan-t5-xl", "my-t5", "tiny"), "qwen2": ("Qwen2.5-7B",), "qwen3": ("Qwen3-0.6B", "Qwen3-8B")}
        for family, names in models.items():
            for name in names:
                cls.family = family
                cls.make_model(cls.place / "models" / name)
        cls.family = "qwen2"
        cls.make_model(cls.place / "MODEL")
        (cls.place / "MODEL" / "chat_template.jinja").write_text(TEMPLATE)
        cls.make_files()
        cls.make_runs()

    @classmethod
    def make_files(cls):
        (cls.place / "bin").mkdir()
        (cls.place / "build").mkdir()
        for name, text in PROGRAMS.items():
            (cls.place / "bin" / name).write_text(text)
            (cls.place / "bin" / name).chmod(0o755)
        (cls.place / "build" / "trainer").symlink_to(cls.place / "bin" / "trainer")
        for folder in ("configs", "scripts"):
            (cls.place / folder).symlink_to(ROOT / folder)
        demo = cls.place / "runs" / "demo"
        shutil.copytree(cls.data, demo / "data")
        shutil.copytree(cls.place / "models" / "tiny", demo / "model")
        shutil.copytree(cls.place / "models" / "tiny", cls.place / "runs" / "dictionary" / "model")
        shutil.copytree(cls.data, cls.place / "entries")
        rows = read_rows(cls.data / "train.jsonl")
        for name in ("recipes", "parses", "samples", "train"):
            write_rows(cls.place / f"{name}.jsonl", rows[:64])
        write_rows(cls.place / "pairs.jsonl", [{"prompt": a["input"], "chosen": a["target"], "rejected": b["target"]}
                                               for a, b in zip(rows[:32], rows[32:64])])
        for name in ("reviews", "more"):
            write_rows(cls.place / f"{name}.jsonl", [{"text": row["input"], "label": ("bad", "good")[i % 2]} for i, row in enumerate(rows[:32])])
        for name in ("rows", "heldout"):
            write_rows(cls.place / f"{name}.jsonl", rows[:8])
        for name, text in (("my", CONFIG), ("broken", BROKEN), ("axolotl", AXOLOTL)):
            (cls.place / f"{name}.yaml").write_text(text)
        (cls.place / "training_args.json").write_text(json.dumps(ARGUMENTS))

    @classmethod
    def make_runs(cls):
        for name in ("OUT", "runs/a", "runs/b"):
            make_run(cls.place / name)
        result = cls.run_in(cls.place, "trainer --config my.yaml save.steps=1 output_dir=runs/mine")
        assert result.returncode == 0, result.stderr
        runs = cls.place / "runs"
        (runs / "mine" / "checkpoint-1").rename(runs / "mine" / "checkpoint-500")

    @staticmethod
    def run_in(place, text):
        environment = dict(os.environ, PATH=f"{place / 'bin'}:{os.environ['PATH']}", OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE",
                           CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", XDG_CACHE_HOME=str(place / "cache"), SLURM_JOB_ID="1")
        text = text.replace("/models/", f"{place}/models/")
        return subprocess.run(["bash", "-uo", "pipefail", "-c", text], cwd=place, env=environment, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=120)

    def test_every_command_runs(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
        server.messages = []
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        page = exports = None
        for command in commands():
            if command.why_not or command.page.startswith("docs/tutorial"):  # test_docs.py runs them
                continue
            if command.page != page:
                page, exports = command.page, ""
                place = self.scratch / page
                shutil.copytree(self.place, place, symlinks=True)
            if command.text.startswith("export "):
                exports += command.text.replace(HOOK, f"http://127.0.0.1:{server.server_port}/") + "\n"
                continue
            for made in re.findall(r"--out (\S+)", command.text):  # what it refuses to overwrite
                (place / made).unlink(missing_ok=True)
            with self.subTest(page=page, line=command.line, command=command.text):
                result = self.run_in(place, exports + command.text)
                self.assertEqual(result.returncode, ENDS_WITH.get(command.text, 0), f"{result.stdout}\n{result.stderr}"[-3000:])
            if command.text in ENDS_WITH:
                page_text = (ROOT / page).read_text(encoding="utf-8")
                for line in re.findall(r"^  broken\.yaml:.*$", page_text, re.M):
                    self.assertIn(line, result.stderr)
        self.assertIn("finished", [message.get("event") for message in server.messages])


if __name__ == "__main__":
    unittest.main()
