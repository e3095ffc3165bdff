"""`trainer models`: the families, and what is said of a model before anything but its config.json is there."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from hub_server import HubServer
from support import ROOT, TRAINER


class Models(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="trainer-models-"))
        self.addCleanup(shutil.rmtree, self.scratch)

    def models(self, *arguments, code=0, **variables):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        kept |= {"HF_HOME": str(self.scratch / "home"), "HF_HUB_OFFLINE": "1", **variables}
        result = subprocess.run([TRAINER, "models", *map(str, arguments)], text=True, capture_output=True, timeout=120,
                                env=kept, cwd=self.scratch)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout if code == 0 else result.stderr

    def directory(self, name, **config):
        (self.scratch / name).mkdir()
        (self.scratch / name / "config.json").write_text(json.dumps(config))
        return self.scratch / name

    def test_the_list(self):
        lines = self.models().splitlines()
        named = {line.split()[0]: line for line in lines}
        for family in ("t5", "qwen3", "gemma3", "mistral3", "ministral3", "olmo3", "glm4", "granitemoehybrid", "phi3", "qwen2_5_vl"):
            self.assertIn(family, named)
        self.assertIn("text half", named["gemma3"])
        table = self.models("--markdown")
        self.assertEqual(table.count("\n"), len(lines) + 2)
        self.assertIn(table, (ROOT / "docs" / "models.md").read_text())

    def test_cards_and_directories(self):
        said = self.models("gemma-3-12b", "ministral-3-8b", "qwen3-8b").splitlines()
        self.assertTrue(said[0].startswith("gemma-3-12b: known: model_type gemma3 ("), said[0])
        self.assertIn("11,766,034,176 parameters", said[0])
        small, large = self.models("gemma-4-12b", "gemma-4-31b").splitlines()
        self.assertTrue(small.startswith("gemma-4-12b: known: model_type gemma4_unified (Gemma 4 12B)"), small)
        self.assertIn("11,907,350,320 parameters; 48 layers", small)
        self.assertIn("30,697,345,340 parameters; 60 layers", large)
        self.assertIn("text half, ministral3", said[1])
        self.assertIn("8,489,553,920 parameters", said[1])
        self.assertIn("8,190,735,360 parameters; 36 layers", said[2])

    def test_what_is_near_and_what_is_not(self):
        sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
        for config, words in (
                ({"model_type": "qwen3_next", "num_experts": 512}, ("not: ", "Qwen3-Next", "experts")),
                ({"model_type": "gemma3n", "text_config": {}}, ("near: ", "Gemma 3n", "AltUp", "gemma3")),
                ({"model_type": "gemma4", "text_config": {"enable_moe_block": True}}, ("near: ", "gemma4", "enable_moe_block", "26B-A4B")),
                ({"model_type": "llama4", "text_config": {}}, ("not: ", "Llama 4", "attention in chunks")),
                ({"model_type": "mistral4"}, ("not: ", "Mistral Small 4", "experts")),
                ({"model_type": "mistral3", "text_config": {"model_type": "mistral4"}}, ("not: ", "text_config", "mistral4")),
                ({"model_type": "granitemoehybrid", "layer_types": ["mamba"] * 2, "num_local_experts": 0, **sizes},
                 ("near: ", "granitemoehybrid", "Mamba layers")),
                ({"model_type": "llama", "rope_scaling": {"rope_type": "odd"}, "max_position_embeddings": 64, **sizes},
                 ("near: ", "rope type 'odd'")),
                ({"model_type": "something_new"}, ("not: ", "something_new"))):
            with self.subTest(config["model_type"]):
                shutil.rmtree(self.scratch / "one", ignore_errors=True)
                said = self.models(self.directory("one", **config))
                for word in words:
                    self.assertIn(word, said)
        self.assertIn("no such", self.models("no-such-directory", code=4).replace("neither", "no such"))

    def test_of_a_name_only_the_config_is_downloaded(self):
        server = HubServer()
        self.addCleanup(server.close)
        card = (ROOT / "configs" / "models" / "gemma-3-4b.json").read_bytes()
        server.add("google/gemma-3-4b-tiny", {"config.json": card, "tokenizer.json": b"{}", "model.safetensors": b"x" * 1000})
        said = self.models("google/gemma-3-4b-tiny", HF_ENDPOINT=server.endpoint, HF_HUB_OFFLINE="0")
        self.assertTrue(said.startswith("google/gemma-3-4b-tiny: known: model_type gemma3 ("), said)
        self.assertIn("3,880,263,168 parameters", said)
        held = {path.name for path in (self.scratch / "home" / "hub").rglob("*") if path.is_symlink()}
        self.assertEqual(held, {"config.json"})


if __name__ == "__main__":
    unittest.main()
