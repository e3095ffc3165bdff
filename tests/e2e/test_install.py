"""`cmake --install`: the program runs from another place, and C++ programs build against the installed package."""
import csv
import io
import os
import re
import subprocess
import unittest

from support import ROOT, TRAINER, EndToEnd, read_rows, trainer

BUILD = TRAINER.parent
SANITIZED = "TRAINER_SANITIZE:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE", CMAKE_GENERATOR="Ninja",
                   CXXFLAGS="-fsanitize=address,undefined" if SANITIZED else "")
STEPS = 30


def run(*command):
    return subprocess.run([*map(str, command)], text=True, capture_output=True, timeout=500, env=ENVIRONMENT, cwd=ROOT)


class Install(EndToEnd):
    family = "t5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        first, cls.prefix = cls.scratch / "first", cls.scratch / "moved"
        cls.succeed("cmake", "--install", BUILD, "--prefix", first)
        first.rename(cls.prefix)
        cls.examples = cls.scratch / "examples"
        cls.configure(ROOT / "examples", cls.examples)
        cls.succeed("cmake", "--build", cls.examples, "-j", "2")
        cls.preset = cls.prefix / "share" / "trainer" / "configs" / "tiny_t5.yaml"

    @staticmethod
    def succeed(*command):
        result = run(*command)
        if result.returncode != 0:
            raise AssertionError(f"{command} ended with {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result.stdout

    @classmethod
    def configure(cls, source, build, *options):
        return cls.succeed("cmake", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={cls.prefix}", *options)

    def keys(self, output):
        return [f"model.path={self.model}", f"data.train={self.data / 'train.jsonl'}", f"output_dir={output}",
                f"max_steps={STEPS}", "training.num_threads=1"]

    def test_the_program_runs_from_there(self):
        link = self.scratch / "link"
        link.symlink_to(self.prefix / "bin" / "trainer")
        self.assertIn("trainer --config FILE", self.succeed(link, "--help"))
        self.succeed(link, "--config", self.preset, *self.keys(self.scratch / "program"))
        rows = read_rows(self.scratch / "program" / "metrics.jsonl")
        self.assertEqual([row["step"] for row in rows if "loss" in row], list(range(1, STEPS + 1)))

    def test_train_and_generate(self):
        ours, programs = self.scratch / "own_loop", self.scratch / "programs_loop"
        said = self.succeed(self.examples / "train", self.preset, *self.keys(ours))
        losses = [float(loss) for loss in re.findall(r"^step \d+ loss (\S+)", said, re.M)]
        self.assert_done(trainer("--config", self.preset, *self.keys(programs)))
        rows = self.assert_loss_falls(programs, STEPS, to=0.9)
        self.assertEqual(losses, [float(f"{row['loss']:.6g}") for row in rows])

        prompt = read_rows(self.data / "heldout.jsonl")[0]["input"]
        answer = self.succeed(self.examples / "generate", ours, prompt)
        programs_answer = trainer("generate", programs, prompt, "--max-new-tokens", 100)
        self.assert_done(programs_answer)
        self.assertEqual(answer, programs_answer.stdout)
        self.assertNotEqual(answer.strip(), "")

    def test_train_and_generate_an_adapter(self):
        output = self.scratch / "adapter"
        self.succeed(self.examples / "train", self.preset, *self.keys(output), "lora={}")
        self.assertTrue((output / "adapter_model.safetensors").is_file())
        self.succeed(self.examples / "generate", output, "Fry onions.")

    def test_metric_sink(self):
        output = self.scratch / "sink"
        table = list(csv.DictReader(io.StringIO(self.succeed(self.examples / "metric_sink", self.preset,
                                                             *self.keys(output)))))
        rows = [row for row in read_rows(output / "metrics.jsonl") if row["kind"] == "train"]
        self.assertEqual(len(table), STEPS)
        for key in table[0]:
            self.assertEqual([float(line[key]) for line in table], [row[key] for row in rows])
        refused = run(self.examples / "metric_sink", self.preset, "optimizer.learning_rte=1")
        self.assert_refused(refused, 2, "did you mean optimizer.learning_rate")

    def test_adaptive_batch(self):
        def losses(limit):
            said = self.succeed(self.examples / "adaptive_batch", limit)
            steps = re.findall(r"^step \d+ loss (\S+) rows (\d+)", said, re.M)
            return [float(loss) for loss, _ in steps], int(steps[-1][1]), said
        (ample, rows, said), (limited, fewer, told) = losses("1GB"), losses("8MB")
        self.assertEqual((len(ample), rows), (20, 4096))
        self.assertNotIn("out of memory", said)
        self.assertIn("out of memory", told)
        self.assertLess(fewer, 4096)
        self.assertLess(ample[-1], 0.5 * ample[0])
        for one, other in zip(ample, limited):
            self.assertAlmostEqual(one, other, delta=1e-4 * one)
        refused = run(self.examples / "adaptive_batch", "20kB")
        self.assertEqual(refused.returncode, 5, refused.stderr)

    def test_every_header_compiles(self):
        source = self.scratch / "headers"
        source.mkdir()
        include = self.prefix / "include"
        headers = sorted(path.relative_to(include) for path in include.rglob("*.h"))
        self.assertEqual(len(headers), len((ROOT / "cmake" / "public_headers.txt").read_text().split()))
        (source / "headers.cpp").write_text("".join(f'#include "{header}"\n' for header in headers))
        (source / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(headers LANGUAGES CXX)\nfind_package(trainer 0.1 REQUIRED)\n"
            "add_library(headers OBJECT headers.cpp)\ntarget_link_libraries(headers PRIVATE trainer::trainer)\n")
        self.configure(source, self.scratch / "headers-build")
        self.succeed("cmake", "--build", self.scratch / "headers-build")

    def test_a_wrong_libtorch_is_named(self):
        result = run("cmake", "-S", ROOT / "examples", "-B", self.scratch / "no-torch",
                     f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DTORCH_DIR={self.scratch}")
        self.assertNotEqual(result.returncode, 0)
        said = " ".join(result.stderr.split())
        self.assertIn(f"LibTorch not found (TORCH_DIR='{self.scratch}'). Pass -DTORCH_DIR=", said)


if __name__ == "__main__":
    unittest.main()
