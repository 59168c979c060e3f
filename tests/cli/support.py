"""Shared parts of the command line's tests: a daemon, .npy files, checkpoints. Uses only the standard library."""
import array
import ast
import json
import math
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "benchmarks"))

from harness import processes_of  # noqa: E402

SOURCE = Path(os.environ.get("SHOAL_SOURCE_DIR", Path(__file__).resolve().parents[2]))
BIN = Path(os.environ.get("SHOAL_BIN_DIR", SOURCE / "build" / "release" / "bin"))
DATA = Path(os.environ.get("SHOAL_TEST_DATA", SOURCE.parent / "shared"))
SHAPES = SOURCE / "tools" / "shapes" / "model"  # the model that ships
FAULTY = BIN / "shoal-worker-faulty"
PICTURES = SOURCE / "tools" / "shapes" / "pictures"

TYPECODES = {"<f4": "f", "<f8": "d", "|u1": "B", "<i4": "i", "<i8": "q"}


def read_npy(path):
    """Returns shape and flat list of values of a C-order .npy file."""
    data = Path(path).read_bytes()
    assert data[:6] == b"\x93NUMPY", path
    size = struct.unpack_from("<H", data, 8)[0]
    header = ast.literal_eval(data[10:10 + size].decode())
    assert not header["fortran_order"], path
    values = array.array(TYPECODES[header["descr"]])
    values.frombytes(data[10 + size:])
    return header["shape"], values.tolist()


def write_npy(path, shape, values, descr="<f4"):
    shape = "(" + "".join(f"{d}, " for d in shape) + ")"
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}"
    header += " " * ((64 - (10 + len(header) + 1) % 64) % 64) + "\n"
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    Path(path).write_bytes(data + array.array(TYPECODES[descr], values).tobytes())
    return path


def largest_error(values, reference):
    """max |x - ref| / max |ref|."""
    scale = max((abs(r) for r in reference), default=0) or 1
    return max((abs(v - r) if math.isfinite(v) else math.inf for v, r in zip(values, reference)), default=0) / scale


def shoal(*words, directory=None, timeout=120):
    """Runs `shoal` and returns the finished process, with stdout and stderr as text."""
    environment = dict(os.environ)
    if directory:
        environment["SHOAL_DIR"] = str(directory)
    return subprocess.run([BIN / "shoal", *map(str, words)], env=environment, capture_output=True, text=True, timeout=timeout)


def start(words, directory, **options):
    return subprocess.Popen([BIN / "shoal", *map(str, words)], env=dict(os.environ, SHOAL_DIR=str(directory)), text=True, **options)


def run_on_a_terminal(words, directory, until, stop=None, seconds=60):
    """Runs the command with a terminal as stdout and stderr until it has printed `until`, sends `stop`, and returns its exit code and all it printed."""
    terminal, end = pty.openpty()
    process = start(words, directory, stdout=end, stderr=end, stdin=subprocess.DEVNULL)
    os.close(end)
    text, deadline, is_stopped = "", time.monotonic() + seconds, False
    try:
        while True:
            if not select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"no {until!r} in {text!r}")
            text += os.read(terminal, 65536).decode()
            if stop and not is_stopped and re.search(until, text):
                process.send_signal(stop)
                is_stopped = True
    except OSError:  # nobody has the terminal any more
        return process.wait(30), text
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def write_model(directory, operator, scalar):
    """Writes a checkpoint of one test operator (tests/support/faulty_worker.cpp) without weights."""
    directory.mkdir()
    symbol = {"nodes": [{"op": "null", "name": "data", "inputs": []},
                        {"op": operator, "name": "op0", "attrs": {"scalar": str(scalar)}, "inputs": [[0, 0, 0]]}],
              "arg_nodes": [0], "node_row_ptr": [0, 1, 2], "heads": [[1, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}
    (directory / "m-symbol.json").write_text(json.dumps(symbol))
    (directory / "m-0000.params").write_bytes(struct.pack("<QQQQ", 0x112, 0, 0, 0))
    (directory / "model.toml").write_text('inputs = [{name = "data", shape = [-1, 4]}]\n')
    return directory


def link_model(directory, prefix, shape, name="data", **keys):
    """Makes a directory with links to a checkpoint's files and a model.toml. Returns its path."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    prefix = Path(prefix)
    for file in list(prefix.parent.glob(prefix.name + "-*")) + list(prefix.parent.glob("synset.txt")):
        (directory / file.name).symlink_to(file.resolve())
    lines = [f'inputs = [{{name = "{name}", shape = {list(shape)}}}]'] + [f"{k} = {v}" for k, v in keys.items()]
    (directory / "model.toml").write_text("\n".join(lines) + "\n")
    return directory


class Daemon:
    """A shoald in a temporary directory, for a with-statement. models: {"name": "path,workers=2"}; under: a command that starts it."""

    def __init__(self, models, *arguments, wait=True, worker=None, under=()):
        self.directory = Path(tempfile.mkdtemp(prefix="shoal-test-"))
        self.log = open(self.directory.with_suffix(".log"), "w+")
        words = [*under, BIN / "shoald", *arguments]
        for name, path in models.items():
            words += ["--model", f"{name}={path}"]
        if worker:
            words += ["--worker", worker]
        self.process = subprocess.Popen(words, env=dict(os.environ, SHOAL_DIR=str(self.directory)), stderr=self.log)
        if wait:
            try:
                self.wait_ready()
            except BaseException:
                self.__exit__()  # a daemon that lives on keeps this test's output open, and ctest waits for that
                raise

    def wait_ready(self):
        self.wait_until_it_answers("--ready")

    def wait_until_it_answers(self, *words, seconds=60):
        """Until `shoal status` succeeds with these words."""
        deadline = time.monotonic() + seconds
        while self.shoal("status", *words).returncode != 0:
            if time.monotonic() > deadline or self.process.poll() is not None:
                self.log.seek(0)
                raise AssertionError(f"daemon not ready (exit code {self.process.poll()}):\n{self.log.read()}")
            time.sleep(0.02)

    def shoal(self, *words, **options):
        return shoal(*words, directory=self.directory, **options)

    def status(self):
        return json.loads(self.shoal("status", "--json").stdout)

    def model(self, name):
        return next(m for m in self.status()["models"] if m["name"] == name)

    def wait_for(self, name, condition, seconds=20):
        """Until what the status says of the model meets the condition."""
        deadline = time.monotonic() + seconds
        while not condition(self.model(name)):
            if time.monotonic() > deadline:
                raise AssertionError(json.dumps(self.model(name)))
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in processes_of(self.directory):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.log.close()
        os.unlink(self.log.name)


class ShoalTest(unittest.TestCase):
    """A test with its own temporary directory, self.tmp."""

    def setUp(self):
        self.tmp = Path(tempfile.mkdtemp(prefix="shoal-test-"))
        self.addCleanup(shutil.rmtree, self.tmp, ignore_errors=True)

    def assert_fails(self, run, code, *names):
        """Checks the exit code, and that the first line on stderr contains all of `names`."""
        self.assertEqual(run.returncode, code, f"stdout: {run.stdout}\nstderr: {run.stderr}")
        first = run.stderr.splitlines()[0] if run.stderr else ""
        for name in names:
            self.assertRegex(first, re.escape(str(name)))


def need_data(*parts):
    path = DATA.joinpath(*parts)
    if not path.exists():
        raise unittest.SkipTest(f"no test data at {path} (SHOAL_TEST_DATA)")
    return path
