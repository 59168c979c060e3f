#!/usr/bin/env python3
"""tools/bench runs and writes its reports. Whether the figures are good is not tested."""
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from support import BIN, SHAPES, SOURCE, processes_of, read_npy, write_npy

sys.path.insert(0, str(SOURCE / "tools" / "benchmarks"))
from harness import write_perceptron  # noqa: E402


def wait_until(condition, limit_s=20):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def bench(*words):
    run = subprocess.run([SOURCE / "tools" / "bench", *map(str, words)], capture_output=True, text=True, timeout=120,
                         env=dict(os.environ, SHOAL_BIN_DIR=str(BIN)))
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


HAS_BENCH = (BIN / "shoal-bench").exists()


@unittest.skipUnless(HAS_BENCH, "built without SHOAL_BUILD_BENCH")
class Bench(unittest.TestCase):
    def test_pool_compares_with_the_executor_alone_and_two_workers_with_one(self):
        result = bench("pool", "--model", SHAPES / "shapes", "--shape", "1,3,64,64", "--rounds", 2)
        latency, throughput = result["latency"], result["throughput"]
        self.assertGreater(latency["in_process_ms"], 0)
        self.assertGreater(latency["pool_ms"], 0)
        self.assertGreater(throughput["one_worker_per_s"], 0)
        self.assertGreater(throughput["two_workers_per_s"], 0)

    def test_a_profile_holds_each_step_against_its_bounds(self):
        result = bench("model", "--profile", SHAPES / "shapes", "--shape", "1,3,64,64", "--runs", 3, "--json")
        self.assertGreater(result["peak_gflops_per_s"], 0)
        self.assertGreater(result["peak_gb_per_s"], 0)
        self.assertGreater(len(result["steps"]), 5)
        for step in result["steps"]:
            self.assertIn(step["bound"], ("compute", "memory"))
            self.assertGreater(min(step["ms"], step["bound_ms"], step["mb"]), 0, step)
        for key, of_step in (("total_ms", "ms"), ("bound_ms", "bound_ms")):
            self.assertAlmostEqual(result[key], sum(step[of_step] for step in result["steps"]), places=6)

    def write_difference(self):
        """A checkpoint whose output is first - second."""
        directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        symbol = {"nodes": [{"op": "null", "name": "first", "inputs": []}, {"op": "null", "name": "second", "inputs": []},
                            {"op": "broadcast_sub", "name": "difference", "inputs": [[0, 0, 0], [1, 0, 0]]}],
                  "arg_nodes": [0, 1], "node_row_ptr": [0, 1, 2, 3], "heads": [[2, 0, 0]],
                  "attrs": {"mxnet_version": ["int", 10901]}}
        (directory / "m-symbol.json").write_text(json.dumps(symbol))
        (directory / "m-0000.params").write_bytes(struct.pack("<QQQQ", 0x112, 0, 0, 0))
        return directory

    def shoal_bench_model(self, directory, shapes, commands):
        words = [BIN / "shoal-bench", "model", directory / "m", *(word for shape in shapes for word in ("--shape", shape))]
        return subprocess.run(words, input="\n".join(commands) + "\n", capture_output=True, text=True, timeout=60,
                              env=dict(os.environ, SHOAL_CACHE_DIR=str(directory)))

    def test_inputs_are_found_by_name_in_any_order_of_the_shapes(self):
        directory = self.write_difference()
        for inputs in ({"first": [1, 2], "second": [10, 20]}, {"second": [10, 20], "first": [1, 2]}):
            for number, values in enumerate(inputs.values()):
                write_npy(directory / f"{number}.npy", [1, 2], values)
            run = self.shoal_bench_model(directory, [f"{name}=1,2" for name in inputs],
                                         [f"inputs {directory}", "run", f"outputs {directory}"])
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(read_npy(directory / "0.npy"), ((1, 2), [-9, -18]))

    def test_each_input_has_the_shape_of_its_name(self):
        directory = self.write_difference()
        write_npy(directory / "second.npy", [2, 2], [10, 20, 30, 40])
        run = self.shoal_bench_model(directory, ["second=2,2", "first=1,2"],
                                     [f"input {directory}/second.npy", "run", f"output {directory}/out.npy"])  # first is zeros
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(read_npy(directory / "out.npy"), ((2, 2), [-10, -20, -30, -40]))

    def test_a_shape_of_no_input_and_an_input_without_a_shape_are_named(self):
        directory = self.write_difference()
        for shapes, error in ((["first=1,2"], "input 'second' of the model is not given"),
                              (["first=1,2", "second=1,2", "third=1,2"], "the model has no input 'third'"),
                              (["first=1,2", "second=1,2", "first=2,2"], "--shape first=2,2: input 'first' is given twice")):
            run = self.shoal_bench_model(directory, shapes, ["run"])
            self.assertEqual(run.returncode, 1)
            self.assertIn(error, run.stderr)

    def test_kernels_are_compared_with_the_oracle_in_several_types(self):
        rows = bench("kernels", "--rounds", 1)["rows"]
        self.assertGreaterEqual({row["type"] for row in rows if row["case"] == "add"}, {"float32", "float16", "int32"})
        for row in rows:
            self.assertNotEqual(row["by"], "oracle", row)
            self.assertGreater(min(row["cpu_ms"], row["oracle_ms"]), 0, row)

    def test_overload_offers_more_than_there_is_and_counts_what_came_of_it(self):
        result = bench("overload", "--seconds", 2, "--rounds", 1, "--hidden", 128)
        self.assertGreater(result["capacity_per_s"], 0)
        offered = result["overload"]
        self.assertGreater(offered["good"], 0)
        self.assertEqual(offered["sent"], offered["good"] + offered["late"] + sum(offered["failed"].values()))
        for client in ("alone", "beside_a_busy_client", "beside_a_flooding_client"):
            self.assertGreater(result[client]["requests"], 0)
        self.assertGreater(result["batching"]["gain"], 0)

    def test_reloads_are_counted_beside_what_they_cost_another_model(self):
        result = bench("reload", "--seconds", 2, "--rounds", 1, "--every", 0.2)
        self.assertGreater(result["reloads"], 1)
        self.assertGreater(result["quiet"]["requests"], 0)
        self.assertGreater(result["beside_reloads"]["requests"], 0)
        self.assertGreater(result["p99_moved_by_reloads"], 0)

    def test_kills_are_timed_by_the_supervisor(self):
        result = bench("kills", "--seconds", 2)
        self.assertEqual(result["storm"]["lost"], 0)
        self.assertGreater(result["unrouted"]["count"], 0)
        self.assertGreater(result["sent_again"]["count"], 0)

    def test_a_timeline_counts_every_answer_while_workers_are_killed(self):
        result = bench("timeline", "--peer", "none", "--seconds", 3, "--kill-every", 1, "--hidden", 128)
        (server,) = result["servers"]
        self.assertEqual((server["errors"], server["messages"]), (0, {}))
        self.assertEqual(len(server["kills_s"]), 3)
        self.assertNotIn(None, server["replaced_s"])
        self.assertEqual(sum(server["timeline"]["answers"]), server["answers"])
        self.assertEqual(len(server["timeline"]["longest_ms"]), 30)
        self.assertGreater(server["answers"], 100)

    def test_a_build_beside_itself_has_every_row(self):
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "report.json"
            run = subprocess.run([SOURCE / "tools" / "bench", "against", BIN, "--models", SHAPES / "shapes", "--shape", "3,64,64", "--batch", "1,2",
                                  "--threads", "1", "--rounds", "2", "--repeats", "1", "--workers", "1,2", "--kills", "2", "--mean-limit", "100",
                                  "--row-limit", "100", "--parts", "networks,cold,memory,respawn,roundtrip,pipelined,pool", "--json", file],
                                 capture_output=True, text=True, timeout=200, env=dict(os.environ, SHOAL_BIN_DIR=str(BIN)))
            self.assertEqual(run.returncode, 0, run.stderr)
            result = json.loads(file.read_text())
        self.assertEqual(result["missing"], [])
        self.assertEqual([(row["part"], row["what"]) for row in result["rows"]], [
            ("networks", "shapes, batch 1, threads 1"), ("networks", "shapes, batch 2, threads 1"), ("cold", "first start, in process"),
            ("cold", "second start, in process"), ("cold", "first start, daemon, worker, client"),
            ("cold", "second start, daemon, worker, client"), ("memory", "all processes, 1 workers"), ("memory", "each further worker"),
            ("respawn", "kill() to answer"), ("roundtrip", "no-op"), ("pipelined", "per request"), ("pool", "one request at a time"),
            ("pool", "per request, one worker"), ("pool", "per request, two workers")])
        for row in result["rows"]:
            self.assertEqual(len(row["ratios"]), 2, row)
            if row["what"] != "each further worker":  # other programs move a difference of two small figures
                self.assertGreater(min(row["old"], row["new"]), 0, row)
        self.assertRegex(result["rows"][0]["settings"]["new"][0], "measured|off")
        self.assertRegex(result["new"]["build_id"], "^[0-9a-f]{16,}$")
        self.assertEqual(result["old"], result["new"])
        table = [line for line in run.stdout.splitlines() if line.startswith("|")]
        self.assertEqual(len(table), 2 + len(result["rows"]))
        self.assertEqual(len({len(line) for line in table}), 1)
        self.assertIn("Both builds are the same", run.stdout)
        self.assertTrue(run.stdout.splitlines()[-1].startswith("held: geometric mean of 2 "), run.stdout)

    def test_an_unknown_network_is_an_error_that_names_it(self):
        run = subprocess.run([SOURCE / "tools" / "bench", "pool", "--model", "no-such-net"], capture_output=True, text=True,
                             env=dict(os.environ, SHOAL_BIN_DIR=str(BIN)))
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("no-such-net", run.stderr)

    def test_a_daemon_that_does_not_get_ready_says_why(self):
        for benchmark in ("memory", "pool"):
            run = subprocess.run([SOURCE / "tools" / "bench", benchmark, "--model", SHAPES / "shapes", "--input", "pictures"],
                                 capture_output=True, text=True, timeout=50, env=dict(os.environ, SHOAL_BIN_DIR=str(BIN)))
            self.assertNotEqual(run.returncode, 0)
            self.assertIn("pictures", run.stderr)

    def assert_leaves_nothing(self, *words):
        with tempfile.TemporaryDirectory() as directory:
            run = subprocess.Popen([SOURCE / "tools" / "bench", *map(str, words)], stdout=subprocess.DEVNULL,
                                   env=dict(os.environ, SHOAL_BIN_DIR=str(BIN), TMPDIR=directory))
            processes = []
            wait_until(lambda: processes or processes.extend(p for d in Path(directory).glob("*/shoal-bench-*") for p in processes_of(d)))
            run.send_signal(signal.SIGTERM)
            self.assertEqual(run.wait(20), 143)
            wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes))
            self.assertEqual(list(Path(directory).iterdir()), [])

    def test_an_interrupted_bench_leaves_nothing(self):
        self.assert_leaves_nothing("pool", "--model", SHAPES / "shapes", "--shape", "1,3,64,64")

    def test_an_interrupted_timeline_leaves_nothing(self):
        self.assert_leaves_nothing("timeline", "--peer", "none", "--hidden", 128)


@unittest.skipUnless(HAS_BENCH and "Memory" in sys.argv, "measured by `bench_test.py Memory`, alone")
class Memory(unittest.TestCase):
    def test_memory_counts_every_process_of_the_daemon(self):
        # A batch whose activations outweigh what other tests do to shares of pages.
        rows = bench("memory", "--model", SHAPES / "shapes", "--shape", "64,3,64,64", "--workers", "1,2")["rows"]
        self.assertEqual([row["workers"] for row in rows], [1, 2])
        self.assertGreater(rows[1]["pss_mb"], rows[0]["pss_mb"])

    def test_a_further_worker_costs_no_copy_of_the_weights(self):
        with tempfile.TemporaryDirectory() as directory:
            prefix = write_perceptron(Path(directory), 2048)
            result = bench("memory", "--model", prefix, "--shape", "1,256", "--workers", "1,4")
        self.assertGreater(result["parameter_file_mb"], 18)
        self.assertLess(result["rows"][0]["pss_mb"], 2.5 * result["parameter_file_mb"])
        further = result["rows"][1]
        self.assertLess(further["each_further_worker_mb"], further["arena_mb"] + 1.0)


if __name__ == "__main__":
    unittest.main()
