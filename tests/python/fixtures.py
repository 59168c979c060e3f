"""Shared parts of the tests of the Python package: a daemon for a whole class of tests."""
import json
import os
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))

from detect_test import write_detector, write_png  # noqa: E402,F401
from support import BIN, DATA, FAULTY, PICTURES, SHAPES, SOURCE, Daemon, ShoalTest, need_data, write_model  # noqa: E402,F401

import numpy  # noqa: E402

import shoal  # noqa: E402


def ones(*shape):
    return numpy.ones(shape, numpy.float32)


class PoolTest(ShoalTest):
    """Tests that share a daemon, self.daemon, which serves MODELS, and have a pool each, self.pool."""

    MODELS = {"echo": "builtin:identity,workers=1,queue_limit=20000"}
    WORKER = None

    @classmethod
    def setUpClass(cls):
        cls.daemon = cls.enterClassContext(Daemon(cls.models(), worker=cls.WORKER))

    @classmethod
    def models(cls):
        return cls.MODELS

    def setUp(self):
        super().setUp()
        self.pool = self.enterContext(shoal.Pool(self.daemon.directory))

    def echo(self, x, **options):
        return self.pool.predict("echo", {"data": x}, **options)["data_output"]


def write_counter(directory):
    """Writes a model with a state: h_out = h_in + data."""
    directory.mkdir()
    nodes = [{"op": "null", "name": "data", "inputs": []}, {"op": "null", "name": "h_in", "inputs": []},
             {"op": "elemwise_add", "name": "h_out", "inputs": [[0, 0, 0], [1, 0, 0]]},
             {"op": "_mul_scalar", "name": "y", "attrs": {"scalar": "2"}, "inputs": [[2, 0, 0]]}]
    (directory / "m-symbol.json").write_text(json.dumps({"nodes": nodes, "arg_nodes": [0, 1], "heads": [[3, 0, 0], [2, 0, 0]],
                                                         "attrs": {"mxnet_version": ["int", 10901]}}))
    (directory / "m-0000.params").write_bytes(struct.pack("<QQQQ", 0x112, 0, 0, 0))
    (directory / "model.toml").write_text('inputs = [{name = "data", shape = [-1, 2]}, {name = "h_in", shape = [-1, 2]}]\n'
                                          'state = [{out = "h_out_output", in = "h_in"}]\ntuning_ms = 0\n')
    return directory


def rss_kb():
    return int(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")).split()[1])


def is_long():
    return bool(os.environ.get("SHOAL_TEST_LONG"))
