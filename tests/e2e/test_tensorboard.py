"""Event files for TensorBoard, read back by the package tensorboard: scalars, answers, configuration; resume, full disk."""
import json
import math
import os
import shutil
import subprocess
import time
import unittest

from support import EndToEnd, python_with, read_rows

PYTHON = python_with("tensorboard")
READ = """
import json, sys
from tensorboard.backend.event_processing import event_accumulator, event_file_loader
from tensorboard.plugins.hparams import plugin_data_pb2
import pathlib
folder = pathlib.Path(sys.argv[1])
events = event_accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
tags = events.Tags()
texts = {}
for tag in tags["tensors"]:
    if events.SummaryMetadata(tag).plugin_data.plugin_name == "text":
        texts[tag] = [[e.step, e.tensor_proto.string_val[0].decode()] for e in events.Tensors(tag)]
hparams = {}
for file in sorted(folder.iterdir()):
    for event in event_file_loader.LegacyEventFileLoader(str(file)).Load():
        for value in event.summary.value:
            if value.tag == "_hparams_/session_start_info":
                data = plugin_data_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content)
                for name, hparam in data.session_start_info.hparams.items():
                    hparams[name] = getattr(hparam, hparam.WhichOneof("kind"))
raw = [event.step for file in sorted(folder.iterdir()) for event in event_file_loader.LegacyEventFileLoader(str(file)).Load()
       if any(value.tag == "train/loss" for value in event.summary.value)]
print(json.dumps({"scalars": {tag: [[e.step, e.value, e.wall_time] for e in events.Scalars(tag)] for tag in tags["scalars"]},
                  "texts": texts, "hparams": hparams, "raw_steps": raw, "files": len(list(folder.iterdir()))}))
"""


def read_events(output):
    read = subprocess.run([PYTHON, "-c", READ, output / "tensorboard"], capture_output=True, text=True, timeout=300)
    assert read.returncode == 0, read.stderr
    return json.loads(read.stdout)


@unittest.skipUnless(PYTHON, "no Python with the package tensorboard: scripts/setup --parity")
class TensorBoard(EndToEnd):
    family = "t5"
    settings = ("lora.r=4", "batch_size=2", "data.max_target_length=96")

    def test_has_what_metrics_jsonl_has_and_the_answers(self):
        output = self.scratch / "output"
        before = time.time()
        self.assert_done(self.train("tiny_t5.yaml", output, *self.settings, "max_steps=6", f"data.eval={self.data / 'heldout.jsonl'}",
                                    "eval_strategy=steps", "eval_steps=3", "evaluation.generate=true", "evaluation.max_samples=4",
                                    "evaluation.max_new_tokens=8", "evaluation.show=2", "optimizer.learning_rate=2e-3"))
        events, rows = read_events(output), read_rows(output / "metrics.jsonl")
        for kind, group, prefix in (("train", "train", ""), ("eval", "eval", "eval_")):
            of_kind = [row for row in rows if row["kind"] == kind]
            self.assertGreater(len(of_kind), 1)
            for key in ("loss", "grad_norm", "learning_rate") if kind == "train" else ("loss", "rougeL", "exact_match"):
                found = events["scalars"][f"{group}/{key}"]
                self.assertEqual([step for step, _, _ in found], [row["step"] for row in of_kind])
                for (_, value, when), row in zip(found, of_kind):
                    self.assertTrue(math.isclose(value, row[prefix + key], rel_tol=1e-6, abs_tol=1e-30), (key, value, row))
                    self.assertTrue(before - 1 <= when <= time.time() + 1)
        for tag in ("speed/tokens_per_second", "memory/peak", "memory/allocated"):
            self.assertEqual(len(events["scalars"][tag]), 6)
        answers = read_rows(output / "predictions" / "step-6.jsonl")
        for number in (1, 2):
            self.assertEqual([step for step, _ in events["texts"][f"predictions/{number}"]], [3, 6])
            for words in (answers[number - 1]["input"], answers[number - 1]["target"], answers[number - 1]["prediction"]):
                self.assertIn(words, events["texts"][f"predictions/{number}"][1][1])
        self.assertIn("learning_rate: 0.002", events["texts"]["configuration"][0][1].replace("2.0e-03", "0.002"))
        self.assertAlmostEqual(events["hparams"]["optimizer.learning_rate"], 2e-3)
        self.assertEqual(events["hparams"]["training.max_steps"], 6)
        self.assertEqual(events["hparams"]["data.kind"], "seq2seq")
        self.assertNotIn("lora.lora_dropout", events["hparams"])

    def test_a_run_that_resumes_has_each_step_once(self):
        output = self.scratch / "resumed"
        arguments = (*self.settings, "max_steps=9", "save.strategy=steps", "save.steps=4", "save.async=false")
        self.addCleanup(os.environ.pop, "TRAINER_FILE_FAULT", None)
        for operation in range(100, 400, 15):  # until one is after the first checkpoint, and some steps later
            os.environ["TRAINER_FILE_FAULT"] = f"{operation}:crash"
            shutil.rmtree(output, ignore_errors=True)
            self.assertEqual(self.train("tiny_t5.yaml", output, *arguments).returncode, 86)
            steps = len([row for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"])
            if (output / "checkpoint-4").exists() and 6 <= steps < 9:
                break
        os.environ.pop("TRAINER_FILE_FAULT")
        self.assertGreaterEqual(read_events(output)["raw_steps"][-1], 6)
        self.assert_done(self.train("tiny_t5.yaml", output, *arguments))
        events = read_events(output)
        self.assertEqual(events["raw_steps"], list(range(1, 10)))  # also for programs that know no restarts
        self.assertEqual([step for step, _, _ in events["scalars"]["train/loss"]], list(range(1, 10)))
        self.assertEqual(events["files"], 2)

    def test_can_be_switched_off_and_goes_with_a_run_that_is_replaced(self):
        output = self.scratch / "off"
        self.assert_done(self.train("tiny_t5.yaml", output, *self.settings, "max_steps=2"))
        self.assertTrue((output / "tensorboard").is_dir())
        self.assert_done(self.train("tiny_t5.yaml", output, *self.settings, "max_steps=2", "observe.tensorboard=false",
                                    "observe.report_minutes=0", "overwrite_output_dir=true"))
        self.assertFalse((output / "tensorboard").exists())
        self.assertFalse((output / "report.html").exists())


if __name__ == "__main__":
    unittest.main()
