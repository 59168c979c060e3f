#!/usr/bin/env python3
"""Trains the shapes model and writes it as an MXNet checkpoint: model/shapes-symbol.json, shapes-0000.params, synset.txt, model.toml.

usage: train.py [--output DIR] [--pictures N] [--epochs N]        (about ten minutes on one core)

Only for development. Needs: pip install numpy pillow jax
"""
import argparse
import json
import struct
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from draw import CLASSES, draw_set

SIZE = 64
EPS = 1e-5
# (filters, stride) of each 3x3 convolution, which BatchNorm and ReLU follow. Then come global average pooling and one matrix.
LAYERS = [(16, 2), (32, 2), (32, 1), (64, 2), (64, 1), (96, 2), (96, 1)]


def initial_parameters(rng):
    parameters, statistics, channels = {}, {}, 3
    for i, (filters, _) in enumerate(LAYERS):
        parameters[f"conv{i}_weight"] = rng.normal(0, np.sqrt(2 / (9 * channels)), (filters, channels, 3, 3))
        parameters[f"bn{i}_gamma"], parameters[f"bn{i}_beta"] = np.ones(filters), np.zeros(filters)
        statistics[f"bn{i}_moving_mean"], statistics[f"bn{i}_moving_var"] = np.zeros(filters), np.ones(filters)
        channels = filters
    parameters["fc_weight"] = rng.normal(0, np.sqrt(1 / channels), (len(CLASSES), channels))
    parameters["fc_bias"] = np.zeros(len(CLASSES))
    as_float = lambda tree: {k: jnp.asarray(v, jnp.float32) for k, v in tree.items()}
    return as_float(parameters), as_float(statistics)


def forward(parameters, statistics, x, training):
    """Returns the scores, and the moving statistics after this batch."""
    updated = {}
    for i, (_, stride) in enumerate(LAYERS):
        x = jax.lax.conv_general_dilated(x, parameters[f"conv{i}_weight"], (stride, stride), ((1, 1), (1, 1)))
        if training:
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
        else:
            mean, var = statistics[f"bn{i}_moving_mean"], statistics[f"bn{i}_moving_var"]
        for key, value in ((f"bn{i}_moving_mean", mean), (f"bn{i}_moving_var", var)):
            updated[key] = 0.95 * statistics[key] + 0.05 * value
        scale = parameters[f"bn{i}_gamma"] / jnp.sqrt(var + EPS)
        x = x * scale[:, None, None] + (parameters[f"bn{i}_beta"] - mean * scale)[:, None, None]
        x = jnp.maximum(x, 0)
    return x.mean((2, 3)) @ parameters["fc_weight"].T + parameters["fc_bias"], updated


def loss(parameters, statistics, x, y):
    scores, updated = forward(parameters, statistics, x, training=True)
    return -jnp.mean(jax.nn.log_softmax(scores)[jnp.arange(len(y)), y]), updated


@jax.jit
def adam_step(parameters, moments, statistics, x, y, rate, t):
    (value, statistics), gradient = jax.value_and_grad(loss, has_aux=True)(parameters, statistics, x, y)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradient)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, moments[1], gradient)
    move = lambda p, m, v: p - rate * (m / (1 - 0.9**t) / (jnp.sqrt(v / (1 - 0.99**t)) + 1e-8) + 1e-4 * p)
    return jax.tree.map(move, parameters, first, second), (first, second), statistics, value


def as_input(pictures):
    return jnp.asarray(pictures.transpose(0, 3, 1, 2), jnp.float32) / 127.5 - 1


@jax.jit
def scores_of(parameters, statistics, x):
    return forward(parameters, statistics, x, training=False)[0]


def accuracy(parameters, statistics, pictures, labels):
    right = 0
    for i in range(0, len(labels), 256):
        right += int((scores_of(parameters, statistics, as_input(pictures[i:i + 256])).argmax(1) == labels[i:i + 256]).sum())
    return right / len(labels)


def turned(pictures, rng):
    """Augments the pictures: one of the eight rotations and reflections of a square, and a random order of channels."""
    k = int(rng.integers(8))
    pictures = np.rot90(pictures, k % 4, (1, 2))
    if k >= 4:
        pictures = pictures[:, :, ::-1]
    return pictures[..., rng.permutation(3)]


def train(pictures, labels, test, epochs, batch=64):
    rng = np.random.default_rng(1)
    parameters, statistics = initial_parameters(rng)
    moments = (jax.tree.map(jnp.zeros_like, parameters), jax.tree.map(jnp.zeros_like, parameters))
    steps, t, start = len(labels) // batch, 0, time.time()
    for epoch in range(epochs):
        order, total = rng.permutation(len(labels)), 0.0
        for i in range(steps):
            t += 1
            rate = 3e-3 * min(1, t / 100) * 0.5 * (1 + np.cos(np.pi * t / (epochs * steps)))
            chosen = order[i * batch:(i + 1) * batch]
            x = as_input(turned(pictures[chosen], rng))
            parameters, moments, statistics, value = adam_step(parameters, moments, statistics, x, labels[chosen], rate, t)
            total += float(value)
        print(f"epoch {epoch + 1}/{epochs}: loss {total / steps:.4f}, test {accuracy(parameters, statistics, *test):.4f}, "
              f"{time.time() - start:.0f} s", flush=True)
    return parameters, statistics


# --- the checkpoint, in the format of MXNet 1.9.1 ---------------------------------------------------------------------------

def symbol_json():
    nodes, arguments = [], []

    def add(op, name, inputs, **attrs):
        node = {"op": op, "name": name, "inputs": [[i, 0, 0] for i in inputs]}
        if attrs:
            node["attrs"] = {k: str(v) for k, v in attrs.items()}
        if op == "null":
            arguments.append(len(nodes))
        nodes.append(node)
        return len(nodes) - 1

    last = add("null", "data", [])
    for i, (filters, stride) in enumerate(LAYERS):
        weight = add("null", f"conv{i}_weight", [])
        last = add("Convolution", f"conv{i}", [last, weight], kernel="(3, 3)", stride=(stride, stride), pad="(1, 1)",
                   num_filter=filters, no_bias=True)
        norm = [add("null", f"bn{i}_{part}", []) for part in ("gamma", "beta", "moving_mean", "moving_var")]
        last = add("BatchNorm", f"bn{i}", [last, *norm], eps=EPS, fix_gamma=False)
        last = add("Activation", f"relu{i}", [last], act_type="relu")
    last = add("Pooling", "pool", [last], global_pool=True, kernel="(1, 1)", pool_type="avg")
    last = add("Flatten", "flatten", [last])
    last = add("FullyConnected", "fc", [last, add("null", "fc_weight", []), add("null", "fc_bias", [])], num_hidden=len(CLASSES))
    last = add("softmax", "prob", [last])
    return json.dumps({"nodes": nodes, "arg_nodes": arguments, "node_row_ptr": list(range(len(nodes) + 1)),
                       "heads": [[last, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}, indent=1)


def params_bytes(arrays):
    """The NDArray list: magic, count, V2 records (dense, float32, on the CPU), then the names."""
    out = [struct.pack("<QQQ", 0x112, 0, len(arrays))]
    for value in arrays.values():
        value = np.ascontiguousarray(value, np.float32)
        out.append(struct.pack("<Iii", 0xF993FAC9, 0, value.ndim) + struct.pack(f"<{value.ndim}q", *value.shape))
        out.append(struct.pack("<iii", 1, 0, 0) + value.tobytes())
    out.append(struct.pack("<Q", len(arrays)))
    for name in arrays:
        out.append(struct.pack("<Q", len(name)) + name.encode())
    return b"".join(out)


MODEL_TOML = """\
# A classifier of drawn shapes; made by tools/shapes/train.py.
inputs = [{{name = "data", shape = [-1, 3, {size}, {size}], dtype = "float32", layout = "NCHW"}}]
outputs = ["prob_output"]
labels = "synset.txt"

[preprocess]
resize = {size}
crop = {size}
order = "RGB"
mean = 127.5
scale = 0.00784313725490196   # 1 / 127.5
"""


def write_checkpoint(directory, parameters, statistics):
    directory.mkdir(parents=True, exist_ok=True)
    arrays = {f"arg:{k}": v for k, v in parameters.items()} | {f"aux:{k}": v for k, v in statistics.items()}
    (directory / "shapes-symbol.json").write_text(symbol_json() + "\n")
    (directory / "shapes-0000.params").write_bytes(params_bytes(arrays))
    (directory / "synset.txt").write_text("".join(f"{name}\n" for name in CLASSES))
    (directory / "model.toml").write_text(MODEL_TOML.format(size=SIZE))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "model")
    parser.add_argument("--pictures", type=int, default=18000)
    parser.add_argument("--epochs", type=int, default=12)
    args = parser.parse_args()
    pictures, labels = draw_set(args.pictures, seed=1)
    test = draw_set(3000, seed=999_983)  # not used in training
    print(f"{len(labels)} pictures drawn", flush=True)
    parameters, statistics = train(pictures, labels, test, args.epochs)
    write_checkpoint(args.output, parameters, statistics)
    print(f"{accuracy(parameters, statistics, *test):.4f} of {len(test[1])} test pictures are right; written to {args.output}")


if __name__ == "__main__":
    main()
