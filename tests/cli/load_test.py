#!/usr/bin/env python3
"""`shoal bench`: a model under load."""
import csv
import json
import os
import signal
import struct
import subprocess
import time
import unittest
import xml.etree.ElementTree

from support import BIN, FAULTY, SHAPES, Daemon, ShoalTest, shoal, write_model, write_npy

SHORT = ["--duration", "0.5", "--warmup", "0.1", "--json"]


class Load(ShoalTest):
    def measure(self, run, code=0):
        self.assertEqual(run.returncode, code, run.stderr)
        return json.loads(run.stdout)["loads"]

    def start(self, daemon, *words):
        return subprocess.Popen([BIN / "shoal", "bench", "echo", *words], env=dict(os.environ, SHOAL_DIR=str(daemon.directory)),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_answers(self, daemon, count):
        deadline = time.monotonic() + 30
        while daemon.model("echo")["counts"]["ok"] < count:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def test_a_closed_loop_keeps_its_requests_under_way(self):
        model = write_model(self.tmp / "m", "_fault_slow", 20)
        with Daemon({"m": f"{model},workers=2,tuning_ms=0"}, worker=FAULTY) as daemon:
            one, two, four = self.measure(daemon.shoal("bench", "m", "--in-flight", "1,2,4", "--duration", "2", "--warmup", "0.2", "--json"))
        self.assertEqual([load["in_flight"] for load in (one, two, four)], [1, 2, 4])
        for load in (one, two, four):
            self.assertEqual(load["failed"], {})
            self.assertEqual(load["ok"], load["requests"])
            self.assertAlmostEqual(load["seconds"], 2, delta=0.01)
            self.assertGreaterEqual(load["compute_ms"]["p50"], 19)
            self.assertEqual(sum(load["batches"].values()), load["ok"])
            times = [load["total_ms"][name] for name in ("p50", "p90", "p99", "p99.9", "max")]
            self.assertEqual(times, sorted(times))
        self.assertLess(one["answers_per_s"], 51)  # one at a time, 20 ms each
        self.assertGreater(two["answers_per_s"], 1.2 * one["answers_per_s"])
        self.assertGreater(four["total_ms"]["p50"], 1.4 * two["total_ms"]["p50"])  # two of the four wait

    def test_an_open_loop_counts_from_when_a_request_was_due(self):
        """The one worker of the model answers 20 requests a second at most, 60 are sent: each waits longer than the one before. A loop
        that sends the next request only after an answer would see 50 ms for each."""
        model = write_model(self.tmp / "m", "_fault_slow", 50)
        with Daemon({"m": f"{model},workers=1,tuning_ms=0"}, worker=FAULTY) as daemon:
            run = daemon.shoal("bench", "m", "--rate", "60", "--even", "--duration", "1", "--warmup", "0", "--json")
        [load] = self.measure(run)
        self.assertEqual((load["requests"], load["ok"]), (60, 60))
        self.assertLess(load["answers_per_s"], 21)
        self.assertGreater(load["total_ms"]["max"], 1800)  # (60 - 1) * 50 ms are worked, of which 1 s has passed
        self.assertGreater(load["total_ms"]["p50"], 600)
        self.assertRegex(run.stderr, "rate 60/s: not reached: 60.0 requests a second were due, .* were answered")

    def test_requests_that_were_due_while_the_program_stood_still_count(self):
        with Daemon({"echo": "builtin:identity"}) as daemon:
            process = self.start(daemon, "--rate", "200", "--even", "--duration", "4", "--warmup", "0", "--json")
            self.wait_for_answers(daemon, 20)
            process.send_signal(signal.SIGSTOP)
            time.sleep(1)
            process.send_signal(signal.SIGCONT)
            out, error = process.communicate(timeout=60)
        [load] = json.loads(out)["loads"]
        self.assertEqual((load["requests"], load["ok"]), (800, 800))
        self.assertGreater(load["total_ms"]["p90"], 300)  # a fifth of them were due within that second
        self.assertGreater(load["late_ms"]["max"], 900)
        self.assertRegex(error, "this program sent 1 % of the requests more than .* ms late")

    def test_random_arrivals_are_those_of_their_seed(self):
        with Daemon({"echo": "builtin:identity"}) as daemon:
            def ask(*words):
                return self.measure(daemon.shoal("bench", "echo", "--rate", "200,100", *words, "--duration", "1", "--warmup", "0", "--json"))
            first, again, other = ask(), ask(), ask("--seed", "2")
        counts = [[load["requests"] for load in loads] for loads in (first, again, other)]
        self.assertEqual([load["rate"] for load in first], [200, 100])
        self.assertEqual(counts[0], counts[1])
        self.assertNotEqual(counts[0], counts[2])
        self.assertAlmostEqual(counts[0][0], 200, delta=60)  # four deviations of a Poisson process
        self.assertEqual(sum(first[0]["failed"].values()), 0)

    def test_the_table_the_csv_and_the_plots_have_the_same_numbers(self):
        files = [self.tmp / name for name in ("x.csv", "x.png", "x.svg")]
        run = shoal("bench", "builtin:identity", "--in-flight", "1,2", "--duration", "0.3", "--warmup", "0", "--csv", files[0],
                    "--plot", files[1], "--plot", files[2])
        self.assertEqual(run.returncode, 0, run.stderr)
        lines = run.stdout.splitlines()
        self.assertRegex(lines[0], r"^in flight  answers/s  answered  failed  p50 ms +p90 +p99 +p99.9 +max +queue +compute +batch$")
        rows = list(csv.DictReader(files[0].read_text().splitlines()))
        self.assertEqual([(row["in_flight"], row["rate"]) for row in rows], [("1", ""), ("2", "")])
        for line, row in zip(lines[1:], rows):
            words = line.split()
            self.assertEqual((words[0], words[2], words[3]), (row["in_flight"], row["ok"], "0"))
            self.assertAlmostEqual(float(words[1]), float(row["answers_per_s"]), delta=1 + 1e-5 * float(words[1]))
            self.assertAlmostEqual(float(words[4]), float(row["p50_ms"]), delta=0.001)
        png = files[1].read_bytes()
        self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", png[16:24])
        self.assertGreater(width, height)
        self.assertEqual(xml.etree.ElementTree.parse(files[2]).getroot().tag, "{http://www.w3.org/2000/svg}svg")

    def test_a_checkpoint_runs_in_this_process(self):
        one, two = self.measure(shoal("bench", SHAPES, "--contexts", "2", "--in-flight", "1,2", *SHORT))
        self.assertGreater(min(one["ok"], two["ok"]), 0)
        self.assertEqual(one["failed"], {})

    def test_requests_bring_what_was_given(self):
        model = write_model(self.tmp / "m", "_fault_abort", 666)
        with Daemon({"m": str(model)}, worker=FAULTY) as daemon:
            good, bad = write_npy(self.tmp / "good.npy", (2, 4), range(8)), write_npy(self.tmp / "bad.npy", (2, 4), [666, 0, 0, 0] * 2)
            self.assertGreater(self.measure(daemon.shoal("bench", "m", "--input", f"data={good}", "--in-flight", "1", *SHORT))[0]["ok"], 0)
            self.assertGreater(self.measure(daemon.shoal("bench", "m", "--shape", "data=3x4", "--in-flight", "1", *SHORT))[0]["ok"], 0)
            failing = daemon.shoal("bench", "m", "--input", f"data={bad}", "--in-flight", "1", *SHORT)
            self.assert_fails(failing, 1, "POISON", "no request was answered")
            self.assertEqual(self.measure(failing, 1)[0]["failed"].keys(), {"POISON"})
            self.assert_fails(daemon.shoal("bench", "m", "--shape", "data=3x5", *SHORT), 1, "'data'", "3x5")
            unknown = daemon.shoal("bench", "m", "--shape", "y=3", "--input", f"x={good}", *SHORT)
            self.assert_fails(unknown, 1, "no input 'x', 'y' (it has: data)")

    def test_failures_are_counted_by_code_and_named(self):
        model = write_model(self.tmp / "m", "_fault_slow", 50)
        with Daemon({"m": f"{model},workers=1,queue_limit=2,tuning_ms=0"}, worker=FAULTY) as daemon:
            run = daemon.shoal("bench", "m", "--in-flight", "8", "--duration", "1", "--warmup", "0", "--json")
        [load] = self.measure(run)
        self.assertGreater(load["ok"], 0)
        self.assertEqual(load["failed"].keys(), {"OVERLOADED"})
        self.assertEqual(load["requests"], load["ok"] + load["failed"]["OVERLOADED"])
        self.assertLess(load["failed"]["OVERLOADED"], 8 * 1000)  # a failed request is followed by a pause
        self.assertRegex(run.stderr, r"8 in flight: of \d+ requests failed \d+ OVERLOADED; the first: .*'m'")

    def test_ctrl_c_prints_what_was_measured(self):
        with Daemon({"echo": "builtin:identity"}) as daemon:
            process = self.start(daemon, "--in-flight", "1,2", "--duration", "600", "--warmup", "0", "--json")
            self.wait_for_answers(daemon, 100)
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 0, error)
        [load] = json.loads(out)["loads"]
        self.assertTrue(load["is_cut"])
        self.assertGreater(load["ok"], 50)
        self.assertLess(load["seconds"], 60)
        self.assertIn("1 in flight: interrupted after", error)

    def test_a_daemon_that_dies_is_an_error_and_one_that_comes_back_is_used(self):
        self.assert_fails(shoal("bench", "echo", *SHORT, directory=self.tmp), 3, self.tmp)
        with Daemon({"echo": "builtin:identity"}) as daemon:
            self.assert_fails(daemon.shoal("bench", "other", *SHORT), 1, "'other'")
            for option in (("--precision", "bf16"), ("--threads", 2), ("--contexts", 1)):
                run = daemon.shoal("bench", "echo", *option, *SHORT)
                self.assert_fails(run, 2, f"{option[0]} works only with a PATH", "'echo'", "model.toml")
            process = self.start(daemon, "--in-flight", "2", "--duration", "4", "--warmup", "0", "--json")
            self.wait_for_answers(daemon, 100)
            daemon.process.kill()
            out, error = process.communicate(timeout=60)
        [load] = json.loads(out)["loads"]
        self.assertEqual(process.returncode, 0, error)
        self.assertGreater(load["ok"], 50)
        self.assertEqual(load["failed"].keys(), {"UNAVAILABLE"})

    def test_files_that_cannot_be_written_are_named_before_anything_is_measured(self):
        (self.tmp / "folder.svg").mkdir()
        (self.tmp / "file").touch()
        for words in (["--csv", self.tmp / "none" / "x.csv"], ["--plot", self.tmp / "none" / "x.png"], ["--plot", self.tmp / "folder.svg"],
                      ["--csv", self.tmp / "file" / "x.csv"]):
            with self.subTest(words=words):
                run = shoal("bench", "builtin:identity", *words, *SHORT)
                self.assert_fails(run, 1, words[1])
                self.assertEqual(run.stdout, "")

    def test_wrong_words_are_usage_errors(self):
        for words in (["--rate", "0"], ["--rate", "nan"], ["--in-flight", "0"], ["--rate", "5", "--in-flight", "1"], ["--duration", "0"],
                      ["--plot", "x.pdf"], ["--shape", "data"], ["--shape", "data=1xx2"], ["--shape", "data=-1"], ["--input", "data"],
                      ["--shape", "data=1x1x1x1x1x1x1x1x1"], ["--precision", "f8"], ["--timeout", "0"]):
            with self.subTest(words=words):
                self.assertEqual(shoal("bench", "builtin:identity", *words).returncode, 2)
        self.assert_fails(shoal("bench", self.tmp / "none", *SHORT), 1, self.tmp / "none")


if __name__ == "__main__":
    unittest.main(verbosity=2)
