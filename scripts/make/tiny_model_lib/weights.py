"""Random tensors, and the safetensors file for them, with only Python's standard library."""
import array
import json
import random
import statistics
import struct
import sys

LEVELS = 1 << 16


def to_bf16(value):
    """The 16 bits of `value` as bfloat16, rounded to nearest, ties to even."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


class Tensors:
    """Tensors by name, each with its rule: the standard deviation of a normal distribution, or one value for all."""

    def __init__(self, seed, dtype):
        self.seed = seed
        self.code = {"float32": "f", "bfloat16": "H"}[dtype]
        self.dtype_name = {"float32": "F32", "bfloat16": "BF16"}[dtype]
        self.rules = {}
        quantile = statistics.NormalDist().inv_cdf
        self.normal = [quantile((i + 0.5) / LEVELS) for i in range(LEVELS)]

    def add_normal(self, name, shape, deviation):
        self.rules[name] = (shape, deviation, None)

    def add_constant(self, name, shape, value):
        self.rules[name] = (shape, None, value)

    def count(self):
        return sum(size(shape) for shape, _, _ in self.rules.values())

    def stored(self, value):
        return value if self.code == "f" else to_bf16(value)

    def data(self, name):
        """The tensor's elements. They depend only on the seed and the name."""
        shape, deviation, value = self.rules[name]
        if deviation is None:
            return array.array(self.code, [self.stored(value)]) * size(shape)
        draws = array.array("H", random.Random(f"{self.seed} {name}").randbytes(2 * size(shape)))
        table = [self.stored(deviation * z) for z in self.normal]
        return array.array(self.code, map(table.__getitem__, draws))

    def write(self, path):
        header, offset = {"__metadata__": {"format": "pt"}}, 0
        item = array.array(self.code).itemsize
        for name in sorted(self.rules):
            shape = self.rules[name][0]
            end = offset + size(shape) * item
            header[name] = {"dtype": self.dtype_name, "shape": list(shape), "data_offsets": [offset, end]}
            offset = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name in sorted(self.rules):
                elements = self.data(name)
                if sys.byteorder == "big":
                    elements.byteswap()
                elements.tofile(file)


def size(shape):
    count = 1
    for extent in shape:
        count *= extent
    return count
