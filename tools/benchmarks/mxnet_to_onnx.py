"""Writes an MXNet checkpoint (today's files, operators of the classification networks) as ONNX: same graph, same weights.

Only for comparing with other engines: an operator or attribute that is not translated exactly is an error.
"""
import ast
import json
import struct

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLAGS = {0: np.float32, 1: np.float64, 2: np.float16, 3: np.uint8, 4: np.int32, 5: np.int8, 6: np.int64}


def read_params(path):
    """{name without arg:/aux: -> array} of a V2 parameter file."""
    data = open(path, "rb").read()
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


class Translator:
    def __init__(self, symbol, params):
        self.nodes, self.heads = symbol["nodes"], symbol["heads"]
        self.params = params
        self.onnx_nodes, self.initializers, self.inputs = [], {}, []

    def value(self, entry):
        """The ONNX name of a graph entry."""
        node = self.nodes[entry[0]]
        return node["name"] if node["op"] == "null" else f'{node["name"]}_{entry[1]}'

    def constant(self, name, array):
        self.initializers[name] = np.ascontiguousarray(array)
        return name

    def emit(self, op, inputs, output, **attributes):
        self.onnx_nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))

    def translate(self, node):
        op, name = node["op"], node["name"]
        attrs = {k: v for k, v in node.get("attrs", {}).items() if not k.startswith("__")}
        tuple_of = lambda key, default: list(ast.literal_eval(attrs[key])) if key in attrs else default
        flag = lambda key, default="False": attrs.get(key, default) in ("True", "true", "1")
        inputs = [self.value(e) for e in node["inputs"]]
        out = f"{name}_0"
        if op == "Convolution":
            kernel = tuple_of("kernel", None)
            pad = tuple_of("pad", [0] * len(kernel))
            self.emit("Conv", inputs, out, kernel_shape=kernel, strides=tuple_of("stride", [1] * len(kernel)), pads=pad + pad,
                      dilations=tuple_of("dilate", [1] * len(kernel)), group=int(attrs.get("num_group", 1)))
        elif op == "BatchNorm":
            if flag("fix_gamma", "True"):
                inputs[1] = self.constant(f"{name}_ones", np.ones_like(self.params[inputs[1]]))
            self.emit("BatchNormalization", inputs, out, epsilon=float(attrs.get("eps", 1e-3)))
        elif op == "Activation":
            self.emit({"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}[attrs["act_type"]], inputs, out)
        elif op == "Pooling":
            kind = attrs.get("pool_type", "max")
            if flag("global_pool"):
                self.emit({"avg": "GlobalAveragePool", "max": "GlobalMaxPool"}[kind], inputs, out)
                return
            kernel = tuple_of("kernel", None)
            pad = tuple_of("pad", [0] * len(kernel))
            options = dict(kernel_shape=kernel, strides=tuple_of("stride", [1] * len(kernel)), pads=pad + pad,
                           ceil_mode=int(attrs.get("pooling_convention", "valid") == "full"))
            if kind == "avg":
                options["count_include_pad"] = int(attrs.get("count_include_pad", "True") in ("True", "None"))
            self.emit({"avg": "AveragePool", "max": "MaxPool"}[kind], inputs, out, **options)
        elif op == "FullyConnected":
            self.emit("Flatten", inputs[:1], f"{name}_flat", axis=1)
            self.emit("Gemm", [f"{name}_flat"] + inputs[1:], out, transB=1)
        elif op in ("elemwise_add", "_Plus", "_plus"):
            self.emit("Add", inputs, out)
        elif op == "Concat":
            self.emit("Concat", inputs, out, axis=int(attrs.get("dim", 1)))
        elif op in ("Flatten", "flatten"):
            self.emit("Flatten", inputs, out, axis=1)
        elif op in ("Dropout", "_copy", "identity"):
            self.emit("Identity", inputs[:1], out)
        elif op == "SoftmaxOutput":
            self.emit("Softmax", inputs[:1], out, axis=1)
        elif op == "clip":
            low, high = (self.constant(f"{name}_{k}", np.float32(attrs[k])) for k in ("a_min", "a_max"))
            self.emit("Clip", inputs + [low, high], out)
        else:
            raise ValueError(f"{op} '{name}' has no translation")

    def model(self, input_shapes):
        for node in self.nodes:
            if node["op"] != "null":
                self.translate(node)
        used = {i for n in self.onnx_nodes for i in n.input}
        for name in used & set(self.params):
            self.initializers.setdefault(name, self.params[name])
        graph = helper.make_graph(
            self.onnx_nodes, "model",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in input_shapes.items()],
            [helper.make_tensor_value_info(self.value(h), TensorProto.FLOAT, None) for h in self.heads],
            [numpy_helper.from_array(np.asarray(a), n) for n, a in self.initializers.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        return model


def export(symbol_file, params_file, input_shapes, onnx_file):
    """Writes `onnx_file`; input_shapes {name: [dims]}."""
    symbol = json.load(open(symbol_file))
    onnx.save(Translator(symbol, read_params(params_file)).model(input_shapes), onnx_file)
