"""Layers of networks as ONNX: convolutions, pooling, norms, activations, fully connected layers, up-sampling. Part of mxnet_to_onnx.py.

Each translation is a function of the Translator `t`, the MXNet node and its entries. It returns the name of its output, or a list.
"""
import numpy as np


def only(node, **allowed):
    """ValueError if an attribute has another value than the translated ones. `allowed`: {attribute: tuple of texts}; absent is fine."""
    for key, values in allowed.items():
        if key in node.attrs and node.attrs[key] not in values:
            raise ValueError(f"{key}={node.attrs[key]}")


def square(pad):
    return list(pad) + list(pad)


def convolution(t, node, entries):
    only(node, layout=("NCHW", "None", "NCW", "NCDHW"))
    kernel, stride, pad = node.window()
    inputs = [t.value(e) for e in entries]
    return t.emit("Conv", inputs, kernel_shape=kernel, strides=stride, pads=square(pad),
                  dilations=node.numbers("dilate", [1] * len(kernel)), group=int(node.attrs.get("num_group", 1)))


def deconvolution(t, node, entries):
    only(node, layout=("NCHW", "None", "NCW", "NCDHW"), target_shape=("()", "None", "(0, 0)"))
    kernel, stride, pad = node.window()
    return t.emit("ConvTranspose", [t.value(e) for e in entries], kernel_shape=kernel, strides=stride, pads=square(pad),
                  output_padding=node.numbers("adj", [0] * len(kernel)), dilations=node.numbers("dilate", [1] * len(kernel)),
                  group=int(node.attrs.get("num_group", 1)))


def batch_norm(t, node, entries):
    only(node, axis=("1",))
    inputs = [t.value(e) for e in entries]
    if node.flag("fix_gamma", "True"):
        inputs[1] = t.constant(np.ones(t.shape(inputs[1]), np.float32))
    return t.emit("BatchNormalization", inputs, epsilon=float(node.attrs.get("eps", 1e-3)))


def layer_norm(t, node, entries):
    x, gamma, beta = (t.value(e) for e in entries)
    axis, rank = int(node.attrs.get("axis", -1)), len(t.shape(x))
    if axis not in (-1, rank - 1):
        raise ValueError(f"axis={axis}: only the last one")
    return t.emit("LayerNormalization", [x, gamma, beta], axis=-1, epsilon=float(node.attrs.get("eps", 1e-5)))


def instance_norm(t, node, entries):
    return t.emit("InstanceNormalization", [t.value(e) for e in entries], epsilon=float(node.attrs.get("eps", 1e-3)))


def l2_normalization(t, node, entries):
    x = t.value(entries[0])
    rank, mode = len(t.shape(x)), node.attrs.get("mode", "instance")
    axes = {"instance": range(1, rank), "channel": [1], "spatial": range(2, rank)}[mode]
    squares = t.emit("ReduceSum", [t.emit("Pow", [x, t.scalar(2)]), t.integers(*axes)], keepdims=1)
    norm = t.emit("Sqrt", [t.emit("Add", [squares, t.scalar(float(node.attrs.get("eps", 1e-10)))])])
    return t.emit("Div", [x, norm])


ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softrelu": "Softplus", "softsign": "Softsign"}


def activation(t, node, entries):
    return t.emit(ACTIVATIONS[node.attrs["act_type"]], [t.value(entries[0])])


def gelu(t, x):
    """As exporters write it, which all engines recognize."""
    erf = t.emit("Erf", [t.emit("Div", [x, t.scalar(np.sqrt(2))])])
    return t.emit("Mul", [t.emit("Mul", [x, t.emit("Add", [erf, t.scalar(1)])]), t.scalar(0.5)])


def leaky_relu(t, node, entries):
    kind, x = node.attrs.get("act_type", "leaky"), t.value(entries[0])
    slope = float(node.attrs.get("slope", 0.25))
    if kind == "leaky":
        return t.emit("LeakyRelu", [x], alpha=slope)
    if kind == "elu":
        return t.emit("Elu", [x], alpha=slope)
    if kind == "selu":
        return t.emit("Selu", [x])
    if kind == "gelu":
        return gelu(t, x)
    if kind == "prelu":
        gamma = t.value(entries[1])
        (count,) = t.shape(gamma)
        return t.emit("PRelu", [x, t.reshape(gamma, [count] + [1] * (len(t.shape(x)) - 2))])
    raise ValueError(f"act_type={kind}")


def pooling(t, node, entries):
    only(node, layout=("NCHW", "None", "NCW", "NCDHW"))
    x, kind = t.value(entries[0]), node.attrs.get("pool_type", "max")
    if node.flag("global_pool"):
        return t.emit({"avg": "GlobalAveragePool", "max": "GlobalMaxPool"}[kind], [x])
    kernel, stride, pad = node.window()
    options = dict(kernel_shape=kernel, strides=stride, pads=square(pad))
    is_full = node.attrs.get("pooling_convention", "valid") == "full"
    if is_full and kind == "avg" and not divides(t.shape(x)[2:], kernel, stride, pad):
        raise ValueError("pooling_convention=full: the divisor of the last windows differs")
    options["ceil_mode"] = int(is_full)
    if kind == "avg":
        options["count_include_pad"] = int(node.attrs.get("count_include_pad", "True") in ("True", "None"))
    only(node, pooling_convention=("valid", "full"))
    return t.emit({"avg": "AveragePool", "max": "MaxPool"}[kind], [x], **options)


def divides(sizes, kernel, stride, pad):
    return all((size + 2 * p - k) % s == 0 for size, k, s, p in zip(sizes, kernel, stride, pad))


def fully_connected(t, node, entries):
    inputs = [t.value(e) for e in entries]
    x, rank = inputs[0], len(t.shape(inputs[0]))
    if node.flag("flatten", "True") or rank == 2:
        return t.emit("Gemm", [x if rank == 2 else t.emit("Flatten", [x], axis=1), *inputs[1:]], transB=1)
    product = t.emit("MatMul", [x, t.emit("Transpose", [inputs[1]], perm=[1, 0])])  # as exporters write it
    return t.emit("Add", [product, inputs[2]]) if len(inputs) > 2 else product


def softmax_output(t, node, entries):
    x = t.value(entries[0])
    if node.flag("preserve_shape"):
        return t.emit("Softmax", [x], axis=-1)
    if node.flag("multi_output") or len(t.shape(x)) == 2:
        return t.emit("Softmax", [x], axis=1)
    raise ValueError("more than two dimensions without multi_output")


def softmax_activation(t, node, entries):
    return t.emit("Softmax", [t.value(entries[0])], axis=1 if node.attrs.get("mode", "instance") == "channel" else -1)


def lrn(t, node, entries):
    return t.emit("LRN", [t.value(entries[0])], size=int(node.attrs["nsize"]), alpha=float(node.attrs.get("alpha", 1e-4)),
                  beta=float(node.attrs.get("beta", 0.75)), bias=float(node.attrs.get("knorm", 2)))


def up_sampling(t, node, entries):
    if node.attrs["sample_type"] != "nearest" or len(entries) != 1:
        raise ValueError("only nearest, of one array")
    return nearest(t, t.value(entries[0]), {2: int(node.attrs["scale"]), 3: int(node.attrs["scale"])})


def nearest(t, x, factors):
    """Every element repeated along axes: {axis: how often}. Two in a row become one."""
    producer = t.producers.get(x)
    if producer is not None and producer.op_type == "Resize" and x not in (t.values.get(tuple(h[:2])) for h in t.heads):
        earlier = t.constants[producer.input[2]]
        factors = {axis: factors.get(axis, 1) * int(earlier[axis]) for axis in range(len(earlier))}
        x = producer.input[0]
    scales = np.array([factors.get(axis, 1) for axis in range(len(t.shape(x)))], np.float32)
    return t.emit("Resize", [x, "", t.constant(scales)], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def identity(t, node, entries):
    return t.value(entries[0])


def flatten(t, node, entries):
    return t.emit("Flatten", [t.value(entries[0])], axis=1)


def clip(t, node, entries):
    return t.emit("Clip", [t.value(entries[0]), t.scalar(float(node.attrs["a_min"])), t.scalar(float(node.attrs["a_max"]))])


OPERATORS = {
    "Convolution": convolution, "Deconvolution": deconvolution, "BatchNorm": batch_norm, "LayerNorm": layer_norm,
    "InstanceNorm": instance_norm, "L2Normalization": l2_normalization, "Activation": activation, "LeakyReLU": leaky_relu,
    "Pooling": pooling, "FullyConnected": fully_connected, "SoftmaxOutput": softmax_output, "Softmax": softmax_output,
    "SoftmaxActivation": softmax_activation, "LRN": lrn, "UpSampling": up_sampling, "Flatten": flatten, "flatten": flatten,
    "Dropout": identity, "_copy": identity, "identity": identity, "BlockGrad": identity, "stop_gradient": identity, "clip": clip}
