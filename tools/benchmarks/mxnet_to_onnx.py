"""Writes an MXNet checkpoint (current format, float32) as ONNX, with the same graph and weights, for fixed shapes.

  mxnet_to_onnx.py PREFIX data=1,3,224,224 [data1=1,64 ...] FILE.onnx

Only for comparisons with other engines. An operator or attribute without an exact translation is an error. Operators: onnx_layers.py,
onnx_arrays.py, onnx_sequences.py. Identical nodes are written once, and nodes of constants are computed here: the other engines need not
find them, and are not measured on them.
"""
import sys

import numpy as np
import onnx
import onnx_arrays
import onnx_layers
import onnx_sequences
from mxnet_checkpoint import read_params, read_symbol
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.shape_inference import infer_node_outputs

OPSET = 17
OPERATORS = {**onnx_layers.OPERATORS, **onnx_arrays.OPERATORS, **onnx_sequences.OPERATORS}
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Unsupported(ValueError):
    """This node has no exact translation: says which and why."""


class Translator:
    """Writes the nodes one by one. Every ONNX value has a known shape, because all input shapes are known."""

    def __init__(self, symbol_file, params_file, shapes):
        self.nodes, self.heads = read_symbol(symbol_file)
        self.params = read_params(params_file)
        self.shapes = dict(shapes)  # of the inputs
        self.onnx_nodes, self.types, self.constants, self.values = [], {}, {}, {}
        self.written = {}      # (operator, inputs, attributes) -> outputs
        self.producers = {}    # value -> the ONNX node that writes it
        self.rank4 = {}        # value of rank 3 -> the same numbers with batch and heads apart (onnx_sequences)
        self.failed = {}       # node -> why it has no translation; an error only if a head needs it: labels need none
        self.unset = set()     # zeros of a shape with unknown sizes: begin states

    def value(self, entry):
        """The ONNX name of a graph entry. Errors: Unsupported"""
        key = (entry[0], entry[1])
        node = self.nodes[entry[0]]
        if entry[0] in self.failed:
            raise self.failed[entry[0]]
        if key not in self.values:
            if node.op != "null":
                raise Unsupported(f"output {entry[1]} of {node.op} '{node.name}' has no translation")
            self.values[key] = self.variable(node.name)
        return self.values[key]

    def variable(self, name):
        if name in self.shapes:
            self.types[name] = helper.make_tensor_type_proto(FLOAT, self.shapes[name])
            return name
        if name not in self.params:
            raise Unsupported(f"'{name}' is neither a parameter nor an input with a given shape")
        return self.constant(self.params[name], name)

    def shape(self, name):
        return tuple(dim.dim_value for dim in self.types[name].tensor_type.shape.dim)

    def is_float(self, name):
        return self.types[name].tensor_type.elem_type == FLOAT

    def constant(self, array, name=None):
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        name = name or f"constant_{len(self.constants)}"
        self.constants[name] = array
        self.types[name] = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        return name

    def integers(self, *numbers):
        return self.constant(np.array(numbers, np.int64))

    def emit(self, op, inputs, outputs=1, **attributes):
        """Writes one ONNX node. Returns the name of its output, or of its several outputs."""
        key = (op, tuple(self.same(name) for name in inputs), outputs, repr(sorted(attributes.items())))
        if key not in self.written:
            names = [f"{op}_{len(self.written)}" + (f"_{k}" if outputs > 1 else "") for k in range(outputs)]
            node = helper.make_node(op, inputs, names, name=names[0], **attributes)
            self.infer(node)
            if all(not name or name in self.constants for name in inputs):
                self.fold(node)
            else:
                self.onnx_nodes.append(node)
                self.producers.update(dict.fromkeys(names, node))
            self.written[key] = names
        names = self.written[key]
        return names[0] if outputs == 1 else names

    def same(self, name):
        """Equal for equal small constants."""
        array = self.constants.get(name)
        return (array.dtype.str, array.shape, array.tobytes()) if array is not None and array.size <= 64 else name

    def infer(self, node):
        types = {name: self.types[name] for name in node.input if name}
        data = {name: numpy_helper.from_array(self.constants[name]) for name in node.input
                if name in self.constants and self.constants[name].size <= 1024}
        found = infer_node_outputs(onnx.defs.get_schema(node.op_type, OPSET, ""), node, types, data, opset_imports=[helper.make_opsetid("", OPSET)])
        for name in node.output:
            self.types[name] = found[name]

    def fold(self, node):
        evaluator = ReferenceEvaluator(node)
        arrays = evaluator.run(None, {name: self.constants[name] for name in node.input if name})
        for name, array in zip(node.output, arrays):
            self.constant(np.asarray(array), name)

    # Short forms for the operators' files.

    def scalar(self, value):
        return self.constant(np.float32(value))

    def reshape(self, name, shape):
        return name if self.shape(name) == tuple(shape) else self.emit("Reshape", [name, self.integers(*shape)])

    def transpose(self, name, axes):
        return name if list(axes) == sorted(axes) else self.emit("Transpose", [name], perm=list(axes))

    def slice(self, name, axis, begin, end):
        """Elements begin..end of this axis; both are counted from its front."""
        if (begin, end) == (0, self.shape(name)[axis]):
            return name
        return self.emit("Slice", [name, self.integers(begin), self.integers(end), self.integers(axis)])

    def translate(self, number, node):
        if node.op not in OPERATORS:
            raise Unsupported(f"{node.op} '{node.name}' has no translation")
        try:
            result = OPERATORS[node.op](self, node, node.inputs)
        except Unsupported:
            raise
        except Exception as error:  # of the many that numpy and onnx know; all mean that this node cannot be written
            raise Unsupported(f"{node.op} '{node.name}' has no translation: {type(error).__name__}: {error}") from error
        for output, name in enumerate(result if isinstance(result, list) else [result]):
            self.values[number, output] = name

    def needed(self, heads):
        """The ONNX nodes that these values need, in order."""
        wanted, kept = set(heads), []
        for node in reversed(self.onnx_nodes):
            if wanted & set(node.output):
                wanted.update(node.input)
                kept.append(node)
        return kept[::-1]

    def model(self):
        for number, node in enumerate(self.nodes):
            if node.op != "null":
                try:
                    self.translate(number, node)
                except Unsupported as error:
                    self.failed[number] = error
        # A head may be an input or a constant, or be the same value as another head: each becomes an output of its own.
        heads = []
        for index, head in enumerate(self.heads):
            name = f"output_{index}"
            node = helper.make_node("Identity", [self.value(head)], [name], name=name)
            self.infer(node)
            self.onnx_nodes.append(node)
            heads.append(name)
        nodes = self.needed(heads)
        used = {name for node in nodes for name in node.input}
        graph = helper.make_graph(
            nodes, "model",
            [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in self.shapes.items() if name in self.types],
            [helper.make_tensor_value_info(name, self.types[name].tensor_type.elem_type, self.shape(name)) for name in heads],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items() if name in used])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        return model


def parse_shape(text):
    name, dims = text.split("=")
    return name, tuple(int(dim) for dim in dims.split(",")) if dims else ()


def main(prefix, *words):
    *shapes, onnx_file = words
    translator = Translator(f"{prefix}-symbol.json", f"{prefix}-0000.params", map(parse_shape, shapes))
    onnx.save(translator.model(), onnx_file)


if __name__ == "__main__":
    sys.modules["mxnet_to_onnx"] = sys.modules["__main__"]
    try:
        main(*sys.argv[1:])
    except Unsupported as error:
        sys.exit(f"mxnet_to_onnx: {error}")
