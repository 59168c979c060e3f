#!/usr/bin/env python3
"""Fetchers are killed at any moment. What they leave is nothing, or a whole model; the next fetch is right."""
import os
import random
import signal
import subprocess
import time
from pathlib import Path

from doubles import Double, Fault
from fetching import BIN, FILES, PREFIX, SHAPES, FetchTest, main, sums_of

ROUNDS = 300 if os.environ.get("SHOAL_TEST_LONG") else 40


def children_of(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Kills(FetchTest):
    def setUp(self):
        super().setUp()
        self.contents = [{name: (SHAPES / name).read_bytes() for name in FILES}]
        other = dict(self.contents[0])
        other[f"{PREFIX}-0000.params"] = bytes(reversed(other[f"{PREFIX}-0000.params"]))
        other["synset.txt"] = b"other\n"
        self.contents.append(other)
        self.double = self.enterContext(Double())
        self.url = f"{self.double.url}/m/{PREFIX}"

    def put(self, content):
        self.double.files = {f"/m/{name}": body for name, body in content.items()}
        directory = self.tmp / "sums"
        directory.mkdir(exist_ok=True)
        for name, body in content.items():
            (directory / name).write_bytes(body)
        self.double.files["/m/SHA256SUMS"] = sums_of(directory)

    def assert_copies_are_whole(self):
        """Each copy in the cache is one of the contents, never a mixture."""
        for copy in self.cache.rglob("copy-*"):
            found = {file.name: file.read_bytes() for file in copy.iterdir() if file.name not in ("SHA256SUMS", ".used")}
            self.assertIn(found, self.contents, copy)

    def test_at_any_moment(self):
        seed = int(os.environ.get("SHOAL_TEST_SEED", time.time_ns() % 1_000_000))
        print(f"seed {seed} (SHOAL_TEST_SEED)")
        chance = random.Random(seed)
        killed = finished = 0
        for round_ in range(ROUNDS):
            content = self.contents[round_ // 7 % 2]
            self.put(content)
            self.double.faults = {f"/m/{PREFIX}-0000.params": Fault("slow", chance.choice([0, 0.002]))} if chance.random() < 0.7 else {}
            command = subprocess.Popen([BIN / "shoal", "fetch", self.url, self.tmp / "out"], env=self.environment, stderr=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL)
            time.sleep(0.2 * chance.random() ** 3)  # mostly short: a fetch takes some hundredths of a second
            fetchers = children_of(command.pid)
            victim = chance.choice(fetchers) if fetchers and chance.random() < 0.7 else command.pid
            if command.poll() is None:
                os.kill(victim, signal.SIGKILL)
                killed += 1
            finished += command.wait() == 0
            self.wait_for(lambda: not any(map(is_alive, fetchers)), "the fetcher outlives who asked it", 10)
            with self.subTest(seed=seed, round=round_):
                self.assert_copies_are_whole()
                for name in os.listdir(self.tmp / "out") if (self.tmp / "out").exists() else []:
                    if not name.startswith(".") and name != "SHA256SUMS":
                        self.assertIn((self.tmp / "out" / name).read_bytes(), [each[name] for each in self.contents], "half a file")
            if chance.random() < 0.3:
                self.check_fetch(content)
        self.check_fetch(content)
        print(f"{killed} kills, {finished} fetches that were faster")
        self.assertGreater(killed, ROUNDS // 8)

    def check_fetch(self, content):
        self.double.faults = {}
        run = self.fetch(self.url)
        self.assertEqual(run.returncode, 0, run.stderr)
        found = {file.name: file.read_bytes() for file in (self.tmp / "out").iterdir() if file.name != "SHA256SUMS"}
        self.assertEqual(found, content, "also nothing that killed processes left")

    def test_a_part_of_a_killed_fetcher_goes_on(self):
        self.put(self.contents[0])
        params = f"/m/{PREFIX}-0000.params"
        self.double.faults = {params: Fault("slow", 0.05)}
        command = subprocess.Popen([BIN / "shoal", "fetch", self.url, self.tmp / "out"], env=self.environment, stderr=subprocess.DEVNULL)
        self.wait_for_part(10_000)
        os.kill(children_of(command.pid)[0], signal.SIGKILL)
        self.assertEqual(command.wait(), 1)
        self.double.requests.clear()
        self.check_fetch(self.contents[0])
        self.assertRegex(self.double.asked(params)[0]["Range"], "bytes=[1-9]")

    def test_who_asked_is_told_of_the_death(self):
        self.put(self.contents[0])
        self.double.faults = {f"/m/{PREFIX}-symbol.json": Fault("hang")}
        command = subprocess.Popen([BIN / "shoal", "inspect", self.url], env=self.environment, stderr=subprocess.PIPE, text=True)
        self.wait_for(lambda: children_of(command.pid), "nobody fetches")
        os.kill(children_of(command.pid)[0], signal.SIGKILL)
        error = command.communicate(timeout=30)[1]
        self.assertEqual(command.returncode, 1)
        self.assertIn(self.url, error)
        self.assertIn("signal 9", error)


if __name__ == "__main__":
    main(verbosity=2)
