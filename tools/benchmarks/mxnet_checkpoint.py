"""Reads an MXNet checkpoint in the current format, for comparisons with other engines. Needs only numpy.

A test of Shoal must not use Shoal's own reader, so this one shares no code with worker/import.
"""
import ast
import json
import struct
from pathlib import Path

import numpy as np

FLAGS = {0: np.float32, 1: np.float64, 2: np.float16, 3: np.uint8, 4: np.int32, 5: np.int8, 6: np.int64}


def read_params(path):
    """{name without arg:/aux: -> array} of a V2 parameter file."""
    data = Path(path).read_bytes()
    magic, _, count = struct.unpack_from("<QQQ", data, 0)
    assert magic == 0x112, f"{path}: not a parameter list"
    at, arrays = 24, []
    for _ in range(count):
        version, storage, rank = struct.unpack_from("<Iii", data, at)
        assert version == 0xF993FAC9 and storage == 0, f"{path}: only dense V2 arrays"
        shape = struct.unpack_from(f"<{rank}q", data, at + 12)
        at += 12 + 8 * rank + 8
        dtype = np.dtype(FLAGS[struct.unpack_from("<i", data, at)[0]])
        size = int(np.prod(shape, dtype=np.int64))
        arrays.append(np.frombuffer(data, dtype, size, at + 4).reshape(shape))
        at += 4 + size * dtype.itemsize
    (names,) = struct.unpack_from("<Q", data, at)
    at += 8
    result = {}
    for array in arrays[:names]:
        (length,) = struct.unpack_from("<Q", data, at)
        name = data[at + 8:at + 8 + length].decode()
        result[name.split(":", 1)[-1]] = array
        at += 8 + length
    return result


class Node:
    """One node of the graph, with readers for its attributes."""

    def __init__(self, node):
        self.op, self.name, self.inputs = node["op"], node["name"], node["inputs"]
        self.attrs = {k: v for k, v in node.get("attrs", {}).items() if not k.startswith("__")}

    def numbers(self, key, default=None):
        """A tuple of numbers, which may be written as one number."""
        if key not in self.attrs:
            return default
        value = ast.literal_eval(self.attrs[key])
        return list(value) if isinstance(value, (tuple, list)) else [value]

    def flag(self, key, default="False"):
        return self.attrs.get(key, default) in ("True", "true", "1")

    def window(self):
        """The kernel, stride and pad of a convolution or pooling."""
        kernel = self.numbers("kernel")
        return kernel, self.numbers("stride", [1] * len(kernel)), self.numbers("pad", [0] * len(kernel))


def read_symbol(path):
    """Returns the nodes in their order of execution, and the heads as (node, output) pairs."""
    symbol = json.loads(Path(path).read_text())
    return [Node(n) for n in symbol["nodes"]], symbol["heads"]
