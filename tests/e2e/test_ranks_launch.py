"""Several processes for one run: how they are started, and what is refused before any is."""
import os
import pathlib
import socket
import subprocess
import unittest

from in_ranks import InRanks
from support import ROOT, TRAINER, EndToEnd

FAKE_NVIDIA = TRAINER.parent / "tests" / "fake_nvidia"  # shows three GPUs
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "SLURM_", "TRAINER_LAUNCHER", "CUDA_VISIBLE_DEVICES")


def environment(**variables):
    """Without what a launcher has set for this process."""
    rest = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return dict(rest, OMP_WAIT_POLICY="PASSIVE", **variables)


class Refused(EndToEnd):
    family = "t5"

    def start(self, *arguments, **variables):
        return subprocess.run(
            [TRAINER, "--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}",
             f"data.train={self.data / 'train.jsonl'}", f"output_dir={self.scratch / 'out'}", "device=auto", *arguments],
            text=True, capture_output=True, timeout=120, cwd=ROOT, env=environment(**variables))

    def assert_refused(self, result, code, *words):
        super().assert_refused(result, code, *words)
        self.assertEqual(result.stderr.count("trainer: "), 1, result.stderr)
        self.assertFalse((self.scratch / "out").exists(), "nothing was begun")

    def test_options_that_contradict_each_other_or_the_configuration(self):
        self.assert_refused(self.start("--ranks", "2", "--gpus", "2"), 2, "--gpus and --ranks: give one")
        self.assert_refused(self.start("--ranks", "2", "device=cuda"), 2, "device is cuda", "write --gpus 2")
        self.assert_refused(self.start("--gpus", "2", "device=cpu"), 2, "device is cpu", "write --ranks N")
        self.assert_refused(self.start("parallel.gpus=2", "device=cpu"), 2, "parallel.gpus: 2", "write --ranks N")
        self.assert_refused(self.start("--ranks", "0"), 2, "--ranks 0", "from 1")
        for gpus in ("0", "-1", "some", "1.5"):
            self.assert_refused(self.start(f"--gpus={gpus}"), 2, f"--gpus {gpus}", "at least 1, or all")

    def test_fewer_gpus_than_asked_for(self):
        self.assertTrue((FAKE_NVIDIA / "libnvidia-ml.so.1").exists(), "build the tests first")
        fake = {"LD_LIBRARY_PATH": str(FAKE_NVIDIA)}
        for asked in (("--gpus", "4"), ("parallel.gpus=4",)):
            self.assert_refused(self.start(*asked, **fake), 6, "4: this machine shows 3 GPUs")
        self.assert_refused(self.start("--gpus", "3", CUDA_VISIBLE_DEVICES="2,0", **fake), 6,
                            "--gpus 3: CUDA_VISIBLE_DEVICES=2,0 leaves 2 of 3 GPUs")
        for hidden in ("", "-1", "7,0"):
            self.assert_refused(self.start("--gpus", "all", CUDA_VISIBLE_DEVICES=hidden, **fake), 6,
                                f"CUDA_VISIBLE_DEVICES={hidden} leaves 0 of 3 GPUs", "--ranks N")
        self.assert_refused(self.start("--gpus", "2", "device=cuda:1", **fake), 2, "device is cuda:1", "CUDA_VISIBLE_DEVICES=")

    @unittest.skipIf(pathlib.Path("/proc/driver/nvidia").exists(), "needs a machine without a GPU")
    def test_no_driver(self):
        self.assert_refused(self.start("--gpus", "2"), 6, "--gpus 2: this machine has no NVIDIA driver", "--ranks N")

    def test_two_ranks_on_one_gpu(self):
        # As two tasks that were given the same CUDA_VISIBLE_DEVICES: each sees one GPU, and it is the same.
        run = InRanks(2, "--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={self.model}",
                      f"data.train={self.data / 'train.jsonl'}", f"output_dir={self.scratch / 'out'}", "device=cuda",
                      environment=dict.fromkeys((0, 1), {"LD_LIBRARY_PATH": str(FAKE_NVIDIA), "FAKE_CUDA_DEVICES": "1"}))
        codes, said = run.wait()
        self.assertEqual(codes, [6, 6], said)
        for words in ("rank 0 and rank 1 would both train on Third GPU-03333333", "CUDA_VISIBLE_DEVICES"):
            self.assertIn(words, said[0])
        self.assertEqual(said[1], "")

    def test_variables_of_launchers_that_contradict_each_other(self):
        place = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": "29511"}
        self.assert_refused(self.start(**dict(place, RANK="2")), 2, "RANK is 2, WORLD_SIZE is 2")
        self.assert_refused(self.start(**dict(place, LOCAL_RANK="one")), 2, "LOCAL_RANK is 'one'")
        self.assert_refused(self.start(**dict(place, MASTER_PORT="")), 2, "WORLD_SIZE is 2, but MASTER_PORT is not set")
        self.assert_refused(self.start(SLURM_STEP_ID="0", SLURM_STEP_NODELIST="n1", SLURM_NTASKS="2", SLURM_LOCALID="0",
                                       SLURM_JOB_ID="7"), 2, "SLURM_NTASKS is 2, but SLURM_PROCID is not set")

    def test_a_port_that_answers_nothing_is_not_waited_for_for_ever(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            place = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": str(listener.getsockname()[1])}
            result = self.start("device=cpu", "parallel.timeout=2", **place)
        self.assertEqual(result.returncode, 8, result.stderr)
        for words in ("rank 0 does not answer at 127.0.0.1:", "parallel.timeout", "MASTER_PORT"):
            self.assertIn(words, result.stderr)

    def test_processes_that_another_launcher_has_started_start_none(self):
        place = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": "29511"}
        for option in ("--gpus", "--ranks"):
            self.assert_refused(self.start(option, "2", **place), 2, f"{option}: torchrun has started the processes already",
                                "this one is rank 1 of 2")


if __name__ == "__main__":
    unittest.main()
