#!/usr/bin/env python3
"""What tools/bench peers does with times and with its children, without installing any other engine."""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools" / "benchmarks"))
sys.dont_write_bytecode = True

import engine  # noqa: E402
import harness  # noqa: E402
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
        self.assertIn("| alone | 1 | 1 | 1.0 | – | – | – |", text)
        self.assertIn("| MXNet | 1.50 | 1.25 |", text)
        self.assertIn("| MXNet | 100 | 150 | 25.0 |", text)
        self.assertIn("- OpenVINO: no wheel", text)

    def test_a_row_reads_as_one_line(self):
        self.assertEqual(peer_table.line(row("slow", [3.0], mxnet=[2.0])), "Shoal f32 3.0 ms, MXNet 2.0 ms, Shoal f32 ÷ MXNet = 1.50")

    def test_an_output_of_another_length_or_with_nan_is_infinitely_far(self):
        self.assertEqual(engine.difference([1.0, 2.0], [1.0, 4.0]), 0.5)
        self.assertEqual(engine.difference([1.0], [1.0, 4.0]), float("inf"))
        self.assertEqual(engine.difference([1.0, float("nan")], [1.0, 4.0]), float("inf"))


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
