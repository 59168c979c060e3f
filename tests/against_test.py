#!/usr/bin/env python3
"""How tools/bench against takes turns, evaluates, judges and reports. The builds are scripts that print what shoal-bench would."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "tools" / "benchmarks"))
sys.dont_write_bytecode = True

import against_table  # noqa: E402
import harness  # noqa: E402

LIMITS = (1.005, 1.03)


def row(ratio, part=against_table.NETWORKS, what="net"):
    return against_table.row(part, what, "ms", {"old": [[1.0]], "new": [[ratio]]})


class Turns(unittest.TestCase):
    def test_two_repeats_run_as_old_new_new_old_and_then_the_other_way_round(self):
        self.assertEqual(against_table.turns(0, 2), [("old", 0), ("new", 0), ("new", 1), ("old", 1)])
        self.assertEqual(against_table.turns(1, 2), [("new", 0), ("old", 0), ("old", 1), ("new", 1)])

    def test_one_repeat_alternates_from_round_to_round(self):
        sides = [side for round_ in range(4) for side, _ in against_table.turns(round_, 1)]
        self.assertEqual(sides, ["old", "new", "new", "old", "old", "new", "new", "old"])

    def test_a_steady_drift_of_the_machine_falls_on_both_sides_alike(self):
        for repeats in (1, 2, 3, 4):
            order = [turn for round_ in range(4) for turn in against_table.turns(round_, repeats)]
            self.assertEqual(sorted(order), sorted(4 * [(side, i) for side in ("old", "new") for i in range(repeats)]))
            places = {side: sum(place for place, turn in enumerate(order) if turn[0] == side) for side in ("old", "new")}
            self.assertEqual(places["old"], places["new"], repeats)


class Row(unittest.TestCase):
    def test_the_best_repeat_of_a_round_counts_and_the_ratio_is_the_median_of_the_rounds(self):
        samples = {"old": [[10, 12], [20, 16], [50, 40]], "new": [[11, 15], [12, 8], [60, 80]]}
        result = against_table.row("networks", "net", "ms", samples)
        self.assertEqual(result["ratios"], [1.1, 0.5, 1.5])
        self.assertEqual((result["old"], result["new"], result["ratio"]), (16, 11, 1.1))


class Judge(unittest.TestCase):
    def test_the_mean_of_the_networks_is_geometric(self):
        self.assertAlmostEqual(against_table.judge([row(0.5), row(2.0), row(2.0)], [], 9, 9)["geometric_mean"], 2 ** (1 / 3))

    def test_equal_builds_hold_the_limits_and_the_verdict_names_the_worst_row(self):
        result = against_table.judge([row(1.0), row(1.01), row(1.02, "cold")], [], *LIMITS)
        self.assertTrue(result["ok"])
        self.assertEqual(result["verdict"], "held: geometric mean of 2 1.0050 <= 1.005; worst of 3 1.0200 <= 1.03")

    def test_a_limit_itself_is_held(self):
        self.assertTrue(against_table.judge([row(1.25), row(0.8)], [], 1.0, 1.25)["ok"])

    def test_a_mean_above_its_limit_is_not_held_though_each_row_is(self):
        result = against_table.judge([row(1.01), row(1.02)], [], *LIMITS)
        self.assertFalse(result["ok"])
        self.assertEqual(result["verdict"], "not held: geometric mean 1.0150 > 1.005")

    def test_one_row_above_its_limit_is_not_held_though_the_mean_is(self):
        result = against_table.judge([row(0.9), row(0.9), row(1.04, what="slow net")], [], *LIMITS)
        self.assertFalse(result["ok"])
        self.assertEqual(result["verdict"], "not held: networks, slow net: 1.0400 > 1.03")

    def test_rows_of_other_parts_do_not_move_the_mean_but_have_the_limit_of_a_row(self):
        result = against_table.judge([row(1.0), row(1.02, "cold"), row(1.5, "memory", "worker")], [], *LIMITS)
        self.assertEqual(result["geometric_mean"], 1.0)
        self.assertEqual(result["verdict"], "not held: memory, worker: 1.5000 > 1.03")
        self.assertIsNone(against_table.judge([row(1.0, "cold")], [], *LIMITS)["geometric_mean"])

    def test_what_was_not_compared_is_no_success(self):
        self.assertEqual(against_table.judge([row(1.0)], ["net: old: ended with 1"], *LIMITS)["verdict"], "not held: 1 could not be compared")
        self.assertFalse(against_table.judge([], [], *LIMITS)["ok"])


class Builds(unittest.TestCase):
    def test_the_build_id_is_that_of_the_compiler(self):
        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory) / "program"
            subprocess.run(["cc", "-x", "c", "-", "-o", program, "-Wl,--build-id=0x0123456789abcdef"], input="int main(void) { return 0; }",
                           text=True, check=True)
            self.assertEqual(harness.build_id_of(program), "0123456789abcdef")
            subprocess.run(["cc", "-x", "c", "-", "-o", program, "-Wl,--build-id=none"], input="int main(void) { return 0; }", text=True,
                           check=True)
            self.assertEqual(harness.build_id_of(program), "unknown")

    def test_a_checkout_a_build_and_its_programs_are_the_same_build(self):
        with tempfile.TemporaryDirectory() as directory:
            bin_ = Path(directory).resolve() / "build" / "release" / "bin"
            bin_.mkdir(parents=True)
            with self.assertRaisesRegex(harness.BenchError, f"no build in {directory}.*cmake"):
                harness.Build.find(directory)
            (bin_ / "shoal-bench").touch()
            for path in (directory, bin_.parent, bin_):
                self.assertEqual(harness.Build.find(path).directory, bin_)


class Command(unittest.TestCase):
    """tools/bench against with two builds of scripts, which append their calls to a log."""

    def setUp(self):
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.log = self.directory / "log.txt"

    def build(self, name, respawn_ms):
        bin_ = self.directory / name / "bin"
        bin_.mkdir(parents=True)
        for program in ("shoal", "shoald", "shoal-worker", "shoal-bench"):
            (bin_ / program).touch(0o755)
        (bin_ / "shoal-bench").write_text(f"""#!/bin/sh
echo "{name} $1" >> {self.log}
if [ "$1" = respawn ]; then echo '{{"kill_to_answer_ms": {{"p50": {respawn_ms}}}}}'; exit; fi
echo "The following argument was not expected: $1" >&2
exit 109
""")
        return bin_

    def against(self, old, new, *words):
        report = self.directory / "report.json"
        run = subprocess.run([SOURCE / "tools" / "bench", "against", old, "--models", SOURCE / "tools" / "shapes" / "model" / "shapes",
                              "--json", report, *map(str, words)], env=dict(os.environ, SHOAL_BIN_DIR=str(new)), capture_output=True, text=True)
        return run, json.loads(report.read_text()) if report.exists() else run.stderr

    def test_both_builds_run_in_turns(self):
        run, result = self.against(self.build("old", 2), self.build("new", 1), "--parts", "respawn", "--rounds", 2)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([line.split()[0] for line in self.log.read_text().splitlines()],
                         ["old", "new", "new", "old", "new", "old", "old", "new"])
        (only,) = result["rows"]
        self.assertEqual((only["part"], only["old"], only["new"], only["ratios"]), ("respawn", 2, 1, [0.5, 0.5]))
        self.assertRegex(run.stdout, r"\| respawn \| kill\(\) to answer +\| ms +\| 2.000 \| 1.000 \| 0.500 ")
        self.assertEqual(run.stdout.splitlines()[-1], "held: worst of 1 0.5000 <= 1.03")

    def test_a_slower_build_has_another_exit_code_and_verdict(self):
        run, result = self.against(self.build("old", 100), self.build("new", 104), "--parts", "respawn", "--rounds", 1)
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stdout.splitlines()[-1], "not held: respawn, kill() to answer: 1.0400 > 1.03")
        self.assertFalse(result["ok"])
        run, _ = self.against(self.directory / "old", self.directory / "new" / "bin", "--parts", "respawn", "--rounds", 1, "--row-limit", 1.05)
        self.assertEqual(run.returncode, 0, run.stdout)

    def test_what_a_build_cannot_do_is_named_with_its_own_words_and_the_rest_is_compared(self):
        run, result = self.against(self.build("old", 1), self.build("new", 1), "--parts", "roundtrip,networks,respawn", "--rounds", 1,
                                   "--batch", 1, "--threads", 1, "--shape", "3,64,64")
        self.assertEqual(run.returncode, 1)
        self.assertEqual([row["part"] for row in result["rows"]], ["respawn"])
        self.assertRegex(result["missing"][0], "roundtrip: old: shoal-bench roundtrip .*: The following argument was not expected: roundtrip")
        self.assertRegex(result["missing"][1], "networks, shapes, batch 1, threads 1: old: ended with 109: .* not expected: model")
        self.assertEqual(run.stdout.splitlines()[-1], "not held: 2 could not be compared")
        self.assertIn(result["missing"][0], run.stdout)

    def test_wrong_arguments_are_named(self):
        old = self.build("old", 1)
        for words, message in ((("--parts", "respwan"), "'respwan' is not one of"), (("--rounds", 0), "0 is not positive"),
                               (("--workers", "2,2"), "invalid two_numbers value: '2,2'")):
            run, _ = self.against(old, old, *words)
            self.assertEqual(run.returncode, 2)
            self.assertIn(message, run.stderr)
        run, _ = self.against(self.directory, old)
        self.assertEqual(run.returncode, 1)
        self.assertIn("no build in", run.stderr)


if __name__ == "__main__":
    unittest.main()
