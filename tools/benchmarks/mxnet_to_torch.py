"""Builds a torch module from an MXNet checkpoint, with the same graph and weights. Uses torch.nn's own layers, which its compilers know.

Only for comparisons with other engines. An operator or attribute without an exact translation is an error.
"""
import operator

import torch
from mxnet_checkpoint import read_params, read_symbol
from torch import nn


def tensor(array):
    return torch.from_numpy(array.copy())


class Translator:
    def __init__(self, symbol_file, params_file, input_name):
        self.nodes, self.heads = read_symbol(symbol_file)
        self.params = read_params(params_file)
        self.modules, self.graph, self.values = {}, torch.fx.Graph(), {}
        self.input_name = input_name

    def parameters(self, node, first=1):
        return [tensor(self.params[self.nodes[e[0]].name]) for e in node.inputs[first:]]

    def call(self, node, module, source):
        name = f"n{len(self.modules)}"
        self.modules[name] = module
        return self.graph.call_module(name, (source,))

    def translate(self, node):
        sources = [self.values.get(e[0]) for e in node.inputs]
        if node.op == "Convolution":
            return self.call(node, self.convolution(node), sources[0])
        if node.op == "BatchNorm":
            return self.call(node, self.batch_norm(node), sources[0])
        if node.op == "Activation":
            return self.call(node, {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}[node.attrs["act_type"]](), sources[0])
        if node.op == "Pooling":
            return self.call(node, self.pooling(node), sources[0])
        if node.op == "FullyConnected":
            weights, *bias = self.parameters(node)
            layer = nn.Linear(weights.shape[1], weights.shape[0], bool(bias))
            layer.load_state_dict({"weight": weights, **({"bias": bias[0]} if bias else {})})
            return self.call(node, layer, self.call(node, nn.Flatten(), sources[0]))
        if node.op in ("elemwise_add", "_Plus", "_plus"):
            return self.graph.call_function(operator.add, tuple(sources))
        if node.op == "Concat":
            return self.graph.call_function(torch.cat, (sources, int(node.attrs.get("dim", 1))))
        if node.op in ("Flatten", "flatten"):
            return self.call(node, nn.Flatten(), sources[0])
        if node.op in ("Dropout", "_copy", "identity"):
            return sources[0]
        if node.op == "SoftmaxOutput":
            return self.call(node, nn.Softmax(1), sources[0])
        if node.op == "clip":
            return self.call(node, nn.Hardtanh(float(node.attrs["a_min"]), float(node.attrs["a_max"])), sources[0])
        raise ValueError(f"{node.op} '{node.name}' has no translation")

    def convolution(self, node):
        weights, *bias = self.parameters(node)
        groups = int(node.attrs.get("num_group", 1))
        kernel, stride, pad = node.window()
        layer = nn.Conv2d(weights.shape[1] * groups, weights.shape[0], kernel, stride, pad, node.numbers("dilate", [1, 1]), groups,
                          bool(bias))
        layer.load_state_dict({"weight": weights, **({"bias": bias[0]} if bias else {})})
        return layer

    def batch_norm(self, node):
        gamma, beta, mean, variance = self.parameters(node)
        if node.flag("fix_gamma", "True"):
            gamma = torch.ones_like(gamma)
        layer = nn.BatchNorm2d(len(gamma), float(node.attrs.get("eps", 1e-3)))
        layer.load_state_dict({"weight": gamma, "bias": beta, "running_mean": mean, "running_var": variance}, strict=False)
        return layer

    def pooling(self, node):
        kind = node.attrs.get("pool_type", "max")
        if node.flag("global_pool"):
            return {"avg": nn.AdaptiveAvgPool2d, "max": nn.AdaptiveMaxPool2d}[kind](1)
        kernel, stride, pad = node.window()
        ceil = node.attrs.get("pooling_convention", "valid") == "full"
        if kind == "max":
            return nn.MaxPool2d(kernel, stride, pad, ceil_mode=ceil)
        assert kind == "avg", f"{node.name}: pooling {kind}"
        return nn.AvgPool2d(kernel, stride, pad, ceil, node.attrs.get("count_include_pad", "True") in ("True", "None"))

    def module(self):
        for number, node in enumerate(self.nodes):
            if node.op != "null":
                self.values[number] = self.translate(node)
            elif node.name == self.input_name:
                self.values[number] = self.graph.placeholder(node.name)
        self.graph.output(self.values[self.heads[0][0]])
        return torch.fx.GraphModule(self.modules, self.graph).eval()


def load(symbol_file, params_file, input_name):
    return Translator(symbol_file, params_file, input_name).module()
