#!/usr/bin/env python3
"""Files of all format versions, by the command line and through the daemon. Refusals name their cause; memory limits hold everywhere."""
import json
import shutil
import struct
import unittest

from support import Daemon, ShoalTest, largest_error, link_model, need_data, read_npy, shoal, write_npy

TOLERANCE = 1e-5  # of max |ref|: cases.json's
EMPTY_PARAMS = struct.pack("<QQQQ", 0x112, 0, 0, 0)

# Folder, prefix, what `shoal inspect` says of its age: arrays of V0, V1, V2, V3 and in a ZIP archive.
ERAS = [
    ("lenet-mxnet-0.9.5", "lenet", 905),
    ("branches-mxnet-0.11.0", "branches", 1100),
    ("branches-mxnet-1.5.1", "branches", 10501),
    ("gluon-npshape-mxnet-1.9.1", "gluon", 10901),
    ("gluon-mxnet-2.0.0beta1", "gluon", 20000),
]


class Formats(ShoalTest):
    def test_checkpoints_of_every_era_are_inspected_and_run(self):
        for folder, prefix, version in ERAS:
            files = need_data("vectors", "formats", folder)
            with self.subTest(checkpoint=folder):
                seen = shoal("inspect", files / prefix, "--json")
                self.assertEqual(seen.returncode, 0, seen.stderr)
                report = json.loads(seen.stdout)
                self.assertEqual((report["mxnet_version"], report["epoch"], report["supported"]), (version, 7, True))
                self.assertEqual([n for n in report["notes"] if "attribute" in n], [], "nothing of it is unknown")
                self.assertGreater(report["parameters"]["values"], 0)
                linked = link_model(self.tmp / folder, files / prefix, read_npy(files / "input.npy")[0], tuning_ms=0)
                for device in ("cpu", "cpu-reference"):
                    run = shoal("run", linked, "--input", f"data={files / 'input.npy'}", "--output", self.tmp / device,
                                "--device", device, "--json")
                    self.assertEqual(run.returncode, 0, run.stderr)
                    [output] = json.loads(run.stdout)["outputs"]
                    shape, reference = read_npy(files / "output.npy")
                    self.assertEqual(output["shape"], list(shape))
                    self.assertLessEqual(largest_error(read_npy(output["file"])[1], reference), TOLERANCE)

    def test_what_is_refused_is_named(self):
        arrays = need_data("vectors", "formats", "arrays")
        good = need_data("vectors", "formats", "lenet-mxnet-1.9.1")
        for name, words in (("numpy-big-endian.npz", ["descr"]), ("unnamed-v2.params", ["no names"])):
            with self.subTest(file=name):
                shutil.copy(good / "lenet-symbol.json", self.tmp / "lenet-symbol.json")
                shutil.copy(arrays / name, self.tmp / "lenet-0000.params")
                for words_of_command in (["inspect", self.tmp / "lenet"],
                                         ["run", self.tmp / "lenet", "--input", f"data={good / 'input.npy'}", "--output", self.tmp / "out"]):
                    self.assert_fails(shoal(*words_of_command), 1, "lenet-0000.params", *words)

    def checkpoint(self, nodes, shape=(1, 4), **keys):
        """A model of these nodes (op, name, inputs, attributes), which has no parameters."""
        graph = {"nodes": [{"op": op, "name": name, "inputs": inputs, "attrs": attributes} for op, name, inputs, attributes in nodes],
                 "arg_nodes": [0], "heads": [[len(nodes) - 1, 0]]}
        files = self.tmp / "files"
        files.mkdir()
        (files / "m-symbol.json").write_text(json.dumps(graph))
        (files / "m-0000.params").write_bytes(EMPTY_PARAMS)
        return link_model(self.tmp / "m", files / "m", shape, **keys)

    def test_the_limit_of_an_import_holds_in_daemon_and_tools(self):
        model = self.checkpoint([("null", "data", [], {}), ("split", "many", [[0, 0]], {"num_outputs": "60000"})], import_mb=32)
        source = write_npy(self.tmp / "x.npy", (1, 4), [1, 2, 3, 4])
        words = ["import_mb", str(32 << 20), "many"]
        self.assert_fails(shoal("run", model, "--input", f"data={source}", "--output", self.tmp / "out"), 1, *words)
        with Daemon({"m": model}, wait=False) as daemon:
            daemon.wait_until_it_answers()
            self.assert_fails(daemon.shoal("predict", "m", "--input", f"data={source}", "--output", self.tmp / "out"), 3, *words)
            self.assertEqual(daemon.model("m")["state"], "failed")
            self.assertIn("import_mb", daemon.model("m")["reason"])

    def test_warnings_of_an_import_reach_the_log_of_the_daemon(self):
        model = self.checkpoint([("null", "data", [], {}), ("_copy", "same", [[0, 0]], {"color": "green"})])
        with Daemon({"m": model}) as daemon:
            daemon.log.seek(0)
            log = daemon.log.read()
        self.assertRegex(log, r"load_warning model=m .*attribute color is not known")

    def test_the_parts_of_a_sparse_input_run_in_process_and_in_the_pool(self):
        model = self.checkpoint([("null", "data", [], {"__storage_type__": "2"}), ("sum", "sums", [[0, 0]], {"axis": "1"})], (-1, 4), sparse='{data = "csr"}')
        parts = {"values": ((3,), [1, 2, 5], "<f4"), "indptr": ((4,), [0, 2, 2, 3], "<i8"), "indices": ((3,), [3, 0, 1], "<i8")}
        wrong = {**parts, "indices": ((3,), [3, 0, 4], "<i8")}
        with Daemon({"m": model}) as daemon:
            for run in (lambda *words: shoal("run", model, *words), lambda *words: daemon.shoal("predict", "m", *words)):
                for given in (parts, wrong):
                    words = ["--output", self.tmp / "out"]
                    for part, (shape, values, descr) in given.items():
                        words += ["--input", f"data.{part}={write_npy(self.tmp / (part + '.npy'), shape, values, descr)}"]
                    done = run(*words)
                    if given is wrong:
                        self.assertNotEqual(done.returncode, 0)
                        self.assertRegex(done.stderr, "element 2 of 'data.indices' is 4; the matrix has the columns 0 to 3")
                        continue
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual([read_npy(file)[1] for file in (self.tmp / "out").glob("*.npy")], [[3, 0, 5]])
        seen = json.loads(shoal("inspect", model, "--json").stdout)
        self.assertEqual([each["name"] for each in seen["inputs"]], ["data.values", "data.indptr", "data.indices"])
        self.assertIn("csr tensor 'data' (1x4) is made dense, 16 bytes, in each run", seen["notes"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
