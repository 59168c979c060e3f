"""Compares Shoal with ONNX Runtime, OpenVINO, PyTorch and MXNet in one run: speed, cold start, memory. Needs only the standard library.

Each engine is a child process in its own virtual environment. It is bound to the first N cores, and stopped (SIGSTOP) while another
one runs, so that its spinning threads do not disturb the others. All engines get the same weights and the same input. Their outputs
are compared before a time counts.
"""
import contextlib
import itertools
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import peer_table
from engine import (TOLERANCE, Engine, EngineError, daemon_seconds_to_answer, difference, pool_bytes, seconds_to_answer,
                    shoal_engine, write_input)
from harness import BUILD, NETWORKS, BenchError, binary, dies_with_us, network, note, pss_bytes

HERE = Path(__file__).resolve().parent
PACKAGES = {"onnxruntime": ["numpy==2.4.6", "onnx==1.23.2", "onnxruntime==1.31.1"],
            "openvino": ["numpy==2.4.6", "openvino==2026.4.1"],
            "pytorch": ["numpy==2.4.6", "torch==2.15.0"],
            "mxnet": ["numpy==1.23.5", "mxnet==1.9.1"]}
PYTHONS = {"mxnet": ("3.8", "3.9", "3.10", "3.11")}  # numpy 1.23.5, the last one that works with MXNet, has no wheels for newer versions
MODELS = [*NETWORKS, "densenet121"]  # DenseNet: concatenations
QUICK_START = {"pytorch": "script"}  # its compiler would need half a minute before the first answer
PARTS = ["speed", "cold", "memory"]


def interpreter(name):
    """A Python for which this engine's packages exist."""
    wanted = PYTHONS.get(name)
    for candidate in [sys.executable] + [shutil.which(f"python{v}") for v in reversed(wanted or ())]:
        if not candidate:
            continue
        run = subprocess.run([candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True)
        if run.returncode == 0 and (not wanted or run.stdout.strip() in wanted):
            return candidate
    raise EngineError(f"no Python {' or '.join(wanted)} on PATH")


def environment(name, packages=None):
    """The Python of this engine's virtual environment under build/bench. Makes the environment if it is missing or has other packages.
    `packages`: those of PACKAGES[name], unless given."""
    packages = packages or PACKAGES[name]
    directory = BUILD / f"venv-{name}"
    python, made_of = directory / "bin" / "python", directory / "packages.txt"
    wanted = "\n".join(packages)
    if made_of.exists() and made_of.read_text() == wanted:
        return str(python)
    print(f"bench: installing {', '.join(packages)} into {directory}", file=sys.stderr)
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run([interpreter(name), "-m", "venv", directory], check=True)
    pip = subprocess.Popen([python, "-m", "pip", "install", "--progress-bar", "off", *packages], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, preexec_fn=dies_with_us(signal.SIGTERM))
    lines = []
    for line in pip.stdout:
        lines.append(line.rstrip())
        note(f"{name}: {lines[-1][:100]}")
    if pip.wait():
        raise EngineError("pip could not install it: " + " ".join(lines[-3:]))
    made_of.write_text(wanted)
    return str(python)


class Bench:
    """One run of tools/bench peers. Notes missing engines and measures the others. Thread-bound."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.missing, self.settings, self.pythons = [], {}, {}  # settings: each engine's own description of its last run
        self.cores = sorted(os.sched_getaffinity(0))
        self.directory = Path(tempfile.mkdtemp(prefix="shoal-peers-"))
        for name in dict.fromkeys(["onnxruntime", *arguments.peers]):  # ONNX Runtime's environment also writes the ONNX files
            try:
                self.pythons[name] = environment(name)
            except (EngineError, OSError, subprocess.CalledProcessError) as error:
                self.missing.append(f"{peer_table.title(name)}: {error}")
        self.names = [f"shoal {p}" for p in arguments.precision] + [p for p in arguments.peers if p in self.pythons]

    def missed(self, engine, where, error):
        self.missing.append(f"{peer_table.title(engine)}, {where}: {error}")

    def onnx_file(self, prefix, batch):
        """The checkpoint as ONNX. Writes it again if it is older than the checkpoint."""
        file, source = BUILD / Path(prefix).name / f"batch{batch}.onnx", Path(f"{prefix}-0000.params")
        if "onnxruntime" in self.pythons and not (file.exists() and file.stat().st_mtime > source.stat().st_mtime):
            file.parent.mkdir(parents=True, exist_ok=True)
            half_made = file.with_suffix(".half-made")
            run = subprocess.run([self.pythons["onnxruntime"], HERE / "mxnet_to_onnx.py", prefix, self.shape(batch), half_made],
                                 stderr=subprocess.PIPE, text=True)
            if run.returncode:
                raise EngineError("as ONNX: " + " ".join(run.stderr.splitlines()[-1:]))
            half_made.rename(file)
        return file

    @staticmethod
    def shape(batch):
        return f"data={batch},3,224,224"

    def start(self, name, prefix, batch, threads, cores=None, cache=None, variant=None):
        """cache: the directory that the engine keeps between starts. Default: for Shoal that of this run, for PyTorch that of all runs, else none."""
        cores = cores or self.cores[:threads]
        if peer_table.is_shoal(name):
            return shoal_engine(name, prefix, self.shape(batch), threads, cores=cores, cache=cache or self.directory / "shoal",
                                precision=name.removeprefix(peer_table.SHOAL), tuning_ms=self.arguments.tuning_ms)
        common = ["--shape", self.shape(batch), "--threads", str(threads)]
        words = [self.pythons[name], HERE / "peer.py", name, "--prefix", prefix, "--onnx", self.onnx_file(prefix, batch), *common]
        if cache:
            words += ["--cache", cache]
        if variant:
            words += ["--variant", variant]
        return Engine(name, list(map(str, words)), cores, {"TORCHINDUCTOR_CACHE_DIR": str(BUILD / "cache" / "pytorch")})

    def check(self, engine, reference):
        """Loads the model, warms it up and gets its output, which must equal the reference, if there is one. Returns it and its difference."""
        engine.take_input(f"{self.directory}/input.npy")
        engine.run(2)
        self.settings[engine.name] = engine.ask("tuning" if peer_table.is_shoal(engine.name) else "version")
        output = engine.output(self.directory)
        distance = difference(output, reference or output)
        if distance > TOLERANCE:
            raise EngineError(f"its output differs by {distance:.1e} of max|reference|")
        return output, distance

    def row(self, model, batch, threads):
        prefix, where = network(model), f"{model}, batch {batch}, threads {threads}"
        write_input(self.directory / "input.npy", [batch, 3, 224, 224])
        engines, differences, reference = [], {}, None
        with contextlib.ExitStack() as children:
            for name in self.names:
                note(f"{where}: {peer_table.title(name)} loads")
                try:
                    engine = children.enter_context(self.start(name, prefix, batch, threads))
                    output, differences[name] = self.check(engine, reference)
                    reference = reference or output
                    engines.append(engine)
                except EngineError as error:
                    self.missed(name, where, error)
            times = self.rounds(engines, where)
        row = {"model": Path(model).name, "batch": batch, "threads": threads, **peer_table.summarize(times)}
        for name, entry in row["engines"].items():
            entry["output_difference"] = differences[name]
            entry["settings"] = self.settings[name]
        note("")
        print(f"{where}: {peer_table.line(row)}", file=sys.stderr)
        return row

    def rounds(self, engines, where):
        times = {engine.name: [] for engine in engines}
        for round_ in range(self.arguments.rounds):
            note(f"{where}: round {round_ + 1} of {self.arguments.rounds}")
            turn = round_ % max(1, len(times))
            for engine in [e for e in engines[turn:] + engines[:turn] if e.name in times]:
                try:
                    times[engine.name].append(engine.burst(self.arguments.clock))
                except EngineError as error:
                    self.missed(engine.name, where, error)
                    del times[engine.name]
        return times

    def speed(self):
        """Yields the results so far after each row."""
        rows = []
        for model, batch, threads in itertools.product(self.arguments.models, self.arguments.batch, self.arguments.threads):
            rows.append(self.row(model, batch, threads))
            yield {"rows": rows, "summary": peer_table.means(rows)}

    def seconds_to_answer(self, name, prefix, cache):
        return seconds_to_answer(self.start(name, prefix, 1, 1, cache=cache, variant=QUICK_START.get(name)), f"{self.directory}/input.npy")

    def daemon_seconds_to_answer(self, _, prefix, cache):
        return daemon_seconds_to_answer(prefix, (1, 3, 224, 224), cores=self.cores[:1], cache=cache)

    def cold(self):
        """The median of several first starts, each with an empty cache, and the median of the second starts."""
        prefix = network(self.arguments.models[0])
        write_input(self.directory / "input.npy", [1, 3, 224, 224])
        for name in self.names:
            self.warm_files(name, prefix)
        starts = {name: ([], []) for name in self.names + ["shoal pool: daemon, worker, client"]}
        for round_ in range(self.arguments.cold_rounds):
            for name, (first, second) in starts.items():
                note(f"cold start: {peer_table.title(name)}, round {round_ + 1} of {self.arguments.cold_rounds}")
                measure = self.seconds_to_answer if name in self.names else self.daemon_seconds_to_answer
                cache = self.directory / "cache"
                cache.mkdir()
                try:
                    first.append(measure(name, prefix, cache))
                    second.append(measure(name, prefix, cache))
                except BenchError as error:
                    if not round_:
                        self.missed(name, "cold start", error)
                shutil.rmtree(cache)
        return {"model": Path(prefix).name, "rounds": self.arguments.cold_rounds,
                "engines": {name: {"first_s": statistics.median(first), "second_s": statistics.median(second)}
                            for name, (first, second) in starts.items() if second}}

    def warm_files(self, name, prefix):
        """One start that does not count, so that all libraries are in the page cache."""
        try:
            self.seconds_to_answer(name, prefix, None)
        except EngineError:
            pass  # cold() itself reports it

    def memory(self):
        """The PSS of N processes with one thread each, after an answer. A pool counts all its processes: supervisor, zygote, workers."""
        prefix, counts = network(self.arguments.models[0]), self.arguments.workers
        write_input(self.directory / "input.npy", [1, 3, 224, 224])
        sizes = {}
        for name in ["shoal pool"] + [n for n in self.names if not peer_table.is_shoal(n)]:
            measure = self.pool_memory if name not in self.names else self.peer_memory
            try:
                sizes[name] = measure(name, prefix, counts)
            except BenchError as error:
                self.missed(name, "memory", error)
        return {"model": Path(prefix).name, "parameter_file_mb": Path(f"{prefix}-0000.params").stat().st_size / 1e6,
                "processes": counts, "engines": sizes}

    def pool_memory(self, _, prefix, counts):
        sizes = []
        for workers in counts:
            note(f"memory: pool of {workers}")
            sizes.append(pool_bytes(prefix, (1, 3, 224, 224), workers) / 1e6)
        return sizes

    def peer_memory(self, name, prefix, counts):
        engines, sizes = [], []
        with contextlib.ExitStack() as children:
            for count in counts:
                while len(engines) < count:
                    note(f"memory: {peer_table.title(name)}, process {len(engines) + 1}")
                    engines.append(children.enter_context(self.start(name, prefix, 1, 1, self.cores, variant=QUICK_START.get(name))))
                    engines[-1].take_input(f"{self.directory}/input.npy")
                    engines[-1].run(3)
                sizes.append(sum(pss_bytes(engine.process.pid) for engine in engines) / 1e6)
        return sizes


def measure(arguments):
    started = time.monotonic()
    for name in ("make-model", "shoal", "shoal-bench", "shoald"):
        binary(name)  # fails now rather than after the measurements of speed
    bench = Bench(arguments)
    result = {}

    def so_far():
        return {"rounds": arguments.rounds, "clock": arguments.clock, "peers": [PACKAGES[name][-1] for name in bench.names if name in PACKAGES],
                "missing": bench.missing, "seconds": time.monotonic() - started, **result}

    try:
        if "speed" in arguments.parts:
            for rows in bench.speed():
                result.update(rows)
                arguments.keep(so_far())
        for part in ("cold", "memory"):
            if part in arguments.parts:
                result[part] = getattr(bench, part)()
                arguments.keep(so_far())
    finally:
        shutil.rmtree(bench.directory, ignore_errors=True)
    return so_far()
