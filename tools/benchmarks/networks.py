"""The networks that tools/bench compares: checkpoint, shapes and inputs of each. Needs only the standard library.

A name is one of:
  PREFIX       a checkpoint with one input, data, of N,3,224,224
  NAME         a network with computed weights, of the test data or of made_networks.py; its inputs are those of its entry there
  NAME@LENGTH  the same with sequences of that length, all of it valid
  NAME:cut     the same without its detection head (cut.py)
"""
import array
import dataclasses
import json
import math
import re
import struct
from pathlib import Path

import cut
import made_networks
from harness import BUILD, BenchError, network, test_network


WORD = 2**64 - 1


def bits24(text, count):
    """The upper 24 bits of the first outputs of splitmix64, seeded with the text's FNV-1a hash: WEIGHTS.md of the test data."""
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001B3 & WORD
    result = []
    for _ in range(count):
        state = state + 0x9E3779B97F4A7C15 & WORD
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & WORD
        z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
        result.append((z ^ z >> 31) >> 40)
    return result


def noise(text, count):
    """In [-1, 1)."""
    return [bits * 2.0**-23 - 1 for bits in bits24(text, count)]


def squares(text, shape, size):
    """Noise on squares of the last two dimensions: one number for each square of `size` elements a side."""
    *outer, height, width = shape
    rows, columns = -(-height // size), -(-width // size)
    coarse = noise(text, math.prod(outer) * rows * columns)
    return [coarse[(plane * rows + y // size) * columns + x // size]
            for plane in range(math.prod(outer)) for y in range(height) for x in range(width)]


@dataclasses.dataclass(frozen=True)
class Input:
    """One input of a network. `rule` is its entry in cases.json: ids below a bound, one value everywhere, these values, or noise, also
    on squares."""
    name: str
    shape: tuple
    rule: dict = dataclasses.field(default_factory=dict)

    def values(self):
        """As WEIGHTS.md of the test data says; bit for bit only where the offset is 0."""
        count, rule = math.prod(self.shape), self.rule
        if "value" in rule:
            return array.array("f", [rule["value"]] * count)
        if "values" in rule:
            return array.array("f", rule["values"])
        if "ids" in rule:
            return array.array("f", (bits * rule["ids"] >> 24 for bits in bits24(self.name, count)))
        numbers = noise(self.name, count)
        if "blocks" in rule:
            numbers = [a + b for a, b in zip(numbers, squares(f"{self.name}/blocks", self.shape, rule["blocks"]))]
        offset, scale = rule.get("offset", 0.0), rule.get("scale", 1.0)
        return array.array("f", (offset + scale * number for number in numbers))


@dataclasses.dataclass(frozen=True)
class Network:
    name: str
    prefix: str
    inputs: tuple

    def shapes(self):
        """"data=1,3,224,224" for each input."""
        return [f"{item.name}={','.join(map(str, item.shape))}" for item in self.inputs]

    def key(self):
        """Names these shapes, for files that hold a network compiled for them."""
        return "-".join("x".join(map(str, item.shape)) for item in self.inputs)

    def write_inputs(self, directory):
        """Writes directory/0.npy, 1.npy, ..."""
        for number, item in enumerate(self.inputs):
            write_npy(Path(directory) / f"{number}.npy", item.shape, item.values())


def write_npy(path, shape, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)}}}"
    header += " " * ((64 - (10 + len(header) + 1) % 64) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values.tobytes())


def rules_of(data, name):
    """{input: its rule}, from the test data's cases.json. Empty if the network has no entry."""
    cases = data.parent / "cases.json"
    entries = json.loads(cases.read_text()) if cases.exists() else []
    return next((entry["input"] for entry in entries if entry["name"] == name), {})


def at_length(rules, length, name):
    """The rules with sequences of this length. The sequence axis is the longer one of the inputs that hold ids; an input with one value
    holds valid lengths. Errors: BenchError"""
    result = {}
    for key, rule in rules.items():
        shape = list(rule["shape"])
        if "ids" in rule:
            shape[shape.index(max(shape))] = length
        result[key] = {**rule, "shape": shape, **({"value": length} if "value" in rule else {})}
    if not any("ids" in rule for rule in rules.values()):
        raise BenchError(f"{name}@{length}: the network has no input of ids, so it has no length")
    return result


def with_batch(rules, batch, name):
    """{input: (shape, rule)}. The first dimension is the batch. Errors: BenchError"""
    if batch != 1 and any({"ids", "value", "values"} & set(rule) for rule in rules.values()):
        raise BenchError(f"{name}: sequences, and networks with other inputs than pictures, are measured at batch 1 only")
    return tuple(Input(key, (rule["shape"][0] if batch == 1 else batch, *rule["shape"][1:]), rule) for key, rule in rules.items())


def cut_prefix(prefix):
    """The prefix of the same checkpoint without its detection head; written if it is missing or older. Errors: BenchError"""
    target, params = BUILD / Path(prefix).name / f"{Path(prefix).name}-cut", Path(f"{prefix}-0000.params")
    symbol, link = Path(f"{target}-symbol.json"), Path(f"{target}-0000.params")
    if not symbol.exists() or symbol.stat().st_mtime < Path(f"{prefix}-symbol.json").stat().st_mtime:
        try:
            text = json.dumps(cut.cut(json.loads(Path(f"{prefix}-symbol.json").read_text())))
        except cut.CutError as error:
            raise BenchError(f"{prefix}: {error}") from None
        target.parent.mkdir(parents=True, exist_ok=True)
        symbol.write_text(text)
    link.unlink(missing_ok=True)
    link.symlink_to(params.resolve())
    return str(target)


def inputs_of(prefix, inputs):
    """Those of the inputs that the graph has: a cut one may need fewer."""
    names = {node["name"] for node in json.loads(Path(f"{prefix}-symbol.json").read_text())["nodes"]}
    return tuple(item for item in inputs if item.name in names)


def find(name, batch=1):
    """The network of this name. Errors: BenchError; ends the tool if neither a checkpoint nor a network has the name."""
    if Path(f"{name}-symbol.json").exists():
        return Network(Path(name).name, name, (Input("data", (batch, 3, 224, 224)),))
    stem, bare, length, is_cut = re.fullmatch(r"((.*?)(?:@([1-9]\d*))?)(:cut)?", name).groups()
    length = length and int(length)
    if bare in made_networks.NETWORKS:
        made = made_networks.find(bare, length)
        inputs = with_batch(made.rules(), batch, bare)
        prefix = made_networks.checkpoint(stem, made, Network(name, "", inputs).shapes())
    else:
        prefix = network(bare)
        rules = rules_of(test_network(bare), bare) or {"data": {"shape": [1, 3, 224, 224]}}
        inputs = with_batch(at_length(rules, length, bare) if length else rules, batch, bare)
    if is_cut:
        prefix = cut_prefix(prefix)
        inputs = inputs_of(prefix, inputs)
    return Network(name, prefix, inputs)
