"""memory.offload on the CPU: the same result, files that nobody sees, and what happens where there is no room for them."""
import json
import os
import subprocess
import threading
import unittest

from disturbed import Disturbance, differences
from support import ROOT, TRAINER, EndToEnd, read_rows, tensors_of, trainer

STEPS = 6
BELOW = "memory.offload=optimizer"
ALL = "[optimizer, weights, activations]"


class SmallDisk:
    """A small file system in memory; `mounted` is False where none may be mounted."""

    def __init__(self, place, kilobytes):
        self.place = place
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", place]
        try:
            self.mounted = subprocess.run(command, capture_output=True).returncode == 0
        except OSError:
            self.mounted = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.mounted:
            subprocess.run(["umount", self.place], check=True)


class Offload(EndToEnd):
    family = "t5"

    def arguments(self, *overrides):
        return ["--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}",
                f"data.train={self.data / 'train.jsonl'}", "device=cpu", "training.num_threads=1", f"max_steps={STEPS}",
                "logging_steps=1", "optimizer.lr_scheduler_type=constant", "memory.rehearse=true", *overrides]

    def run_with(self, name, *overrides):
        output = self.scratch / name
        return trainer(*self.arguments(*overrides), f"output_dir={output}"), output

    def assert_same_result(self, one, other):
        tensors, others = tensors_of(one / "model.safetensors"), tensors_of(other / "model.safetensors")
        self.assertEqual([name for name in tensors if tensors[name] != others.get(name)], [])
        losses = [[row["loss"] for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"]
                  for output in (one, other)]
        self.assertEqual(losses[0], losses[1])

    def assert_as_planned(self, memory, dtype):
        # The plan leaves out what oneDNN takes for itself during a product in bf16.
        slack = 40_000 if dtype == "model.dtype=bf16" else 2_000
        self.assertLess(abs(memory["planned_peak"] - memory["peak"]), slack)

    def assert_no_files(self, directory):
        self.assertEqual([path.name for path in directory.iterdir() if path.name.startswith(".trainer-offload")], [])

    def fill(self, path):
        """Writes a file until the disk is full."""
        try:
            with open(path, "wb", buffering=0) as rest:
                while rest.write(bytes(1 << 16)):
                    pass
        except OSError:
            pass

    def test_the_result_is_the_same(self):
        for dtype in ("model.dtype=fp32", "model.dtype=bf16"):
            above, expected = self.run_with(f"above-{dtype}", dtype)
            below, found = self.run_with(f"below-{dtype}", dtype, BELOW)
            self.assert_done(above)
            self.assert_done(below)
            self.assert_same_result(expected, found)
            self.assert_no_files(found)
            self.assertIn("offloaded", below.stderr)
            memory = [[row for row in read_rows(output / "metrics.jsonl") if row["kind"] == "memory"][0]
                      for output in (expected, found)]
            state = memory[1]["planned_offloaded"]
            self.assertEqual(memory[0]["planned_optimizer_state"] - memory[1]["planned_optimizer_state"], state)
            self.assertEqual(memory[0]["peak"] - memory[1]["peak"], state)
            self.assertEqual(memory[1]["offloaded"], state)
            self.assert_as_planned(memory[1], dtype)

    def test_killed_and_resumed(self):
        arguments = self.arguments(BELOW, "save.strategy=steps", "save.steps=2", "model.dtype=bf16",
                                   "optimizer.master_weights=true")
        expected, found = (Disturbance(arguments, self.scratch / name, seed=3) for name in ("whole", "killed"))
        seconds = expected.undisturbed()
        found.run(2, longest=seconds, operations=100)
        self.assertEqual(differences(expected.output, found.output), [], "\n".join(found.log))
        self.assert_no_files(found.output)

    def test_a_resumed_run_may_switch_it_on_or_off(self):
        whole, expected = self.run_with("not-stopped")
        self.assert_done(whole)
        for name, before, after in (("on", "[]", "[optimizer]"), ("off", "[optimizer]", "[]")):
            saves = ("save.strategy=steps", "save.steps=3")
            first, output = self.run_with(f"switched-{name}", *saves, f"memory.offload={before}", "max_steps=3")
            self.assert_done(first)
            second, _ = self.run_with(f"switched-{name}", *saves, f"memory.offload={after}")
            self.assert_done(second)
            self.assert_same_result(expected, output)

    def test_weights_and_activations_give_the_same_result(self):
        for name, overrides in (("full", ["model.dtype=bf16", "optimizer.master_weights=true"]),
                                ("lora", ["lora.r=4", "lora.target_modules=all-linear"])):
            saves = [*overrides, "save.strategy=steps", "save.steps=3", "evaluation.generate=true",
                     f"data.eval={self.data / 'train.jsonl'}", "training.eval_strategy=steps", "training.eval_steps=3",
                     "evaluation.max_samples=2"]
            above, expected = self.run_with(f"{name}-above", *saves, "memory.gradient_checkpointing=true")
            self.assert_done(above)
            first, found = self.run_with(f"{name}-offloaded", *saves, f"memory.offload={ALL}", "max_steps=3")
            self.assert_done(first)
            second, _ = self.run_with(f"{name}-offloaded", *saves, f"memory.offload={ALL}")
            self.assert_done(second)
            rows = [[{key: row.get(key) for key in ("kind", "step", "loss", "eval_loss")} for row in read_rows(output / "metrics.jsonl")
                     if row["kind"] in ("train", "eval")] for output in (expected, found)]
            self.assertEqual(rows[0], rows[1])
            file = "model.safetensors" if name == "full" else "adapter_model.safetensors"
            self.assertEqual(tensors_of(expected / file), tensors_of(found / file))
            memory = [[row for row in read_rows(output / "metrics.jsonl") if row["kind"] == "memory"][0]
                      for output in (expected, found)]
            self.assertLess(memory[1]["peak"], memory[0]["peak"])
            self.assert_as_planned(memory[1], overrides[0])
            self.assert_no_files(found)

    def test_auto_offloads_what_a_limit_asks_for(self):
        ample, unlimited = self.run_with("ample", "memory.offload=auto")
        self.assert_done(ample)
        row = [row for row in read_rows(unlimited / "metrics.jsonl") if row["kind"] == "memory"][0]
        self.assertNotIn("planned_offloaded", row)
        limit = row["planned_peak"] - row["planned_optimizer_state"] // 2
        tight, output = self.run_with("tight", "memory.offload=auto", f"memory.limit={limit / 1e3:.0f}kB")
        self.assert_done(tight)
        self.assert_same_result(unlimited, output)
        row = [row for row in read_rows(output / "metrics.jsonl") if row["kind"] == "memory"][0]
        self.assertGreater(row["planned_offloaded"], 0)
        lengths = ["data.max_source_length=32", "data.max_target_length=32", "memory.gradient_checkpointing=true"]
        ample, unlimited = self.run_with("ample-short", *lengths)
        self.assert_done(ample)
        row = [row for row in read_rows(unlimited / "metrics.jsonl") if row["kind"] == "memory"][0]
        limit = row["planned_peak"] - row["planned_optimizer_state"] - row["planned_weights"] // 4
        below, output = self.run_with("all", *lengths, "memory.offload=auto", f"memory.limit={limit / 1e3:.0f}kB")
        self.assert_done(below)
        self.assertIn("all is offloaded", below.stderr)
        self.assert_same_result(unlimited, output)
        hopeless, _ = self.run_with("hopeless", "memory.offload=auto", f"memory.limit={limit / 3e3:.0f}kB")
        self.assert_refused(hopeless, 5, "memory.offload")

    def test_two_runs_share_a_directory(self):
        files = self.scratch / "files"
        results = {}

        def start(name):
            results[name] = self.run_with(name, BELOW, f"memory.offload_dir={files}")
        threads = [threading.Thread(target=start, args=(name,)) for name in ("one", "other")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result, _ in results.values():
            self.assert_done(result)
        self.assert_same_result(results["one"][1], results["other"][1])
        self.assertEqual(list(files.iterdir()), [])

    def test_names_that_a_killed_run_left_are_removed(self):
        files = self.scratch / "left"
        files.mkdir()
        (files / ".trainer-offload-1-0").touch()
        (files / "notes.txt").write_text("mine")
        result, _ = self.run_with("after-left", BELOW, f"memory.offload_dir={files}")
        self.assert_done(result)
        self.assertEqual([path.name for path in files.iterdir()], ["notes.txt"])

    def test_directories_that_cannot_be_used(self):
        a_file = self.scratch / "a-file"
        a_file.write_text("text")
        result, output = self.run_with("in-a-file", BELOW, f"memory.offload_dir={a_file}")
        self.assert_refused(result, 2, "memory.offload_dir", f"{a_file}: is a file", "choose another directory")
        self.assertFalse(output.exists(), "a run that never began leaves nothing behind")
        if os.geteuid() != 0:
            closed = self.scratch / "closed"
            closed.mkdir(mode=0o500)
            result, _ = self.run_with("in-closed", BELOW, f"memory.offload_dir={closed}")
            self.assert_refused(result, 2, "memory.offload_dir", closed, "Permission denied")

    def test_a_disk_without_room_is_an_error_before_the_first_step(self):
        with SmallDisk(self.scratch / "small", 256) as disk:
            if not disk.mounted:
                self.skipTest("no small file system can be mounted")
            result, output = self.run_with("no-room", BELOW, f"memory.offload_dir={disk.place}")
            self.assert_refused(result, 5, "memory.offload: needs", disk.place, "free", "lies in memory (tmpfs)")
            self.assertFalse((output / "metrics.jsonl").exists())
            self.assertEqual(list(disk.place.iterdir()), [])

    def test_a_disk_that_fills_up_during_the_run_does_not_matter(self):
        with SmallDisk(self.scratch / "filling", 16_000) as disk:
            if not disk.mounted:
                self.skipTest("no small file system can be mounted")
            output = self.scratch / "filled"
            command = [TRAINER, *map(str, self.arguments(BELOW, f"memory.offload_dir={disk.place}", f"output_dir={output}"))]
            lines = []
            with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
                for line in process.stderr:
                    lines.append(line)
                    if "memory: peak of tensors" in line:  # after the first step
                        self.fill(disk.place / "rest")
            self.assertEqual(process.returncode, 0, "".join(lines))
            self.assertTrue((disk.place / "rest").exists(), "".join(lines))
        whole, expected = self.run_with("never-filled")
        self.assert_done(whole)
        self.assert_same_result(expected, output)

    def test_what_it_takes_is_planned_and_checked(self):
        plan = json.loads(trainer("plan", "--json", *self.arguments(BELOW)).stdout)
        kept = json.loads(trainer("plan", "--json", *self.arguments()).stdout)
        self.assertEqual(plan["offload"], ["optimizer"])
        self.assertEqual(plan["offloaded"]["optimizer_state"],
                         kept["bytes"]["optimizer_state"] - plan["bytes"]["optimizer_state"])
        self.assertEqual(plan["offloaded"]["moved"], 2 * plan["offloaded"]["total"])
        self.assertEqual(kept["total"] - plan["total"], plan["offloaded"]["total"])
        self.assertNotIn("offloaded", kept)
        doctor = trainer("doctor", "--json", *self.arguments(BELOW, f"output_dir={self.scratch / 'new'}"))
        self.assert_done(doctor)
        check = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}["offload"]
        self.assertEqual(check["needed"], plan["offloaded"]["total"])
        self.assertGreater(check["free"], check["needed"])
        self.assertFalse((self.scratch / "new").exists(), "it leaves nothing behind")
        wrong = trainer("doctor", *self.arguments(BELOW, f"output_dir={self.scratch / 'new'}",
                                                  f"memory.offload_dir={self.data / 'train.jsonl'}"))
        self.assertEqual(wrong.returncode, 2, wrong.stdout)
        self.assertIn("train.jsonl: is not a directory", wrong.stdout)

    def test_doctor_counts_offload_and_checkpoints_on_one_disk(self):
        def disk(*overrides):
            checks = json.loads(trainer("doctor", "--json", *self.arguments(*overrides)).stdout)["checks"]
            return {check["name"]: check for check in checks}
        with SmallDisk(self.scratch / "shared", 16_000) as small:
            if not small.mounted:
                self.skipTest("no small file system can be mounted")
            apart = disk(BELOW, f"output_dir={small.place}/out", f"memory.offload_dir={self.scratch}")
            together = disk(BELOW, f"output_dir={small.place}/out")
            self.assertEqual(apart["disk"]["free"] - together["disk"]["free"], together["offload"]["needed"])
            self.assertIn("offloaded there", together["disk"]["text"])

    def test_what_is_no_part(self):
        result, _ = self.run_with("wrong", "memory.offload=[optimiser]")
        self.assert_refused(result, 2, "memory.offload", "a list of optimizer, weights and activations", "optimiser")


if __name__ == "__main__":
    unittest.main()
