#!/usr/bin/env python3
"""shoal load, reload, scale, drain, unload: what they print, and how they fail."""
import json
import os
import shutil
import signal
import unittest
import zipfile

from support import FAULTY, SHAPES, Daemon, ShoalTest, run_on_a_terminal, shoal, write_model, write_npy


class Changes(ShoalTest):
    def setUp(self):
        super().setUp()
        self.versions = self.tmp / "shapes"
        self.put(1)
        self.input = write_npy(self.tmp / "x.npy", (1, 3, 64, 64), [0.5] * (3 * 64 * 64))

    def put(self, version):
        shutil.copytree(SHAPES, self.tmp / "coming")
        (self.tmp / "coming").rename(self.versions_dir() / str(version))

    def versions_dir(self):
        self.versions.mkdir(exist_ok=True)
        return self.versions

    def change(self, daemon, *words):
        run = daemon.shoal(*words, "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)

    def predict(self, daemon, *words):
        return daemon.shoal("predict", "shapes", "--input", f"data={self.input}", "--output", self.tmp / "out", *words)

    def test_a_model_comes_changes_and_goes(self):
        with Daemon({"echo": "builtin:identity"}) as daemon:
            loaded = self.change(daemon, "load", f"shapes={self.versions},workers=2")
            self.assertEqual({k: loaded[k] for k in ("model", "outcome", "version", "versions", "workers")},
                             {"model": "shapes", "outcome": "loaded", "version": 1, "versions": [1], "workers": 2})
            self.put(2)
            self.assertEqual(self.change(daemon, "reload", "shapes")["version"], 2)
            self.assertEqual(self.change(daemon, "reload", "shapes")["outcome"], "unchanged")
            self.assertEqual(self.change(daemon, "reload", "shapes", "--force")["outcome"], "reloaded")
            both = self.change(daemon, "reload", f"shapes={self.versions},versions=all")
            self.assertEqual((both["versions"], both["workers"]), ([1, 2], 1))
            self.assertEqual(self.predict(daemon, "--model-version", 1).returncode, 0)
            self.assert_fails(self.predict(daemon, "--model-version", 7), 1, "no version 7", "1, 2")
            self.assertEqual(self.change(daemon, "scale", "shapes", 3)["workers"], 3)
            self.assertEqual(self.change(daemon, "drain", "shapes")["outcome"], "drained")
            self.assert_fails(self.predict(daemon), 3, "drained", "shoal reload shapes")
            self.assert_fails(daemon.shoal("status", "--ready"), 3, "'shapes' is drained")
            self.assertEqual(self.change(daemon, "reload", "shapes")["outcome"], "reloaded")
            self.assertEqual(self.predict(daemon).returncode, 0)
            self.assertEqual(self.change(daemon, "unload", "shapes")["outcome"], "unloaded")
            self.assert_fails(self.predict(daemon), 1, "no model 'shapes'", "echo")

    def test_people_are_told_in_a_line(self):
        with Daemon({"shapes": self.versions}) as daemon:
            run = daemon.shoal("scale", "shapes", 2)
            self.assertRegex(run.stdout, r"^shapes: scaled in \d+\.\d s, version 1, 2 workers\n$")
            self.assertEqual(run.stderr, "")
            self.assertRegex(daemon.shoal("unload", "shapes").stdout, r"^shapes: unloaded in \d+\.\d s\n$")

    def test_a_reload_tells_of_the_version_that_it_loads(self):
        """Also while the old version has no worker and cannot start one."""
        with Daemon({"shapes": self.versions}, worker=FAULTY) as daemon:
            served = daemon.model("shapes")
            params = next((self.versions / "1").glob("*.params"))
            params.write_bytes(params.read_bytes()[:1000])
            for pid in (served["zygote"]["pid"], served["workers"][0]["pid"]):
                os.kill(pid, signal.SIGKILL)
            daemon.wait_for("shapes", lambda model: model["state"] == "loading" and not model["workers"])
            write_model(self.versions / "2", "_fault_spin", 1500)  # its probe takes so long
            code, text = run_on_a_terminal(["reload", "shapes"], daemon.directory, "$")
            self.assertEqual(code, 0, text)
            self.assertRegex(text, r"\rshapes: version 2 is loading, \d of 1 workers, \d+ s")
            self.assertNotIn("version 1 is loading", text)
            self.assertIn("\r\033[Kshapes: reloaded", text, "its progress is gone")

    def test_scale_tells_of_a_version_that_restarts(self):
        with Daemon({"shapes": self.versions}) as daemon:
            served = daemon.model("shapes")
            os.kill(served["zygote"]["pid"], signal.SIGSTOP)  # it forks no other worker
            os.kill(served["workers"][0]["pid"], signal.SIGKILL)
            daemon.wait_for("shapes", lambda model: model["state"] == "loading" and not model["workers"])
            _, text = run_on_a_terminal(["scale", "shapes", 2], daemon.directory, r"version 1 is loading, 0 of 2 workers, \d+ s", signal.SIGINT)
            self.assertNotIn("waiting", text)

    def test_a_relative_path_is_relative_to_here(self):
        with Daemon({"echo": "builtin:identity"}) as daemon:
            relative = os.path.relpath(self.versions)
            self.assertEqual(self.change(daemon, "load", f"shapes={relative}")["version"], 1)
            self.assertEqual(self.predict(daemon).returncode, 0)

    def test_what_fails_says_why_and_what_was_served_goes_on(self):
        with Daemon({"shapes": self.versions}) as daemon:
            self.put(2)
            params = next((self.versions / "2").glob("*.params"))
            params.write_bytes(params.read_bytes()[:1000])
            self.assert_fails(daemon.shoal("reload", "shapes"), 1, "'shapes' goes on as it was", params.name)
            self.assertEqual(self.predict(daemon).returncode, 0)
            self.assertIn(params.name, daemon.shoal("status").stdout, "the status tells it, too")
            self.assert_fails(daemon.shoal("load", f"shapes={self.versions}"), 1, "'shapes' is served already")
            self.assert_fails(daemon.shoal("load", "other=/nowhere"), 1, "model 'other'", "/nowhere")
            self.assert_fails(daemon.shoal("reload", "nut"), 1, "no model 'nut'", "shapes")

    def put_golden(self, version, first, expected, tolerance=1e-4):
        """Writes a version that aborts when its input begins with 666, with a golden input, its expected output and the tolerance."""
        model = write_model(self.tmp / "coming", "_fault_abort", 666)
        with (model / "model.toml").open("a") as config:
            config.write(f'golden = "golden.npz"\ngolden_tolerance = {tolerance}\n')
        with zipfile.ZipFile(model / "golden.npz", "w") as archive:
            for name, value in (("data", first), ("op0_output", expected)):
                archive.write(write_npy(self.tmp / "array.npy", (1, 4), [value, 1, 2, 3]), name + ".npy")
        shutil.rmtree(self.tmp / "net" / str(version), ignore_errors=True)
        model.rename(self.tmp / "net" / str(version))

    def test_a_version_serves_only_when_it_answers_its_stored_input(self):
        (self.tmp / "net").mkdir()
        self.put_golden(1, 5, 5)
        source = write_npy(self.tmp / "golden.npy", (1, 4), [1, 1, 2, 3])
        with Daemon({"net": self.tmp / "net"}, worker=FAULTY) as daemon:
            for first, expected, words in ((666, 666, ("probe", "signal 6")), (5, 5.01, ("probe", "'op0_output'", "5.01"))):
                self.put_golden(2, first, expected)
                self.assert_fails(daemon.shoal("reload", "net"), 1, "'net' goes on as it was", *words)
                run = daemon.shoal("predict", "net", "--input", f"data={source}", "--output", self.tmp / "out")
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual([m["version"] for m in daemon.status()["models"]], [1])
            self.put_golden(2, 5, 5.01, tolerance=0.01)
            self.assertEqual(self.change(daemon, "reload", "net")["version"], 2)

    def test_wrong_calls_are_usage_errors(self):
        for words in (["load", "shapes"], ["load"], ["scale", "shapes"], ["scale", "shapes", "0"], ["reload"], ["unload"],
                      ["load", "a/b=m"], ["load", "n" * 101 + "=m"], ["reload", "m="], ["unload", "m=path"]):
            self.assertEqual(shoal(*words, directory=self.tmp).returncode, 2, words)
        self.assert_fails(shoal("load", "other=m,wrokers=1", directory=self.tmp), 2, "'wrokers'")
        self.assert_fails(shoal("reload", "shapes", directory=self.tmp), 3, "no daemon")
        for command in ("load", "reload", "scale", "drain", "unload"):
            text = shoal(command, "--help").stdout
            self.assertIn(f"  shoal {command} ", text, "an example")


if __name__ == "__main__":
    unittest.main(verbosity=2)
