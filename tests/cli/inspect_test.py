#!/usr/bin/env python3
"""`shoal inspect`: shapes and precision, what runs each node, those of bodies too, and all that a refused graph lacks."""
import json
import os
import shutil
import struct
import subprocess
import unittest

from support import BIN, SHAPES, SOURCE, ShoalTest, shoal

NETWORKS = SOURCE / "tests" / "golden" / "networks"


class Inspect(ShoalTest):
    def write(self, shapes, *nodes, heads=None, keys=""):
        """A checkpoint without weights. nodes: (operator, name, attributes, names of its inputs); heads: outputs, by default the last node."""
        directory = self.tmp / f"model{len(list(self.tmp.iterdir()))}"
        directory.mkdir()
        entries = [{"op": "null", "name": name, "inputs": []} for name in shapes]
        place = {name: i for i, name in enumerate(shapes)}
        for op, name, attributes, inputs in nodes:
            place[name] = len(entries)
            entries.append({"op": op, "name": name, "attrs": attributes, "inputs": [[place[each], 0, 0] for each in inputs]})
        outputs = [[place[name], 0, 0] for name in heads or [nodes[-1][1]]]
        symbol = {"nodes": entries, "arg_nodes": list(range(len(shapes))), "heads": outputs, "attrs": {"mxnet_version": ["int", 10901]}}
        (directory / "m-symbol.json").write_text(json.dumps(symbol))
        self.write_config(directory, "m", shapes, keys)
        return directory

    def write_config(self, directory, prefix, shapes, keys=""):
        (directory / f"{prefix}-0000.params").write_bytes(struct.pack("<QQQQ", 0x112, 0, 0, 0))
        inputs = ", ".join(f'{{name = "{name}", shape = {list(shape)}}}' for name, shape in shapes.items())
        (directory / "model.toml").write_text(f"inputs = [{inputs}]\n{keys}\n")

    def inspect(self, directory, *words):
        done = shoal("inspect", directory, "--json", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_a_directory_that_may_not_be_read_is_not_missing(self):
        closed = self.tmp / "closed"
        shutil.copytree(SHAPES, closed / "shapes")
        shutil.copytree(SHAPES, self.tmp / "versions" / "7")
        self.tmp.chmod(0o755)
        for directory in (closed, self.tmp / "versions" / "7"):
            directory.chmod(0)
            self.addCleanup(directory.chmod, 0o700)
        nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}  # nothing is closed to root
        for path in (closed, closed / "shapes", closed / "shapes" / "shapes@3", self.tmp / "versions"):
            try:
                run = subprocess.run([BIN / "shoal", "inspect", path], capture_output=True, text=True, timeout=60, **nobody)
            except PermissionError:
                self.skipTest("another user may not run what was built here")
            self.assert_fails(run, 1, "PERMISSION_DENIED", "read the directory", closed if closed in (path, *path.parents) else path)

    def write_masked(self):
        return self.write({"data": (4, 3), "mask": (4,), "s": ()}, ("_contrib_boolean_mask", "kept", {}, ["data", "mask"]),
                          ("_mul_scalar", "twice", {"scalar": "2"}, ["kept"]), ("_plus_scalar", "next", {"scalar": "1"}, ["s"]),
                          heads=["twice", "next"])

    def test_scalars_and_sizes_that_depend_on_data_are_told_apart_from_unknown_shapes(self):
        seen = self.inspect(self.write_masked())
        self.assertEqual([each["shape"] for each in seen["inputs"]], [[4, 3], [4], []])
        twice, next_ = seen["outputs"]
        self.assertEqual((twice["shape"], twice["ranges"][0]), ([-1, 3], [0, 4]))
        self.assertEqual(next_["shape"], [])
        self.assertNotIn("ranges", next_)

    def test_a_model_whose_output_depends_on_data_can_be_profiled(self):
        seen = self.inspect(self.write_masked(), "--profile")
        self.assertEqual((seen["notes"], seen["oracle_shares_are"]), ([], "measured"))
        by = {node["name"]: node["by"] for node in seen["nodes"]}
        self.assertEqual(by["twice"], "kernel", "although its size is known only when it runs")

    def test_a_profile_whose_run_fails_leaves_the_list_of_nodes(self):
        model = self.write({"data": (1, 3, 3)}, ("_linalg_inverse", "inverse", {}, ["data"]))
        seen = self.inspect(model, "--profile")
        self.assertEqual(seen["oracle_shares_are"], "estimated")
        self.assertIn("a run on zeros fails", seen["notes"][0])
        self.assertEqual([node["by"] for node in seen["nodes"]], ["oracle"])

    def test_all_nodes_that_do_not_fit_are_named_at_once(self):
        shapes = {"data": (2, 3)}
        model = self.write(shapes, ("Concat", "joined", {"dim": "5", "num_args": "2"}, ["data", "data"]), ("relu", "behind", {}, ["joined"]),
                           ("Custom", "mine", {"op_type": "my_op"}, ["data"]), ("batch_dot", "product", {}, ["data", "data"]),
                           ("sqrt", "good", {}, ["data"]), heads=["behind", "mine", "product", "good"])
        seen = self.inspect(model)
        self.assertFalse(seen["supported"])
        self.assertEqual({each["node"] for each in seen["unsupported"]}, {"joined", "mine", "product"})
        nodes = {node["name"]: node for node in seen["nodes"]}
        self.assertIn("axis 5", nodes["joined"]["missing"])
        self.assertTrue(nodes["mine"]["missing"])
        self.assertTrue(nodes["product"]["missing"])
        self.assertIsNone(nodes["behind"]["missing"])
        self.assertEqual((nodes["good"]["missing"], nodes["good"]["types"]), (None, "float32 -> float32"))
        self.assertIn("cannot be run", shoal("inspect", model).stdout)
        self.assertIn("the shapes do not fit the graph: Concat 'joined': axis 5 is not among the 2 of shape 2x3", seen["notes"])

    def test_nodes_of_bodies_are_listed_behind_the_loop_that_runs_them(self):
        model = self.tmp / "while"
        shutil.copytree(NETWORKS / "control-while", model)
        self.write_config(model, "control-while", {"data": (2, 6), "w_weight": (6, 6), "w_bias": (6,)})
        nodes = {node["name"]: node for node in self.inspect(model)["nodes"]}
        loop = next(name for name, node in nodes.items() if node["op"] == "_while_loop")
        inner = {name: node for name, node in nodes.items() if name.startswith(loop + "/")}
        self.assertIn("FullyConnected", {node["op"] for node in inner.values()})
        for node in inner.values():
            self.assertIsNotNone(node["by"])
            self.assertIsNotNone(node["types"])

    def write_foreach(self, *nodes, shape=(3, 2, 4, 4)):
        """A `_foreach` over `data` whose body has these nodes, each of which reads the one before it."""
        entries = [{"op": "null", "name": "x", "inputs": []}]
        entries += [{"op": op, "name": name, "attrs": attributes, "inputs": [[i, 0, 0]]} for i, (op, name, attributes) in enumerate(nodes)]
        body = {"nodes": entries, "arg_nodes": [0], "heads": [[len(nodes), 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}
        symbol = {"nodes": [{"op": "null", "name": "data", "inputs": []},
                            {"op": "_foreach", "name": "each", "inputs": [[0, 0, 0]], "subgraphs": [body],
                             "attrs": {"num_args": "2", "num_outputs": "1", "num_out_data": "1", "in_data_locs": "(0,)",
                                       "in_state_locs": "()", "remain_locs": "()"}}],
                  "arg_nodes": [0], "heads": [[1, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}
        model = self.tmp / f"foreach{len(list(self.tmp.iterdir()))}"
        model.mkdir()
        (model / "m-symbol.json").write_text(json.dumps(symbol))
        self.write_config(model, "m", {"data": shape})
        return model

    def test_refused_nodes_of_bodies_are_all_named(self):
        for nodes in ([("Custom", "a", {"op_type": "x"}), ("Correlation", "b", {})],
                      [("Reshape", "a", {"shape": "(3, 7)"}), ("relu", "c", {}), ("Reshape", "b", {"shape": "(5, 5)"})]):
            seen = self.inspect(self.write_foreach(*nodes))
            named = {each["node"] for each in seen["unsupported"]}
            self.assertIn("each/a", named)
            if nodes[1][0] == "Correlation":
                self.assertIn("each/b", named)
            self.assertFalse(seen["supported"])
        body = ("Reshape", "a", {"shape": "(3, 7)"})
        seen = self.inspect(self.write_foreach(body))
        self.assertEqual([(each["node"], each["operator"]) for each in seen["unsupported"]], [("each/a", "Reshape")])
        self.assertTrue({node["name"]: node for node in seen["nodes"]}["each/a"]["missing"])

    def test_a_wrong_node_does_not_make_others_wrong(self):
        model = self.write({"data": (2, 3)}, ("Reshape", "wrong", {"shape": "(4, 4)"}, ["data"]), ("_zeros", "begin", {"shape": "(0, 3)"}, []),
                           ("elemwise_add", "sum", {}, ["begin", "data"]), heads=["wrong", "sum"])
        seen = self.inspect(model)
        self.assertEqual([each["node"] for each in seen["unsupported"]], ["wrong"])
        self.assertEqual({node["name"]: node["types"] for node in seen["nodes"]}["sum"], "float32, float32 -> float32")

    def test_a_model_that_does_not_load_is_not_called_ready(self):
        model = self.write({"data": (2, 3)}, ("sqrt", "root", {}, ["data"]), keys='state = [{out = "root_output", in = "nobody"}]')
        seen = self.inspect(model)
        self.assertEqual((seen["supported"], seen["loads"]), (True, False))
        self.assertIn("does not load", shoal("inspect", model).stdout)
        self.assertTrue(self.inspect(self.write({"data": (2, 3)}, ("sqrt", "root", {}, ["data"])))["loads"])
        for keys in ('outputs = ["nobody"]', 'sparse = {nobody = "csr"}'):
            self.assertFalse(self.inspect(self.write({"data": (2, 3)}, ("sqrt", "root", {}, ["data"]), keys=keys))["loads"], keys)

    def test_all_inputs_that_the_model_does_not_have_are_named_at_once(self):
        keys = 'shapes = [{data = [2, 3], typo = [1]}, {data = [2, 3], dta = [1]}]\nsparse = {nobody = "csr", none = "csr"}'
        model = self.write({"data": (2, 3)}, ("sqrt", "root", {}, ["data"]))
        (model / "model.toml").write_text('inputs = [{name = "data", shape = [-1, 3]}]\n' + keys)
        seen = self.inspect(model)
        self.assertFalse(seen["loads"])
        self.assertEqual(seen["notes"], ["model 'm': 'sparse' is wrong: the model has no input 'nobody', 'none' (it has: data)",
                                         "model 'm': 'shapes' is wrong: the model has no input 'dta', 'typo' (it has: data)"])

    def test_all_branches_are_looked_at(self):
        def branch(shape):
            return {"nodes": [{"op": "null", "name": "x", "inputs": []},
                              {"op": "Reshape", "name": "r", "attrs": {"shape": shape}, "inputs": [[0, 0, 0]]}],
                    "arg_nodes": [0], "heads": [[1, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}
        when = {"nodes": [{"op": "null", "name": "p", "inputs": []}, {"op": "relu", "name": "c", "inputs": [[0, 0, 0]]}],
                "arg_nodes": [0], "heads": [[1, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}
        symbol = {"nodes": [{"op": "null", "name": "p", "inputs": []}, {"op": "null", "name": "data", "inputs": []},
                            {"op": "_cond", "name": "if", "inputs": [[0, 0, 0], [1, 0, 0]], "subgraphs": [when, branch("(7, 7)"), branch("(5, 5)")],
                             "attrs": {"num_args": "5", "num_outputs": "1", "cond_input_locs": "(0,)", "then_input_locs": "(1,)",
                                       "else_input_locs": "(1,)"}}],
                  "arg_nodes": [0, 1], "heads": [[2, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}
        model = self.tmp / "cond"
        model.mkdir()
        (model / "m-symbol.json").write_text(json.dumps(symbol))
        self.write_config(model, "m", {"p": (1,), "data": (2, 3)})
        seen = self.inspect(model)
        missing = [node["missing"] for node in seen["nodes"] if node["name"] == "if/r"]
        self.assertEqual(len(missing), 2, seen["nodes"])
        self.assertIn("(7, 7)", missing[0])
        self.assertIn("(5, 5)", missing[1])

    def test_oracle_kernels_within_bodies_are_named_with_their_share(self):
        model = self.write_foreach(("_linalg_inverse", "inverse", {}))
        seen = self.inspect(model)
        self.assertEqual([each["node"].rpartition(", ")[2] for each in seen["oracle_nodes"]], ["_linalg_inverse 'inverse'"], seen["notes"])
        self.assertGreater(seen["oracle_nodes"][0]["share"], 0.5)

    def test_the_precision_is_said(self):
        nodes = [("sqrt", "root", {}, ["data"])]
        self.assertEqual(self.inspect(self.write({"data": (2, 3)}, *nodes))["precision"], {"asked": "f32", "runs_in": "f32"})
        model = self.write({"data": (2, 3)}, *nodes, keys='precision = "auto"\ntuning_ms = 200')
        self.assertEqual(self.inspect(model)["precision"], {"asked": "auto", "runs_in": "f32"})
        self.assertIn("auto, runs in f32", shoal("inspect", model).stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
