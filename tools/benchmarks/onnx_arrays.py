"""Arrays as ONNX: shapes, indexing, arithmetic with broadcasting, reductions, products, creation. Part of mxnet_to_onnx.py."""
import ast

import numpy as np
from onnx_layers import identity, nearest, only


def unary(op):
    return lambda t, node, entries: t.emit(op, [t.value(entries[0])])


def binary(op):
    return lambda t, node, entries: t.emit(op, [t.value(e) for e in entries])


def comparison(op):
    """0 or 1 as float32, as in MXNet."""
    return lambda t, node, entries: t.emit("Cast", [t.emit(op, [t.value(e) for e in entries])], to=1)


def with_scalar(op, reverse=False):
    def translate(t, node, entries):
        x, scalar = t.value(entries[0]), t.scalar(float(node.attrs["scalar"]))
        if not t.is_float(x):
            raise ValueError("only float32")
        return t.emit(op, [scalar, x] if reverse else [x, scalar])
    return translate


def fold_left(op):
    def translate(t, node, entries):
        names = [t.value(e) for e in entries]
        return names[0] if len(names) == 1 else t.emit(op, names)
    return translate


def new_shape(src, codes, reverse):
    """The result of MXNet's Reshape with its codes 0, -1, -2, -3, -4."""
    if reverse:
        if any(code < -1 for code in codes):
            raise ValueError(f"shape={codes} with reverse")
        return new_shape(src[::-1], codes[::-1], False)[::-1]
    result, at, index, unknown = [], 0, 0, None
    while index < len(codes):
        code = codes[index]
        if code == 0:
            result.append(src[at])
            at += 1
        elif code == -2:
            result += src[at:]
            at = len(src)
        elif code == -3:
            result.append(src[at] * src[at + 1])
            at += 2
        elif code == -4:
            left, right = codes[index + 1:index + 3]
            result += [left if left != -1 else src[at] // right, right if right != -1 else src[at] // left]
            at += 1
            index += 2
        elif code == -1:
            unknown = len(result)
            result.append(1)
            at += 1
        else:
            result.append(code)
            at += 1
        index += 1
    if unknown is not None:
        result[unknown] = int(np.prod(src)) // int(np.prod(result))
    if int(np.prod(result)) != int(np.prod(src)):
        raise ValueError(f"shape={codes} of {src}")
    return result


def reshape(t, node, entries):
    x = t.value(entries[0])
    return t.reshape(x, new_shape(list(t.shape(x)), node.numbers("shape"), node.flag("reverse")))


def axis_of(t, x, node, key="axis", default="0", added=0):
    """An axis as a number from 0 on. added: 1 if it is an axis of the result, which has one more."""
    axis, rank = int(node.attrs.get(key, default)), len(t.shape(x)) + added
    return axis + rank if axis < 0 else axis


def expand_dims(t, node, entries):
    x = t.value(entries[0])
    axis = axis_of(t, x, node, added=1)
    shape = list(t.shape(x))
    return t.reshape(x, shape[:axis] + [1] + shape[axis:])


def squeeze(t, node, entries):
    x = t.value(entries[0])
    text = node.attrs.get("axis", "None")
    axes = [i for i, size in enumerate(t.shape(x)) if size == 1] if text == "None" else np.atleast_1d(ast.literal_eval(text)).tolist()
    if len(axes) == len(t.shape(x)):
        return t.reshape(x, [1])  # MXNet keeps one dimension
    return t.emit("Squeeze", [x, t.integers(*axes)])


def transpose(t, node, entries):
    x = t.value(entries[0])
    return t.transpose(x, node.numbers("axes") or list(range(len(t.shape(x))))[::-1])


def swap_axes(t, node, entries):
    x = t.value(entries[0])
    axes = list(range(len(t.shape(x))))
    a, b = axis_of(t, x, node, "dim1"), axis_of(t, x, node, "dim2")
    axes[a], axes[b] = axes[b], axes[a]
    return t.transpose(x, axes)


def concat(t, node, entries):
    names = [t.value(e) for e in entries]
    return t.emit("Concat", names, axis=int(node.attrs.get("dim", 1))) if len(names) > 1 else names[0]


def stack(t, node, entries):
    names = [t.value(e) for e in entries]
    axis = axis_of(t, names[0], node, added=1)
    shape = list(t.shape(names[0]))
    return t.emit("Concat", [t.reshape(name, shape[:axis] + [1] + shape[axis:]) for name in names], axis=axis)


def split(t, node, entries):
    x = t.value(entries[0])
    axis, count = axis_of(t, x, node, default="1"), int(node.attrs["num_outputs"])
    size = t.shape(x)[axis] // count
    parts = t.emit("Split", [x, t.integers(*[size] * count)], outputs=count, axis=axis) if count > 1 else [x]
    if node.flag("squeeze_axis"):
        parts = [t.emit("Squeeze", [part, t.integers(axis)]) for part in parts]
    return list(parts)


def slice_(t, node, entries):
    x = t.value(entries[0])
    begin, end = (ast.literal_eval(node.attrs[key]) for key in ("begin", "end"))
    steps = ast.literal_eval(node.attrs.get("step", "()")) or (None,) * len(begin)
    result = x
    for axis, (size, first, last, step) in enumerate(zip(t.shape(x), begin, end, steps)):
        if step not in (None, 1):
            raise ValueError(f"step={steps}")
        first, last, _ = slice(first, last).indices(size)
        result = t.slice(result, axis, first, last)
    return result


def slice_axis(t, node, entries):
    x = t.value(entries[0])
    axis = axis_of(t, x, node)
    first, last, _ = slice(int(node.attrs["begin"]), ast.literal_eval(node.attrs["end"])).indices(t.shape(x)[axis])
    return t.slice(x, axis, first, last)


def slice_like(t, node, entries):
    x, like = (t.value(e) for e in entries)
    rank = len(t.shape(x))
    for axis in [a % rank for a in node.numbers("axes", [])] or range(rank):
        x = t.slice(x, axis, 0, t.shape(like)[axis])
    return x


def tile(t, node, entries):
    x, reps = t.value(entries[0]), node.numbers("reps")
    shape = list(t.shape(x))
    shape = [1] * (len(reps) - len(shape)) + shape
    reps = [1] * (len(shape) - len(reps)) + reps
    return t.emit("Tile", [t.reshape(x, shape), t.integers(*reps)])


def repeat(t, node, entries):
    x = t.value(entries[0])
    if node.attrs.get("axis", "None") == "None":
        raise ValueError("axis=None")
    return nearest(t, x, {axis_of(t, x, node): int(node.attrs["repeats"])})


def broadcast_axis(t, node, entries):
    x = t.value(entries[0])
    shape = list(t.shape(x))
    axes, sizes = (np.atleast_1d(ast.literal_eval(node.attrs[key])) for key in ("axis", "size"))
    for axis, size in zip(axes, sizes):
        shape[axis] = int(size)
    return t.emit("Expand", [x, t.integers(*shape)])


def broadcast_like(t, node, entries):
    only(node, lhs_axes=("None",), rhs_axes=("None",))
    x, like = (t.value(e) for e in entries)
    return t.emit("Expand", [x, t.integers(*t.shape(like))])


def cast(t, node, entries):
    x = t.value(entries[0])
    code = {"float32": 1, "int32": 6, "int64": 7}[node.attrs["dtype"]]
    return t.emit("Cast", [x], to=code)


def gather(t, x, indices, axis):
    """Indices are floats in MXNet; those outside are clipped."""
    whole = t.emit("Cast", [indices], to=7)
    bounded = t.emit("Clip", [whole, t.constant(np.int64(0)), t.constant(np.int64(t.shape(x)[axis] - 1))])
    return t.emit("Gather", [x, bounded], axis=axis)


def embedding(t, node, entries):
    indices, weight = (t.value(e) for e in entries)
    return gather(t, weight, indices, 0)


def take(t, node, entries):
    only(node, mode=("clip",))
    x, indices = (t.value(e) for e in entries)
    return gather(t, x, indices, axis_of(t, x, node))


def reduction(op):
    def translate(t, node, entries):
        x = t.value(entries[0])
        only(node, exclude=("False", "0"))
        axes = ast.literal_eval(node.attrs.get("axis", "None"))
        axes = list(range(len(t.shape(x)))) if axes is None or axes == () else [int(a) for a in np.atleast_1d(axes)]
        keep = int(node.flag("keepdims"))
        if not keep and len(axes) == len(t.shape(x)):
            return t.reshape(t.emit(op, [x, t.integers(*axes)] if op == "ReduceSum" else [x], keepdims=1,
                                    **({} if op == "ReduceSum" else {"axes": axes})), [1])
        if op == "ReduceSum":
            return t.emit(op, [x, t.integers(*axes)], keepdims=keep)
        return t.emit(op, [x], axes=axes, keepdims=keep)
    return translate


def batch_dot(t, node, entries):
    a, b = (t.value(e) for e in entries)
    a = t.transpose(a, [0, 2, 1]) if node.flag("transpose_a") else a
    return t.emit("MatMul", [a, t.transpose(b, [0, 2, 1]) if node.flag("transpose_b") else b])


def dot(t, node, entries):
    a, b = (t.value(e) for e in entries)
    if len(t.shape(a)) != 2 or len(t.shape(b)) != 2:
        raise ValueError("only matrices")
    a = t.transpose(a, [1, 0]) if node.flag("transpose_a") else a
    return t.emit("MatMul", [a, t.transpose(b, [1, 0]) if node.flag("transpose_b") else b])


def arange(t, node, entries):
    only(node, infer_range=("False",), dtype=("float32",))
    start, stop = float(node.attrs["start"]), ast.literal_eval(node.attrs.get("stop", "None"))
    start, stop = (0.0, start) if stop is None else (start, float(stop))
    numbers = np.arange(start, stop, float(node.attrs.get("step", 1))).astype(np.float32)
    return t.constant(np.repeat(numbers, int(node.attrs.get("repeat", 1))))


def arange_like(t, node, entries):
    only(node, repeat=("1",))
    shape, axis = t.shape(t.value(entries[0])), ast.literal_eval(node.attrs.get("axis", "None"))
    count = int(np.prod(shape)) if axis is None else shape[axis]
    numbers = float(node.attrs.get("start", 0)) + float(node.attrs.get("step", 1)) * np.arange(count)
    return t.constant(numbers.astype(np.float32).reshape(shape if axis is None else [count]))


def filled(value):
    def translate(t, node, entries):
        only(node, dtype=("float32",))
        shape = node.numbers("shape", [])
        name = t.constant(np.full(shape, value, np.float32))
        if 0 in shape:
            if value:
                raise ValueError(f"shape={shape}")
            t.unset.add(name)
        return name
    return translate


def like(value):
    return lambda t, node, entries: t.constant(np.full(t.shape(t.value(entries[0])), value, np.float32))


def where(t, node, entries):
    condition, a, b = (t.value(e) for e in entries)
    if t.shape(condition) != t.shape(a):
        raise ValueError("a condition of another shape")
    return t.emit("Where", [t.emit("Cast", [condition], to=9), a, b])


def div_sqrt_dim(t, node, entries):
    x = t.value(entries[0])
    return t.emit("Div", [x, t.scalar(np.sqrt(t.shape(x)[-1]))])


OPERATORS = {
    "Reshape": reshape, "reshape": reshape, "expand_dims": expand_dims, "squeeze": squeeze, "transpose": transpose, "SwapAxis": swap_axes,
    "swapaxes": swap_axes, "Concat": concat, "concat": concat, "stack": stack, "SliceChannel": split, "split": split, "slice": slice_,
    "slice_axis": slice_axis, "slice_like": slice_like, "tile": tile, "repeat": repeat, "broadcast_axis": broadcast_axis,
    "broadcast_axes": broadcast_axis, "broadcast_like": broadcast_like, "Cast": cast, "cast": cast, "Embedding": embedding, "take": take,
    "batch_dot": batch_dot, "dot": dot, "_arange": arange, "_contrib_arange_like": arange_like, "_zeros": filled(0), "_ones": filled(1),
    "zeros_like": like(0), "ones_like": like(1), "where": where, "_contrib_div_sqrt_dim": div_sqrt_dim,
    "add_n": fold_left("Sum"), "ElementWiseSum": fold_left("Sum"), "make_loss": identity,
    **{name: unary(op) for name, op in {"exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu",
                                        "abs": "Abs", "negative": "Neg", "erf": "Erf", "reciprocal": "Reciprocal"}.items()},
    **{prefix + name: binary(op) for name, op in {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div"}.items()
       for prefix in ("elemwise_", "broadcast_")},
    **{name: binary(op) for name, op in {"_Plus": "Add", "_plus": "Add", "_Minus": "Sub", "_minus": "Sub", "_Mul": "Mul", "_mul": "Mul",
                                         "_Div": "Div", "_div": "Div", "broadcast_plus": "Add", "broadcast_minus": "Sub",
                                         "broadcast_maximum": "Max", "broadcast_minimum": "Min", "_maximum": "Max", "_minimum": "Min",
                                         "broadcast_power": "Pow"}.items()},
    **{"broadcast_" + name: comparison(op) for name, op in {"equal": "Equal", "greater": "Greater", "greater_equal": "GreaterOrEqual",
                                                            "lesser": "Less", "lesser_equal": "LessOrEqual"}.items()},
    **{name: with_scalar(op) for name, op in {"_plus_scalar": "Add", "_PlusScalar": "Add", "_minus_scalar": "Sub", "_MinusScalar": "Sub",
                                              "_mul_scalar": "Mul", "_MulScalar": "Mul", "_div_scalar": "Div", "_DivScalar": "Div",
                                              "_power_scalar": "Pow", "_maximum_scalar": "Max", "_minimum_scalar": "Min"}.items()},
    **{name: with_scalar(op, reverse=True) for name, op in {"_rminus_scalar": "Sub", "_RMinusScalar": "Sub", "_rdiv_scalar": "Div",
                                                            "_RDivScalar": "Div"}.items()},
    **{name: reduction(op) for name, op in {"sum": "ReduceSum", "sum_axis": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax",
                                            "min": "ReduceMin", "prod": "ReduceProd"}.items()}}
