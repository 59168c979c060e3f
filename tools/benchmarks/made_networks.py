"""Networks that the test data lacks: their sizes and inputs. MXNet writes the graph (mxnet_networks.py) in its own environment, and
make-model computes the weights from the names of the parameters. Needs only the standard library.
"""
import dataclasses
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Callable

from environments import environment
from harness import BUILD, BenchError, write_checkpoint

HERE = Path(__file__).resolve().parent


def encoder_inputs(sizes, valid):
    return {"data": {"shape": [1, sizes["length"], sizes["units"]]}, "valid_length": {"shape": [1], "value": valid}}


def gnmt_inputs(sizes, valid):
    words = sizes["vocabulary"]
    return {"src": {"shape": [1, sizes["source"]], "ids": words}, "tgt": {"shape": [1, sizes["target"]], "ids": words},
            "src_len": {"shape": [1], "value": valid}}


def detector_inputs(sizes, _):
    return {"data": {"shape": [1, 3, 320, 480], "blocks": 32}, "im_info": {"shape": [1, 3], "values": [320, 480, 1]}}


@dataclasses.dataclass(frozen=True)
class Made:
    """How to make one network. Immutable.

      graph, sizes  a function of mxnet_networks.py and its arguments
      inputs        inputs(sizes, valid) gives {input: rule}, as in cases.json of the test data
      lengths       the sizes that NAME@LENGTH sets; none if the network has no sequences
      valid         how much of a sequence is valid; all of it with @LENGTH
    """
    graph: str
    sizes: dict
    inputs: Callable
    lengths: tuple = ()
    valid: int = 0

    def at_length(self, length):
        return dataclasses.replace(self, sizes={**self.sizes, **dict.fromkeys(self.lengths, length)}, valid=length)

    def rules(self):
        return self.inputs(self.sizes, self.valid)


ENCODER = {"layers": 6, "units": 512, "heads": 8, "hidden": 2048, "length": 128, "positions": 512, "classes": 16}
GNMT = {"batch": 1, "source": 30, "target": 25, "units": 512, "embedding": 512, "vocabulary": 8000, "encoder_layers": 1,
        "decoder_layers": 2}
DETECTOR = {"widths": [32, 64, 128, 256], "blocks": [0, 2, 2, 2], "rpn_width": 512, "scales": [4, 8, 16], "ratios": [0.5, 1, 2],
            "before_nms": 6000, "boxes": 300, "least_size": 16, "pooled": 7, "hidden": 1024, "classes": 20}
NETWORKS = {
    "transformer-encoder": Made("transformer_encoder", ENCODER, encoder_inputs, ("length",), 100),
    "gnmt-unrolled": Made("gnmt", {"loop": "unrolled", **GNMT}, gnmt_inputs, ("source", "target"), 25),
    "gnmt-foreach": Made("gnmt", {"loop": "foreach", **GNMT}, gnmt_inputs, ("source", "target"), 25),
    "faster-rcnn-like": Made("faster_rcnn", {**DETECTOR, "candidates": 400, "detections": 100}, detector_inputs),
    "faster-rcnn-classic": Made("faster_rcnn", DETECTOR, detector_inputs)}


def find(name, length=None):
    """The network of this name. Errors: BenchError"""
    network = NETWORKS[name]
    if length is None:
        return network
    if not network.lengths:
        raise BenchError(f"{name}@{length}: the network has no sequences, so it has no length")
    return network.at_length(length)


def checkpoint(name, network, shapes):
    """The prefix of its checkpoint under build/bench. Writes it if it is missing or older than what makes it. Errors: BenchError"""
    prefix = BUILD / name / name
    params = Path(f"{prefix}-0000.params")
    if params.exists() and params.stat().st_mtime > max(source.stat().st_mtime for source in (HERE / "mxnet_networks.py", Path(__file__))):
        return str(prefix)
    try:
        python = environment("mxnet")
    except BenchError as error:
        raise BenchError(f"{name}: its graph is made by MXNet: {error}") from error
    with tempfile.TemporaryDirectory() as directory:
        symbol = Path(directory) / "graph-symbol.json"
        run = subprocess.run([python, "-B", HERE / "mxnet_networks.py", network.graph, json.dumps(network.sizes), symbol],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if run.returncode:
            raise BenchError(f"{name}: its graph is made by MXNet: {' '.join(run.stderr.splitlines()[-1:])}")
        write_checkpoint(symbol, shapes, prefix)
    return str(prefix)
