#!/usr/bin/env python3
"""Which bugs seeded_bugs.py chooses: by the commit and by nothing else, with git and without."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import seeded_bugs  # noqa: E402

SCRIPT = Path(seeded_bugs.__file__)
BUGS = [seeded_bugs.Bug(file) for file in sorted(seeded_bugs.BUGS.glob("*.patch"))]


def listed(script, *words, **environment):
    run = subprocess.run([sys.executable, script, *words], capture_output=True, text=True,
                         env={**os.environ, "SHOAL_TEST_LONG": "", "PYTHONDONTWRITEBYTECODE": "1", **environment})
    assert run.returncode == 0, run.stderr
    return [line.split()[0] for line in run.stdout.splitlines()]


class Choice(unittest.TestCase):
    def names(self, commit):
        return [bug.name for bug in seeded_bugs.chosen(BUGS, 3, commit)]

    def test_one_commit_gives_the_same_bugs_every_time(self):
        self.assertEqual(self.names("abc"), self.names("abc"))
        self.assertEqual(len(set(self.names("abc"))), 3)
        self.assertEqual(listed(SCRIPT, "--rotate", "3", "--list"), self.names(seeded_bugs.commit()))

    def test_a_hundred_commits_try_every_bug(self):
        tried = {name for commit in range(100) for name in self.names(commit)}
        self.assertEqual(tried, {bug.name for bug in BUGS})

    def test_without_git_the_files_decide(self):
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory) / "tests" / "crash"
            copy.mkdir(parents=True)
            shutil.copy(SCRIPT, copy)
            shutil.copytree(seeded_bugs.BUGS, copy / "bugs")
            script, no_git = copy / SCRIPT.name, {"PATH": "/nowhere"}
            first = listed(script, "--rotate", "3", "--list", **no_git)
            self.assertEqual(len(first), 3)
            self.assertEqual(listed(script, "--rotate", "3", "--list", **no_git), first)
            others = set()
            for number in range(4):
                (Path(directory) / "source.cpp").write_text(str(number))
                others.add(tuple(listed(script, "--rotate", "3", "--list", **no_git)))
            self.assertGreater(len(others), 1)

    def test_the_long_run_tries_all(self):
        self.assertEqual(listed(SCRIPT, "--rotate", "3", "--list", SHOAL_TEST_LONG="1"), [bug.name for bug in BUGS])


class Patches(unittest.TestCase):
    def test_all_fit_the_sources(self):
        run = subprocess.run([sys.executable, SCRIPT, "--fits"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout)


if __name__ == "__main__":
    unittest.main()
