#!/usr/bin/env python3
"""What tools/bench peers does with times and with its children, without installing any other engine."""
import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools" / "benchmarks"))
sys.dont_write_bytecode = True

import cut  # noqa: E402
import engine  # noqa: E402
import harness  # noqa: E402
import made_networks  # noqa: E402
import networks  # noqa: E402
import peer_table  # noqa: E402
import peers  # noqa: E402

BENCH = Path(__file__).resolve().parent.parent / "tools" / "bench"


def child(script):
    return engine.Engine("child", [sys.executable, "-c", script], os.sched_getaffinity(0), {})


def row(model, shoal, **peer_times):
    return {"model": model, "batch": 1, "threads": 1, **peer_table.summarize({"shoal f32": shoal, **peer_times})}


class Table(unittest.TestCase):
    def test_the_ratio_is_taken_round_by_round_against_the_peer_with_the_best_median(self):
        summary = peer_table.summarize({"shoal f32": [10, 20, 30], "mxnet": [20, 40, 60], "openvino": [10, 16, 60]})
        self.assertEqual(summary["best_peer"], "openvino")
        self.assertEqual(summary["ratios"], {"shoal f32": 1.0})
        self.assertEqual(summary["ratios_of_best"], {"shoal f32": 1.0})
        self.assertEqual(summary["engines"]["mxnet"], {"median_ms": 40, "best_ms": 20})

    def test_means_are_geometric_and_remember_the_worst_row(self):
        summary = peer_table.means([row("a", [2.0], mxnet=[1.0]), row("b", [1.0], mxnet=[2.0]), row("c", [1.0])])
        self.assertAlmostEqual(summary["shoal f32"]["geometric_mean"], 1.0)
        self.assertAlmostEqual(summary["shoal f32"]["geometric_mean_of_best"], 1.0)
        self.assertEqual((summary["shoal f32"]["worst"], summary["shoal f32"]["rows"]), (2.0, 2))

    def test_the_report_lists_rows_above_one_and_what_is_missing(self):
        rows = [row("slow", [3.0], mxnet=[2.0]), row("fast", [1.0], mxnet=[2.0]), row("alone", [1.0])]
        text = peer_table.markdown({"command": "tools/bench peers", "seconds": 60, "machine": {"cpu": "C", "cores": 2}, "peers": ["mxnet==1.9.1"],
                                    "clock": "wall", "rounds": 1,
                                    "rows": rows, "summary": peer_table.means(rows), "missing": ["OpenVINO: no wheel"],
                                    "cold": {"model": "m", "engines": {"mxnet": {"first_s": 1.5, "second_s": 1.25}}},
                                    "memory": {"model": "m", "processes": [1, 3], "engines": {"mxnet": [100.0, 150.0]}}})
        self.assertIn("- slow, batch 1, 1 thread: Shoal f32 1.50 × MXNet", text)
        self.assertNotIn("- fast", text)
        self.assertIn("| alone | 1 | 1 | 1.00 | – | – | – |", text)
        self.assertIn("| MXNet | 1.50 | 1.25 |", text)
        self.assertIn("| MXNet | 100 | 150 | 25.0 |", text)
        self.assertIn("- OpenVINO: no wheel", text)

    def test_a_row_reads_as_one_line(self):
        self.assertEqual(peer_table.line(row("slow", [3.0], mxnet=[2.0])), "Shoal f32 3.00 ms, MXNet 2.00 ms, Shoal f32 ÷ MXNet = 1.50")
        self.assertTrue(peer_table.line(row("slow", [30.0])).startswith("Shoal f32 30.0 ms"))

    def test_a_name_may_end_in_a_precision(self):
        self.assertEqual([peer_table.title(n) for n in ("openvino bf16", "mxnet", "shoal f32-fast")], ["OpenVINO bf16", "MXNet", "Shoal f32-fast"])
        self.assertEqual([peer_table.precision_of(n) for n in ("openvino bf16", "mxnet", "shoal f32-fast")], ["bf16", "f32", "f32-fast"])
        self.assertLessEqual({peer_table.engine_of(n) for n in peers.PEERS}, set(peers.PACKAGES))

    def test_an_output_of_another_length_or_with_nan_is_infinitely_far(self):
        self.assertEqual(engine.difference([1.0, 2.0], [1.0, 4.0]), 0.5)
        self.assertEqual(engine.difference([1.0], [1.0, 4.0]), float("inf"))
        self.assertEqual(engine.worst_difference([[1.0, 2.0], [3.0]], [[1.0, 4.0], [3.0]]), 0.5)
        self.assertEqual(engine.worst_difference([[1.0]], [[1.0], [3.0]]), float("inf"))
        self.assertEqual(engine.difference([1.0, float("nan")], [1.0, 4.0]), float("inf"))


def node(op, name, *inputs):
    return {"op": op, "name": name, "inputs": [[number, output, 0] for number, output in inputs]}


class Networks(unittest.TestCase):
    """The inputs of networks, and what is left of a detector without its head."""

    def test_inputs_follow_the_rule_of_the_test_data(self):
        self.assertEqual(networks.bits24("resnetv10_conv0_weight", 4), [12281254, 11379116, 2710143, 6810051])
        ids = networks.Input("data", (1, 4), {"ids": 10000}).values()
        self.assertEqual(list(ids), [5767, 1117, 4870, 949])
        self.assertEqual(list(networks.Input("n", (2,), {"value": 50}).values()), [50, 50])
        self.assertEqual(list(networks.Input("n", (1, 3), {"values": [320, 480, 1]}).values()), [320, 480, 1])
        picture = networks.Input("data", (1, 1, 1, 64), {"blocks": 32}).values()
        self.assertAlmostEqual(picture[0], -0.42659843, 6)
        self.assertAlmostEqual(picture[3], -1.3902142, 6)

    def test_a_length_changes_the_sequences_and_how_much_of_them_is_valid(self):
        rules = {"ids": {"shape": [1, 64], "ids": 10}, "types": {"shape": [1, 64], "ids": 2}, "valid": {"shape": [1], "value": 50}}
        inputs = networks.with_batch(networks.at_length(rules, 128, "bert"), 1, "bert")
        self.assertEqual([(i.name, i.shape, i.rule.get("value")) for i in inputs], [("ids", (1, 128), None), ("types", (1, 128), None), ("valid", (1,), 128)])
        with self.assertRaisesRegex(harness.BenchError, "has no length"):
            networks.at_length({"data": {"shape": [1, 3, 4, 4]}}, 8, "picture")
        with self.assertRaisesRegex(harness.BenchError, "batch 1 only"):
            networks.with_batch(rules, 2, "bert")
        self.assertEqual(networks.with_batch({"data": {"shape": [1, 3, 4, 4]}}, 8, "picture")[0].shape, (8, 3, 4, 4))

    def test_all_inputs_are_written_in_their_order(self):
        with tempfile.TemporaryDirectory() as directory:
            network = networks.Network("n", "p", (networks.Input("a", (2,), {"value": 3}), networks.Input("b", (1, 2), {"value": 4})))
            network.write_inputs(directory)
            self.assertEqual([list(engine.read_floats(f"{directory}/{i}.npy")) for i in (0, 1)], [[3, 3], [4, 4]])
        self.assertEqual(network.shapes(), ["a=2", "b=1,2"])

    # data -> conv -> (prior), scores -> detection -> slice; conv is needed by scores, so it does not leave the network.
    DETECTOR = [node("null", "data"), node("null", "w"), node("Convolution", "conv", (0, 0), (1, 0)), node("softmax", "scores", (2, 0)),
                node("_contrib_MultiBoxPrior", "prior", (2, 0)), node("null", "label"), node("_contrib_MultiBoxDetection", "boxes", (3, 0), (4, 0)),
                node("slice_axis", "part", (6, 0)), node("relu", "side", (2, 0))]

    def test_a_head_is_cut_where_its_first_detection_operator_begins(self):
        left = cut.cut({"nodes": self.DETECTOR, "heads": [[7, 0, 0], [8, 0, 0]], "arg_nodes": [0, 1, 5], "node_row_ptr": [0], "attrs": {}})
        self.assertEqual([left["nodes"][head[0]]["name"] for head in left["heads"]], ["side", "scores"])
        self.assertEqual([n["name"] for n in left["nodes"]], ["data", "w", "conv", "scores", "side"])
        self.assertEqual(left["arg_nodes"], [0, 1])
        self.assertNotIn("node_row_ptr", left)

    def test_a_graph_without_detection_cannot_be_cut(self):
        with self.assertRaisesRegex(cut.CutError, "no detection operators"):
            cut.cut({"nodes": self.DETECTOR[:4], "heads": [[3, 0, 0]]})
        with self.assertRaisesRegex(cut.CutError, "nothing is left"):
            cut.cut({"nodes": [node("null", "data"), node("_contrib_box_nms", "boxes", (0, 0))], "heads": [[1, 0, 0]]})


class MadeNetworks(unittest.TestCase):
    """Networks whose graphs MXNet writes. A script takes its place here."""

    def setUp(self):
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.python = self.directory / "python"  # called as: python -B mxnet_networks.py GRAPH SIZES FILE
        self.runs = self.directory / "runs"
        graph = {"nodes": [node("null", name) for name in ("data", "valid_length", "src", "tgt", "src_len", "im_info")], "heads": [[0, 0, 0]]}
        graph["nodes"] += [node("relu", "prob", (0, 0)), node("_contrib_Proposal", "rois", (6, 0), (5, 0))]
        self.python.write_text(f"#!/bin/sh\necho $3 >>{self.runs}\ncat >$5 <<'END'\n{json.dumps(graph)}\nEND\n")
        self.python.chmod(0o755)
        self.enterContext(mock.patch.object(made_networks, "environment", lambda name: str(self.python)))
        for module in (made_networks, networks):
            self.enterContext(mock.patch.object(module, "BUILD", self.directory / "build"))
        self.enterContext(mock.patch.object(made_networks, "write_checkpoint", self.write_checkpoint))
        self.shapes = {}

    def write_checkpoint(self, symbol, shapes, prefix):
        prefix.parent.mkdir(parents=True, exist_ok=True)
        Path(f"{prefix}-symbol.json").write_bytes(symbol.read_bytes())
        Path(f"{prefix}-0000.params").touch()
        self.shapes[prefix.name] = shapes

    def test_sizes_are_the_arguments_of_the_graph(self):
        functions = {f.name: f.args for f in ast.parse((peers.HERE / "mxnet_networks.py").read_text()).body if isinstance(f, ast.FunctionDef)}
        for name, made in made_networks.NETWORKS.items():
            known = [argument.arg for argument in functions[made.graph].args]
            needed = known[:len(known) - len(functions[made.graph].defaults)]
            self.assertEqual((set(needed) - set(made.sizes), set(made.sizes) - set(known)), (set(), set()), name)
            self.assertLessEqual(set(made.lengths), set(known), name)

    def test_a_name_gives_a_checkpoint_and_its_inputs(self):
        network = networks.find("gnmt-unrolled")
        self.assertEqual(network.prefix, str(self.directory / "build" / "gnmt-unrolled" / "gnmt-unrolled"))
        self.assertEqual(network.shapes(), ["src=1,30", "tgt=1,25", "src_len=1"])
        self.assertEqual(self.shapes, {"gnmt-unrolled": network.shapes()})
        self.assertEqual([(i.rule.get("ids"), i.rule.get("value")) for i in network.inputs], [(8000, None), (8000, None), (None, 25)])

    def test_a_length_is_another_graph(self):
        network = networks.find("transformer-encoder@64")
        self.assertEqual(Path(network.prefix).name, "transformer-encoder@64")
        self.assertEqual((network.shapes(), network.inputs[1].rule["value"]), (["data=1,64,512", "valid_length=1"], 64))
        self.assertEqual(networks.find("gnmt-foreach@20").shapes(), ["src=1,20", "tgt=1,20", "src_len=1"])
        with self.assertRaisesRegex(harness.BenchError, "faster-rcnn-like@20: the network has no sequences"):
            networks.find("faster-rcnn-like@20")

    def test_a_detector_without_its_head_has_the_inputs_that_are_left(self):
        self.assertEqual(networks.find("faster-rcnn-like").shapes(), ["data=1,3,320,480", "im_info=1,3"])
        network = networks.find("faster-rcnn-like:cut")
        self.assertEqual((network.shapes(), Path(network.prefix).name), (["data=1,3,320,480"], "faster-rcnn-like-cut"))

    def test_a_graph_is_made_again_only_after_a_change_of_what_makes_it(self):
        networks.find("gnmt-foreach")
        params = Path(networks.find("gnmt-foreach").prefix + "-0000.params")
        self.assertEqual(self.runs.read_text().split(), ["gnmt"])
        os.utime(params, (0, 0))
        networks.find("gnmt-foreach")
        self.assertEqual(self.runs.read_text().split(), ["gnmt", "gnmt"])

    def test_only_batch_1_and_only_with_mxnet(self):
        with self.assertRaisesRegex(harness.BenchError, "faster-rcnn-like: .* batch 1 only"):
            networks.find("faster-rcnn-like", 8)
        self.python.write_text("#!/bin/sh\necho no module named mxnet >&2\nexit 1\n")
        with self.assertRaisesRegex(harness.BenchError, "gnmt-foreach: its graph is made by MXNet: no module named mxnet"):
            networks.find("gnmt-foreach")
        with mock.patch.object(made_networks, "environment", side_effect=harness.BenchError("no Python 3.8 on PATH")), \
                self.assertRaisesRegex(harness.BenchError, "gnmt-foreach: its graph is made by MXNet: no Python 3.8"):
            networks.find("gnmt-foreach")


class Children(unittest.TestCase):
    def test_an_engine_uses_no_cpu_while_another_one_is_asked(self):
        script = ("import threading\n"
                  "def spin():\n"
                  "    while True: pass\n"
                  "threading.Thread(target=spin, daemon=True).start()\n"
                  "while True: print(input(), flush=True)")
        spinning = self.enterContext(child(script))
        self.assertEqual(spinning.ask("run 1"), "run 1")
        stat = Path(f"/proc/{spinning.process.pid}/stat")
        deadline = time.monotonic() + 10
        while stat.read_text().split()[2] != "T":
            self.assertLess(time.monotonic(), deadline)
        before = stat.read_text().split()[13:15]
        time.sleep(0.2)
        self.assertEqual(stat.read_text().split()[13:15], before)
        self.assertEqual(spinning.ask("run 2"), "run 2")

    def test_cpu_time_counts_work_and_not_waiting(self):
        waiting = self.enterContext(child("import time\nwhile True:\n    input(); time.sleep(0.3); print(300, flush=True)"))
        waiting.run(1)
        self.assertEqual(waiting.run(1), [300])
        (cpu,) = waiting.run(1, "cpu")
        self.assertTrue(0 < cpu < 100, cpu)

    def test_an_engine_that_ends_or_hangs_is_an_error_with_its_last_words(self):
        dying = self.enterContext(child("import sys; input(); sys.exit('no such file')"))
        with self.assertRaisesRegex(engine.EngineError, "ended with 1: no such file"):
            dying.ask("run 1")
        hanging = self.enterContext(child("import time; time.sleep(1000)"))
        with self.assertRaisesRegex(engine.EngineError, "ended with -9"):
            hanging.ask("run 1", limit_s=0.3)

    def test_one_that_died_between_two_questions_is_an_error_and_no_more(self):
        with child("while True: print(input(), flush=True)") as gone:
            gone.ask("run 1")
            gone.process.kill()
            gone.process.wait()
            with self.assertRaisesRegex(engine.EngineError, "ended with -9"):
                gone.ask("run 2")
        with child("while True: print(input(), flush=True)") as gone:
            gone.ask("run 1")
            gone.process.kill()
            gone.process.wait()
            with self.assertRaisesRegex(engine.EngineError, "ended with -9"):
                gone.run(1, "cpu")
            with self.assertRaisesRegex(harness.BenchError, "ended before its memory"):
                harness.pss_bytes(gone.process.pid)

    def test_no_timer_outlives_an_interrupted_question(self):
        slow = self.enterContext(child("import time; input(); time.sleep(1000)"))
        signal.signal(signal.SIGALRM, lambda *_: sys.exit(143))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with self.assertRaises(SystemExit):
            slow.ask("run 1")
        self.assertEqual([thread for thread in threading.enumerate() if isinstance(thread, threading.Timer) and thread.is_alive()
                          and not thread.finished.is_set()], [])

    def test_the_input_is_an_npy_file_of_noise(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "input.npy"
            engine.write_input(path, [2, 3, 4, 4])
            values = engine.read_floats(path)
        self.assertEqual(len(values), 96)
        self.assertTrue(all(-1 <= v < 1 for v in values))
        self.assertGreater(len(set(values)), 90)


class Warden(unittest.TestCase):
    """A command whose worker ignores SIGTERM and loses its parent."""
    SERVER = ("import os, signal, subprocess, sys, time\n"
              "worker = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(1000)'\n"
              "middle = f'import subprocess, sys; print(subprocess.Popen([sys.executable, \"-c\", {worker!r}]).pid, flush=True)'\n"
              "subprocess.run([sys.executable, '-c', middle])\n"
              "{then}")

    def start(self, then, prefix=()):
        run = subprocess.Popen([*prefix, sys.executable, peers.HERE / "warden.py", sys.executable, "-c", self.SERVER.replace("{then}", then)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        orphan = max(int(run.stdout.readline()) for _ in range(2))  # the other line is the worker's 1: it runs
        self.addCleanup(self.end, run, orphan)
        return run, orphan

    @staticmethod
    def end(run, orphan):
        run.kill()
        run.communicate()
        if Path(f"/proc/{orphan}").exists():
            os.kill(orphan, signal.SIGKILL)

    def assert_ends(self, pid):
        deadline = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists():
            self.assertLess(time.monotonic(), deadline, f"process {pid} is left")
            time.sleep(0.01)

    def test_orphans_end_with_the_command(self):
        run, orphan = self.start("input(); sys.exit(7)")
        run.stdin.write("\n")
        run.stdin.flush()
        self.assertEqual(run.wait(20), 7)
        self.assert_ends(orphan)

    def test_orphans_end_when_the_warden_is_told_to_end(self):
        run, orphan = self.start("time.sleep(1000)")
        self.assertTrue(Path(f"/proc/{orphan}").exists())
        run.terminate()
        self.assertEqual(run.wait(20), 143)
        self.assert_ends(orphan)

    def test_orphans_end_when_the_bench_is_killed(self):
        bench = ("import signal, subprocess, sys; sys.path.insert(0, sys.argv[1]); import harness\n"
                 "subprocess.run(sys.argv[2:], preexec_fn=harness.dies_with_us(signal.SIGTERM))")
        run, orphan = self.start("time.sleep(1000)", [sys.executable, "-c", bench, str(peers.HERE)])
        run.kill()
        run.wait()
        self.assert_ends(orphan)


class CommandLine(unittest.TestCase):
    def test_words_that_are_none_are_named(self):
        for option in ("--peers", "--parts", "--precision"):
            run = subprocess.run([sys.executable, BENCH, "peers", option, "mxnte"], capture_output=True, text=True)
            self.assertEqual(run.returncode, 2)
            self.assertIn("'mxnte' is not one of", run.stderr)


if __name__ == "__main__":
    unittest.main()
