"""trainer doctor: what it finds, what it advises, and that its exit code is the one the run would have."""
import json
import os
import subprocess
import unittest
from pathlib import Path

from support import ROOT, TRAINER, EndToEnd, trainer, write_rows

CPU_INFO = Path("/proc/cpuinfo").read_text(encoding="utf-8")
HAS_AVX2 = " avx2 " in CPU_INFO
HAS_AMX = " amx_bf16 " in CPU_INFO
HAS_FAST_BF16 = HAS_AMX or "AuthenticAMD" in CPU_INFO and " avx512_bf16 " in CPU_INFO
FAKE_NVIDIA = TRAINER.parent / "tests" / "fake_nvidia"


class Doctor(EndToEnd):
    family = "t5"

    def doctor(self, *arguments, **variables):
        """Returns the findings by name (the last of each) and the result; stdout is one JSON object."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "CUDA_"))}
        result = subprocess.run([TRAINER, "doctor", "--json", *map(str, arguments)], text=True, capture_output=True,
                                timeout=300, env=dict(environment, **variables), cwd=ROOT)
        report = json.loads(result.stdout)
        self.assertEqual(report["exit_code"], result.returncode, result.stderr)
        self.assertEqual(report["ready"], result.returncode == 0)
        return {check["name"]: check for check in report["checks"]}, result

    def of_run(self, *overrides, **variables):
        return self.doctor("--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}",
                           f"data.train={self.data / 'train.jsonl'}", f"output_dir={self.scratch / 'out'}", "device=cpu",
                           *overrides, **variables)

    def test_a_machine_without_a_configuration(self):
        result = trainer("doctor")
        self.assert_done(result)
        for word in ("program", "LibTorch", "processor", "threads", "host memory", "gpu", "ready:"):
            self.assertIn(word, result.stdout)
        self.assertNotIn("\x1b", result.stdout)  # no colours in a pipe

    def test_a_run_that_could_start(self):
        found, _ = self.of_run()
        for name in ("configuration", "output", "device", "model", "disk"):
            self.assertEqual(found[name]["verdict"], "ok", found[name])
        self.assertEqual(found["model"]["parameters"], found["model"]["trained"])
        self.assertGreaterEqual(found["model"]["seconds"], 0)
        self.assertIn("400 samples", found["data"]["text"])
        self.assertGreater(found["disk"]["checkpoint"], 4 * 200_000 - 1)
        self.assertFalse((self.scratch / "out").exists(), "it leaves nothing behind")

    def test_it_says_what_multiplies(self):
        builtin = "built-in fp32 and bf16" if HAS_FAST_BF16 else f"{'built-in' if HAS_AVX2 else 'MKL'} fp32"
        for wanted, words in (("mkl", "MKL fp32"), ("onednn", "oneDNN fp32 and bf16"),
                              ("by_type", f"MKL fp32, {'built-in' if HAS_AMX else 'oneDNN'} bf16"),
                              ("builtin", builtin)):
            found, _ = self.of_run(f"training.cpu_products={wanted}")
            self.assertIn(f"matmul: {words}", found["processor"]["text"])

    def test_the_code_is_that_of_the_first_failure(self):
        bad = self.scratch / "bad.jsonl"
        write_rows(bad, [{"input": "a", "target": "b"}, {"input": "a"}])
        for override, code, name, word in (
                ("bacth_size=3", 2, "configuration", "training.batch_size"),
                ("training.max_steps=0", 2, "configuration", "trains nothing"),
                (f"data.train={bad}", 3, "data", "bad.jsonl:2"),
                ("data.train=/no/such/file", 3, "data", "does not exist"),
                ("model.path=/no/such/model", 4, "model", "does not exist"),
                (f"output_dir={bad}", 4, "output", "is a file"),
                ("device=cuda:63", 6, "device", "device: cuda:63")):
            with self.subTest(override):
                found, result = self.of_run(override)
                self.assertEqual(result.returncode, code, result.stdout)
                self.assertEqual(found[name]["verdict"], "failed")
                self.assertIn(word, found[name]["text"])
                self.assertIn("not ready", result.stderr)

    def test_a_damaged_model_is_found_by_loading_it(self):
        broken = self.scratch / "broken"
        subprocess.run(["cp", "-r", self.model, broken], check=True)
        weights = broken / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
        found, result = self.of_run(f"model.path={broken}")
        self.assertEqual(result.returncode, 4)
        self.assertEqual(found["model"]["verdict"], "failed")

    def test_what_the_environment_changes_is_said(self):
        found, _ = self.of_run("memory.max_split_size_mb=128", PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:64",
                               CUDA_VISIBLE_DEVICES="1")
        self.assertIn("CUDA_VISIBLE_DEVICES=1", found["environment"]["text"])
        self.assertEqual(found["allocator"]["verdict"], "warning")
        self.assertIn("max_split_size_mb:64", found["allocator"]["text"])
        self.assertIn("max_split_size_mb:128", found["allocator"]["text"])
        found, _ = self.of_run("training.num_threads=2", OMP_NUM_THREADS="3")
        self.assertIn("training.num_threads is 2", found["environment"]["text"])
        found, _ = self.of_run("training.num_threads=0", OMP_NUM_THREADS="1")
        self.assertEqual(found["environment"]["verdict"], "ok")
        self.assertEqual(found["threads"]["threads"], 1)

    def test_a_variable_that_slows_every_product_down_is_named(self):
        found, _ = self.doctor(CUBLAS_WORKSPACE_CONFIG=":4096:8")
        self.assertEqual(found["environment"]["verdict"], "warning")
        self.assertIn("CUBLAS_WORKSPACE_CONFIG", found["environment"]["text"])

    def test_a_switch_of_the_program_with_a_value_that_means_nothing_is_refused(self):
        known = {"TRAINER_GRAPHS": "launched", "TRAINER_CUDNN_ATTENTION": "forward", "TRAINER_FP8_PRODUCTS": "on",
                 "TRAINER_RECURRENT_KERNELS": "off", "TRAINER_BF16_SUMS": "on"}
        found, _ = self.doctor(**known)
        for name, value in known.items():
            self.assertIn(f"{name}={value}", found["environment"]["text"])
            result = subprocess.run([TRAINER, "doctor"], text=True, capture_output=True, timeout=300, env=dict(os.environ, **{name: "yes"}), cwd=ROOT)
            self.assert_refused(result, 2, f"environment variable {name}=yes: must be ", value)
        self.doctor(TRAINER_GRAPHS="")

    @unittest.skipUnless(FAKE_NVIDIA.exists(), "only in a build folder")
    def test_gpus_are_listed_with_who_uses_them(self):
        result = subprocess.run([TRAINER, "doctor", "--json", "gpu.min_gpu_memory_mb=5000"], text=True,
                                capture_output=True, timeout=300, cwd=ROOT,
                                env=dict(os.environ, LD_LIBRARY_PATH=str(FAKE_NVIDIA)))
        gpus = [check for check in json.loads(result.stdout)["checks"] if check["name"] == "gpu"]
        self.assertEqual([gpu["index"] for gpu in gpus], [0, 1, -1, -1])
        self.assertEqual([gpu["verdict"] for gpu in gpus], ["warning", "ok", "ok", "ok"])
        self.assertIn("less free than gpu.min_gpu_memory_mb", gpus[0]["advice"])
        self.assertEqual(gpus[0]["processes"][0]["name"], "trainer")
        self.assertTrue(gpus[1]["uuid"].startswith("MIG-"))

    def test_without_gpus_there_is_nothing_to_connect(self):
        found, result = self.doctor("--gpus", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(result.returncode, 0)
        self.assertIn("no GPU to connect: ", found["gpu links"]["text"])
        self.assertGreater(found["gloo"]["rate"], 1e6)
        self.assertNotIn("gpu links", self.doctor()[0])

    @unittest.skipUnless(FAKE_NVIDIA.exists(), "only in a build folder")
    def test_pairs_of_gpus_are_measured(self):
        def links(*arguments, **variables):
            found, _ = self.doctor("--gpus", *arguments, LD_LIBRARY_PATH=str(FAKE_NVIDIA), **variables)
            return found["gpu links"], found
        through_memory, found = links()
        self.assertEqual((through_memory["first"], through_memory["second"]), (0, 1))
        self.assertFalse(through_memory["direct"])
        self.assertIn("cannot use each other's memory", through_memory["advice"])
        self.assertGreater(through_memory["rate"], 0)
        self.assertNotIn("step on gpus", found)
        direct, _ = links(FAKE_PEER_ACCESS="1", FAKE_NVLINK="1")
        self.assertEqual((direct["direct"], direct["path"], direct["verdict"]), (True, "NVLink", "ok"))
        full, _ = links(FAKE_DEVICE_MEMORY="1000")
        self.assertIn("not measured", full["text"])

    @unittest.skipUnless(FAKE_NVIDIA.exists(), "only in a build folder")
    def test_what_a_run_would_send(self):
        step = {}
        for lora in ("null", "{r: 8}"):
            found, _ = self.of_run("--gpus", f"lora={lora}", LD_LIBRARY_PATH=str(FAKE_NVIDIA))
            step[lora] = found["step on gpus"]
            self.assertEqual(step[lora]["gpus"], 2)
            self.assertAlmostEqual(step[lora]["seconds"], step[lora]["sent"] / step[lora]["rate"])
        self.assertLess(step["{r: 8}"]["sent"], step["null"]["sent"])


if __name__ == "__main__":
    unittest.main()
