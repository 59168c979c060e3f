#!/usr/bin/env python3
"""The committed charts and tables are what tools/charts makes of the committed results, and what tools/bench timeline counts."""
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "tools" / "benchmarks"))
sys.dont_write_bytecode = True

import harness  # noqa: E402
import svg_charts  # noqa: E402
import timeline  # noqa: E402

CHARTS = SOURCE / "docs" / "charts"
TEXT_CONTRAST, LINE_CONTRAST = 4.5, 3.0  # WCAG 2.1, level AA


def charts(*words):
    return subprocess.run([sys.executable, SOURCE / "tools" / "charts", *words], capture_output=True, text=True)


def contrast(one, other):
    def luminance(color):
        channels = [int(color[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


class Committed(unittest.TestCase):
    def test_charts_and_tables_are_what_the_results_say(self):
        run = charts("--check")
        self.assertEqual(run.returncode, 0, run.stderr)

    def changed(self, name, change):
        """What --check says of a copy in which this file is changed."""
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            shutil.copytree(CHARTS, root / "docs" / "charts")
            shutil.copy(SOURCE / "docs" / "performance.md", root / "docs")
            shutil.copy(SOURCE / "README.md", root)
            (root / name).write_text(change((root / name).read_text()))
            run = charts("--check", "--root", directory)
        self.assertEqual(run.returncode, 1, f"a change of {name} was not noticed")
        return run.stderr

    def test_another_result_makes_them_old(self):
        def cheaper(text):
            result = json.loads(text)
            result["memory"]["engines"]["shoal pool"][-1] += 100
            return json.dumps(result)

        def one_more_error(text):
            result = json.loads(text)
            result["servers"][0]["errors"] += 1
            return json.dumps(result)

        for name, change, chart in (("memory", cheaper, "memory-dark.svg"), ("timeline", one_more_error, "timeline-light.svg")):
            said = self.changed(f"docs/charts/{name}.json", change)
            for file in (chart, "README.md", "docs/performance.md"):
                self.assertIn(file, said)

    def test_a_figure_changed_by_hand_is_noticed(self):
        self.assertIn("README.md", self.changed("README.md", lambda text: re.sub(r"\*\*[\d.]+ MB\*\*", "**0.1 MB**", text, count=1)))
        self.assertIn("README.md", self.changed("docs/performance.md", lambda text: re.sub(r"(\| kill\(\) [^|]*\|[^|]*\| )[\d.]+ ms", r"\g<1>1.1 ms", text, count=1)))

    def test_a_missing_mark_result_or_peer_is_named(self):
        self.assertIn("tools/charts: worth", self.changed("README.md", lambda text: text.replace("<!-- tools/charts: worth -->", "")))
        self.assertIn("memory.json", self.changed("docs/charts/memory.json", lambda text: text[:100]))
        without = self.changed("docs/charts/timeline.json", lambda text: json.dumps({**json.loads(text), "missing": ["MLServer: no wheel"]}))
        self.assertIn("no wheel", without)

    def test_each_chart_is_described_and_loads_nothing(self):
        files = sorted(CHARTS.glob("*.svg"))
        self.assertEqual(len(files), 4)
        for file in files:
            with self.subTest(file=file.name):
                root = ElementTree.parse(file).getroot()
                named = {child.get("id"): child.text for child in root if child.get("id")}
                for name in root.get("aria-labelledby").split():
                    self.assertGreater(len(named[name]), 20)
                text = file.read_text().replace("http://www.w3.org/2000/svg", "")
                self.assertNotRegex(text, r"https?:|url\(|href|@import|<script|<style")
                for element in root.iter():
                    for key in ("x", "y", "cx", "cy"):
                        self.assertTrue(0 <= float(element.get(key, 0)) <= 640, f"{element.tag} is outside: {element.attrib}")

    def test_colors_have_enough_contrast(self):
        for theme, colors in svg_charts.THEMES.items():
            for least, names in ((TEXT_CONTRAST, ("ink", "muted", "ours", "bad")), (LINE_CONTRAST, ("ours_fill", "peer_fill"))):
                for name in names:
                    with self.subTest(theme=theme, color=name):
                        self.assertGreaterEqual(contrast(colors[name], colors["background"]), least)
            self.assertGreaterEqual(contrast(colors["bad"], colors["gap"]), LINE_CONTRAST)


class Labels(unittest.TestCase):
    def test_labels_move_apart_together(self):
        self.assertEqual(svg_charts.apart([10, 50], 20), [10, 50])
        self.assertEqual(svg_charts.apart([10, 10], 20), [0, 20])
        self.assertEqual(svg_charts.apart([10, 12, 100], 20), [1, 21, 100])

    def test_numbers_read_as_people_write_them(self):
        self.assertEqual(svg_charts.span([3.2, 5.1], "MB", 0), "3 to 5 MB")
        self.assertEqual(svg_charts.seconds_text([0.004, 0.004]), "4 ms")
        self.assertEqual(svg_charts.memory_text(2144), "2.1 GB")
        self.assertEqual(svg_charts.thousands(11369), "11 369")


class Timeline(unittest.TestCase):
    def test_an_answer_counts_when_it_comes(self):
        seen = timeline.bins([(9.95, 30, "ok"), (10.0, 50, "ok"), (10.05, 60, "error"), (10.0, 250.4, "ok"), (10.15, 10, "wrong"),
                              (10.2, 500, "ok")], 10, 0.3)
        self.assertEqual(seen, {"answers": [1, 0, 1], "errors": [0, 2, 0], "longest_ms": [50, 60, 250.4]})

    def test_kills_keep_half_an_interval_from_both_ends(self):
        self.assertEqual(timeline.kill_times(24, 6), [3, 9, 15, 21])
        self.assertEqual(timeline.kill_times(2, 6), [])

    def test_a_worker_that_never_came_back_is_none(self):
        stamp = "2026-11-25 15:55:53,372"
        kill = timeline.seconds_of(stamp) - 1.5
        self.assertEqual(timeline.replaced([kill, kill + 6], [stamp]), [1.5, None])
        self.assertEqual(timeline.replaced([kill, kill + 6], [None, "2026-11-25T15:56:00.372"]), [None, 2.5])

    def test_a_peer_that_cannot_be_installed_or_started_is_an_error_with_its_last_words(self):
        with tempfile.TemporaryDirectory() as directory:
            bin_ = Path(directory) / "bin"
            bin_.mkdir()
            (bin_ / "mlserver").write_text("#!/bin/sh\necho no module named numpy\nexit 3\n")
            (bin_ / "mlserver").chmod(0o755)
            source = Path(directory) / "input.npy"
            timeline.engine.write_input(source, [1, 4])
            installed = timeline.environments.environment
            timeline.environments.environment = lambda *_: str(bin_ / "python")
            self.addCleanup(setattr, timeline.environments, "environment", installed)
            with self.assertRaisesRegex(harness.BenchError, "MLServer ended with 3: no module named numpy"):
                timeline.MlServer("prefix", source, type("Arguments", (), {"threads": 1, "workers": 1}))

    def test_clients_go_on_after_an_error_and_count_it(self):
        calls, lock = [0], threading.Lock()

        def ask(_):
            with lock:
                calls[0] += 1
                number = calls[0]
            time.sleep(0.001)
            if number == 3:
                raise harness.BenchError("HTTP 500: worker stopped")
            return "connection", [1.0, 9.0 if number == 5 else 2.0]

        seen = timeline.Clients(ask, 1, 0.2).result()
        outcomes = [outcome for _, _, outcome in seen["requests"]]
        self.assertEqual(outcomes[:6], ["ok", "ok", "error", "ok", "wrong", "ok"])
        self.assertEqual(len(outcomes), calls[0])
        self.assertEqual(seen["errors"], {"HTTP 500: worker stopped": 1})

    def test_recorded_json_is_json(self):
        value = {"a": [1, 2], "b": [{"c": None}, [0.5]], "d": {}, "e": [], "f": ["x"]}
        self.assertEqual(json.loads(harness.as_json(value)), value)
        self.assertIn('"a": [1, 2]', harness.as_json(value))


if __name__ == "__main__":
    unittest.main()
