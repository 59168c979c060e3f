#!/usr/bin/env python3
"""What mxnet_to_onnx.py writes gives MXNet's outputs in ONNX Runtime: every case of the test data that it translates, and the small
networks of tests/golden.

Needs the environment that tools/bench peers made in build/bench (or a Python with numpy, onnx and onnxruntime), and the test data. Without
either the tests are skipped."""
import json
import math
import os
import sys
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / "build" / "bench" / "venv-onnxruntime" / "bin" / "python"
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))
sys.dont_write_bytecode = True

try:
    import mxnet_to_onnx
    import numpy as np
    import onnxruntime
    import networks
    from mxnet_checkpoint import read_params
except ImportError:
    if PYTHON.exists() and Path(sys.prefix) != PYTHON.parent.parent:
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
    mxnet_to_onnx = None

DATA = Path(os.environ.get("SHOAL_TEST_DATA", ROOT.parent / "shared")) / "vectors"
TIERS = [DATA / f"tier{number}" for number in range(1, 7)]
# Each must be translated in at least one case; otherwise the rest of this test would say nothing about it.
COVERED = {"Convolution", "Deconvolution", "BatchNorm", "LayerNorm", "L2Normalization", "Activation", "LeakyReLU", "Pooling", "FullyConnected",
           "SoftmaxOutput", "SoftmaxActivation", "LRN", "UpSampling", "clip", "Reshape", "expand_dims", "squeeze", "transpose", "SwapAxis", "Concat",
           "stack", "SliceChannel", "slice", "slice_axis", "slice_like", "tile", "repeat", "broadcast_axis", "Embedding", "take", "batch_dot", "dot",
           "_arange", "_contrib_arange_like", "where", "add_n", "exp", "sum", "mean", "max", "softmax", "log_softmax", "SequenceMask", "RNN",
           "_rnn_param_concat", "_contrib_interleaved_matmul_selfatt_qk", "_contrib_interleaved_matmul_selfatt_valatt", "broadcast_add",
           "broadcast_mul", "elemwise_sub", "_mul_scalar", "_rminus_scalar", "InstanceNorm", "broadcast_equal", "broadcast_greater",
           "broadcast_greater_equal", "broadcast_lesser", "broadcast_lesser_equal"}

# Of the small networks, these must be translated. tools/bench measures two of them in other sizes.
TWINS = {"transformer-encoder", "gnmt-unrolled", "text-cnn"}

# ONNX Runtime's kernels: a window wholly in the padding; infinity and NaN in maxima.
OTHERWISE = {"pool_max_full_empty_window", "pool_max_plus_infinity", "max_min_of_nan"}


def cases():
    for folder in TIERS:
        for case in json.loads((folder / "cases.json").read_text()) if (folder / "cases.json").exists() else []:
            if case["name"] not in OTHERWISE:
                yield folder / case["name"], case


def arrays_of(prefix):
    """({input: array}, [output]) of a case. AssertionError for arrays that the reader does not know."""
    stored = read_params(f"{prefix}-io.params")
    outputs = [stored.pop(str(number)) for number in range(len(stored)) if str(number) in stored]
    return stored, outputs


def translate(prefix, inputs):
    return mxnet_to_onnx.Translator(f"{prefix}-symbol.json", f"{prefix}-0000.params", {name: array.shape for name, array in inputs.items()}).model()


def run(model, inputs):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {item.name: inputs[item.name] for item in session.get_inputs()})


@unittest.skipIf(mxnet_to_onnx is None, "no environment with onnx and onnxruntime: tools/bench peers makes one")
@unittest.skipUnless(TIERS[0].exists(), "no test data; set SHOAL_TEST_DATA")
class Cases(unittest.TestCase):
    def test_translated_cases_give_mxnets_outputs(self):
        covered, wrong, count = set(), [], 0
        for prefix, case in cases():
            try:
                inputs, outputs = arrays_of(prefix)
                if any(array.dtype != np.float32 for array in [*inputs.values(), *outputs]):
                    continue
                model = translate(prefix, inputs)
            except (AssertionError, KeyError, mxnet_to_onnx.Unsupported):
                continue
            count += 1
            covered |= {node["op"] for node in json.loads(Path(f"{prefix}-symbol.json").read_text())["nodes"]}
            got = run(model, inputs)
            for index, (x, want) in enumerate(zip(got, outputs, strict=True)):
                limit = max(case["tolerance"], 2e-5) * max(1.0, np.abs(want[np.isfinite(want)]).max(initial=0))
                if x.shape != want.shape or not np.allclose(x, want, rtol=0, atol=limit, equal_nan=True):
                    wrong.append(f"{prefix.parent.name}/{prefix.name} output {index}: {case['note']}")
        self.assertEqual(wrong, [])
        self.assertEqual(COVERED - covered, set())
        self.assertGreater(count, 200)

    def test_an_operator_without_a_twin_is_named(self):
        prefix = DATA / "networks" / "yolov3-darknet53" / "yolov3-darknet53"
        translator = mxnet_to_onnx.Translator.__new__(mxnet_to_onnx.Translator)
        translator.nodes, _ = mxnet_to_onnx.read_symbol(f"{prefix}-symbol.json")
        number, node = next((i, n) for i, n in enumerate(translator.nodes) if n.op == "_contrib_box_nms")
        with self.assertRaisesRegex(mxnet_to_onnx.Unsupported, "_contrib_box_nms 'yolov30_box_nms0' has no translation"):
            translator.translate(number, node)


@unittest.skipIf(mxnet_to_onnx is None, "no environment with onnx and onnxruntime: tools/bench peers makes one")
class SmallNetworks(unittest.TestCase):
    FOLDER = ROOT / "tests" / "golden" / "networks"

    def outputs(self, case):
        """What the translated network answers, and what MXNet did. Errors: Unsupported"""
        prefix = self.FOLDER / case["name"] / case["name"]
        inputs = {name: np.array(networks.Input(name, tuple(rule["shape"]), rule).values(), np.float32).reshape(rule["shape"])
                  for name, rule in case["input"].items()}
        params = {}
        for key, offset, scale, *shape in map(str.split, Path(f"{prefix}-parameters.txt").read_text().splitlines()):
            shape, name = tuple(map(int, shape)), key.partition(":")[2]
            noise = np.array(networks.noise(name, math.prod(shape)), np.float32).reshape(shape)
            params[name] = np.float32(offset) + np.float32(scale) * noise
        with unittest.mock.patch.object(mxnet_to_onnx, "read_params", lambda _: params):
            model = translate(prefix, inputs)
        stored = read_params(f"{prefix}-io.params")
        return run(model, inputs), [stored[str(number)] for number in range(len(stored))]

    def test_networks_with_a_twin_give_mxnets_outputs(self):
        translated, missing = set(), {}
        for case in json.loads((self.FOLDER / "cases.json").read_text()):
            try:
                got, wanted = self.outputs(case)
            except mxnet_to_onnx.Unsupported as error:
                missing[case["name"]] = str(error)
                continue
            translated.add(case["name"])
            for x, want in zip(got, wanted, strict=True):
                np.testing.assert_allclose(x, want, rtol=0, atol=case["tolerance"] * max(1.0, np.abs(want).max()), err_msg=case["name"])
        self.assertEqual(TWINS - translated, set(), missing)
        self.assertEqual(missing["gnmt-foreach"], "_foreach '_foreach0' has no translation")
        self.assertEqual(missing["faster-rcnn-classic"], "_contrib_Proposal 'rois' has no translation")


if __name__ == "__main__":
    unittest.main()
