"""One model in a child process that is asked by lines of text: Shoal (`shoal-bench model`) or another engine (peer.py). Needs only the
standard library.
"""
import array
import contextlib
import os
import signal
import statistics
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import networks
from harness import THIS_BUILD, BenchError, Daemon, dies_with_us

START_LIMIT_S = 400   # PyTorch compiles three times
BURST_MS = 250        # about one engine's share of a round
REDUCED_TOLERANCE = 5e-2  # of engines that compute in bf16: OpenVINO and PyTorch differ by up to 2.6e-2 (Inception-BN)
TOLERANCE = 1e-4  # of max|reference|; other weights or another input change the output a hundred times more
CPUCLOCK_SCHED = 2  # Linux: turns a pid into a clock, like clock_getcpuclockid(3)


def write_input(path, shape):
    """Writes uniform noise in [-1, 1) as .npy."""
    networks.write_npy(path, shape, networks.Input("data", tuple(shape)).values())


def read_floats(path):
    data = Path(path).read_bytes()
    values = array.array("f")
    values.frombytes(data[10 + struct.unpack_from("<H", data, 8)[0]:])
    return values


def difference(output, reference):
    """max |x - ref| / max |ref|; infinite if they cannot be compared."""
    errors = [abs(x - r) for x, r in zip(output, reference)]
    if len(output) != len(reference) or not all(e == e for e in errors):
        return float("inf")
    worst, scale = max(errors, default=0.0), max(map(abs, reference), default=0.0)
    return worst / scale if scale else 0.0 if worst == 0 else float("inf")


def worst_difference(outputs, references):
    """The largest difference() of any output; infinite if their number differs."""
    if len(outputs) != len(references):
        return float("inf")
    return max(map(difference, outputs, references))


class EngineError(BenchError):
    pass


class Engine:
    """A child process with one model. It is stopped except while it runs a command, and ends with its with-statement. Thread-bound."""

    def __init__(self, name, words, cores, extra):
        self.name = name
        self.errors = tempfile.TemporaryFile("w+")
        end_with_us = dies_with_us(signal.SIGKILL)  # a stopped process would not see that its standard input closes

        def prepare():
            end_with_us()
            os.sched_setaffinity(0, cores)

        self.started = time.perf_counter()
        self.process = subprocess.Popen(words, env=dict(os.environ, **extra), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, preexec_fn=prepare)

    def ask(self, line, limit_s=120):
        self.process.send_signal(signal.SIGCONT)
        watchdog = threading.Timer(limit_s, self.process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            watchdog.cancel()
        if not answer:
            code = self.process.wait()
            self.errors.seek(0)
            last = self.errors.read().strip().splitlines()[-1:]
            raise EngineError(f"ended with {code}: {' '.join(last)[:200]}")
        self.process.send_signal(signal.SIGSTOP)
        return answer.strip()

    def run(self, count, clock="wall"):
        """The milliseconds of each run. With the clock "cpu": the mean CPU time of the process, repeated."""
        before = self.cpu_ms()
        times = [float(ms) for ms in self.ask(f"run {count}").split()]
        return times if clock == "wall" else [(self.cpu_ms() - before) / count] * count

    def cpu_ms(self):
        try:
            return time.clock_gettime_ns((~self.process.pid << 3) | CPUCLOCK_SCHED) / 1e6
        except OSError:
            raise EngineError(f"ended with {self.process.wait()} between two runs") from None

    def burst(self, clock="wall", most_runs=20):
        """The median milliseconds of some runs. The first run refills the caches; its time only decides how many runs make a burst."""
        (first,) = self.run(1)
        return statistics.median(self.run(max(1, min(most_runs, int(BURST_MS / first))), clock))

    def take_input(self, file):
        """Waits until the model is loaded, too."""
        self.ask(f"input {file}", START_LIMIT_S)

    def output(self, directory):
        self.ask(f"output {directory}/output.npy")
        return read_floats(f"{directory}/output.npy")

    def take_inputs(self, directory):
        """Those that networks.Network wrote there. Waits until the model is loaded, too."""
        self.ask(f"inputs {directory}", START_LIMIT_S)

    def outputs(self, directory):
        """All outputs of the last run, flat."""
        count = int(self.ask(f"outputs {directory}"))
        return [read_floats(f"{directory}/{number}.npy") for number in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):  # the process died before it read everything
            self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()


def shoal_engine(name, prefix, shapes, threads, *, cores, cache, build=THIS_BUILD, precision=None, tuning_ms=None):
    """`shoal-bench model` of a build. cache: the directory with its records of measured algorithms. An option that is None is not
    passed, because another build may not know it: then the default of that build holds."""
    words = [build.binary("shoal-bench"), "model", prefix, "--threads", str(threads)]
    for shape in shapes:
        words += ["--shape", shape]
    for option, value in (("--precision", precision), ("--tuning-ms", tuning_ms)):
        words += [option, str(value)] if value is not None else []
    return Engine(name, words, cores, {"SHOAL_CACHE_DIR": str(cache)})


def seconds_to_answer(engine, take_input):
    """From the start of the process to its first answer to the input that take_input(engine) gives it. Ends the engine."""
    with engine:
        take_input(engine)
        engine.run(1)
        return time.perf_counter() - engine.started


def daemon_seconds_to_answer(prefix, shape, *, cores, cache, input_name="data", build=THIS_BUILD):
    """From the start of a daemon to the first answer of its worker to a client, all on these cores. Errors: BenchError."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # like every engine; the daemon's processes inherit it
    started = time.perf_counter()
    try:
        with Daemon("model", prefix, shape, environment={"SHOAL_CACHE_DIR": str(cache)}, input_name=input_name, build=build) as daemon:
            daemon.bench("load", "model", "--requests", 1)
            return time.perf_counter() - started
    finally:
        os.sched_setaffinity(0, before)


def pool_bytes(prefix, shape, workers, *, environment=None, input_name="data", build=THIS_BUILD):
    """The PSS of all processes of a daemon after some answers of each worker. Errors: BenchError."""
    with Daemon("model", prefix, shape, environment=environment, input_name=input_name, build=build, workers=workers) as daemon:
        daemon.bench("load", "model", "--requests", 3 * workers, "--window", workers, "--each-worker", 3)
        return daemon.pss_bytes()
