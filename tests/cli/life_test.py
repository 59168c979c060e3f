#!/usr/bin/env python3
"""A zygote dies: its workers go on, and a new zygote takes over the packed weights or refuses changed files."""
import os
import shutil
import signal
import unittest

from support import SHAPES, Daemon, ShoalTest, write_npy


class Zygotes(ShoalTest):
    def setUp(self):
        super().setUp()
        self.model = self.tmp / "model"
        shutil.copytree(SHAPES, self.model)
        self.input = write_npy(self.tmp / "x.npy", (1, 3, 64, 64), [0.5] * (3 * 64 * 64))

    def answers(self, daemon):
        run = daemon.shoal("predict", "shapes", "--input", f"data={self.input}", "--output", self.tmp / "out", "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        return (self.tmp / "out" / "prob_output.npy").read_bytes()

    def kill_zygote(self, daemon):
        zygote = daemon.model("shapes")["zygote"]["pid"]
        os.kill(zygote, signal.SIGKILL)
        return zygote

    def test_a_new_zygote_takes_the_weights_over_and_forks(self):
        with Daemon({"shapes": f"{self.model},workers=2"}) as daemon:
            quiet = self.answers(daemon)
            workers = {w["pid"] for w in daemon.model("shapes")["workers"]}
            zygote = self.kill_zygote(daemon)
            self.assertEqual(self.answers(daemon), quiet, "the workers go on")
            daemon.wait_for("shapes", lambda m: m["zygote"]["pid"] not in (None, zygote) and m["state"] == "ready")
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            daemon.wait_for("shapes", lambda m: len([w for w in m["workers"] if w["state"] == "ready" and w["pid"] not in workers]) == 2)
            self.assertEqual(self.answers(daemon), quiet, "to the bit, from the packed weights of the first zygote")

    def test_a_model_that_has_nobody_left_is_not_ready_and_says_why(self):
        with Daemon({"shapes": self.model}) as daemon:
            quiet = self.answers(daemon)
            params = next(self.model.glob("*.params"))
            whole, torn = params.read_bytes(), self.tmp / "torn"
            torn.write_bytes(whole[:400000])
            torn.rename(params)
            self.kill_zygote(daemon)
            daemon.wait_for("shapes", lambda m: params.name in m["reason"])
            self.assertEqual(daemon.shoal("status", "--ready").returncode, 0, "its worker answers")
            os.kill(daemon.model("shapes")["workers"][0]["pid"], signal.SIGKILL)
            daemon.wait_for("shapes", lambda m: m["state"] == "loading" and not m["workers"])
            self.assert_fails(daemon.shoal("status", "--ready"), 3, "'shapes' is loading", params.name)
            run = daemon.shoal("predict", "shapes", "--input", f"data={self.input}", "--output", self.tmp / "out",
                               "--timeout", "1000")
            self.assert_fails(run, 1, "waiting for a worker", params.name)
            torn.write_bytes(whole)
            torn.rename(params)
            daemon.wait_for("shapes", lambda m: m["state"] == "ready" and m["workers"])
            self.assertEqual(self.answers(daemon), quiet)
            self.assertEqual(daemon.shoal("status", "--ready").returncode, 0)

    def test_a_model_that_never_loaded_does_not_go_on(self):
        bad = self.tmp / "bad"
        with Daemon({"bad": bad}, wait=False) as daemon:
            daemon.wait_until_it_answers()
            run = daemon.shoal("reload", "bad")
            self.assert_fails(run, 1, "'bad' cannot be served, as before", str(bad))
            self.assertNotIn("goes on", run.stderr)
            self.assert_fails(daemon.shoal("status", "--ready"), 3, "'bad' is failed", str(bad))
            shutil.copytree(SHAPES, bad)
            self.assertEqual(daemon.shoal("reload", "bad").returncode, 0)

    def test_algorithms_are_measured_once_whoever_dies(self):
        os.environ["SHOAL_CACHE_DIR"] = str(self.tmp / "cache")
        self.addCleanup(os.environ.pop, "SHOAL_CACHE_DIR")
        with Daemon({"shapes": self.model}) as daemon:
            self.assertRegex(daemon.model("shapes")["tuning"], "^measured ")
            quiet = self.answers(daemon)
            zygote = self.kill_zygote(daemon)
            daemon.wait_for("shapes", lambda m: m["zygote"]["pid"] not in (None, zygote) and m["tuning"].startswith("packed "))
        with Daemon({"shapes": self.model}) as daemon:
            self.assertRegex(daemon.model("shapes")["tuning"], "^record ")
            self.assertEqual(self.answers(daemon), quiet)

    def test_changed_files_are_refused_and_the_workers_go_on(self):
        with Daemon({"shapes": f"{self.model},workers=2"}) as daemon:
            quiet = self.answers(daemon)
            params = next(self.model.glob("*-0000.params"))
            changed = bytearray(params.read_bytes())
            changed[200] ^= 1  # a weight
            params.write_bytes(changed)
            self.kill_zygote(daemon)
            daemon.wait_for("shapes", lambda m: "changed" in m["reason"])
            self.assertEqual(self.answers(daemon), quiet)


if __name__ == "__main__":
    unittest.main(verbosity=2)
