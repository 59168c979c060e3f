"""Answers of Shoal and of MLServer, second by second, while their workers are killed. Needs only the standard library.

Both serve the same perceptron from the same checkpoint, with the same number of workers, one thread each. Their outputs are compared
first. Client threads send one request at a time each, without a pause; a failed request counts as an error and is not sent again.
MLServer runs after Shoal has ended, so that neither takes processor time from the other. A random worker gets SIGKILL at the same
seconds of both timelines.
"""
import contextlib
import datetime
import http.client
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import engine
import environments
from harness import BenchError, Daemon, binary, dies_with_us, note, write_perceptron

HERE = Path(__file__).resolve().parent
MODEL = "perceptron"
BIN_S = 0.1
TIMEOUT_S = 5     # of each request, for both
START_LIMIT_S = 60
LIST_S = 1.0      # so long before a kill the workers are listed, which takes a moment
QUIET_S = 1.0     # of load before the recorded time begins: first requests are slower


class Clients:
    """Threads that send one request after the other over HTTP, as shoal-bench timeline does over shared memory. Thread-bound."""

    def __init__(self, ask, threads, seconds):
        self.requests, self.errors, self.lock = [], {}, threading.Lock()
        self.ask, self.end = ask, time.monotonic() + seconds
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(threads)]
        self.expected = None
        for thread in self.threads:
            thread.start()

    def run(self):
        connection = None
        while (sent := time.monotonic()) < self.end:
            error = None
            try:
                connection, output = self.ask(connection)
            except (OSError, http.client.HTTPException, BenchError) as problem:
                connection, error = None, str(problem) if isinstance(problem, BenchError) else f"{type(problem).__name__}: {problem}"
            wait_ms = (time.monotonic() - sent) * 1e3
            with self.lock:
                if error:
                    self.errors[error] = self.errors.get(error, 0) + 1
                else:
                    self.expected = self.expected or output
                self.requests.append((sent, wait_ms, "error" if error else "ok" if engine.difference(output, self.expected) < engine.TOLERANCE
                                      else "wrong"))

    def result(self):
        for thread in self.threads:
            thread.join(max(0, self.end - time.monotonic()) + 2 * TIMEOUT_S)
        with self.lock:
            return {"requests": list(self.requests), "errors": dict(self.errors)}


class ShoalServer:
    """shoald with the perceptron. For a with-statement. Thread-bound."""
    name = "Shoal"

    def __init__(self, prefix, source, arguments):
        self.input, self.threads = source, arguments.threads
        self.settings = {"workers": arguments.workers, "contexts": 1, "threads": 1}
        self.daemon = Daemon(MODEL, prefix, [-1, 256], workers=arguments.workers)
        run = subprocess.run([binary("shoald"), "--version"], capture_output=True, text=True)
        self.version = run.stdout.split()[-1]
        self.client = "libshoal, shared memory"

    def __enter__(self):
        return self

    def __exit__(self, *words):
        self.daemon.__exit__(*words)

    def workers(self):
        return [worker["pid"] for worker in self.daemon.status()["models"][0]["workers"] if worker["state"] == "ready"]

    def output(self, directory):
        run = subprocess.run([binary("shoal"), "predict", MODEL, "--input", f"data={self.input}", "--output", directory],
                             env=self.daemon.environment, capture_output=True, text=True)
        if run.returncode:
            raise BenchError(f"shoal predict: {run.stderr.strip()}")
        return engine.read_floats(next(Path(directory).glob("*.npy")))

    @contextlib.contextmanager
    def clients(self, seconds):
        """Yields a function that waits for the end of the clients and returns what they saw."""
        words = [binary("shoal-bench"), "timeline", MODEL, self.input, "--seconds", seconds, "--threads", self.threads,
                 "--timeout-ms", TIMEOUT_S * 1000]
        run = subprocess.Popen(list(map(str, words)), env=self.daemon.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, preexec_fn=dies_with_us(signal.SIGKILL))

        def result():
            out, problem = run.communicate(timeout=seconds + 3 * TIMEOUT_S)
            if run.returncode:
                raise BenchError(f"shoal-bench timeline: {problem.strip()}")
            return json.loads(out)

        try:
            if not run.stdout.readline():  # it comes with the first answer
                raise BenchError(f"shoal-bench timeline: {run.stderr.read().strip()}")
            yield result
        finally:
            run.kill()
            run.wait()
            run.stdout.close()
            run.stderr.close()

    def replacements(self):
        """When each worker that replaced another was ready, by the daemon's log."""
        return re.findall(r"^(\S+) info .* worker_ready ", self.daemon.log.read_text(), re.M)[self.settings["workers"]:]


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_line(pid):
    """Empty if the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


class MlServer:
    """MLServer with the perceptron as a custom runtime, on free ports of the loopback. For a with-statement. Thread-bound."""
    name = "MLServer"
    PACKAGES = ["numpy==2.4.6", "uvloop==0.21.0", "mlserver==1.7.1"]  # with uvloop 0.23 its workers do not start

    def __init__(self, prefix, source, arguments):
        python = environments.environment("mlserver", self.PACKAGES)
        self.threads, self.version = arguments.threads, self.PACKAGES[-1].split("==")[1]
        self.client = "HTTP/1.1 with JSON, one open connection a thread, loopback"
        self.directory = Path(tempfile.mkdtemp(prefix="shoal-mlserver-"))
        self.port, grpc, metrics = self.free_ports(3)
        settings = {"parallel_workers": arguments.workers, "debug": False}
        self.settings = {**settings, "OPENBLAS_NUM_THREADS": 1}
        (self.directory / "settings.json").write_text(json.dumps({
            "host": "127.0.0.1", "http_port": self.port, "grpc_port": grpc, "metrics_port": metrics, **settings}))
        (self.directory / "model-settings.json").write_text(json.dumps({
            "name": MODEL, "implementation": "timeline_mlserver.Perceptron", "parameters": {"uri": prefix}}))
        values = list(engine.read_floats(source))
        self.body = json.dumps({"inputs": [{"name": "data", "shape": [1, len(values)], "datatype": "FP32", "data": values}]})
        self.log_file = self.directory / "log.txt"
        environment = dict(os.environ, PYTHONPATH=str(HERE), PYTHONDONTWRITEBYTECODE="1", OPENBLAS_NUM_THREADS="1")
        with self.log_file.open("w") as log:
            self.process = subprocess.Popen([sys.executable, HERE / "warden.py", Path(python).parent / "mlserver", "start", "."],
                                            cwd=self.directory, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=dies_with_us(signal.SIGTERM))
        try:
            self.wait_until_ready()
        except BaseException:  # otherwise it would keep running
            self.__exit__()
            raise

    @staticmethod
    def free_ports(count):
        with contextlib.ExitStack() as sockets:
            bound = [sockets.enter_context(socket.socket()) for _ in range(count)]
            for each in bound:
                each.bind(("127.0.0.1", 0))
            return [each.getsockname()[1] for each in bound]

    def wait_until_ready(self):
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            with contextlib.suppress(OSError, BenchError, http.client.HTTPException):
                self.ask(None)
                return
            if self.process.poll() is not None:
                raise BenchError(f"MLServer ended with {self.process.returncode}: {' '.join(self.log().strip().splitlines()[-1:])}")
            if time.monotonic() > deadline:
                raise BenchError(f"MLServer is not ready after {START_LIMIT_S} s: {' '.join(self.log().strip().splitlines()[-1:])}")
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()  # the warden ends all processes
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def workers(self):
        """The workers of its pool: children of the server, which is the warden's one child, that Python's multiprocessing has spawned."""
        (server,) = children_of(self.process.pid)
        return [pid for pid in children_of(server) if b"spawn_main" in command_line(pid)]

    def ask(self, connection):
        """Returns the connection for the next request, and the output."""
        connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        connection.request("POST", f"/v2/models/{MODEL}/infer", self.body, {"Content-Type": "application/json"})
        with connection.getresponse() as response:
            answer = response.read()
        if response.status != 200:
            raise BenchError(f"HTTP {response.status}: {answer.decode(errors='replace')[:200]}")
        return connection, json.loads(answer)["outputs"][0]["data"]

    def output(self, _):
        return self.ask(None)[1]

    @contextlib.contextmanager
    def clients(self, seconds):
        running = Clients(self.ask, self.threads, seconds)
        try:
            yield running.result
        finally:
            running.end = 0

    def log(self):
        return self.log_file.read_text()

    def replacements(self):
        """When each worker that replaced another was ready, by the server's log; None if it is not ready yet."""
        ready = dict(map(reversed, re.findall(r"^(\S+ \S+) .* New worker with PID (\d+) .* is now ready", self.log(), re.M)))
        return [ready.get(pid) for pid in re.findall(r"Starting new worker with PID (\d+) ", self.log())]


def kill_times(seconds, every):
    """Seconds from the start: the first kill after half an interval, the last one at least half an interval before the end."""
    times, at = [], every / 2
    while at <= seconds - every / 2:
        times.append(at)
        at += every
    return times


def bins(requests, begin, seconds):
    """Per 100 ms: answers and errors that came in it, and the longest that one of them had been waited for."""
    count = round(seconds / BIN_S)
    answers, errors, longest_ms = [0] * count, [0] * count, [0.0] * count
    for sent, wait_ms, outcome in requests:
        index = int((sent + wait_ms / 1e3 - begin) / BIN_S)
        if sent + wait_ms / 1e3 < begin or index >= count:
            continue
        (answers if outcome == "ok" else errors)[index] += 1
        longest_ms[index] = max(longest_ms[index], round(wait_ms, 2))
    return {"answers": answers, "errors": errors, "longest_ms": longest_ms}


def seconds_of(stamp):
    """A log's local time in seconds since 1970."""
    return datetime.datetime.fromisoformat(stamp.replace(",", ".").rstrip("Z")).timestamp()


def replaced(kills, ready):
    """Seconds from each kill until the worker was ready that replaced the killed one, in the same order; None if it never was."""
    return [None if stamp is None else round(seconds_of(stamp) - kill, 3) for kill, stamp in itertools.zip_longest(kills, ready[:len(kills)])]


def sleep_until(moment):
    time.sleep(max(0, moment - time.monotonic()))


def record(server, arguments):
    """One timeline."""
    times, kills, clock = kill_times(arguments.seconds, arguments.kill_every), [], []
    generator = random.Random(1)
    with server.clients(QUIET_S + arguments.seconds) as result:
        begin = time.monotonic() + QUIET_S
        for at in times:
            note(f"timeline: {server.name}, {at:.0f} of {arguments.seconds:.0f} s")
            sleep_until(begin + at - LIST_S)
            pids = sorted(server.workers())
            if not pids:
                continue
            sleep_until(begin + at)
            kills.append(round(time.monotonic() - begin, 3))
            clock.append(time.time())
            with contextlib.suppress(ProcessLookupError):
                os.kill(generator.choice(pids), signal.SIGKILL)
        seen = result()
    timeline = bins(seen["requests"], begin, arguments.seconds)
    return {"name": server.name, "version": server.version, "settings": server.settings, "client": server.client, "kills_s": kills,
            "replaced_s": replaced(clock, server.replacements()), "answers": sum(timeline["answers"]), "errors": sum(timeline["errors"]),
            "longest_ms": max(timeline["longest_ms"]), "messages": seen["errors"], "timeline": timeline}


def measure(arguments):
    result = {"model": f"perceptron of 256, {arguments.hidden}, {arguments.hidden} and 10 units", "workers": arguments.workers,
              "threads": arguments.threads,
              "seconds": arguments.seconds, "bin_s": BIN_S, "timeout_s": TIMEOUT_S, "missing": [], "servers": []}
    expected = None
    with tempfile.TemporaryDirectory() as directory:
        prefix, source = write_perceptron(Path(directory), arguments.hidden), str(Path(directory) / "input.npy")
        engine.write_input(Path(source), [1, 256])
        for kind in [ShoalServer] if arguments.peer == "none" else [ShoalServer, MlServer]:
            note(f"timeline: {kind.name} starts")
            try:
                with kind(prefix, source, arguments) as server:
                    output = server.output(f"{directory}/output")
                    distance = engine.difference(output, expected or output)
                    if distance > engine.TOLERANCE:
                        raise BenchError(f"its output differs by {distance:.1e} of max|reference|")
                    expected = expected or output
                    result["servers"].append(record(server, arguments))
            except (BenchError, OSError, subprocess.CalledProcessError) as error:
                if kind is ShoalServer:
                    raise
                result["missing"].append(f"{kind.name}: {error}")
                print(f"bench: no timeline of {kind.name} (--peer none leaves it out): {error}", file=sys.stderr)
            arguments.keep(result)
    return result
