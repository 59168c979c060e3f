"""Writes an MXNet checkpoint (current format, operators of classification networks) as ONNX, with the same graph and weights.

  mxnet_to_onnx.py PREFIX data=1,3,224,224 FILE.onnx

Only for comparisons with other engines. An operator or attribute without an exact translation is an error.
"""
import sys

import numpy as np
import onnx
from mxnet_checkpoint import read_params, read_symbol
from onnx import TensorProto, helper, numpy_helper


class Translator:
    def __init__(self, symbol_file, params_file):
        self.nodes, self.heads = read_symbol(symbol_file)
        self.params = read_params(params_file)
        self.onnx_nodes, self.initializers = [], {}

    def value(self, entry):
        """The ONNX name of a graph entry."""
        node = self.nodes[entry[0]]
        return node.name if node.op == "null" else f"{node.name}_{entry[1]}"

    def constant(self, name, array):
        self.initializers[name] = np.ascontiguousarray(array)
        return name

    def emit(self, op, inputs, output, **attributes):
        self.onnx_nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))

    def translate(self, node):
        inputs = [self.value(e) for e in node.inputs]
        out = f"{node.name}_0"
        if node.op == "Convolution":
            kernel, stride, pad = node.window()
            self.emit("Conv", inputs, out, kernel_shape=kernel, strides=stride, pads=pad + pad,
                      dilations=node.numbers("dilate", [1] * len(kernel)), group=int(node.attrs.get("num_group", 1)))
        elif node.op == "BatchNorm":
            if node.flag("fix_gamma", "True"):
                inputs[1] = self.constant(f"{node.name}_ones", np.ones_like(self.params[inputs[1]]))
            self.emit("BatchNormalization", inputs, out, epsilon=float(node.attrs.get("eps", 1e-3)))
        elif node.op == "Activation":
            self.emit({"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}[node.attrs["act_type"]], inputs, out)
        elif node.op == "Pooling":
            self.pooling(node, inputs, out)
        elif node.op == "FullyConnected":
            self.emit("Flatten", inputs[:1], f"{node.name}_flat", axis=1)
            self.emit("Gemm", [f"{node.name}_flat"] + inputs[1:], out, transB=1)
        elif node.op in ("elemwise_add", "_Plus", "_plus"):
            self.emit("Add", inputs, out)
        elif node.op == "Concat":
            self.emit("Concat", inputs, out, axis=int(node.attrs.get("dim", 1)))
        elif node.op in ("Flatten", "flatten"):
            self.emit("Flatten", inputs, out, axis=1)
        elif node.op in ("Dropout", "_copy", "identity"):
            self.emit("Identity", inputs[:1], out)
        elif node.op == "SoftmaxOutput":
            self.emit("Softmax", inputs[:1], out, axis=1)
        elif node.op == "clip":
            low, high = (self.constant(f"{node.name}_{k}", np.float32(node.attrs[k])) for k in ("a_min", "a_max"))
            self.emit("Clip", inputs + [low, high], out)
        else:
            raise ValueError(f"{node.op} '{node.name}' has no translation")

    def pooling(self, node, inputs, out):
        kind = node.attrs.get("pool_type", "max")
        if node.flag("global_pool"):
            self.emit({"avg": "GlobalAveragePool", "max": "GlobalMaxPool"}[kind], inputs, out)
            return
        kernel, stride, pad = node.window()
        options = dict(kernel_shape=kernel, strides=stride, pads=pad + pad,
                       ceil_mode=int(node.attrs.get("pooling_convention", "valid") == "full"))
        if kind == "avg":
            options["count_include_pad"] = int(node.attrs.get("count_include_pad", "True") in ("True", "None"))
        self.emit({"avg": "AveragePool", "max": "MaxPool"}[kind], inputs, out, **options)

    def model(self, input_name, shape):
        for node in self.nodes:
            if node.op != "null":
                self.translate(node)
        used = {i for n in self.onnx_nodes for i in n.input}
        for name in used & set(self.params):
            self.initializers.setdefault(name, self.params[name])
        graph = helper.make_graph(
            self.onnx_nodes, "model",
            [helper.make_tensor_value_info(input_name, TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(self.value(h), TensorProto.FLOAT, None) for h in self.heads],
            [numpy_helper.from_array(np.asarray(a), n) for n, a in self.initializers.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        return model


def main(prefix, shape, onnx_file):
    name, dims = shape.split("=")
    translator = Translator(f"{prefix}-symbol.json", f"{prefix}-0000.params")
    onnx.save(translator.model(name, [int(d) for d in dims.split(",")]), onnx_file)


if __name__ == "__main__":
    main(*sys.argv[1:])
