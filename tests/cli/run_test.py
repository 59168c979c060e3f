#!/usr/bin/env python3
"""`shoal run`: which checkpoint a path selects, types of inputs, names of output files."""
import json
import struct
import unittest

from support import ShoalTest, read_npy, shoal, write_npy

EMPTY_PARAMS = struct.pack("<QQQQ", 0x112, 0, 0, 0)


class Run(ShoalTest):
    def checkpoint(self, prefix, nodes, heads, epochs=(0,)):
        """nodes: (op, name, input ids, attributes); no parameters."""
        graph = {"nodes": [{"op": op, "name": name, "inputs": [[i, 0, 0] for i in inputs], "attrs": attrs} for op, name, inputs, attrs in nodes],
                 "arg_nodes": [i for i, n in enumerate(nodes) if n[0] == "null"], "heads": [[h, 0, 0] for h in heads],
                 "attrs": {"mxnet_version": ["int", 10901]}}
        (self.tmp / f"{prefix}-symbol.json").write_text(json.dumps(graph))
        for epoch in epochs:
            (self.tmp / f"{prefix}-{epoch:04d}.params").write_bytes(EMPTY_PARAMS)
        return self.tmp / prefix

    def run_it(self, path, source):
        return shoal("run", path, "--input", f"data={source}", "--output", self.tmp / "out", "--json")

    def outputs(self, run):
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)["outputs"]

    def test_inputs_keep_their_type(self):
        prefix = self.checkpoint("copy", [("null", "data", [], {}), ("_copy", "same", [0], {})], [1])
        for descr, dtype in (("<f4", "float32"), ("<f8", "float64"), ("|u1", "uint8"), ("<i4", "int32"), ("<i8", "int64")):
            with self.subTest(dtype=dtype):
                source = write_npy(self.tmp / "x.npy", (2, 3), [1, 2, 3, 4, 5, 6], descr)
                output = self.outputs(self.run_it(prefix, source))[0]
                self.assertEqual((output["dtype"], output["shape"]), (dtype, [2, 3]))
                self.assertEqual(read_npy(output["file"]), ((2, 3), [1, 2, 3, 4, 5, 6]))

    def test_output_files_are_named_after_the_outputs(self):
        nodes = [("null", "data", [], {}), ("Activation", "a/b", [0], {"act_type": "relu"}), ("Activation", "a:b", [0], {"act_type": "tanh"})]
        prefix = self.checkpoint("two", nodes, [1, 2])
        outputs = self.outputs(self.run_it(prefix, write_npy(self.tmp / "x.npy", (1, 2), [-1, 1])))
        self.assertEqual([o["name"] for o in outputs], ["a/b_output", "a:b_output"])
        files = [o["file"].rsplit("/", 1)[1] for o in outputs]
        self.assertEqual(files[0], "a_b_output.npy")
        self.assertEqual(len(set(files)), 2)
        self.assertEqual(read_npy(outputs[0]["file"])[1], [0, 1])

    def test_help_and_errors_call_the_input_the_same(self):
        for command in ("run", "predict", "bench"):
            self.assertNotIn("NAME=FILE", shoal(command, "--help").stdout)
        self.assert_fails(shoal("run", self.tmp / "m", "--input", "x.npy", "--output", self.tmp), 2, "write INPUT=FILE.npy")

    def test_all_inputs_that_the_model_does_not_have_are_named_at_once(self):
        prefix = self.checkpoint("copy", [("null", "data", [], {}), ("_copy", "same", [0], {})], [1])
        source = write_npy(self.tmp / "x.npy", (1,), [1])
        inputs = [word for name in ("nope", "data", "dta") for word in ("--input", f"{name}={source}")]
        self.assert_fails(shoal("run", prefix, *inputs, "--output", self.tmp / "out"), 1, "no input 'dta', 'nope' (it has: data)")
        for words in (inputs, ["--shape", "nope=1", "--shape", "data=1", "--shape", "dta=1"]):
            self.assert_fails(shoal("bench", prefix, *words), 1, "no input 'dta', 'nope' (it has: data)")

    def test_a_path_means_one_checkpoint_or_an_error_lists_them(self):
        nodes = [("null", "data", [], {}), ("_copy", "same", [0], {})]
        source = write_npy(self.tmp / "x.npy", (1,), [1])
        prefix = self.checkpoint("net", nodes, [1], epochs=(3, 7))
        self.outputs(self.run_it(f"{prefix}@7", source))
        self.assert_fails(self.run_it(prefix, source), 1, "3", "7")
        self.assert_fails(self.run_it(f"{prefix}@5", source), 1, "net", "5")
        (self.tmp / "net-0003.params").unlink()
        self.outputs(self.run_it(prefix, source))
        self.outputs(self.run_it(self.tmp, source))
        self.checkpoint("other", nodes, [1])
        self.assert_fails(self.run_it(self.tmp, source), 1, "net", "other")


if __name__ == "__main__":
    unittest.main(verbosity=2)
