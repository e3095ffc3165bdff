"""Names of models and data sets instead of paths, in every command: what is downloaded, what a run keeps, what resumes."""
import json
import os
import pathlib
import shutil
import subprocess
import unittest

from hub_server import HubServer
from support import ROOT, TRAINER, EndToEnd, tensors_of

MODEL, DATA = "google/flan-t5-tiny", "org/recipes"


class Names(EndToEnd):
    family = "t5"

    def setUp(self):
        self.server = HubServer()
        self.addCleanup(self.server.close)
        self.work = self.scratch / self.id().rsplit(".", 1)[1]
        self.work.mkdir()
        self.files = {path.name: path.read_bytes() for path in self.model.iterdir() if path.is_file()}
        self.repository = self.server.add(MODEL, self.files, large=["model.safetensors"])
        self.rows = self.server.add(DATA, {"train.jsonl": (self.data / "train.jsonl").read_bytes(),
                                           "test.jsonl": (self.data / "heldout.jsonl").read_bytes()}, kind="datasets")

    def run_trainer(self, *arguments, **variables):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment = {**kept, "HF_HOME": str(self.work / "home"), "HF_ENDPOINT": self.server.endpoint,
                       "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **variables}
        return subprocess.run([TRAINER, *map(str, arguments)], text=True, capture_output=True, timeout=300, cwd=self.work,
                              env=environment)

    def train_by_name(self, *overrides, output="out", model=MODEL, **variables):
        return self.run_trainer("--config", ROOT / "configs" / "tiny_t5.yaml", f"model.path={model}", f"data.train={DATA}",
                                f"data.eval={DATA}", f"output_dir={output}", "device=cpu", "data.max_target_length=96",
                                "logging_steps=1", "eval_strategy=no", *overrides, **variables)

    def new_main(self):
        """The hub's main becomes another model."""
        changed = {**self.files, "generation_config.json": b'{"max_new_tokens": 7}',
                   "model.safetensors": self.files["model.safetensors"][:-4] + b"\0\0\0\0"}
        return self.server.add(MODEL, changed, large=["model.safetensors"])

    def test_a_first_configuration_names_model_and_data(self):
        out = self.work / "first.yaml"
        self.assert_done(self.run_trainer("init", "--model", MODEL, "--data", DATA, "--card", "cpu", "--out", out))
        text = out.read_text()
        self.assertIn(f"path: {MODEL}\n", text)
        self.assertIn(f"train: [{DATA}]", text)
        self.assertIn("kind: seq2seq", text)
        self.assert_done(self.run_trainer("--config", out, "max_steps=1", "eval_strategy=no"))
        self.assert_done(self.run_trainer("doctor", "--config", out, "output_dir=another"))

    def test_a_run_keeps_the_commit_and_resumes_with_it(self):
        result = self.train_by_name("max_steps=2", "save.strategy=steps", "save.steps=2", "lora.r=4")
        self.assert_done(result)
        config = (self.work / "out" / "config.yaml").read_text()
        for name in (f'path: "{MODEL}@{self.repository.commit}"', f"{DATA}@{self.rows.commit}/train.jsonl",
                     f"{DATA}@{self.rows.commit}/test.jsonl"):
            self.assertTrue(name in config, name)
        self.assertNotIn(str(self.work / "home"), config)
        adapter = json.loads((self.work / "out" / "adapter_config.json").read_text())
        self.assertEqual((adapter["base_model_name_or_path"], adapter["revision"]), (MODEL, self.repository.commit))
        # main moves on, and the cache is gone: the run goes on with what it began with
        newer = self.new_main()
        shutil.rmtree(self.work / "home")
        self.assert_done(self.run_trainer("fetch", MODEL))
        result = self.train_by_name("max_steps=4", "save.strategy=steps", "save.steps=2", "lora.r=4")
        self.assert_done(result)
        self.assertIn("resume", result.stderr)
        self.assertIn(self.repository.commit[:7], result.stderr)
        result = self.train_by_name("max_steps=2", output="other")
        self.assert_done(result)
        self.assertIn(newer.commit, (self.work / "other" / "config.yaml").read_text())
        self.use_the_adapter()

    def use_the_adapter(self):
        """Of which the base is a name: in the cache, downloaded, merged."""
        shutil.rmtree(self.work / "home")
        prompt = ("--prompt", "Fry onions.", "--device", "cpu", "--max-new-tokens", 5)
        answer = self.run_trainer("generate", "out", *prompt)
        self.assert_done(answer)
        self.assertEqual(self.run_trainer("generate", "out", *prompt, HF_HUB_OFFLINE="1").stdout, answer.stdout)
        self.assert_done(self.run_trainer("merge", "out", "merged", HF_HUB_OFFLINE="1"))
        self.assertEqual(self.run_trainer("generate", "merged", *prompt).stdout, answer.stdout)

    def test_every_command_takes_names(self):
        prompt = ("--prompt", "Fry onions.", "--device", "cpu", "--max-new-tokens", 5)
        local = self.run_trainer("generate", self.model, *prompt)
        by_name = self.run_trainer("generate", MODEL, *prompt)
        self.assert_done(by_name)
        self.assertEqual(by_name.stdout, local.stdout)
        pinned = self.run_trainer("generate", f"{MODEL}@{self.repository.commit}", *prompt, HF_HUB_OFFLINE="1")
        self.assertEqual(pinned.stdout, local.stdout, pinned.stderr)
        result = self.run_trainer("eval", MODEL, f"{DATA}/test.jsonl", "device=cpu", "--json")
        self.assert_done(result)
        self.assertEqual(json.loads(result.stdout)["model"], f"{MODEL}@{self.repository.commit[:7]}")
        self.assert_done(self.run_trainer("export", MODEL, "exported"))
        self.assertEqual(tensors_of(self.work / "exported" / "model.safetensors"),
                         tensors_of(self.model / "model.safetensors"))
        (self.work / "text.jsonl").write_text('{"text": "Fry onions."}\n')
        tokens = [self.run_trainer("tokenize", "--model", model, "--input", "text.jsonl") for model in (MODEL, self.model)]
        self.assert_done(tokens[0])
        self.assertEqual(tokens[0].stdout, tokens[1].stdout)

    def test_only_what_a_command_needs_is_downloaded(self):
        result = self.run_trainer("plan", f"model.path={MODEL}", "device=cpu")
        self.assert_done(result)
        self.assertIn("downloading 1 file", result.stderr)
        self.assertEqual({request["path"].rsplit("/", 1)[1] for request in self.server.asked(path="resolve")},
                         {"config.json"})
        refused = self.train_by_name("max_steps=1", HF_HUB_OFFLINE="1")
        self.assert_refused(refused, 3, "data.train", DATA, "HF_HUB_OFFLINE")
        self.assert_done(self.run_trainer("data", f"model.path={MODEL}", f"data.train={DATA}"))
        self.assertEqual(self.server.asked(path="safetensors|stored"), [])
        result = self.run_trainer("doctor", f"model.path={MODEL}", f"data.train={DATA}", "device=cpu")
        self.assertIn(f"trainer fetch {MODEL}", result.stdout + result.stderr)
        self.assertEqual(self.server.asked(path="safetensors|stored"), [])

    def test_a_local_directory_comes_first(self):
        shutil.copytree(self.model, self.work / MODEL)
        result = self.train_by_name("max_steps=1")
        self.assert_done(result)
        self.assertEqual(self.server.asked(path="models|resolve.*safetensors"), [])
        self.assertIn(f"path: {MODEL}\n", (self.work / "out" / "config.yaml").read_text())
        self.assert_refused(self.train_by_name(output="other", model="google/flan-t5-tinny"), 4, "does not exist",
                            "hf://google/flan-t5-tinny")
        self.assert_done(self.train_by_name("max_steps=1", output="third", model=f"hf://{MODEL}"))

    def test_mistakes_name_their_key(self):
        self.assert_refused(self.train_by_name(model="google/flan-t5-tinny"), 4, "model.path: ",
                            "did you mean google/flan-t5-tiny?")
        self.assert_refused(self.train_by_name("data.train=org/recipees"), 3, "data.train: ", "did you mean org/recipes?")
        self.assert_refused(self.train_by_name("learning_rat=1"), 2, "learning_rat")
        (self.work / "google").mkdir()
        self.assert_refused(self.train_by_name(), 4, "does not exist", f"hf://{MODEL}")
        self.assertFalse((self.work / "out").exists())


if __name__ == "__main__":
    unittest.main()
