#!/usr/bin/env python3
"""write_model FOLDER: writes model.safetensors with random weights for the config.json in FOLDER, at the speed of the disk.

All weights are taken from one block of normal random numbers, each from its own place, because drawing 8 billion numbers
would take minutes. The same config.json gives the same file."""
import json
import pathlib
import shutil
import struct
import sys
import time
import zlib

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gpu_check_lib import layout  # noqa: E402

sys.path.insert(0, str(layout.MAKE))
from tiny_model_lib import families  # noqa: E402

BLOCK = (1 << 25) + 1009  # numbers; not a multiple of a row, so that rows differ
NAMES = {torch.float32: "F32", torch.bfloat16: "BF16"}


class Writer:
    """Like tiny_model_lib.weights.Tensors, for large models."""

    def __init__(self, dtype):
        self.dtype, self.rules, self.blocks = dtype, {}, {}

    def add_normal(self, name, shape, deviation):
        self.rules[name] = (shape, deviation, None)

    def add_constant(self, name, shape, value):
        self.rules[name] = (shape, None, value)

    def header(self):
        content, offset = {"__metadata__": {"format": "pt"}}, 0
        for name, (shape, _, _) in self.rules.items():
            end = offset + torch.Size(shape).numel() * self.dtype.itemsize
            content[name] = {"dtype": NAMES[self.dtype], "shape": list(shape), "data_offsets": [offset, end]}
            offset = end
        text = json.dumps(content).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text, offset

    def scaled(self, block, deviation):
        """The block with this standard deviation, in the file's dtype. A model needs only a few of them."""
        if deviation not in self.blocks:
            self.blocks[deviation] = (block * deviation).to(self.dtype)
        return self.blocks[deviation]

    def pieces(self, block, name):
        """The tensor's numbers, a few million at a time."""
        shape, deviation, value = self.rules[name]
        left = torch.Size(shape).numel()
        if deviation is None:
            yield torch.full((left,), value, dtype=self.dtype)
            return
        numbers, at = self.scaled(block, deviation), zlib.crc32(name.encode()) % len(block)
        while left > 0:
            piece = numbers[at:at + left]
            yield piece
            left, at = left - len(piece), 0

    def write(self, path):
        header, size = self.header()
        free = shutil.disk_usage(path.parent).free
        if size > free:
            sys.exit(f"error: {path.parent} has {free / 1e9:.1f} GB free, and the model takes {size / 1e9:.1f}; name a "
                     "roomier folder with --scratch")
        largest = max(torch.Size(shape).numel() for shape, deviation, _ in self.rules.values() if deviation)
        block = torch.randn(min(BLOCK, largest), generator=torch.Generator().manual_seed(0))
        with open(path, "wb") as file:
            file.write(header)
            for name in self.rules:
                for piece in self.pieces(block, name):
                    file.write(memoryview(piece.view(torch.uint8).numpy()))
        return size


def main():
    begin, folder = time.monotonic(), pathlib.Path(sys.argv[1])
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    writer = Writer(getattr(torch, config["torch_dtype"]))
    if config["model_type"] == "t5":
        families.t5_tensors(writer, {"initializer_factor": 1.0, **config})
        # Logits of unit size, as a trained model has them.
        writer.add_normal("lm_head.weight", (config["vocab_size"], config["d_model"]), config["d_model"] ** -0.5)
    else:
        families.decoder_tensors(writer, {"initializer_range": 0.02, **config})
    size = writer.write(folder / "model.safetensors")
    print(f"{folder}: {size / 1e9:.2f} GB in {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    main()
