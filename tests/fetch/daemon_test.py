#!/usr/bin/env python3
"""The daemon serves models at URLs. Servers that hang, and deaths of who fetches, delay and break nothing else."""
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from doubles import Double, Fault, S3Double, WebHdfs
from fetching import PREFIX, SHAPES, FetchTest, cli, main
from signatures import KEYS, REGION, by_hand

PARAMS = f"/m/{PREFIX}-0000.params"


class Daemons(FetchTest):
    def setUp(self):
        super().setUp()
        self.double = self.enterContext(Double().serve(SHAPES, "/m"))
        self.url = f"{self.double.url}/m/{PREFIX}"
        self.input = cli.write_npy(self.tmp / "x.npy", (1, 3, 64, 64), [0.5] * (3 * 64 * 64))

    def answers(self, daemon, name):
        run = daemon.shoal("predict", name, "--input", f"data={self.input}", "--output", self.tmp / "answer")
        self.assertEqual(run.returncode, 0, run.stderr)
        return (self.tmp / "answer" / "prob_output.npy").read_bytes()

    def log_of(self, daemon):
        return Path(daemon.log.name).read_text()

    def test_models_at_urls_are_served(self):
        (self.tmp / "shoal.toml").write_text(f'[models.configured]\npath = "{self.url}"\n')
        s3 = S3Double("bucket", {f"m/{file.name}": file.read_bytes() for file in SHAPES.iterdir()}, by_hand)
        hdfs = WebHdfs().serve(SHAPES, "/m")
        with s3, hdfs, self.daemon({"here": SHAPES, "web": self.url, "cloud": "s3://bucket/m", "hadoop": f"{hdfs.url}/m/{PREFIX}",
                                    "file": f"file://{SHAPES}"}, "--config", self.tmp / "shoal.toml", AWS_REGION=REGION,
                                   AWS_ENDPOINT_URL=s3.url, **KEYS) as daemon:
            wanted = self.answers(daemon, "here")
            for name in ("web", "cloud", "hadoop", "file", "configured"):
                self.assertEqual(self.answers(daemon, name), wanted, name)
            self.assertEqual(daemon.model("web")["path"], self.url)
            run = daemon.shoal("load", f"loaded={self.url},workers=2", "--json")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(self.answers(daemon, "loaded"), wanted)
            self.assertIn(f'fetched model=loaded from="{self.url}"', self.log_of(daemon))
        self.assertEqual(s3.wrong, [])

    def test_a_reload_sees_what_changed_at_the_server(self):
        with self.daemon({"m": self.url}) as daemon:
            before = self.answers(daemon, "m")
            run = daemon.shoal("reload", "m", "--json")
            self.assertIn('"unchanged"', run.stdout, run.stderr)
            params = bytearray(self.double.files[PARAMS])
            params[-2000] ^= 0x40
            self.double.files[PARAMS] = bytes(params)
            run = daemon.shoal("reload", "m", "--json")
            self.assertIn('"reloaded"', run.stdout, run.stderr)
            after = self.answers(daemon, "m")
            self.assertNotEqual(after, before)
            self.double.faults[PARAMS] = Fault("status", 404)
            run = daemon.shoal("reload", "m")
            self.assert_fails(run, 1, "'m'", "goes on as it was", f"{self.url}-0000.params", "404")
            self.assertEqual(self.answers(daemon, "m"), after)
            # A new zygote finds the files of its version, whatever was fetched since.
            zygote = daemon.model("m")["zygote"]["pid"]
            os.kill(zygote, signal.SIGKILL)
            self.wait_for(lambda: daemon.model("m")["zygote"]["pid"] not in (None, zygote), "no new zygote")
            self.wait_for(lambda: daemon.model("m")["state"] == "ready", daemon.model("m")["reason"])
            self.assertEqual(self.answers(daemon, "m"), after)

    def test_versions_of_a_bucket(self):
        files = {f"v/{version}/{file.name}": file.read_bytes() for version in (1, 2, 3) for file in SHAPES.iterdir()}
        with S3Double("bucket", files, by_hand) as s3, self.daemon({}, "--model", "echo=builtin:identity", AWS_REGION=REGION,
                                                                   AWS_ENDPOINT_URL=s3.url, **KEYS) as daemon:
            run = daemon.shoal("load", "m=s3://bucket/v,versions=latest:2", "--json")
            self.assertIn('"versions":[2,3]', run.stdout.replace(" ", ""), run.stderr)
            pids = {w["pid"] for m in daemon.status()["models"] if m["name"] == "m" for w in m["workers"] if m["version"] == 3}
            s3.files.update({f"/bucket/v/4/{file.name}": file.read_bytes() for file in SHAPES.iterdir()})
            run = daemon.shoal("reload", "m", "--json")
            self.assertIn('"versions":[3,4]', run.stdout.replace(" ", ""), run.stderr)
            still = {w["pid"] for m in daemon.status()["models"] if m["name"] == "m" for w in m["workers"] if m["version"] == 3}
            self.assertEqual(still, pids, "a version that has not changed was loaded again")

    def test_a_server_that_hangs_holds_nobody_up(self):
        with self.daemon({"here": SHAPES}, SHOAL_FETCH_TIMEOUT_S="6", SHOAL_FETCH_STALL_S="60") as daemon:
            self.double.faults[PARAMS] = Fault("hang")
            loads = [self.load(daemon, f"hung{i}={self.double.url}/m{i}/{PREFIX}") for i in range(2)]
            for i in range(2):
                self.double.faults[f"/m{i}/{PREFIX}-symbol.json"] = Fault("hang")
            self.wait_for(lambda: len(self.fetchers(daemon)) == 2, "nobody fetches")
            begin = time.monotonic()
            longest = 0.0
            for i in range(20):
                started = time.monotonic()
                self.answers(daemon, "here")
                longest = max(longest, time.monotonic() - started)
            other = daemon.shoal("load", f"other={SHAPES}")
            self.assertEqual(other.returncode, 0, other.stderr)
            self.double.faults.pop(PARAMS)
            fetched = daemon.shoal("load", f"fetched={self.url}")
            self.assertEqual(fetched.returncode, 0, fetched.stderr)
            if time.monotonic() - begin < 5:
                self.assertTrue(all(load.poll() is None for load in loads), "this test was too slow to say anything")
            self.assertLess(longest, 4)
            for i, load in enumerate(loads):
                _, error = load.communicate(timeout=60)
                self.assertEqual(load.returncode, 1, error)
                self.assertIn(f"{self.double.url}/m{i}/{PREFIX}-symbol.json", error)
                self.assertIn("6 s", error)
            self.wait_for(lambda: not self.fetchers(daemon), "fetchers are left")
            self.assertEqual(daemon.shoal("load", f"hung0={self.url}").returncode, 0, "its name is free")

    def test_a_server_that_hangs_at_the_start(self):
        self.double.faults[PARAMS] = Fault("hang")
        with self.daemon({"here": SHAPES, "m": self.url}, wait=False, SHOAL_FETCH_TIMEOUT_S="4") as daemon:
            daemon.wait_until_it_answers()
            self.wait_for(lambda: daemon.shoal("predict", "here", "--input", f"data={self.input}", "--output", self.tmp / "a").returncode == 0, "here")
            self.wait_for(lambda: daemon.model("m")["state"] == "failed", "not given up")
            self.assertIn(self.url, daemon.model("m")["reason"])
            del self.double.faults[PARAMS]
            self.assertEqual(daemon.shoal("reload", "m").returncode, 0)
            self.assertEqual(self.answers(daemon, "m"), self.answers(daemon, "here"))

    def test_progress_is_shown(self):
        self.double.faults[PARAMS] = Fault("slow", 0.08)
        with self.daemon({"here": SHAPES}) as daemon:
            load = self.load(daemon, f"m={self.url}")
            seen = set()
            while load.poll() is None:
                seen |= {model["reason"] for model in daemon.status()["models"] if model["name"] == "m"}
            self.assertEqual(load.returncode, 0, load.stderr.read())
            self.assertTrue([reason for reason in seen if f"fetching {PREFIX}-0000.params" in reason], seen)
            self.assertRegex(self.log_of(daemon), rf'fetching what=".*{PREFIX}.*" file=".*" bytes=\d+ of=\d+')
            load.communicate()

    def test_the_fetcher_may_die(self):
        self.double.faults[PARAMS] = Fault("hang")
        with self.daemon({"here": SHAPES}) as daemon:
            load = self.load(daemon, f"m={self.url}")
            self.wait_for(lambda: self.fetchers(daemon), "nobody fetches")
            os.kill(self.fetchers(daemon)[0], signal.SIGKILL)
            _, error = load.communicate(timeout=30)
            self.assertEqual(load.returncode, 1, error)
            for words in ("'m'", self.url, "killed by signal 9"):
                self.assertIn(words, error)
            self.double.faults.clear()
            self.assertEqual(daemon.shoal("load", f"m={self.url}").returncode, 0)
            self.assertEqual(self.answers(daemon, "m"), self.answers(daemon, "here"))

    def test_who_asked_may_die(self):
        self.double.faults[PARAMS] = Fault("hang")
        with self.daemon({"here": SHAPES}) as daemon:
            load = self.load(daemon, f"m={self.url}")
            self.wait_for(lambda: self.fetchers(daemon), "nobody fetches")
            load.kill()
            load.communicate()
            self.wait_for(lambda: not self.fetchers(daemon), "it fetches for nobody")
            self.assertNotIn("m", [model["name"] for model in daemon.status()["models"]])

    def test_the_daemon_may_die(self):
        self.double.faults[PARAMS] = Fault("hang")
        with self.daemon({"m": self.url}, wait=False) as daemon:
            daemon.wait_until_it_answers()
            self.wait_for(lambda: self.fetchers(daemon), "nobody fetches")
            fetchers = self.fetchers(daemon)
            daemon.process.kill()
            daemon.process.wait()
            self.wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in fetchers), "the fetcher outlives its daemon")
        self.double.faults.clear()
        with self.daemon({"m": self.url, "here": SHAPES}) as daemon:
            self.assertEqual(self.answers(daemon, "m"), self.answers(daemon, "here"))

    def test_the_daemon_stops_while_files_are_fetched(self):
        self.double.faults[PARAMS] = Fault("hang")
        with self.daemon({"here": SHAPES, "m": self.url}, wait=False) as daemon:
            daemon.wait_until_it_answers()
            self.wait_for(lambda: self.fetchers(daemon), "nobody fetches")
            fetchers = self.fetchers(daemon)
            begin = time.monotonic()
            daemon.process.send_signal(signal.SIGTERM)
            self.assertEqual(daemon.process.wait(20), 0)
            self.assertLess(time.monotonic() - begin, 15)
            self.wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in fetchers), "the fetcher outlives its daemon")

    def test_many_loads_of_one_url(self):
        with self.daemon({"here": SHAPES}) as daemon:
            results = {}

            def load(i):
                results[i] = daemon.shoal("load", f"m{i}={self.url}")
            threads = [threading.Thread(target=load, args=(i,)) for i in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for i, run in results.items():
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual(self.answers(daemon, f"m{i}"), self.answers(daemon, "here"))
            self.assertEqual(len([h for h in self.double.asked(PARAMS) if "If-None-Match" not in h]), 1, "it was sent more than once")


if __name__ == "__main__":
    main(verbosity=2)
