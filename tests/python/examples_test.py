#!/usr/bin/env python3
"""The examples in docstrings and in client/python/examples."""
import doctest
import importlib
import json
import os
import pty
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

    def run_example(self, name, *words, stderr=subprocess.PIPE):
        environment = dict(os.environ, SHOAL_DIR=str(self.daemon.directory))
        return subprocess.run([sys.executable, EXAMPLES / name, *map(str, words)], env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True,
                              timeout=120)

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

    def test_a_folder_is_classified(self):
        done = self.run_example("classify_folder.py", "shapes", PICTURES)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = [re.fullmatch(r"((\w+)-\d\.png): (\w+) \(\d+\.\d %\)", line) for line in done.stdout.splitlines()]
        self.assertEqual([line[1] for line in lines], sorted(file.name for file in PICTURES.glob("*.png")))
        self.assertEqual([line[2] for line in lines], [line[3] for line in lines])

    def test_a_damaged_picture_of_a_folder_is_named_and_others_go_on(self):
        (self.tmp / "bad.png").write_bytes(b"nothing")
        (self.tmp / "SOURCE.md").write_text("no picture\n")
        shutil.copy(PICTURES / "star-1.png", self.tmp / "star.PNG")
        done = self.run_example("classify_folder.py", "shapes", self.tmp)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"\Astar\.PNG: star \(\d+\.\d %\)\n\Z")
        self.assertRegex(done.stderr, r"\Abad\.png: .*cannot be decoded.*\n\Z")
        for file in self.tmp.glob("*.[pP]*"):
            file.unlink()
        done = self.run_example("classify_folder.py", "shapes", self.tmp)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", f"{self.tmp}: has no pictures\n"))
        self.assertEqual(self.run_example("classify_folder.py", "shapes").returncode, 2)
        for words, said in ((("nothing", PICTURES), "'nothing'"), (("shapes", self.tmp / "none"), str(self.tmp / "none"))):
            done = self.run_example("classify_folder.py", *words)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)
            self.assertIn(said, done.stderr)

    def test_a_folder_has_a_progress_bar_on_a_terminal(self):
        for name in ("star-1.png", "ring-1.png"):
            shutil.copy(PICTURES / name, self.tmp)
        terminal, stderr = pty.openpty()
        done = self.run_example("classify_folder.py", "shapes", self.tmp, stderr=stderr)
        os.close(stderr)
        with open(terminal, "rb", buffering=0) as shown:
            text = shown.read(1 << 16).decode()
        self.assertEqual(done.returncode, 0, text)
        self.assertIn(f"[{'#' * 15}{' ' * 15}] 50 %  1 of 2", text)
        self.assertIn(f"[{'#' * 30}] 100 %  2 of 2", text)

    def test_the_asyncio_server_says_how_it_is_used(self):
        port = "argument PORT: {!r} is not a number from 0 to 65535"
        for words, said in (((), "required: MODEL, PORT"), (("echo",), "required: PORT"), (("echo", "0", "more"), "more"),
                            (("echo", "port"), port.format("port")), (("echo", "-1"), port.format("-1")), (("echo", "65536"), port.format("65536"))):
            done = self.run_example("asyncio_server.py", *words)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 2), done.stderr)
            self.assertRegex(done.stderr, r"\Ausage: asyncio_server\.py \[-h\] MODEL PORT\n.*" + re.escape(said) + "\n")

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
