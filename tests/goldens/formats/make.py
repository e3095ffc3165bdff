#!/usr/bin/env python3
"""Makes the files beside it: small directories as safetensors, transformers and peft write them, and safetensors' verdict
on good and damaged files. Run with the Python that has these libraries; the versions are in versions.json."""

import base64
import json
import random
import shutil
import struct
from pathlib import Path

import peft
import safetensors
import torch
import transformers
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent


def tensors_of_all_types():
    values = torch.arange(6).reshape(2, 3)
    named = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
             "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8}
    tensors = {name: values.to(dtype) for name, dtype in named.items()}
    tensors["bool"] = values % 2 == 0
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.zeros(0, 4)
    save_file(tensors, HERE / "all_types.safetensors", {"format": "pt", "note": "grün"})


def file_bytes(header, data=b"", length=None):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def tensor(dtype, shape, begin, end, **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


def header_cases():
    a = tensor("F32", [2], 0, 8)
    one = json.dumps({"a": tensor("F32", [1], 0, 4)}).encode()
    x = b"x"
    return {
        "no tensors": file_bytes({}),
        "one tensor": file_bytes({"a": a}, 8 * x),
        "scalar": file_bytes({"a": tensor("F32", [], 0, 4)}, 4 * x),
        "empty tensor": file_bytes({"a": tensor("F32", [0], 0, 0), "b": a}, 8 * x),
        "empty tensor between": file_bytes({"a": a, "z": tensor("F32", [0, 5], 8, 8), "c": tensor("U8", [1], 8, 9)}, 9 * x),
        "unknown field": file_bytes({"a": {**a, "more": 1}}, 8 * x),
        "null metadata": file_bytes({"__metadata__": None, "a": a}, 8 * x),
        "blanks around the header": file_bytes(b"  " + one + b"   ", 4 * x),
        "gap between": file_bytes({"a": a, "b": tensor("F32", [1], 12, 16)}, 16 * x),
        "gap at the start": file_bytes({"a": tensor("F32", [2], 4, 12)}, 12 * x),
        "bytes at the end": file_bytes({"a": a}, 12 * x),
        "overlap": file_bytes({"a": a, "b": tensor("F32", [2], 4, 12)}, 12 * x),
        "same bytes": file_bytes({"a": a, "b": a}, 8 * x),
        "empty tensor inside another": file_bytes({"a": a, "z": tensor("F32", [0], 4, 4)}, 8 * x),
        "empty tensor outside": file_bytes({"a": a, "z": tensor("F32", [0], 100, 100)}, 8 * x),
        "truncated data": file_bytes({"a": a}, 4 * x),
        "size is not shape x type": file_bytes({"a": tensor("F32", [3], 0, 8)}, 8 * x),
        "negative size": file_bytes({"a": tensor("F32", [-2], 0, 8)}, 8 * x),
        "fractional size": file_bytes({"a": tensor("F32", [1.0], 0, 4)}, 4 * x),
        "size beyond 64 bits": file_bytes({"a": tensor("F32", [2**70], 0, 4)}, 4 * x),
        "product beyond 64 bits": file_bytes({"a": tensor("F32", [2**62, 4], 0, 0)}),
        "product wraps to the right size": file_bytes({"a": tensor("F32", [2**62 + 1, 2], 0, 8)}, 8 * x),
        "reversed offsets": file_bytes({"a": tensor("F32", [1], 4, 0)}, 4 * x),
        "offsets past the end": file_bytes({"a": tensor("F32", [1], 2**63, 2**63 + 4)}, 4 * x),
        "three offsets": file_bytes({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}, 8 * x),
        "no shape": file_bytes({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, 4 * x),
        "no dtype": file_bytes({"a": {"shape": [1], "data_offsets": [0, 4]}}, 4 * x),
        "unknown dtype": file_bytes({"a": tensor("F99", [1], 0, 4)}, 4 * x),
        "metadata that is no string": file_bytes({"__metadata__": {"k": 1}, "a": a}, 8 * x),
        "metadata that is a list": file_bytes({"__metadata__": ["k"], "a": a}, 8 * x),
        "tensor that is a number": file_bytes({"a": 7}),
        "header is a list": file_bytes([]),
        "header is no JSON": file_bytes(b'{"a": '),
        "header of length 0": file_bytes(one, 4 * x, length=0),
        "header longer than the file": file_bytes(one, 4 * x, length=10**6),
        "header of 2^64-1 bytes": file_bytes(one, 4 * x, length=2**64 - 1),
        "NUL after the header": file_bytes(one + b"\0\0", 4 * x),
        "header is no UTF-8": file_bytes(one.replace(b'"a"', b'"\xff"'), 4 * x),
        "duplicate field": file_bytes(b'{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4 * x),
        "duplicate tensor": file_bytes(
            b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
            8 * x),
        "seven bytes": 7 * x,
        "nothing": b"",
    }


def damaged(header, data, seed, count):
    """Copies of a good file with one or two bytes of the header changed, removed or added, or cut off."""
    rng = random.Random(seed)
    for _ in range(count):
        copy = bytearray(header)
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(len(copy))
            action = rng.randrange(6)
            if action == 0:
                copy[at] = rng.randrange(256)
            elif action < 4:
                copy[at] = rng.choice(b'0123456789')
            elif action == 4:
                del copy[at]
            else:
                copy.insert(at, rng.choice(b'0123456789[]{}",: '))
        content = file_bytes(bytes(copy), data, rng.choice([None, None, len(header)]))
        yield content[: rng.randrange(len(content))] if rng.random() < 0.1 else content


def accepted(content):
    try:
        safetensors.deserialize(content)
        return True
    except safetensors.SafetensorError:
        return False


def verdicts():
    good = {"tensor": tensor("F32", [2, 2], 0, 16), "b": tensor("BF16", [3], 16, 22)}
    text = json.dumps(good, separators=(",", ":")).encode()
    cases = list(header_cases().items()) + [(f"damaged {i}", c) for i, c in enumerate(damaged(text, bytes(22), 1, 250))]
    rows = [{"name": n, "file": base64.b16encode(c).decode(), "accepted": accepted(c)} for n, c in cases]
    (HERE / "verdicts.json").write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


def tiny_t5():
    torch.manual_seed(0)
    return transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=12, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, relative_attention_num_buckets=4))


def tiny_llama():
    torch.manual_seed(0)
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=12, hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, rope_parameters=rope)).to(torch.bfloat16)


def fresh(name):
    shutil.rmtree(HERE / name, ignore_errors=True)
    return HERE / name


def model_directory():
    model = tiny_llama()
    model.save_pretrained(fresh("llama_sharded"), max_shard_size=1500)
    sums = {k: {"shape": list(v.shape), "sum": v.double().sum().item()} for k, v in model.state_dict().items()}
    (HERE / "llama_sharded.json").write_text(json.dumps(sums, indent=1, sort_keys=True) + "\n")


def adapter():
    config = peft.LoraConfig(task_type="SEQ_2_SEQ_LM", r=4, lora_alpha=12, lora_dropout=0.05, use_rslora=True,
                             target_modules=["q", "v"], modules_to_save=["lm_head"])
    model = peft.get_peft_model(tiny_t5(), config)
    model.peft_config["default"].base_model_name_or_path = "models/tiny-t5"
    model.save_pretrained(fresh("t5_adapter"), save_embedding_layers=False)
    (HERE / "t5_adapter" / "README.md").unlink()


if __name__ == "__main__":
    tensors_of_all_types()
    verdicts()
    model_directory()
    adapter()
    versions = {m.__name__: m.__version__ for m in (peft, safetensors, torch, transformers)}
    (HERE / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")
