"""tests/gpu_check/gpu_check where a card cannot be used, is small or old, and how it stores and shows what it found. NVIDIA's
libraries are stand-ins, and so is torch, which gpu_check itself does not import."""
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

from support import ROOT, TRAINER, EndToEnd

sys.path.insert(0, str(ROOT / "tests" / "gpu_check"))
from gpu_check_lib import ahead, kernels, machine, models, processes, report, since, stages  # noqa: E402
from gpu_check_lib.command import expected, minutes_of, parse, run_stages  # noqa: E402
from gpu_check_lib.results import Results  # noqa: E402
from gpu_check_lib.stage import Stage, carry_out  # noqa: E402
from gpu_check_lib.stages import basics  # noqa: E402

FAKE_NVIDIA = TRAINER.parent / "tests" / "fake_nvidia"
CPU = {"device": "cpu", "card": None, "bf16": True, "cores": 2, "memory": 8e9, "torch": "2.11.0", "torch_cuda": "13.0",
       "transformers": None, "peft": None, "python": "3.11", "processor": "a processor", "driver": None}


def has_driver():
    return "libcuda.so.1" in subprocess.run(["/sbin/ldconfig", "-p"], text=True, capture_output=True).stdout


def is_alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.rsplit(")", 1)[1].split()[0] != "Z"


class GpuCheck(EndToEnd):
    def packages(self, version="2.11.0+cu130", cuda="'13.0'"):
        """A folder of Python packages with a torch of this build."""
        folder = self.scratch / f"torch {version} {cuda}"
        (folder / "torch" / "lib").mkdir(parents=True, exist_ok=True)
        (folder / "torch" / "__init__.py").touch()
        (folder / "torch" / "version.py").write_text(f"__version__ = '{version}'\ncuda: Optional[str] = {cuda}\n")
        return folder

    def gpu_check(self, *arguments, packages=None, nvidia=True, **variables):
        """A Python that sees these packages and no others."""
        environment = dict(os.environ, TRAINER=str(TRAINER), PYTHONPATH=str(packages or self.packages()), **variables)
        if nvidia:
            environment["LD_LIBRARY_PATH"] = str(FAKE_NVIDIA)
        command = [sys.executable, "-B", "-S", ROOT / "tests" / "gpu_check" / "gpu_check", "--out", self.scratch / "out", "--scratch", self.scratch,
                   *arguments]
        return subprocess.run(command, text=True, capture_output=True, env=environment, cwd=self.scratch, timeout=120)

    def assert_line(self, result, code, *words):
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertTrue(result.stderr.startswith("error: "), result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_a_python_that_will_not_do(self):
        empty = self.scratch / "empty"
        empty.mkdir()
        self.assert_line(self.gpu_check(packages=empty), 1, "no package torch", "pip install")
        self.assert_line(self.gpu_check(packages=self.packages("2.9.1+cu128")), 1, "2.9.1+cu128", "2.11", "pip install")
        self.assert_line(self.gpu_check(packages=self.packages("2.11.0+cpu", "None")), 6, "without CUDA", "--device cpu")

    @unittest.skipIf(has_driver(), "this machine has a driver")
    def test_no_driver(self):
        self.assert_line(self.gpu_check(nvidia=False), 6, "no NVIDIA driver", "--device cpu --quick")

    @unittest.skipIf(has_driver(), "this machine has a driver")
    @unittest.skipUnless(FAKE_NVIDIA.exists(), "only in a build folder")
    def test_tests_named_on_a_gpu_need_one(self):
        """Stage unit-tests counts tests by this part of their name."""
        for program in sorted((TRAINER.parent / "tests").glob("test_*")):
            ran = subprocess.run([program, "--gtest_filter=*OnAGpu*"], text=True, capture_output=True, timeout=120)
            self.assertEqual(re.findall(r"\[ +OK \] (\S+)", ran.stdout), [], program.name)

    @unittest.skipUnless(FAKE_NVIDIA.exists(), "only in a build folder")
    def test_a_card_that_will_not_do(self):
        self.assert_line(self.gpu_check(FAKE_CUDA_VERSION="12080"), 6, "12.8", "580 or newer", "580.65.06")
        self.assert_line(self.gpu_check(FAKE_NVML_FREE="1500000000"), 6, "Third", "full", "1.5 GB free of 24.0")

    @unittest.skipUnless(FAKE_NVIDIA.exists(), "only in a build folder")
    def test_what_a_card_cannot_do_is_skipped_and_not_passed(self):
        for variables, stage, words in (
                ({"FAKE_CUDA_MAJOR": "7"}, "8b-lora", "does not compute in bf16 (compute capability 7.x"),
                ({}, "8b-lora", "needs 60 GB free on the card, which has 20.0"),
                ({}, "t5xl-full-peer", "no package transformers")):
            with self.subTest(words):
                result = self.gpu_check("--stage", stage, "--again", FAKE_NVML_FREE="20000000000", **variables)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn(words, result.stdout)
                self.assertIn("0 passed, 0 failed, 1 skipped", result.stdout)

    def test_a_bundle_on_another_processor(self):
        with mock.patch("platform.machine", return_value="aarch64"), self.assertRaises(machine.Unusable) as caught:
            machine.check_bundle()
        self.assertEqual(str(caught.exception), "this bundle is for x86_64 processors, and this machine is aarch64")

    def test_it_goes_on_where_it_was_cut_off(self):
        one = ("--device", "cpu", "--quick", "--stage", "machine")
        self.assertIn("passed   machine", self.gpu_check(*one, "--again").stdout)
        self.assertIn("done     machine", self.gpu_check(*one).stdout)
        other = self.scratch / "other"
        result = self.gpu_check(*one, "--out", other, "--earlier", self.scratch / "out" / "results.json")
        self.assertIn("done     machine", result.stdout)
        self.assertIn("machine", (other / "REPORT.md").read_text())
        results = self.scratch / "out" / "results.json"
        results.write_text(re.sub(r"build [0-9a-f]{12}\"", 'build of-earlier\"', results.read_text()))
        self.assertIn("passed   machine", self.gpu_check(*one).stdout, "another build")
        self.assertIn("passed   machine", self.gpu_check(*one, "--again").stdout)

    def test_results_that_are_none(self):
        other = self.scratch / "broken"
        other.mkdir()
        (other / "results.json").write_text("[]")
        self.assert_line(self.gpu_check("--device", "cpu", "--stage", "machine", "--out", other), 1, "results.json", "--out")

    def test_two_at_once_in_one_folder(self):
        with machine.lock(machine.scratch_folder(self.scratch, self.scratch, 0, lasting=True)):
            result = self.gpu_check("--device", "cpu", "--stage", "machine", "--again")
        self.assert_line(result, 2, "another gpu_check", "--scratch")

    def test_a_stage_that_does_not_exist(self):
        self.assert_line(self.gpu_check("--stage", "8b"), 2, "no stage 8b", "8b-lora")

    def carry_out(self, function):
        results = Results(self.scratch / "of-one-stage")
        results.machine = CPU
        options = parse(["--device", "cpu", "--scratch", str(self.scratch)], "")
        stage = Stage("one", "it does something", function)
        with mock.patch("gpu_check_lib.layout.environment", return_value=dict(os.environ)):
            result = carry_out(stage, options, CPU, results, "")
        report.write(results, [stage], [])
        stored = json.loads((results.out / "results.json").read_text())["stages"]["one"]
        self.assertEqual(stored, result)
        return result, (results.out / "REPORT.md").read_text()

    def test_a_program_that_hangs_is_a_failure_with_its_log(self):
        script = "print('so far', flush=True); import threading; threading.Event().wait()"
        result, page = self.carry_out(lambda check: check.run([sys.executable, "-c", script], limit=1).code is None
                                      and check.need("it ends", False))
        self.assertEqual(result["status"], "failed")
        self.assertIn("so far", result["logs"][0])
        self.assertIn("did not end in time", page)

    def test_a_stage_that_breaks_is_a_failure_with_its_trace(self):
        result, page = self.carry_out(lambda check: [][3])
        self.assertEqual(result["status"], "failed")
        self.assertIn("IndexError", page)

    def test_on_a_card_it_takes_twelve_minutes(self):
        minutes = lambda *arguments: minutes_of(parse([*arguments], ""))  # noqa: E731
        self.assertEqual(minutes(), 12)
        self.assertEqual(minutes("--minutes", "5", "--quick"), 5)
        for unlimited in (("--all",), ("--quick",), ("--device", "cpu"), ("--stage", "doctor"), ("--minutes", "0")):
            self.assertIsNone(minutes(*unlimited), unlimited)
        first, names = 0, []
        for stage in stages.ALL:
            first += stage.minutes
            if first > 12:
                break
            names.append(stage.name)
        self.assertGreater(set(names), {"unit-tests", "8b-lora", "8b-light", "8b-peer", "8b-liger", "t5xl-lora", "t5xl-full", "8b-repeat"})
        self.assertEqual(sorted(stage.name for stage in stages.ALL), sorted({stage.name for stage in stages.ALL}), "each once")

    def carry_out_all(self, several, minutes, last):
        results = Results(self.scratch / "of-several")
        results.machine = found = {**CPU, "device": "cuda", "card": {"name": "A card", "capability": [9, 0], "free": 80e9, "total": 80e9}}
        options = parse(["--scratch", str(self.scratch), "--minutes", str(minutes)], "")
        late = run_stages(several, several, options, found, results, time.monotonic(), last)
        return late, results

    def test_a_long_stage_is_left_out_and_a_short_one_behind_it_runs(self):
        ran = []
        several = [Stage(name, "", lambda check, name=name: ran.append(name), minutes) for name, minutes in
                   (("first", 1), ("long", 20), ("was-short", 20), ("last", 1))]
        last = {"card": "A card", "stages": {"was-short": {"seconds": 6.0}}}
        late, _ = self.carry_out_all(several, 12, last)
        self.assertEqual((ran, late), (["first", "was-short", "last"], ["long"]))
        other_card = {**CPU, "card": {"name": "Another"}}
        self.assertEqual(expected(several[2], parse([], ""), other_card, last), 20)

    def test_a_stage_that_is_cut_off_by_the_clock_has_not_failed(self):
        script = "import threading; threading.Event().wait()"
        hangs = Stage("hangs", "", lambda check: check.need_run("it", [sys.executable, "-c", script]), 0)
        with mock.patch("gpu_check_lib.layout.environment", return_value=dict(os.environ)):
            _, results = self.carry_out_all([hangs], 0.02, {})
        self.assertEqual(results.stages["hangs"]["status"], "skipped")
        self.assertIn("time was over", results.stages["hangs"]["reason"])

    def test_models_are_made_while_other_stages_run(self):
        made, may_end = [], threading.Event()

        def slow(_scratch, shape, _run):
            may_end.wait(60)
            made.append(shape.name)
        shapes = [models.shape(name, True) for name in ("qwen3-8b", "flan-t5-xl")]
        with mock.patch("gpu_check_lib.models.make_alone", slow):
            with ahead.Ahead(self.scratch, shapes):
                self.assertEqual(made, [], "this is another stage")
                may_end.set()
                models.make(self.scratch, shapes[0], None)  # a stage that needs it
                self.assertIn("tiny-qwen3-8b", made)
        self.assertEqual(made[0], "tiny-qwen3-8b")

    def test_a_model_that_is_being_made_does_not_outlive_it(self):
        shape = models.shape("qwen3-8b", True)
        with mock.patch("gpu_check_lib.layout.environment", return_value=dict(os.environ)), \
                mock.patch("gpu_check_lib.models.make_alone",
                           lambda scratch, shape, run: run("", [sys.executable, "-c", "import threading; threading.Event().wait()"])):
            with ahead.Ahead(self.scratch, [shape]) as maker:
                while maker.running is None:
                    time.sleep(0.01)
                running = maker.running
        self.assertTrue(running.is_over())

    def test_the_page_begins_with_what_changed(self):
        last = {"commit": "0123abc", "card": "no card", "stages": {"one": {"status": "failed", "seconds": 1}},
                "runs": {"8B LoRA": {"tokens_per_second": 2000.0, "peak": 38e9}, "same": {"tokens_per_second": 100.0, "peak": 1e9}}}

        def stage(check):
            check.figure("runs", {"8B LoRA": {"tokens_per_second": 3000.0, "peak": 30e9, "step_seconds": 1},
                                  "same": {"tokens_per_second": 101.0, "peak": 1e9}, "new": {"tokens_per_second": 5.0}})
        results = Results(self.scratch / "changed")
        results.machine = CPU
        options = parse(["--device", "cpu", "--scratch", str(self.scratch)], "")
        with mock.patch("gpu_check_lib.report.speed", return_value=[]):  # these are not whole runs
            carry_out(Stage("one", "", stage), options, CPU, results, "")
            report.write(results, [Stage("one", "", stage)], [], last)
        page = (results.out / "REPORT.md").read_text()
        self.assertLess(page.index("## Since the last report"), page.index("## Stages"))
        cells = [" ".join(line.split()) for line in page.splitlines()]
        self.assertIn("| 8B LoRA | 2,000 -> 3,000 (+50.0 %) | 38.00 -> 30.00 GB (-21.1 %) |", cells)
        self.assertIn("- one: failed -> PASSED", cells)
        self.assertIn("Not in the last report: new.", cells)
        self.assertFalse([line for line in cells if line.startswith("| same")], "one percent is noise")
        self.assertTrue(any(line.startswith("From commit 0123abc to ") for line in cells), page[:400])
        (line, _) = since.section(results, {**last, "card": "A card"}, report.table)
        self.assertIn("Not compared with the last report, of commit 0123abc: that was on A card.", line)
        since.write(results)
        again = since.read(results.out / "last_report.json")
        self.assertEqual(since.figure_rows(again, since.kept(results)), [])

    def test_a_last_report_that_is_none(self):
        broken = self.scratch / "last_report.json"
        for text in ("", "[]", "{"):
            broken.write_text(text)
            self.assertEqual(since.read(broken), {})
        self.assertTrue(since.read()["commit"], "one is kept beside gpu_check")

    def test_a_log_keeps_its_begin_and_its_end(self):
        ended = processes.Ended("tests", 1, 2.0, "first\n" + "x" * 5 * processes.TAIL + "\nlast")
        self.assertIn("first", ended.tail)
        self.assertIn("last", ended.tail)
        self.assertLess(len(ended.tail), 3 * processes.TAIL)

    def test_races_in_the_libraries_kernels_are_told_from_ours(self):
        race = "========= Error: Race reported between Read access at {0}+0x2f0\n=========     and Write access at {0}+0x45e0 [4 hazards]\n"
        theirs = ["cudnn_generated_sm90_flash_fprop", "nvjet_sm90_tst_64x32_64x16_1x2_h_bz_NTT"]
        log = "".join(race.format(name) for name in theirs)
        self.assertEqual(basics.kernels_with_errors(log), (theirs, []))
        self.assertEqual(basics.kernels_with_errors(log + race.format("weights_forward")), (theirs, ["weights_forward"]))

    def test_killing_it_ends_its_children(self):
        with mock.patch("gpu_check_lib.layout.environment", return_value=dict(os.environ)):
            running = processes.Running([sys.executable, "-c", "import os, threading\nprint(os.fork(), flush=True)\n"
                                                               "threading.Event().wait()"])
            while not (pid := self.child_of(running)):
                self.assertFalse(running.is_over())
            running.wait(0)
        end = time.monotonic() + 10
        while is_alive(pid):
            self.assertLess(time.monotonic(), end, "it outlives its parent")

    @staticmethod
    def child_of(running):
        found = os.pread(running.output.fileno(), 100, 0).split()
        return next((int(word) for word in found if word != b"0"), None)

    def test_the_page_sets_ours_beside_the_fastest_comparable_peer(self):
        run = {"tokens_per_second": 3000.0, "step_seconds": 0.5, "start_seconds": 2.0, "planned": 20.0e9, "peak": 19.0e9,
               "reserved": 21e9, "limit": None, "card_used": 21.5e9,
               "recoveries": [{"step": 0, "stage": "backward", "asked": 3e8, "free": 1e7, "from_samples": 2, "to_samples": 1,
                               "recomputed_blocks": 0}]}
        peer = {"tokens_per_second": 2000.0, "step_seconds": 1.0, "peak": 30e9, "reserved": 31e9}

        def stage(check):
            check.figure("runs", {"8B LoRA": run})
            check.figure("peers", {"8B LoRA, slow": {**peer, "tokens_per_second": 1000.0}, "8B LoRA, fast": peer,
                                   "8B LoRA, recompute": {**peer, "tokens_per_second": 9000.0},
                                   "T5-XL full, other": {**peer, "tokens_per_second": 9000.0}})
        _, page = self.carry_out(stage)
        cells = [" ".join(line.split()) for line in page.splitlines()]
        self.assertIn("| 8B LoRA | 3,000 | 500.0 | 2.0 | 2,000 | 1.50 |", cells)
        self.assertIn("| 8B LoRA | 20.00 GB | 19.00 GB | +5.3 % | 21.00 GB | none | 21.50 GB |", cells)
        self.assertIn("| 8B LoRA | 0 | backward | 0.30 GB | 10.00 MB | 2 -> 1 | 0 |", cells)

    def test_kernels_are_counted_over_whole_steps(self):
        step = [(0, f"kernel {i}", 1) for i in range(40)] + [(0, "adamw_update", 1)] * 3
        found, steps = kernels.last_steps([(0, "load", 1)] * 50 + step * 5 + [(0, "at the end", 1)])
        self.assertEqual(steps, 3)
        self.assertEqual(found, step * 3)

    def test_kernels_of_ours_stand_beside_a_copy(self):
        operators = [{"operator": "trainer::norm", "kernels": ["norm_forward"], "calls": 2, "bytes": 4_000_000},
                     {"operator": "trainer::norm_backward", "kernels": ["norm_backward", "norm_weight"], "calls": 1, "bytes": 9_000_000},
                     {"operator": "trainer::other_norm", "kernels": ["norm_weight"], "calls": 1, "bytes": 1_000_000},
                     {"operator": "trainer::not_seen", "kernels": ["not_seen"], "calls": 1, "bytes": 5}]
        sums = {"norm_forward(float const*, float*)": [2 * 2000, 4], "norm_backward": [2 * 15000, 2], "norm_weight": [2 * 5000, 2],
                "nvjet_product": [10 ** 6, 2]}
        rows = kernels.rates(sums, 2, operators, 2.5e12, is_cpu=False)
        self.assertEqual([row["name"] for row in rows], ["norm_backward + norm_weight", "norm_forward"])
        self.assertEqual([row["rate"] for row in rows], [10_000_000 / 20e-6, 4_000_000 / 2e-6])
        self.assertEqual([round(row["share"], 6) for row in rows], [0.2, 0.8])
        profile = {"launches": 3, "top": [], "rates": rows, "copy_rate": 2.5e12}
        _, page = self.carry_out(lambda check: check.figure("profiles", {"8B LoRA, trainer": profile}))
        cells = [" ".join(line.split()) for line in page.splitlines()]
        self.assertIn("| 0.02 | 500 | 20% | norm_backward + norm_weight |", cells)
        self.assertIn("| 0.00 | 2,000 | 80% | norm_forward |", cells)
        self.assertIn("Below 70% of a copy: norm_backward + norm_weight.", cells)
        on_a_cpu = kernels.rates({"trainer::norm": [1000, 1]}, 1, operators, 1e12, is_cpu=True)
        self.assertEqual([row["name"] for row in on_a_cpu], ["trainer::norm"])


if __name__ == "__main__":
    unittest.main()
