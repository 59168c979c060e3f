"""Sequences as ONNX: softmax, masks of lengths, attention on interleaved projections, recurrent layers. Part of mxnet_to_onnx.py."""
import numpy as np
from onnx_layers import identity, only

MASKED = -1e30  # added to a score that does not count: its exponential is exactly 0


def softmax(t, node, entries):
    only(node, temperature=("None", "1.0", "1"), dtype=("None", "float32"))
    x, axis = t.value(entries[0]), int(node.attrs.get("axis", -1))
    if not node.flag("use_length"):
        return over_heads(t, x, lambda y: t.emit("Softmax", [y], axis=-1)) if axis == -1 else t.emit("Softmax", [x], axis=axis)
    if axis not in (-1, len(t.shape(x)) - 1):
        raise ValueError(f"axis={axis} with use_length")
    lengths = t.value(entries[1])

    def masked(y):
        """y has the axes of x, or batch and heads apart."""
        shape = t.shape(y)
        limits = t.reshape(lengths, [*shape[:len(shape) - len(t.shape(x)) + len(t.shape(lengths))], 1])
        mask = t.emit("Where", [before(t, shape[-1], limits), t.scalar(0), t.scalar(MASKED)])
        return t.emit("Softmax", [t.emit("Add", [y, mask])], axis=-1)
    return over_heads(t, x, masked)


def before(t, count, limits):
    """0 .. count - 1 along a last axis, compared with lengths, whose fractions do not count."""
    return t.emit("Less", [t.constant(np.arange(count)), t.emit("Cast", [limits], to=7)])


def over_heads(t, x, function):
    """Applies it to x, or to the form of x with batch and heads apart, which is the one that engines know from other exporters."""
    if x not in t.rank4:
        return function(x)
    return merged(t, function(t.rank4[x]))


def merged(t, y):
    """(batch, heads, rows, columns) as (batch * heads, rows, columns). Remembers where it came from."""
    batch, heads, rows, columns = t.shape(y)
    name = t.reshape(y, [batch * heads, rows, columns])
    if name != y:
        t.rank4[name] = y
    return name


def log_softmax(t, node, entries):
    only(node, temperature=("None", "1.0", "1"), dtype=("None", "float32"), use_length=("False",))
    return t.emit("LogSoftmax", [t.value(entries[0])], axis=int(node.attrs.get("axis", -1)))


def sequence_mask(t, node, entries):
    x = t.value(entries[0])
    if not node.flag("use_sequence_length"):
        return x
    axis, shape = int(node.attrs.get("axis", 0)), t.shape(x)
    valid = before(t, shape[axis], t.reshape(t.value(entries[1]), [shape[1 - axis], 1]))  # (batch, time)
    valid = valid if axis == 1 else t.transpose(valid, [1, 0])
    valid = t.reshape(valid, [*shape[:2], *[1] * (len(shape) - 2)])
    return t.emit("Where", [valid, x, t.scalar(float(node.attrs.get("value", 0)))])


def projections(t, x, heads):
    """Queries, keys and values as (batch, heads, time, size), of one array (time, batch, heads * 3 * size)."""
    time, batch, width = t.shape(x)
    apart = t.reshape(x, [time, batch, heads, 3, width // heads // 3])
    parts = t.emit("Split", [apart, t.integers(1, 1, 1)], outputs=3, axis=3)
    return [t.transpose(t.reshape(part, [time, batch, heads, width // heads // 3]), [1, 2, 0, 3]) for part in parts]


def attention_scores(t, node, entries):
    queries, keys, _ = projections(t, t.value(entries[0]), int(node.attrs["heads"]))
    scaled = t.emit("Div", [queries, t.scalar(np.sqrt(t.shape(queries)[-1]))])
    return merged(t, t.emit("MatMul", [scaled, t.transpose(keys, [0, 1, 3, 2])]))


def attention_values(t, node, entries):
    x, weights = (t.value(e) for e in entries)
    time, batch, width = t.shape(x)
    heads = int(node.attrs["heads"])
    values = projections(t, x, heads)[2]
    weights = t.rank4.get(weights) or t.reshape(weights, [batch, heads, *t.shape(weights)[1:]])
    result = t.transpose(t.emit("MatMul", [weights, values]), [2, 0, 1, 3])
    return t.reshape(result, [t.shape(result)[0], batch, width // 3])


# MXNet's gates in the order of ONNX.
GATES = {"lstm": [0, 3, 1, 2],  # input, forget, cell, output -> input, output, forget, cell
         "gru": [1, 0, 2],      # reset, update, new -> update, reset, new
         "rnn_tanh": [0], "rnn_relu": [0]}


def gates(array, mode):
    """The rows of a weight or bias in the order of ONNX."""
    parts = np.split(array, len(GATES[mode]))
    return np.concatenate([parts[i] for i in GATES[mode]])


def unpacked(packed, mode, layers, directions, width, size):
    """[layer][direction] -> (W, R, B) of ONNX. MXNet packs all weights first, then all biases."""
    count, at, result = len(GATES[mode]) * size, 0, []

    def next_(*shape):
        nonlocal at
        at += int(np.prod(shape))
        return packed[at - int(np.prod(shape)):at].reshape(shape)

    for layer in range(layers):
        inputs = width if layer == 0 else directions * size
        result.append([[gates(next_(count, inputs), mode), gates(next_(count, size), mode)] for _ in range(directions)])
    for layer in range(layers):
        for direction in range(directions):
            result[layer][direction].append(np.concatenate([gates(next_(count), mode), gates(next_(count), mode)]))
    if at != len(packed):
        raise ValueError(f"{len(packed)} packed parameters, not {at}")
    return result


def state_of(t, name, layer, directions):
    """The begin state of a layer; empty for zeros."""
    if name in t.unset or (name in t.constants and not t.constants[name].any()):
        return ""
    return t.slice(name, 0, layer * directions, (layer + 1) * directions)


def rnn(t, node, entries):
    only(node, projection_size=("None",), lstm_state_clip_min=("None",), lstm_state_clip_max=("None",), use_sequence_length=("False",))
    mode, size, layers = node.attrs["mode"], int(node.attrs["state_size"]), int(node.attrs["num_layers"])
    directions = 2 if node.flag("bidirectional") else 1
    x, parameters, *states = (t.value(e) for e in entries)
    time, batch, width = t.shape(x)
    weights = unpacked(t.constants[parameters], mode, layers, directions, width, size)
    options = dict(hidden_size=size, direction="bidirectional" if directions == 2 else "forward")
    if mode == "gru":
        options["linear_before_reset"] = 1
    if mode == "rnn_relu":
        options["activations"] = ["Relu"] * directions
    last = [[] for _ in range(2 if mode == "lstm" else 1)]
    for layer in range(layers):
        arrays = [t.constant(np.stack([side[k] for side in weights[layer]])) for k in range(3)]
        begin = [state_of(t, state, layer, directions) for state in states]
        y, *ends = t.emit({"lstm": "LSTM", "gru": "GRU"}.get(mode, "RNN"), [x, *arrays, "", *begin], outputs=1 + len(last), **options)
        x = t.reshape(t.transpose(y, [0, 2, 1, 3]) if directions == 2 else y, [time, batch, directions * size])
        for kept, end in zip(last, ends):
            kept.append(end)
    if not node.flag("state_outputs"):
        return x
    return [x, *(t.emit("Concat", kept, axis=0) if layers > 1 else kept[0] for kept in last)]


def rnn_param_concat(t, node, entries):
    only(node, dim=("0",))
    return t.emit("Concat", [t.value(e) for e in entries], axis=0)


OPERATORS = {
    "softmax": softmax, "log_softmax": log_softmax, "SequenceMask": sequence_mask, "RNN": rnn, "_rnn_param_concat": rnn_param_concat,
    "_contrib_interleaved_matmul_selfatt_qk": attention_scores, "_contrib_interleaved_matmul_selfatt_valatt": attention_values,
    "_identity_with_attr_like_rhs": identity}
