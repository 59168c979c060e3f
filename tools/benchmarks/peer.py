"""Runs one model in another engine. Executes the same lines of standard input as `shoal-bench model`:

  inputs DIR   takes the inputs from DIR/0.npy, DIR/1.npy, ... in the order of --shape  -> "ok"
  run N        N runs                                                                   -> their wall times in milliseconds
  outputs DIR  writes all outputs as DIR/0.npy, DIR/1.npy, ...                          -> their number
  version      the engine and its settings                                              -> "OpenVINO 2026.4.1"

  peer.py ENGINE --prefix P --onnx FILE --shape data=1,3,224,224 [--shape ...] --threads N [--precision bf16] [--cache DIR] [--variant V]

Runs in the virtual environment that tools/bench made for this engine. Every engine is set up as its documentation advises for low
latency on a CPU, with float32 or, where it can, bfloat16. DIR is the cache that the engine keeps between starts; a start with an empty one is a first start.
"""
import argparse
import importlib.metadata
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np


class OnnxRuntime:
    """All graph optimizations. The second start reads the optimized graph that the first one wrote."""

    def __init__(self, arguments):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = arguments.threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 3  # hides the warning that an optimized graph fits only this kind of machine
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        source = arguments.onnx
        if arguments.cache:
            optimized = arguments.cache / "optimized.onnx"
            if optimized.exists():
                source, options.graph_optimization_level = optimized, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            else:
                options.optimized_model_filepath = str(optimized)
        self.session = onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
        self.names = list(arguments.shapes)
        self.version = f"ONNX Runtime {onnxruntime.__version__}"

    def run(self, data):
        return self.session.run(None, dict(zip(self.names, data)))


class OpenVino:
    """Latency hint. The precision is forced, because the default depends on the machine."""

    def __init__(self, arguments):
        import openvino
        core = openvino.Core()
        if arguments.cache:
            core.set_property({"CACHE_DIR": str(arguments.cache)})
        compiled = core.compile_model(str(arguments.onnx), "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": arguments.precision,
                                                                   "INFERENCE_NUM_THREADS": arguments.threads, "NUM_STREAMS": "1"})
        self.names, self.outputs = list(arguments.shapes), compiled.outputs
        self.request = compiled.create_infer_request()
        self.version = f"OpenVINO {importlib.metadata.version('openvino')}"

    def run(self, data):
        results = self.request.infer(dict(zip(self.names, data)), share_inputs=True, share_outputs=True)
        return [results[output] for output in self.outputs]


class MxNet:
    """MXNet itself, with oneDNN and its fused subgraphs."""

    def __init__(self, arguments):
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
        import mxnet
        self.mxnet = mxnet
        symbol, args, aux = mxnet.model.load_checkpoint(str(arguments.prefix), 0)
        given = {name: mxnet.nd.zeros(shape) for name, shape in self.given(symbol, args, arguments.shapes).items()}
        symbol = symbol.optimize_for("MKLDNN", {**args, **given}, aux)
        self.executor = symbol.simple_bind(mxnet.cpu(), grad_req="null", **{name: array.shape for name, array in given.items()})
        self.executor.copy_params_from(args, aux, allow_extra_params=True)
        self.inputs = [self.executor.arg_dict[name] for name in arguments.shapes]
        self.version = f"MXNet {mxnet.__version__}"

    @staticmethod
    def given(symbol, args, inputs):
        """{name: shape} of the inputs, and of the labels that nobody reads. A label that has its shape from nowhere is like the first input."""
        names = symbol.list_arguments()
        labels = [name for name in names if name not in args and name not in inputs]
        known = symbol.infer_shape(**inputs)[0] or symbol.infer_shape(**inputs, **dict.fromkeys(labels, next(iter(inputs.values()))))[0]
        return {name: shape for name, shape in zip(names, known) if name not in args}

    def run(self, data):
        for array, values in zip(self.inputs, data):
            array[:] = values
        return [output.asnumpy() for output in self.executor.forward(is_train=False)]


class PyTorch:
    """TorchInductor with frozen weights, or TorchScript frozen for oneDNN. Takes the fastest unless one is named. In bf16 weights,
    input and values between operators are bf16."""

    VARIANTS = ("compile channels_last", "script", "script channels_last")  # plain "compile" is slower: it reorders

    def __init__(self, arguments):
        if arguments.cache:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(arguments.cache)
        os.environ["TORCHINDUCTOR_FREEZING"] = "1"
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no idle compiler processes beside the measurement
        import torch
        self.torch = torch
        torch.set_num_threads(arguments.threads)
        torch.set_grad_enabled(False)
        self.arguments = arguments
        if len(arguments.shapes) != 1:
            raise ValueError("the translation to PyTorch knows networks with one input")
        ((self.input, self.shape),) = arguments.shapes.items()
        self.dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[arguments.precision]
        variants = {}
        for variant in [arguments.variant] if arguments.variant else self.VARIANTS:
            try:
                variants[variant] = self.prepare(variant)
            except Exception as error:  # if this variant fails, the others still count
                print(f"{variant}: {type(error).__name__}: {error}", file=sys.stderr)
        variant, self.module = min(variants.items(), key=self.median_seconds) if len(variants) > 1 else list(variants.items())[0]
        self.layout = self.memory_format(variant)
        self.version = f"PyTorch {torch.__version__} ({variant})"

    def memory_format(self, variant):
        return self.torch.channels_last if "channels_last" in variant else self.torch.contiguous_format

    def prepare(self, variant):
        torch, layout = self.torch, self.memory_format(variant)
        example = torch.zeros(self.shape, dtype=self.dtype).to(memory_format=layout)
        if variant.startswith("compile"):
            module = torch.compile(self.load().to(memory_format=layout))
        else:
            module = torch.jit.optimize_for_inference(self.frozen_script(variant, example))
        for _ in range(2):
            module(example)
        return module

    def frozen_script(self, variant, example):
        file = self.arguments.cache and self.arguments.cache / f"{variant}.pt"
        if file and file.exists():
            return self.torch.jit.load(file)
        module = self.torch.jit.trace(self.load().to(memory_format=self.memory_format(variant)), example)
        module = self.torch.jit.freeze(module)
        if file:
            module.save(file)
        return module

    def load(self):
        from mxnet_to_torch import load
        return load(f"{self.arguments.prefix}-symbol.json", f"{self.arguments.prefix}-0000.params", self.input).to(self.dtype)

    def median_seconds(self, candidate):
        variant, module = candidate
        example = self.torch.zeros(self.shape, dtype=self.dtype).to(memory_format=self.memory_format(variant))
        times = []
        for _ in range(5):
            started = time.perf_counter()
            module(example)
            times.append(time.perf_counter() - started)
        return statistics.median(times)

    def run(self, data):
        tensor = self.torch.from_numpy(data[0])
        return [self.module(tensor.to(self.dtype, memory_format=self.layout)).float().numpy()]


ENGINES = {"onnxruntime": OnnxRuntime, "openvino": OpenVino, "pytorch": PyTorch, "mxnet": MxNet}


def serve(engine, lines, count):
    data = outputs = None
    for line in lines:
        command, _, argument = line.strip().partition(" ")
        if command == "inputs":
            data = [np.load(f"{argument}/{number}.npy") for number in range(count)]
            answer = "ok"
        elif command == "run":
            times = []
            for _ in range(int(argument)):
                started = time.perf_counter()
                outputs = engine.run(data)
                times.append((time.perf_counter() - started) * 1e3)
            answer = " ".join(f"{t:.4f}" for t in times)
        elif command == "outputs":
            for number, output in enumerate(outputs):
                np.save(f"{argument}/{number}.npy", output)
            answer = len(outputs)
        elif command == "version":
            answer = engine.version
        else:
            sys.exit(f"'{line.strip()}' is not a command")
        print(answer, file=ANSWERS, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--prefix", type=Path, required=True)
    parser.add_argument("--onnx", type=Path, required=True)
    parser.add_argument("--shape", action="append", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--variant")
    arguments = parser.parse_args()
    arguments.shapes = {name: tuple(int(d) for d in dims.split(",")) for name, dims in (text.split("=") for text in arguments.shape)}
    serve(ENGINES[arguments.engine](arguments), sys.stdin, len(arguments.shapes))


if __name__ == "__main__":
    ANSWERS = os.fdopen(os.dup(1), "w")  # engines print on standard output, too; that goes to stderr
    os.dup2(2, 1)
    main()
