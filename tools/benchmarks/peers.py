"""Shoal beside ONNX Runtime: same graph, same weights, same input, interleaved rounds, outputs compared.

Runs in the virtual environment that tools/bench makes (numpy, onnx, onnxruntime).
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime

import mxnet_to_onnx


class Shoal:
    """shoal-bench model: one process that runs on demand."""

    def __init__(self, binary, prefix, name, shape, threads):
        dims = ",".join(map(str, shape))
        self.process = subprocess.Popen([binary, "model", prefix, "--shape", f"{name}={dims}", "--threads", str(threads)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"shoal-bench model ended with exit code {self.process.wait()}")
        return answer.strip()

    def run(self):
        return float(self.ask("run"))


class OnnxRuntime:
    def __init__(self, onnx_file, name, data, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self.session = onnxruntime.InferenceSession(onnx_file, options, providers=["CPUExecutionProvider"])
        self.feed = {name: data}

    def run(self):
        started = time.perf_counter()
        self.output = self.session.run(None, self.feed)[0]
        return (time.perf_counter() - started) * 1e3


def compare(arguments, batch, threads, directory):
    shape = [batch] + arguments.shape[1:]
    data = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
    np.save(f"{directory}/input.npy", data)
    mxnet_to_onnx.export(f"{arguments.prefix}-symbol.json", f"{arguments.prefix}-0000.params", {arguments.input: shape},
                         f"{directory}/model.onnx")
    shoal = Shoal(arguments.binary, arguments.prefix, arguments.input, shape, threads)
    shoal.ask(f"input {directory}/input.npy")
    peer = OnnxRuntime(f"{directory}/model.onnx", arguments.input, data, threads)
    for _ in range(3):
        shoal.run(), peer.run()
    times = {"shoal": [], "onnxruntime": []}
    for _ in range(arguments.rounds):
        for name, engine in (("shoal", shoal), ("onnxruntime", peer)):
            times[name].append(statistics.median(engine.run() for _ in range(arguments.runs)))
    shoal.ask(f"output {directory}/output.npy")
    ours = np.load(f"{directory}/output.npy")
    difference = float(np.max(np.abs(ours - peer.output)) / max(1, np.max(np.abs(peer.output))))
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratio = statistics.median(a / b for a, b in zip(times["shoal"], times["onnxruntime"]))
    return {"model": Path(arguments.prefix).name, "batch": batch, "threads": threads, "rounds": arguments.rounds,
            "median_ms": medians, "best_ms": {n: min(v) for n, v in times.items()}, "ratio": ratio,
            "output_difference": difference, "onnxruntime": onnxruntime.__version__}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prefix")
    parser.add_argument("--binary", required=True)
    parser.add_argument("--input", default="data")
    parser.add_argument("--shape", type=lambda t: [int(d) for d in t.split(",")], default=[1, 3, 224, 224])
    parser.add_argument("--batches", type=lambda t: [int(d) for d in t.split(",")], default=[1])
    parser.add_argument("--threads", type=lambda t: [int(d) for d in t.split(",")], default=[1])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--runs", type=int, default=5, help="runs of each engine per round; their median counts")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for batch in arguments.batches:
            for threads in arguments.threads:
                rows.append(compare(arguments, batch, threads, directory))
    print(json.dumps({"peers": rows}, indent=1))


if __name__ == "__main__":
    main()
