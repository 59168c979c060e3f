"""Shared parts of the tests of fetching: runs commands with a cache of their own, and looks at what they leave."""
import json
import os
import shutil
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))

import support as cli  # noqa: E402

BIN, SHAPES, SOURCE = cli.BIN, cli.SHAPES, cli.SOURCE
FILES = {file.name for file in SHAPES.iterdir() if file.is_file()}
PREFIX = next(name for name in FILES if name.endswith("-symbol.json")).removesuffix("-symbol.json")


class FetchTest(cli.ShoalTest):
    """A test with its own cache, and an environment without the machine's settings of AWS and of proxies."""

    def setUp(self):
        super().setUp()
        self.cache = self.tmp / "cache"
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("AWS_", "SHOAL_FETCH_", "HADOOP_")) and not name.lower().endswith("_proxy")}
        self.environment.update(SHOAL_CACHE_DIR=str(self.cache), HOME=str(self.tmp), SHOAL_FETCH_STALL_S="5")

    def shoal(self, *words, timeout=120, **environment):
        return subprocess.run([BIN / "shoal", *map(str, words)], env={**self.environment, **environment}, capture_output=True, text=True,
                              timeout=timeout)

    def fetch(self, url, into="out", **options):
        return self.shoal("fetch", url, self.tmp / into, **options)

    def daemon(self, models, *arguments, wait=True, **environment):
        before = dict(os.environ)
        os.environ.clear()
        os.environ.update({**self.environment, **environment})
        self.addCleanup(os.environ.update, before)
        self.addCleanup(os.environ.clear)
        return cli.Daemon(models, *arguments, wait=wait)

    def load(self, daemon, text):
        return subprocess.Popen([cli.BIN / "shoal", "load", text], env={**self.environment, "SHOAL_DIR": str(daemon.directory)},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def fetchers(self, daemon):
        return [pid for pid in cli.processes_of(daemon.directory)
                if Path(f"/proc/{pid}/comm").read_text().strip() == "shoal-fetch"]

    def wait_for(self, condition, what, seconds=30):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.01)

    def wait_for_part(self, size):
        """A fetch has begun, and so many bytes of a file have come."""
        self.wait_for(lambda: any(part.stat().st_size > size for part in self.cache.rglob("*.part")), "nothing comes")

    def assert_fetched(self, run, into="out", source=SHAPES, names=None):
        """The files in the directory are those of `source`, byte for byte, and nothing else is there."""
        self.assertEqual(run.returncode, 0, run.stderr)
        here = {str(file.relative_to(self.tmp / into)): file for file in (self.tmp / into).rglob("*") if file.is_file()}
        wanted = names if names is not None else FILES
        self.assertEqual(set(here), set(wanted))
        for name, file in here.items():
            if (source / name).exists():
                self.assertEqual(file.read_bytes(), (source / name).read_bytes(), name)

    def assert_refused(self, run, *names, into="out", code=1):
        """The error names all these, and nothing is there, neither whole nor half."""
        self.assert_fails(run, code, *names)
        self.assertEqual(len(run.stderr.splitlines()), 1, run.stderr)
        left = [str(file) for file in (self.tmp / into).rglob("*")] if (self.tmp / into).exists() else []
        self.assertEqual(left, [], "half a model")
        self.assertEqual(list(self.cache.rglob("copy-*")), [], "a copy of a model that was not fetched")

    def model(self, **changes):
        """A directory with a copy of the model that ships; bytes by name replace or add files, None removes them."""
        directory = self.tmp / "model"
        shutil.copytree(SHAPES, directory)
        for name, content in changes.items():
            file = directory / name.replace("__", "-").replace("_dot_", ".")
            file.unlink(missing_ok=True)
            if content is not None:
                file.write_bytes(content)
        return directory


def sums_of(directory, names=None):
    """What `sha256sum` prints for the files of a directory."""
    import hashlib
    files = [directory / name for name in names] if names else sorted(file for file in directory.iterdir() if file.is_file())
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files).encode()


def read_json(run):
    return json.loads(run.stdout)


main = unittest.main
