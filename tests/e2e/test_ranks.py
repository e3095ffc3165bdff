"""Several ranks train as one would, end together, and leave checkpoints that any number of them can resume from."""
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import time
import unittest

from disturbed import differences, last_checkpoint
from in_ranks import InRanks, free_port
from support import ROOT, EndToEnd, read_rows, tensors_of, trainer

STEPS = 12
COMMON = (f"max_steps={STEPS}", "save.strategy=steps", "save.steps=3", "training.eval_strategy=steps", "training.eval_steps=6",
          "device=cpu", "training.num_threads=1", "logging_steps=1", "training.dropout=0.1", "lr_scheduler_type=constant", "parallel.timeout=60")
NUMBERS = {"F32": "f", "BF16": "H"}


def values(path):
    """The numbers of a safetensors file, one list for each tensor."""
    return {name: struct.unpack(f"<{len(content) // struct.calcsize(NUMBERS[kind])}{NUMBERS[kind]}", content)
            for name, (kind, _, content) in tensors_of(path).items()}


def distance(one, other):
    """The relative 2-norm of the difference of two files."""
    one, other = values(one), values(other)
    assert one.keys() == other.keys()
    squares = sum((a - b) ** 2 for name in one for a, b in zip(one[name], other[name]))
    return (squares / sum(a * a for name in one for a in one[name])) ** 0.5


class Ranks(EndToEnd):
    family = "t5"

    def arguments(self, output, *overrides):
        return ["--config", ROOT / "configs/tiny_t5.yaml", f"model.path={self.model}", f"data.train={self.data / 'train.jsonl'}",
                f"data.eval={self.data / 'heldout.jsonl'}", *COMMON, f"output_dir={output}", *overrides]

    def run_ranks(self, count, name, *overrides, codes=None, keep=False, **how):
        output = self.scratch / name
        if not keep:
            shutil.rmtree(output, ignore_errors=True)
        found, texts = InRanks(count, *self.arguments(output, *overrides), **how).wait()
        self.assertEqual(found, codes or [0] * count, "\n".join(texts))
        self.texts = texts
        return output

    def run_one(self, name, *overrides, keep=False):
        output = self.scratch / name
        if not keep:
            shutil.rmtree(output, ignore_errors=True)
        self.assert_done(trainer(*self.arguments(output, *overrides)))
        return output

    def rows(self, output, kind):
        return [row for row in read_rows(output / "metrics.jsonl") if row["kind"] == kind]

    def assert_near(self, one, other, key, kind="train", tolerance=1e-6):
        for a, b in zip(self.rows(one, kind), self.rows(other, kind), strict=True):
            self.assertLessEqual(abs(a[key] - b[key]), tolerance * abs(a[key]), (a, b))

    def result(self, output):
        return next(output / name for name in ("model.safetensors", "adapter_model.safetensors") if (output / name).exists())


class SameAsOne(Ranks):
    GENERATE = ("evaluation.generate=true", "evaluation.max_new_tokens=8", "evaluation.max_samples=10")

    def assert_same_as_one(self, count, *overrides):
        one = self.run_one("one", *overrides, *self.GENERATE)
        many = self.run_ranks(count, "many", *overrides, *self.GENERATE)
        self.assert_near(one, many, "loss")
        self.assert_near(one, many, "eval_loss", "eval")
        self.assertLessEqual(distance(self.result(one), self.result(many)), 1e-6)
        predicted = [(output / "predictions" / f"step-{STEPS}.jsonl").read_text() for output in (one, many)]
        self.assertEqual(predicted[0], predicted[1])
        for key in ("samples_seen", "tokens", "supervised_tokens"):
            self.assertEqual([row[key] for row in self.rows(one, "train")], [row[key] for row in self.rows(many, "train")])
        for row in self.rows(many, "train"):
            self.assertGreater(row["bytes_exchanged"], 0)
        for row in self.rows(one, "train"):
            self.assertTrue({"bytes_exchanged", "memory_peak_rank"}.isdisjoint(row), row)
        # One form of checkpoint, with nothing in it that tells how many wrote it.
        layouts = [{name: (kind, shape) for name, (kind, shape, _) in
                    tensors_of(last_checkpoint(output) / "optimizer.safetensors").items()} for output in (one, many)]
        self.assertEqual(layouts[0], layouts[1])
        self.assertEqual(*[sorted(path.name for path in last_checkpoint(output).iterdir()) for output in (one, many)])
        return one, many

    def test_two_ranks_train_a_t5_in_full(self):
        one, many = self.assert_same_as_one(2)
        self.assertLessEqual(distance(*[last_checkpoint(o) / "optimizer.safetensors" for o in (one, many)]), 1e-4)

    def test_three_ranks_with_an_uneven_end_of_the_epoch(self):
        # 400 samples in steps of 60: the seventh of each epoch has 40; of 397 it has 37.
        self.assert_same_as_one(3, "effective_batch_size=60", "parallel.shard=none")

    def test_lora(self):
        self.assert_same_as_one(2, "lora.r=4", "lora.target_modules=[q, v]", "lora.lora_dropout=0.1", "gradient_checkpointing=true")

    def test_divided_weights_of_full_fine_tuning(self):
        self.assert_same_as_one(3, "parallel.shard=all", "effective_batch_size=60", "batch_size=4")

    def test_divided_weights_below_an_adapter(self):
        one, many = self.assert_same_as_one(2, "parallel.shard=all", "lora.r=4", "lora.target_modules=[q, v]", "lora.lora_dropout=0.1")
        whole = self.run_ranks(2, "whole", "parallel.shard=optimizer", "lora.r=4", "lora.target_modules=[q, v]", "lora.lora_dropout=0.1", *self.GENERATE)
        self.assertEqual([row["loss"] for row in self.rows(whole, "train")], [row["loss"] for row in self.rows(many, "train")])

    def test_the_best_of_divided_weights(self):
        best = ("training.load_best_model_at_end=true", "save.strategy=steps", "optimizer.learning_rate=0.5")
        one = self.run_one("one", *best)
        many = self.run_ranks(2, "many", "parallel.shard=all", *best)
        steps = [json.loads((output / "trainer_state.json").read_text())["best_global_step"] for output in (one, many)]
        self.assertEqual(*steps)
        kept = values(many / f"checkpoint-{steps[1]}" / "model.safetensors")
        self.assertEqual(values(self.result(many)), kept, "the result is the best checkpoint")

    def test_the_same_number_gives_the_same_bits(self):
        outputs = [self.run_ranks(2, name, "model.dtype=bf16") for name in ("first", "second")]
        self.assertEqual(differences(*outputs), [])

    def test_memory_is_that_of_the_rank_that_needs_most(self):
        # The longest sample is rank 0's; rank 1 has the two others, in one micro-batch.
        data = self.scratch / "three.jsonl"
        data.write_text("".join(json.dumps({"input": "word " * count, "target": "x"}) + "\n" for count in (100, 90, 89)))
        output = self.run_ranks(2, "three", f"data.train={data}", "effective_batch_size=3", "batch_size=2", "max_steps=2",
                                "data.max_source_length=1000", "memory.rehearse=false", "lora.r=4", "lora.target_modules=[q, v]")
        self.assertEqual([row["memory_peak_rank"] for row in self.rows(output, "train")], [1, 1])
        (memory,) = self.rows(output, "memory")
        self.assertEqual(memory["rank"], 1)
        self.assertEqual(memory["peak"], self.rows(output, "train")[0]["memory_peak"])
        self.assertIn("of rank 1", self.texts[0])

    def test_only_rank_0_speaks(self):
        self.run_ranks(2, "spoken")
        self.assertIn("step", self.texts[0])
        self.assertEqual(self.texts[1], "")


class DividedDecoder(Ranks):
    family = "qwen2"

    def arguments(self, output, *overrides):
        common = [setting for setting in COMMON if not setting.startswith("training.dropout")]
        return ["--config", ROOT / "configs/tiny_qwen.yaml", f"model.path={self.model}", f"data.train={self.data / 'train.jsonl'}",
                f"data.eval={self.data / 'heldout.jsonl'}", *common, f"output_dir={output}", *overrides]

    def test_nf4_below_an_adapter(self):
        """Packed rows, evaluated with answers; the scales of another rank's weights come with them."""
        settings = ("model.quantize=nf4", "data.packing=true", *SameAsOne.GENERATE)
        one = self.run_one("one", *settings)
        many = self.run_ranks(2, "many", "parallel.shard=all", *settings)
        self.assert_near(one, many, "loss")
        self.assert_near(one, many, "eval_loss", "eval")
        self.assertLessEqual(distance(self.result(one), self.result(many)), 1e-6)
        predicted = [(output / "predictions" / f"step-{STEPS}.jsonl").read_text() for output in (one, many)]
        self.assertEqual(predicted[0], predicted[1])

    def test_a_rank_alone_has_all(self):
        self.run_one("alone", "parallel.shard=all")


class Resume(Ranks):
    def test_with_another_number_and_another_division(self):
        whole = self.run_one("whole")
        changing = self.run_ranks(2, "changing", "max_steps=3")
        self.run_one("changing", "max_steps=6", keep=True)
        self.run_ranks(3, "changing", "max_steps=9", "parallel.shard=none", keep=True)
        self.run_ranks(3, "changing", "max_steps=11", "parallel.shard=all", keep=True)
        self.run_ranks(2, "changing", "parallel.shard=optimizer", keep=True)
        self.assertLessEqual(distance(self.result(whole), self.result(changing)), 1e-6)

    def test_with_the_same_number_bit_for_bit(self):
        for shard in ("optimizer", "all"):
            settings = ("model.dtype=bf16", f"parallel.shard={shard}")
            undisturbed = self.run_ranks(2, "undisturbed", *settings)
            stopped = self.run_ranks(2, "stopped", *settings, "max_steps=6")
            self.run_ranks(2, "stopped", *settings, keep=True)
            self.assertEqual(self.result(undisturbed).read_bytes(), self.result(stopped).read_bytes(), shard)

    def disturbed(self, name, act, codes, *overrides):
        """A run of two ranks to which `act` happens after its first checkpoint."""
        output = self.scratch / name
        run = InRanks(2, *self.arguments(output, "max_steps=2000", "save.steps=5", *overrides))
        until = time.monotonic() + 100
        while not list(output.glob("checkpoint-*5")) and time.monotonic() < until and run.processes[0].poll() is None:
            time.sleep(0.05)
        act(run.processes)
        found, self.texts = run.wait()
        self.assertEqual(found, codes, "\n".join(self.texts))
        return output

    def test_a_signal_to_any_rank_saves_and_stops_all(self):
        for rank in (0, 1):
            output = self.disturbed(f"signal-{rank}", lambda processes, r=rank: processes[r].terminate(), [75, 75])
            self.assertIn("SIGTERM", self.texts[0])
            self.assertIn("To go on: ", self.texts[0])
            step = json.loads((last_checkpoint(output) / "trainer_position.json").read_text())["step"]
            self.run_ranks(2, output.name, f"max_steps={step + 2}", keep=True)
            self.assertIn(f"resumes after step {step}", self.texts[0])

    def test_a_rank_that_is_killed_ends_the_others(self):
        output = self.disturbed("killed", lambda processes: processes[1].kill(), [8, -9])
        self.assertIn("another rank has ended", self.texts[0])
        self.assertIn("checkpoint-", self.texts[0])
        self.run_ranks(3, output.name, "max_steps=40", "save.steps=20", keep=True)

    def test_a_rank_that_is_killed_while_others_need_its_weights(self):
        self.disturbed("killed-divided", lambda processes: processes[1].kill(), [8, -9], "parallel.shard=all")
        self.assertIn("another rank has ended", self.texts[0])
        self.assertIn("checkpoint-", self.texts[0])

    def test_rank_0_that_is_killed_ends_the_others(self):
        self.disturbed("killed-0", lambda processes: processes[0].kill(), [-9, 8])
        self.assertIn("rank 1: ", self.texts[1])

    def test_a_rank_that_hangs_is_lost_after_the_timeout(self):
        def stop(processes):
            processes[1].send_signal(signal.SIGSTOP)
            processes[0].wait(60)
            processes[1].kill()
        for shard in ("optimizer", "all"):
            self.disturbed(f"hangs-{shard}", stop, [8, -9], "parallel.timeout=3", f"parallel.shard={shard}")
            self.assertIn("does not answer", self.texts[0])

    def test_a_rank_that_stands_still_while_data_is_read_is_lost_after_the_timeout(self):
        """Nobody knows how long reading takes. Rank 0 does it first, and it also holds what the ranks tell each other."""
        rows, output = self.scratch / "long.jsonl", self.scratch / "still"
        rows.write_text((self.data / "train.jsonl").read_text() * 20)
        run = InRanks(2, *self.arguments(output, f"data.train={rows}", f"data.cache={output}-cache", "parallel.timeout=2"))
        self.assertTrue(any("weights:" in line for line in run.processes[0].stderr))
        run.processes[0].send_signal(signal.SIGSTOP)
        run.processes[1].wait(100)
        run.processes[0].kill()
        codes, texts = run.wait()
        self.assertEqual(codes, [-9, 8], texts)
        self.assertIn("rank 1: another rank does not answer", texts[1])
        self.assertFalse((output / "metrics.jsonl").exists(), "no step was made")

    def test_a_rank_that_hangs_while_it_loads_is_lost_after_the_timeout(self):
        """Its process runs and gives signs of life, but one thread waits for ever: for a file that is on no disk any more."""
        source, library = self.scratch / "hang.c", self.scratch / "hang.so"
        source.write_text("#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <fcntl.h>\n#include <stdarg.h>\n#include <string.h>\n#include <unistd.h>\n"
                          "int open(const char *path, int flags, ...) {\n"
                          "  va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more);\n"
                          "  size_t size = strlen(path);\n"
                          "  while (size > 18 && strcmp(path + size - 18, \"/model.safetensors\") == 0) pause();\n"
                          "  return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, \"open\"))(path, flags, mode);\n}\n"
                          "int open64(const char *path, int flags, ...) {\n"
                          "  va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more);\n"
                          "  return open(path, flags, mode);\n}\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        for hanging in (1, 0):
            output = self.scratch / f"hangs-loading-{hanging}"
            run = InRanks(2, *self.arguments(output, "parallel.timeout=3"), environment={hanging: {"LD_PRELOAD": str(library)}})
            run.processes[1 - hanging].wait(100)
            run.processes[hanging].kill()
            codes, texts = run.wait()
            self.assertEqual(codes[1 - hanging], 8, texts)
            self.assertIn(f"rank {hanging} hangs while it loads: for 3 s (parallel.timeout) it has neither computed nor read", texts[1 - hanging])
            self.assertFalse((output / "metrics.jsonl").exists(), "no step was made")

    def test_a_full_disk_of_one_rank_costs_a_checkpoint_only(self):
        output = self.run_ranks(2, "full", environment={1: {"TRAINER_FILE_FAULT": "1:ENOSPC"}})
        self.assertIn("checkpoint-3 is not saved: rank 1: ", self.texts[0])
        self.assertEqual([row["path"][-1] for row in self.rows(output, "save_failed")], ["3"])
        self.assertTrue((output / "checkpoint-6").exists())


class Refused(Ranks):
    def assert_one_error(self, code, *words, count=2):
        for word in words:
            self.assertIn(word, self.texts[0])
        for text in self.texts[1:]:
            self.assertEqual(text, "")

    def test_different_settings(self):
        self.run_ranks(2, "different", codes=[2, 2], of_rank={1: ["seed=7"]})
        self.assert_one_error(2, "rank 1 was started differently", "seed: 7")

    def test_divided_weights_that_are_offloaded(self):
        self.run_ranks(2, "both", "parallel.shard=all", "memory.offload=[weights]", codes=[2, 2])
        self.assertIn("parallel.shard: all does not go with memory.offload: weights", self.texts[0])

    def test_bad_data(self):
        bad = self.scratch / "bad.jsonl"
        bad.write_text('{"input": "a", "target": "b"}\n{"input": \n')
        self.run_ranks(2, "bad", f"data.train={bad}", codes=[3, 3])
        self.assert_one_error(3, "bad.jsonl:2")

    def test_no_memory(self):
        for limit, shard in (("3MB", "auto"), ("3MB", "all"), ("2MB", "all")):
            self.run_ranks(2, "small", f"memory.limit={limit}", f"parallel.shard={shard}", "effective_batch_size=4", codes=[5, 5])
            self.assertIn("out of memory", self.texts[0])
            told = sum("What helps" in text or "would fit" in text for text in self.texts)
            # With divided weights both may run out while they are laid out, before the first step; each says so.
            self.assertLessEqual(told, 1 if shard == "auto" else 2)

    def test_a_rank_that_does_not_come(self):
        self.run_ranks(2, "missing", "parallel.timeout=2", codes=[8], start=1)
        self.assertIn("rank 1 of 2 did not start within 2 s", self.texts[0])

    def test_an_output_directory_in_use(self):
        self.run_ranks(2, "used", "max_steps=1")
        self.run_ranks(2, "used", "resume=never", codes=[4, 4], keep=True)
        self.assert_one_error(4, "holds another run's results")

    def test_an_output_directory_that_is_not_shared(self):
        # Each rank has a folder of its own behind the same name.
        here = self.scratch / "here"
        here.mkdir()
        name = self.scratch / "shared"
        command = f"mkdir -p {name} {here}/$RANK && mount --bind {here}/$RANK {name} && exec \"$0\" \"$@\""
        if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
            self.skipTest("nothing can be mounted here")
        found, texts = InRanks(2, *self.arguments(f"{name}/out"), before=("unshare", "-m", "bash", "-c", command)).wait()
        self.assertEqual(found, [4, 4], "\n".join(texts))
        self.assertIn("one folder that all machines see", texts[0])

    def test_replayed_cuts(self):
        output = self.run_one("replayed", "max_steps=1")
        self.run_ranks(2, "replay", f"training.replay_cuts={output / 'metrics.jsonl'}", codes=[2, 2])
        self.assertIn("training.replay_cuts", self.texts[0])


if __name__ == "__main__":
    unittest.main()
