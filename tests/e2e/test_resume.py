"""A stopped run resumes with the same command and ends like one that was never stopped."""
import json
import os
import shutil
import unittest

from disturbed import Disturbance, comparable_rows, differences, last_checkpoint
from support import ROOT, EndToEnd, read_rows, tensors_of, trainer

STEPS = 12
COMMON = (f"max_steps={STEPS}", "save.strategy=steps", "save.steps=3", "training.eval_strategy=steps",
          "training.eval_steps=6", "device=cpu", "training.num_threads=1", "optimizer.warmup_steps=2", "logging_steps=4")


class Resume(EndToEnd):
    family = "t5"

    def arguments(self, *overrides, preset="tiny_t5.yaml", model=None):
        off = {"save.strategy=no": "save.steps=", "training.eval_strategy=no": "training.eval_steps="}
        unused = tuple(steps for strategy, steps in off.items() if strategy in overrides)
        common = [setting for setting in COMMON if not setting.startswith(unused)]
        return ["--config", ROOT / "configs" / preset, f"model.path={model or self.model}",
                f"data.train={self.data / 'train.jsonl'}", f"data.eval={self.data / 'heldout.jsonl'}", *common, *overrides]

    def start(self, output, *overrides, fault=None):
        if fault:
            os.environ["TRAINER_FILE_FAULT"] = fault
        try:
            return trainer(*self.arguments(*overrides), f"output_dir={output}")
        finally:
            os.environ.pop("TRAINER_FILE_FAULT", None)

    def stopped(self, name, *overrides, steps=7):
        """A run that stopped after `steps` steps, because it was first asked for no more, and then for STEPS."""
        output = self.scratch / name
        shutil.rmtree(output, ignore_errors=True)
        self.assert_done(self.start(output, *overrides, f"max_steps={steps}"))
        return output

    def complete(self, *overrides):
        """The output of an undisturbed run, made only once for the same arguments."""
        made = self.__class__.__dict__.get("made") or {}
        self.__class__.made = made
        if overrides not in made:
            output = self.scratch / f"complete-{len(made)}"
            self.assert_done(self.start(output, *overrides))
            made[overrides] = output
        return made[overrides]

    def assert_same(self, expected, found):
        self.assertEqual(differences(expected, found), [])


class KilledAnywhere(Resume):
    """A short version of scripts/kill_anywhere."""

    def assert_survives(self, kills, *overrides, **where):
        expected, found = (Disturbance(self.arguments(*overrides, **where), self.scratch / name, seed=len(overrides))
                           for name in ("expected", "found"))
        seconds = expected.undisturbed()
        found.run(kills, longest=seconds, operations=200)
        self.assertEqual(differences(expected.output, found.output), [], "\n".join(found.log))

    def test_t5_with_lora(self):
        self.assert_survives(3, "lora.r=4", "training.dropout=0.1", "lora.lora_dropout=0.1")

    def test_t5_bf16_with_the_best_model(self):
        self.assert_survives(3, "model.dtype=bf16", "load_best_model_at_end=true", "save.total_limit=1")

    def test_decoder_in_full_with_master_weights(self):
        self.assert_survives(2, "lora=null", "model.dtype=bf16", "optimizer.master_weights=true", "save.async=false",
                             preset="tiny_qwen.yaml", model=self.model_of("qwen2"))

    def test_layers_with_a_state(self):
        self.assert_survives(2, "lora.r=4", "lora.target_modules=all-linear", preset="tiny_qwen.yaml", model=self.model_of("qwen3_5"))

    def test_bytes(self):
        self.assert_survives(2, "training.dropout=0.1", model=self.model_of("byt5"))

    def model_of(self, kind):
        family, self.__class__.family = self.family, kind
        try:
            self.make_model(self.scratch / kind)
        finally:
            self.__class__.family = family
        return self.scratch / kind


class GoesOn(Resume):
    def test_a_longer_run_goes_on_after_its_end(self):
        output = self.stopped("longer")
        again = self.start(output)
        self.assert_done(again)
        self.assertIn("resumes after step 7", again.stderr)
        steps = [row["step"] for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"]
        self.assertEqual(steps, list(range(1, STEPS + 1)))
        # The rate falls to 0 at the end of the longer run.
        rates = [row["learning_rate"] for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"]
        expected = [row["learning_rate"] for row in read_rows(self.complete() / "metrics.jsonl") if row["kind"] == "train"]
        self.assertEqual(rates[7:], expected[7:])

    def test_a_complete_run_says_so(self):
        output = self.complete()
        before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
        again = self.start(output)
        self.assert_done(again)
        self.assertIn("complete", again.stderr)
        self.assertEqual({path: path.read_bytes() for path in output.rglob("*") if path.is_file()}, before)

    def test_a_result_that_is_gone_or_damaged_is_made_again(self):
        output = self.stopped("gone", steps=6)
        path = output / "model.safetensors"
        before = path.read_bytes()
        for damage in (path.unlink, lambda: path.write_bytes(before[:-7])):
            damage()
            again = self.start(output, "max_steps=6")
            self.assert_done(again)
            self.assertIn("made again", again.stderr)
            self.assertEqual(path.read_bytes(), before)

    def test_before_the_first_checkpoint_it_begins_again(self):
        output = self.scratch / "early"
        crashed = self.start(output, "save.strategy=no", "observe.tensorboard=false", fault="38:crash")
        self.assertEqual(crashed.returncode, 86, crashed.stderr)
        self.assertIn('"kind":"train"', (output / "metrics.jsonl").read_text())  # the last row may be half
        self.assert_done(self.start(output, "save.strategy=no"))
        self.assert_same(self.complete("save.strategy=no"), output)

    def test_micro_batches_of_another_size_and_other_workers(self):
        output = self.stopped("cut", "lr_scheduler_type=constant", steps=6)
        self.assert_done(self.start(output, "lr_scheduler_type=constant", "training.batch_size=2", "training.num_workers=1",
                                    "data.prefetch=5"))
        expected = self.complete("lr_scheduler_type=constant")
        for one, other in zip(comparable_rows(expected), comparable_rows(output)):
            for key in ("samples_seen", "tokens", "supervised_tokens", "samples", "step"):
                self.assertEqual(one.get(key), other.get(key))
            if one["kind"] == "train":
                self.assertAlmostEqual(one["loss"], other["loss"], delta=1e-4 * one["loss"])

    def test_after_a_recovery_from_a_lack_of_memory(self):
        """With a limit that makes micro-batches smaller: the learned sizes are restored as well."""
        ample = self.scratch / "ample"
        sizes = ("training.batch_size=8", "training.effective_batch_size=16", "recovery.grow_after=3",
                 "memory.rehearse=false", "max_steps=9", "save.steps=1", "training.eval_strategy=no")
        self.assert_done(self.start(ample, *sizes, "save.async=false"))
        limit = max(row["memory_peak"] for row in read_rows(ample / "metrics.jsonl") if row["kind"] == "train")
        recoveries = 0
        while recoveries == 0:
            limit *= 0.9
            limited = (*sizes, f"memory.limit={limit / 1e3:.0f}kB")
            expected = self.complete(*limited)
            recoveries = sum(row["kind"] == "recovery" for row in read_rows(expected / "metrics.jsonl"))
        output = self.scratch / "limited"
        for fault in ("120:crash", "90:crash", "60:crash"):
            self.assertEqual(self.start(output, *limited, fault=fault).returncode, 86)
        self.assert_done(self.start(output, *limited))
        self.assert_same(expected, output)

    def test_from_a_checkpoint_in_another_directory(self):
        first = self.complete()
        other = self.scratch / "branch"
        self.assert_done(self.start(other, f"resume={first / 'checkpoint-6'}"))
        steps = [row["step"] for row in read_rows(other / "metrics.jsonl") if row["kind"] == "train"]
        self.assertEqual(steps, list(range(7, STEPS + 1)))
        self.assertEqual(tensors_of(other / "model.safetensors"), tensors_of(first / "model.safetensors"))

    def test_back_to_a_checkpoint_of_its_own(self):
        output = self.stopped("back", steps=12)
        self.assert_done(self.start(output, f"resume={output / 'checkpoint-3'}/"))
        self.assert_same(self.complete(), output)

    def test_early_stopping_and_the_best_model(self):
        output = self.scratch / "best"
        settings = ("learning_rate=3", "training.eval_steps=1", "load_best_model_at_end=true", "max_steps=30",
                    "early_stopping_patience=3", "save.strategy=no", "lr_scheduler_type=constant")
        result = self.start(output, *settings)
        self.assert_done(result)
        self.assertIn("stops early", result.stderr)
        losses = {row["step"]: row["eval_loss"] for row in read_rows(output / "metrics.jsonl") if row["kind"] == "eval"}
        best = min(losses, key=losses.get)
        self.assertEqual(max(losses), best + 3)
        self.assertEqual(tensors_of(output / "model.safetensors"),
                         tensors_of(output / f"checkpoint-{best}" / "model.safetensors"))
        state = json.loads((output / "trainer_state.json").read_text())
        self.assertEqual((state["best_global_step"], state["best_metric"]), (best, losses[best]))
        self.assertIn("complete", self.start(output, *settings).stderr)

    def test_evaluations_by_another_metric_are_not_compared(self):
        settings = ("training.eval_steps=1", "load_best_model_at_end=true", "early_stopping_patience=3")
        output = self.stopped("metric", *settings, steps=3)
        result = self.start(output, *settings, "max_steps=6", "metric_for_best_model=token_accuracy")
        self.assert_done(result)
        self.assertIn("the best evaluation so far was by another metric or on other data (eval_loss on ", result.stderr)
        values = {row["step"]: row["eval_token_accuracy"] for row in read_rows(output / "metrics.jsonl")
                  if row["kind"] == "eval" and row["step"] > 3}
        state = json.loads((output / "trainer_state.json").read_text(encoding="utf-8"))
        self.assertEqual(state["best_metric"], max(values.values()))
        self.assertEqual(values[state["best_global_step"]], max(values.values()))

    def test_an_evaluation_that_is_due_and_not_wanted_any_more(self):
        output = self.scratch / "unwanted"
        first = self.start(output, "training.eval_steps=1", "eval_batch_size=1", "training.max_hours=1e-9")
        self.assertEqual(first.returncode, 75, first.stderr)
        position = json.loads((last_checkpoint(output) / "trainer_position.json").read_text())
        self.assertTrue(position["evaluation_due"])
        for name, changes in (("no-data", ("data.eval=[]",)), ("no-evaluation", ())):
            again = self.scratch / name
            shutil.copytree(output, again)
            self.assert_done(self.start(again, *changes, "training.eval_strategy=no", "max_steps=3"))
            rows = read_rows(again / "metrics.jsonl")
            self.assertEqual([row["step"] for row in rows if row["kind"] == "train"], [1, 2, 3])
            self.assertEqual([row for row in rows if row["kind"] == "eval"], [])

    def test_a_damaged_position_of_a_complete_run(self):
        output = self.stopped("position", steps=6)
        path = output / "trainer_position.json"
        text = path.read_text()
        position = json.loads(text)
        position["dataset_size"] = 0
        for damaged in (json.dumps(position), text[:-9], json.dumps({**position, "checksum": None}), "{}"):
            path.write_text(damaged)
            result = self.start(output, "max_steps=-1", "num_train_epochs=0.1")
            self.assert_done(result)
            self.assertIn(str(path), result.stderr)
        path.write_text(text)

    def test_an_end_that_is_behind_it_is_told(self):
        first = self.stopped("longer", steps=6)
        self.assertIn("complete after 6 steps", self.start(first, "max_steps=4").stderr)
        result = self.start(self.scratch / "shorter", f"resume={first / 'checkpoint-6'}", "max_steps=4")
        self.assert_done(result)
        self.assertIn("at step 6, beyond the 4 that are asked for", result.stderr)


class Refused(Resume):
    def test_a_run_that_began_elsewhere_is_not_gone_on_with(self):
        first, second = self.stopped("first", steps=6), self.stopped("second", steps=3)
        checkpoint = first / "checkpoint-3"
        self.assert_refused(self.start(second, f"resume={checkpoint}"), 4, "began at its beginning", "resume=auto")
        third = self.scratch / "third"
        self.assert_done(self.start(third, f"resume={checkpoint}", "max_steps=6"))
        self.assert_done(self.start(third, f"resume={os.path.relpath(checkpoint, ROOT)}", "max_steps=9"))
        self.assert_refused(self.start(third, f"resume={first / 'checkpoint-6'}", "max_steps=12"), 4,
                            f"from {checkpoint}", "overwrite_output_dir")

    def test_another_run_is_named_key_by_key(self):
        output = self.stopped("other")
        rows = (self.data / "train.jsonl").read_text().splitlines(keepends=True)
        fewer = self.scratch / "fewer.jsonl"
        fewer.write_text("".join(rows[:100]))
        changes = ("seed=7", f"data.train={fewer}", "training.effective_batch_size=4", "lora.r=2")
        before = (output / "metrics.jsonl").read_bytes()
        result = self.start(output, *changes)
        self.assert_refused(result, 4, "seed: 42 there, 7 here", "data.train: ", "training.effective_batch_size: 8 there, 4 here",
                            "lora.r: - there, 2 here", "resume_changed=[", "overwrite_output_dir")
        self.assertEqual((output / "metrics.jsonl").read_bytes(), before)
        accepted = self.start(output, *changes[:3], "resume_changed=[seed,data.train,effective_batch_size]")
        self.assert_done(accepted)
        self.assertEqual(accepted.stderr.count("accepted by resume_changed"), 3, accepted.stderr)

    def test_never(self):
        output = self.stopped("never")
        self.assert_refused(self.start(output, "resume=never"), 4, "overwrite_output_dir")

    def test_a_damaged_checkpoint_is_passed_over(self):
        output = self.stopped("damaged", steps=6)
        (output / "checkpoint-7").mkdir()
        path = output / "checkpoint-6" / "optimizer.safetensors"
        path.write_bytes(path.read_bytes()[:-1] + b"\1")
        result = self.start(output)
        self.assert_done(result)
        self.assertIn("checkpoint-6 is skipped", result.stderr)
        self.assertIn("optimizer.safetensors", result.stderr)
        self.assertIn("checkpoint-7 is skipped", result.stderr)
        self.assertIn("resumes after step 3", result.stderr)
        steps = [row["step"] for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"]
        self.assertEqual(steps, list(range(1, STEPS + 1)))

    def test_what_is_no_directory_is_named_and_replaced(self):
        output = self.stopped("places", steps=6)
        (output / "checkpoint-9").symlink_to(output / "nothing")
        (output / "checkpoint-12").write_text("a file")
        result = self.start(output)
        self.assert_done(result)
        for words in ("checkpoint-9 is skipped", "is a link, but not to a directory", "checkpoint-12 is skipped", "is a file",
                      "resumes after step 6"):
            self.assertIn(words, result.stderr)
        self.assertNotIn("is not saved", result.stderr)
        self.assertTrue((output / "checkpoint-9" / "trainer_manifest.json").is_file())
        self.assertFalse((output / "checkpoint-9").is_symlink())

    def test_a_run_in_place_of_a_checkpoint(self):
        output = self.stopped("whole", steps=6)
        for other in (output, self.scratch / "elsewhere"):
            self.assert_refused(self.start(other, f"resume={output}"), 4, "is the directory of a run", output / "checkpoint-6")
        self.assertFalse((self.scratch / "elsewhere").exists())

    def test_one_that_is_named_and_damaged(self):
        output = self.stopped("named", steps=6)
        path = output / "checkpoint-6" / "model.safetensors"
        path.unlink()
        self.assert_refused(self.start(output, f"resume={path.parent}"), 4, "model.safetensors", "is missing")


class FullDisk(Resume):
    def test_a_save_that_fails_costs_a_warning(self):
        output = self.scratch / "failing"
        for kind in ("EIO", "cut"):
            shutil.rmtree(output, ignore_errors=True)
            result = self.start(output, "save.async=false", "observe.tensorboard=false", fault=f"48:{kind}")
            self.assert_done(result)
            self.assertIn("is not saved", result.stderr)
            self.assertIn("tries again", result.stderr)
            saved = [path.name for path in output.glob("checkpoint-*")]
            self.assertEqual(len(saved), STEPS // 3 - 1, saved)
            self.assertEqual(tensors_of(output / "model.safetensors"), tensors_of(self.complete() / "model.safetensors"))

    def test_a_disk_that_stays_full_loses_no_checkpoint(self):
        output = self.scratch / "full"
        result = self.start(output, "save.async=false", fault="200+:ENOSPC")
        self.assert_refused(result, 4, "No space left on device", "the result is not saved. The last checkpoint is", "To go on from there: trainer --config")
        self.assert_done(self.start(output))
        self.assert_same(self.complete(), output)

    def test_weights_only(self):
        output = self.scratch / "weights"
        self.assert_done(self.start(output, "save.weights_only=true"))
        self.assertFalse(list(output.glob("checkpoint-*/optimizer.safetensors")))
        self.assertEqual(len(list(output.glob("checkpoint-*/model.safetensors"))), STEPS // 3 - 1)


if __name__ == "__main__":
    unittest.main()
