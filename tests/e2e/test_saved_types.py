"""The result keeps the types that the model came in; what differs, or is lost, is said before the run."""
import json
import struct
import subprocess
import unittest

from support import EndToEnd, python_with, tensors_of

PYTHON = python_with("transformers")
LOAD = """
import json, sys, torch
from transformers import AutoModelForCausalLM
for line in sys.stdin:
    model, seen = AutoModelForCausalLM.from_pretrained(line.rstrip("\\n"), dtype="auto", output_loading_info=True)
    print(json.dumps({"types": sorted({str(value.dtype) for value in model.parameters()}),
                      "finite": all(bool(torch.isfinite(value).all()) for value in model.parameters()),
                      "problems": [str(seen[what]) for what in ("missing_keys", "unexpected_keys", "mismatched_keys") if seen[what]]}),
          flush=True)
"""


def values_of(kind, content):
    if kind == "BF16":
        content = b"".join(b"\0\0" + content[i:i + 2] for i in range(0, len(content), 2))
    letter = "e" if kind == "F16" else "f"
    return struct.unpack(f"<{len(content) // struct.calcsize(letter)}{letter}", content)


def rewrite(model, type_of, value_of=lambda name, values: values):
    """Writes the tensors of an fp32 model as F32, F16 or BF16 (cut off, so the values change)."""
    header, content = {}, b""
    for name, (_, shape, values) in tensors_of(model / "model.safetensors").items():
        values, kind = value_of(name, values_of("F32", values)), type_of(name)
        data = struct.pack(f"<{len(values)}{'e' if kind == 'F16' else 'f'}", *values)
        if kind == "BF16":
            data = b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(content), len(content) + len(data)]}
        content += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (model / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content)


def types_of(file):
    return {name: kind for name, (kind, _, _) in tensors_of(file).items()}


class SavedTypes(EndToEnd):
    family = "qwen2"
    model_arguments = ("--untied",)

    def came_in(self, name, type_of, **changes):
        model = self.scratch / name
        self.make_model(model, *self.model_arguments)
        rewrite(model, type_of, **changes)
        return model

    def result_of(self, name, model, *overrides):
        """Trains all weights for two steps; returns the output directory and what the run says."""
        output = self.scratch / name
        result = self.train("tiny_qwen.yaml", output, f"model.path={model}", "lora=null", "max_steps=2", *overrides)
        self.assert_done(result)
        return output, result.stderr

    @classmethod
    def loader(cls):
        """A process that loads the models whose paths it is given, for all tests: Transformers takes seconds to start."""
        if "loads" not in cls.__dict__:
            with (cls.scratch / "loader").open("w") as errors:
                cls.loads = subprocess.Popen([PYTHON, "-c", LOAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                             text=True)
            for end in (cls.loads.wait, cls.loads.stdout.close, cls.loads.stdin.close):  # called from the last to the first
                cls.addClassCleanup(end)
        return cls.loads

    def assert_loads(self, output, kind):
        config = json.loads((output / "config.json").read_text())
        self.assertEqual(config.get("dtype", config.get("torch_dtype")), kind)
        if PYTHON is None:
            self.skipTest("needs transformers")
        loader = self.loader()
        loader.stdin.write(f"{output}\n")
        loader.stdin.flush()
        said = loader.stdout.readline()
        self.assertTrue(said, (self.scratch / "loader").read_text())
        self.assertEqual(json.loads(said), {"types": [f"torch.{kind}"], "finite": True, "problems": []})

    def test_bf16_trained_in_fp32_is_saved_in_bf16(self):
        model = self.came_in("bf16", lambda name: "BF16")
        output, said = self.result_of("bf16_out", model, "save.strategy=epoch")
        self.assertIn("bf16, as it came in; trained in fp32, and rounded", said)
        self.assertEqual(types_of(output / "model.safetensors"), types_of(model / "model.safetensors"))
        # A run resumes from the checkpoint with every bit.
        checkpoint = tensors_of(output / "checkpoint-2" / "model.safetensors")
        self.assertEqual({kind for kind, _, _ in checkpoint.values()}, {"F32"})
        for name, (_, _, content) in tensors_of(output / "model.safetensors").items():
            for exact, saved in zip(values_of("F32", checkpoint[name][2]), values_of("BF16", content)):
                self.assertLessEqual(abs(saved - exact), abs(exact) / 256)
        self.assert_loads(output, "bfloat16")

    def test_another_type_is_saved_where_it_is_asked_for(self):
        model = self.came_in("bf16_asked", lambda name: "BF16")
        output, said = self.result_of("asked", model, "save.result_dtype=fp32")
        self.assertIn("fp32 (save.result_dtype), where bf16 came in", said)
        self.assertEqual(set(types_of(output / "model.safetensors").values()), {"F32"})
        self.assert_loads(output, "float32")

    def test_fp16_is_saved_in_fp16(self):
        model = self.came_in("fp16", lambda name: "F16")
        output, said = self.result_of("fp16_out", model)
        exact, _ = self.result_of("fp16_exact", model, "save.result_dtype=fp32")
        self.assertIn("fp16, as it came in; trained in fp32, and rounded", said)
        whole = tensors_of(exact / "model.safetensors")
        for name, (kind, _, content) in tensors_of(output / "model.safetensors").items():
            values = values_of("F32", whole[name][2])
            self.assertEqual((kind, content), ("F16", struct.pack(f"<{len(values)}e", *values)), name)
        self.assert_loads(output, "float16")

    def test_mixed_types_stay_mixed(self):
        model = self.came_in("mixed", lambda name: "F32" if "norm" in name else "BF16")
        output, _ = self.result_of("mixed_out", model)
        self.assertEqual(types_of(output / "model.safetensors"), types_of(model / "model.safetensors"))
        self.assertEqual(len(set(types_of(output / "model.safetensors").values())), 2)
        self.assert_loads(output, "bfloat16")

    def test_what_training_keeps_is_saved_without_a_word(self):
        output, said = self.result_of("same", self.model)
        self.assertNotIn("saved as", said)
        self.assertEqual(set(types_of(output / "model.safetensors").values()), {"F32"})

    def test_fp32_trained_in_bf16_says_what_its_values_have(self):
        output, said = self.result_of("wide", self.model, "model.dtype=bf16")
        self.assertIn("fp32, as it came in; trained in bf16, whose precision the values have", said)
        for kind, _, content in tensors_of(output / "model.safetensors").values():
            self.assertEqual(kind, "F32")
            self.assertFalse(any(content[0::4]) or any(content[1::4]))
        self.assert_loads(output, "float32")

    def test_master_weights_are_saved_whole(self):
        output, said = self.result_of("master", self.model, "model.dtype=bf16", "optimizer.master_weights=true")
        self.assertNotIn("saved as", said)
        low = [content[0::4] for _, _, content in tensors_of(output / "model.safetensors").values()]
        self.assertTrue(any(any(part) for part in low))

    def test_a_value_beyond_fp16_is_not_saved_as_infinity(self):
        table = "model.embed_tokens.weight"

        def large_last(name, values):  # the row of a token that no text has
            return (*values[:-1], 1e5) if name == table else values

        model = self.came_in("large", lambda name: "F32", value_of=large_last)
        output, said = self.result_of("large_out", model, "save.result_dtype=fp16")
        for words in ("saved in fp32, not in fp16", table, "100000", "65504"):
            self.assertIn(words, said)
        self.assertEqual(set(types_of(output / "model.safetensors").values()), {"F32"})
        self.assert_loads(output, "float32")

    def test_an_adapter_keeps_its_type_too(self):
        first, second, third = (self.scratch / name for name in ("adapter", "adapter_bf16", "adapter_again"))
        self.assert_done(self.train("tiny_qwen.yaml", first, "max_steps=2"))
        self.assertEqual(set(types_of(first / "adapter_model.safetensors").values()), {"F32"})
        result = self.train("tiny_qwen.yaml", second, "max_steps=2", "save.result_dtype=bf16")
        self.assert_done(result)
        self.assertIn("bf16 (save.result_dtype); trained in fp32, and rounded", result.stderr)
        self.assertEqual(set(types_of(second / "adapter_model.safetensors").values()), {"BF16"})
        result = self.train("tiny_qwen.yaml", third, "max_steps=2", f"lora.adapter={second}")
        self.assert_done(result)
        self.assertIn("bf16, as it came in", result.stderr)
        self.assertEqual(set(types_of(third / "adapter_model.safetensors").values()), {"BF16"})


if __name__ == "__main__":
    unittest.main()
