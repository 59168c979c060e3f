#!/usr/bin/env python3
"""Makes the cases of this folder: networks as MXNet's quantize_model writes them, with MXNet's answers.

Needs PyPI mxnet 1.9.1 on Python 3.8 with numpy 1.23.5. Run it with MXNET_SUBGRAPH_BACKEND=NONE: fused graphs are another format.
MXNet computes a quantized Convolution of uint8 only, and an elementwise product of int8 only.
"""
import json
import os

import mxnet as mx
import numpy as np
from mxnet.contrib.quantization import quantize_model

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPE = (2, 3, 4, 4)
# network, calib_mode, quantized_dtype, quantize_mode
CASES = [
    ("add", "none", "int8", "full"), ("add", "naive", "auto", "full"), ("mul", "none", "auto", "smart"),
    ("mul", "naive", "int8", "full"), ("concat", "none", "auto", "smart"), ("concat", "entropy", "int8", "full"),
    ("norm", "naive", "auto", "full"), ("pool", "none", "int8", "full"), ("pool", "naive", "auto", "full"),
    ("conv", "none", "uint8", "smart"), ("conv", "naive", "auto", "smart"), ("conv_without_bias", "entropy", "auto", "smart"),
]


def dense(data, name, units=6):
    return mx.sym.FullyConnected(mx.sym.Flatten(data, name=name + "_flat"), num_hidden=units, name=name)


def network(kind):
    data = mx.sym.Variable("data")
    if kind.startswith("conv"):
        x = mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=4, no_bias=kind != "conv", name="conv")
    elif kind == "pool":
        x = mx.sym.Pooling(data, kernel=(2, 2), stride=(2, 2), pool_type="max", name="max")
        x = mx.sym.Pooling(x, kernel=(2, 2), pad=(1, 1), pool_type="avg", name="mean")
    else:
        x = dense(data, "left")
        if kind == "add":
            x = x + dense(data, "right")
        if kind == "mul":
            x = x * dense(data, "right")
        if kind == "concat":
            x = mx.sym.concat(x, dense(data, "right"), dim=1, name="joined")
        if kind == "norm":
            x = mx.sym.BatchNorm(mx.sym.reshape(x, shape=(0, 0, 1, 1)), fix_gamma=False, name="norm")
        x = mx.sym.Activation(x, act_type="relu", name="relu")
    return dense(x, "last", 5)


def make(kind, mode, dtype, quantize_mode):
    draw = np.random.RandomState(5)
    symbol = network(kind)
    shapes, _, states = symbol.infer_shape(data=SHAPE)
    scale = {name: 3 / np.prod(shape[1:]) ** 0.5 if len(shape) > 1 else 0.3
             for name, shape in zip(symbol.list_arguments(), shapes)}
    args = {name: mx.nd.array(draw.uniform(-1, 1, shape) * scale[name])
            for name, shape in zip(symbol.list_arguments(), shapes) if name != "data"}
    aux = {name: mx.nd.array(draw.uniform(0.5, 1.5, shape))
           for name, shape in zip(symbol.list_auxiliary_states(), states)}
    data = draw.uniform(0, 1, (16,) + SHAPE[1:]).astype("float32")
    batches = mx.io.NDArrayIter(data, None, batch_size=SHAPE[0])
    symbol, args, aux = quantize_model(symbol, args, aux, ctx=mx.cpu(), calib_mode=mode, calib_data=batches,
                                       num_calib_examples=len(data), quantized_dtype=dtype, label_names=None,
                                       quantize_mode=quantize_mode)
    first = mx.nd.array(data[:SHAPE[0]])
    answer = symbol.bind(mx.cpu(), dict(args, data=first), aux_states=aux).forward()[0]
    name = "_".join((kind, mode, dtype, quantize_mode))
    prefix = os.path.join(HERE, name)
    symbol.save(prefix + "-symbol.json")
    arrays = {"arg:" + key: value for key, value in args.items()}
    arrays.update({"aux:" + key: value for key, value in aux.items()})
    mx.nd.save(prefix + "-0000.params", arrays)
    mx.nd.save(prefix + "-io.params", {"in:data": first, "out:0": answer})
    return {"name": name, "tolerance": 0.015}  # MXNet's numbers are rounded to a 127th of their range after each operator


if __name__ == "__main__":
    with open(os.path.join(HERE, "cases.json"), "w") as file:
        json.dump([make(*case) for case in CASES], file, indent=1)
        file.write("\n")
