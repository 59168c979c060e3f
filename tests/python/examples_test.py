#!/usr/bin/env python3
"""The examples in docstrings and in client/python/examples."""
import doctest
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

from fixtures import PICTURES, SHAPES, SOURCE, PoolTest, write_detector

import shoal

EXAMPLES = SOURCE / "client" / "python" / "examples"
MODULES = ["shoal", "shoal.client", "shoal.engine", "shoal.errors", "shoal.ndarrays", "shoal.pictures", "shoal.pool"]


class Examples(PoolTest):
    @classmethod
    def models(cls):
        ssd = write_detector(Path(cls.enterClassContext(tempfile.TemporaryDirectory())) / "ssd")
        return {"echo": "builtin:identity", "shapes": SHAPES, "ssd": ssd}

    def run_example(self, name, *words):
        environment = dict(os.environ, SHOAL_DIR=str(self.daemon.directory))
        return subprocess.run([sys.executable, EXAMPLES / name, *map(str, words)], env=environment, capture_output=True, text=True, timeout=120)

    def test_hello_sends_one_request(self):
        said = self.run_example("hello.py")
        self.assertEqual((said.returncode, said.stdout), (0, "data_output: 42\n"), said.stderr)

    def test_those_of_docstrings(self):
        before = Path.cwd(), os.environ.get("SHOAL_DIR")
        os.chdir(SOURCE)
        os.environ["SHOAL_DIR"] = str(self.daemon.directory)
        self.addCleanup(os.chdir, before[0])
        self.addCleanup(lambda: os.environ.pop("SHOAL_DIR") if before[1] is None else os.environ.update(SHOAL_DIR=before[1]))
        attempted = 0
        for name in MODULES:
            module = importlib.import_module(name)
            with self.subTest(module=name):
                result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
                self.assertEqual(result.failed, 0)
                attempted += result.attempted
        self.assertGreater(attempted, 30)

    def test_all_that_is_public_has_a_docstring(self):
        for name in shoal.__all__:
            thing = getattr(shoal, name)
            self.assertTrue(thing.__doc__, name)
            for method, value in vars(thing).items() if isinstance(thing, type) else ():
                if not method.startswith("_") and callable(value):
                    self.assertTrue(value.__doc__, f"{name}.{method}")

    def test_a_folder_is_classified_with_a_progress_bar(self):
        done = self.run_example("classify_folder.py", PICTURES, "shapes")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = dict(line.split("\t")[:2] for line in done.stdout.splitlines())
        self.assertEqual({Path(file).name.split("-")[0] for file in lines}, set(lines.values()))
        self.assertEqual(len(lines), len(list(PICTURES.glob("*.png"))))
        self.assertIn("100 %", done.stderr)
        (self.tmp / "bad.png").write_bytes(b"nothing")
        shutil.copy(PICTURES / "star-1.png", self.tmp)
        done = self.run_example("classify_folder.py", self.tmp, "shapes")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"star-1\.png\tstar")
        self.assertRegex(done.stderr, r"bad\.png: ")

    def test_the_asyncio_server_answers_many_at_once(self):
        environment = dict(os.environ, SHOAL_DIR=str(self.daemon.directory))
        server = subprocess.Popen([sys.executable, EXAMPLES / "asyncio_server.py", "echo", "0"], env=environment, stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        self.addCleanup(server.stdout.close)
        port = re.search(r":(\d+)$", server.stdout.readline())[1]

        def ask(numbers):
            request = urllib.request.Request(f"http://127.0.0.1:{port}/", json.dumps(numbers).encode())
            with urllib.request.urlopen(request, timeout=10) as response:
                return json.loads(response.read())

        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(16) as executor:
            for i, answer in enumerate(executor.map(ask, ([[i, i + 1]] for i in range(200)))):
                self.assertEqual(answer, {"data_output": [[i, i + 1]]})
        with self.assertRaises(urllib.error.HTTPError) as caught:
            ask("words")
        self.assertEqual(caught.exception.code, 400)
        self.assertEqual(json.loads(caught.exception.read())["code"], "INVALID_ARGUMENT")


if __name__ == "__main__":
    unittest.main(verbosity=2)
