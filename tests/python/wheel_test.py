#!/usr/bin/env python3
"""The files that a wheel has work from another place; with SHOAL_TEST_LONG=1 pip builds one and installs it."""
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from fixtures import SHAPES, SOURCE, Daemon, ShoalTest, is_long

BUILD = Path(os.environ["SHOAL_BUILD_DIR"])
USE = """
import os, sys, numpy, shoal
assert shoal.__file__.startswith(sys.argv[1]), shoal.__file__
with shoal.Pool() as pool:
    print(pool.predict("echo", {"data": numpy.float32([42])})["data_output"])
seen = set()
def look(*_):
    for task in os.listdir("/proc/self/task"):
        for pid in open(f"/proc/self/task/{task}/children").read().split():
            seen.add(os.readlink(f"/proc/{pid}/exe"))
with shoal.Engine(sys.argv[2], tuning_ms=1000, on_measuring=look) as engine:
    print(shoal.ImageClassifier(engine, "shapes").classify(sys.argv[3], top_k=1)[0][0])
print(len(shoal.load_ndarrays(sys.argv[2] + "/shapes-0000.params")) > 5)
print(*seen)
maps = open("/proc/self/maps").read()
print(sorted({line.split()[-1] for line in maps.splitlines() if "libshoal" in line}))
"""


def run(*words, **options):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{words} gave {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


class Wheel(ShoalTest):
    def check(self, python, site, **environment):
        """The package in `site` works, and uses no file of this tree."""
        model = shutil.copytree(SHAPES, self.tmp / "model")
        with Daemon({"echo": "builtin:identity"}) as daemon:
            kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
            environment = {**kept, "SHOAL_DIR": str(daemon.directory), "SHOAL_CACHE_DIR": str(self.tmp / "cache"), **environment}
            answer, label, has_arrays, worker, libraries = run(python, "-c", USE, site, model, SOURCE / "tools/shapes/pictures/star-1.png",
                                                               env=environment, cwd=self.tmp).splitlines()
        self.assertEqual((answer, label, has_arrays), ("[42.]", "star", "True"))
        self.assertEqual(worker, f"{site}/shoal/libexec/shoal/shoal-worker")
        for library in re.findall(r"'([^']*)'", libraries):
            self.assertTrue(library.startswith(f"{site}/shoal/lib/"), library)

    def test_its_files_work_from_another_place(self):
        site = self.tmp.resolve() / "site"
        run("cmake", "--install", BUILD, "--prefix", site, "--component", "python")
        self.assertEqual({path.name for path in site.iterdir()}, {"shoal"})
        names = {path.name.split(".")[0] + path.suffix for path in (site / "shoal").iterdir()}
        self.assertLessEqual({"__init__.py", "py.typed", "_shoal.so", "_shoal.pyi", "_engine.so", "_engine.pyi", "_vision.so", "_params.so"}, names)
        self.check(sys.executable, site, PYTHONPATH=str(site))

    def test_nothing_of_it_is_in_other_packages(self):
        prefix = self.tmp / "prefix"
        run("cmake", "--install", BUILD, "--prefix", prefix, "--component", "libshoal")
        self.assertFalse((prefix / "shoal").exists())

    @unittest.skipUnless(is_long(), "SHOAL_TEST_LONG=1 builds a wheel, which compiles all of Shoal")
    def test_pip_installs_it(self):
        run(sys.executable, "-m", "venv", self.tmp / "venv")
        python = self.tmp.resolve() / "venv" / "bin" / "python"
        run(python, "-m", "pip", "install", SOURCE / "client" / "python")
        [site] = (self.tmp.resolve() / "venv").glob("lib/python*/site-packages")
        self.check(python, site)


if __name__ == "__main__":
    unittest.main(verbosity=2)
