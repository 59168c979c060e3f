"""Compares Shoal with ONNX Runtime, OpenVINO, PyTorch and MXNet in one run: speed, cold start, memory. Needs only the standard library.

Each engine is a child process in its own virtual environment. It is bound to the first N cores, and stopped (SIGSTOP) while another
one runs, so that its spinning threads do not disturb the others. All engines get the same weights and the same input. Their outputs
are compared before a time counts. An engine's name may end in a precision: "openvino bf16".
"""
import contextlib
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import networks
import peer_table
from engine import (REDUCED_TOLERANCE, TOLERANCE, Engine, EngineError, daemon_seconds_to_answer, pool_bytes, seconds_to_answer, shoal_engine,
                    worst_difference)
from environments import PACKAGES, environment
from harness import BUILD, NETWORKS, BenchError, binary, note, pss_bytes

HERE = Path(__file__).resolve().parent
PEERS = [*PACKAGES, "openvino bf16", "pytorch bf16"]
MODELS = [*NETWORKS, "densenet121"]  # DenseNet: concatenations
F32 = peer_table.SHOAL + "f32"  # with its outputs the others are compared
QUICK_START = {"pytorch": "script"}  # its compiler would need half a minute before the first answer
ON_ONNX = {"onnxruntime", "openvino"}  # read the translated checkpoint
PARTS = ["speed", "cold", "memory"]


class Bench:
    """One run of tools/bench peers. Notes missing engines and measures the others. Thread-bound."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.missing, self.settings, self.pythons = [], {}, {}  # settings: each engine's own description of its last run
        self.cores = sorted(os.sched_getaffinity(0))
        self.directory = Path(tempfile.mkdtemp(prefix="shoal-peers-"))
        (self.directory / "outputs").mkdir()
        # ONNX Runtime's environment also writes the ONNX files.
        for name in dict.fromkeys(["onnxruntime", *map(peer_table.engine_of, arguments.peers)]):
            try:
                self.pythons[name] = environment(name)
            except BenchError as error:
                self.missing.append(f"{peer_table.title(name)}: {error}")
        self.names = [f"shoal {p}" for p in arguments.precision] + [p for p in arguments.peers if peer_table.engine_of(p) in self.pythons]

    def missed(self, engine, where, error):
        self.missing.append(f"{peer_table.title(engine)}, {where}: {error}")

    def onnx_file(self, network):
        """The checkpoint as ONNX, for the network's shapes. Writes it again if it is older than the checkpoint or the translation."""
        name = Path(network.prefix).name
        file, sources = BUILD / name / f"{network.key()}.onnx", [Path(f"{network.prefix}-0000.params"), Path(f"{network.prefix}-symbol.json"),
                                                                 *HERE.glob("*onnx*.py")]
        if "onnxruntime" in self.pythons and not (file.exists() and file.stat().st_mtime > max(s.stat().st_mtime for s in sources)):
            file.parent.mkdir(parents=True, exist_ok=True)
            half_made = file.with_suffix(".half-made")
            run = subprocess.run([self.pythons["onnxruntime"], HERE / "mxnet_to_onnx.py", network.prefix, *network.shapes(), half_made],
                                 stderr=subprocess.PIPE, text=True)
            if run.returncode:
                raise EngineError("as ONNX: " + " ".join(run.stderr.splitlines()[-1:]))
            half_made.rename(file)
        return file

    def start(self, name, network, threads, cores=None, cache=None, variant=None):
        """cache: the directory that the engine keeps between starts. Default: for Shoal that of this run, for PyTorch that of all runs, else none."""
        cores = cores or self.cores[:threads]
        if peer_table.is_shoal(name):
            return shoal_engine(name, network.prefix, network.shapes(), threads, cores=cores, cache=cache or self.directory / "shoal",
                                precision=name.removeprefix(peer_table.SHOAL), tuning_ms=self.arguments.tuning_ms)
        engine = peer_table.engine_of(name)
        words = [self.pythons[engine], HERE / "peer.py", engine, "--prefix", network.prefix, "--onnx", self.onnx_file(network) if engine in ON_ONNX else "-",
                 "--threads", str(threads), *(word for shape in network.shapes() for word in ("--shape", shape)), "--precision", peer_table.precision_of(name)]
        if cache:
            words += ["--cache", cache]
        if variant:
            words += ["--variant", variant]
        return Engine(name, list(map(str, words)), cores, {"TORCHINDUCTOR_CACHE_DIR": str(BUILD / "cache" / "pytorch")})

    def check(self, engine, reference):
        """Loads the model, warms it up and gets its outputs, which must agree with the reference, if there is one. Returns them and the
        largest difference."""
        engine.take_inputs(self.directory)
        engine.run(2)
        self.settings[engine.name] = engine.ask("tuning" if peer_table.is_shoal(engine.name) else "version")
        outputs = engine.outputs(self.directory / "outputs")
        distance = worst_difference(outputs, reference or outputs)
        if distance > (TOLERANCE if peer_table.precision_of(engine.name).startswith("f32") else REDUCED_TOLERANCE):
            raise EngineError(f"its outputs differ by {distance:.1e} of max|reference|")
        return outputs, distance

    def row(self, model, batch, threads):
        network, where = self.network(model, batch), f"{model}, batch {batch}, threads {threads}"
        engines, differences, reference = [], {}, None
        if F32 not in self.names:
            with self.start(F32, network, threads) as engine:
                reference, _ = self.check(engine, None)
        with contextlib.ExitStack() as children:
            for name in self.names:
                note(f"{where}: {peer_table.title(name)} loads")
                try:
                    engine = children.enter_context(self.start(name, network, threads))
                    outputs, differences[name] = self.check(engine, reference)
                    reference = reference or outputs
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

    def network(self, model, batch=1):
        """The network, whose inputs are now in self.directory."""
        network = networks.find(model, batch)
        network.write_inputs(self.directory)
        return network

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
            try:
                rows.append(self.row(model, batch, threads))
            except BenchError as error:  # for example, sequences at batch 8
                self.missing.append(str(error))
            yield {"rows": rows, "summary": peer_table.means(rows)}

    def seconds_to_answer(self, name, network, cache):
        engine = self.start(name, network, 1, cache=cache, variant=QUICK_START.get(peer_table.engine_of(name)))
        return seconds_to_answer(engine, lambda engine: engine.take_inputs(self.directory))

    def daemon_seconds_to_answer(self, _, network, cache):
        (item,) = self.one_input(network)
        return daemon_seconds_to_answer(network.prefix, item.shape, cores=self.cores[:1], cache=cache, input_name=item.name)

    @staticmethod
    def one_input(network):
        if len(network.inputs) != 1:
            raise BenchError(f"{network.name}: the daemon of this tool serves networks with one input")
        return network.inputs

    def cold(self):
        """The median of several first starts, each with an empty cache, and the median of the second starts."""
        network = self.network(self.arguments.models[0])
        for name in self.names:
            self.warm_files(name, network)
        starts = {name: ([], []) for name in self.names + ["shoal pool: daemon, worker, client"]}
        for round_ in range(self.arguments.cold_rounds):
            for name, (first, second) in starts.items():
                note(f"cold start: {peer_table.title(name)}, round {round_ + 1} of {self.arguments.cold_rounds}")
                measure = self.seconds_to_answer if name in self.names else self.daemon_seconds_to_answer
                cache = self.directory / "cache"
                cache.mkdir()
                try:
                    first.append(measure(name, network, cache))
                    second.append(measure(name, network, cache))
                except BenchError as error:
                    if not round_:
                        self.missed(name, "cold start", error)
                shutil.rmtree(cache)
        return {"model": network.name, "rounds": self.arguments.cold_rounds,
                "engines": {name: {"first_s": statistics.median(first), "second_s": statistics.median(second)}
                            for name, (first, second) in starts.items() if second}}

    def warm_files(self, name, network):
        """One start that does not count, so that all libraries are in the page cache."""
        try:
            self.seconds_to_answer(name, network, None)
        except EngineError:
            pass  # cold() itself reports it

    def memory(self):
        """The PSS of N processes with one thread each, after an answer. A pool counts all its processes: supervisor, zygote, workers."""
        network, counts = self.network(self.arguments.models[0]), self.arguments.workers
        sizes = {}
        for name in ["shoal pool"] + [n for n in self.names if not peer_table.is_shoal(n)]:
            measure = self.pool_memory if name not in self.names else self.peer_memory
            try:
                sizes[name] = measure(name, network, counts)
            except BenchError as error:
                self.missed(name, "memory", error)
        return {"model": network.name, "parameter_file_mb": Path(f"{network.prefix}-0000.params").stat().st_size / 1e6,
                "processes": counts, "engines": sizes}

    def pool_memory(self, _, network, counts):
        (item,), sizes = self.one_input(network), []
        for workers in counts:
            note(f"memory: pool of {workers}")
            sizes.append(pool_bytes(network.prefix, item.shape, workers, input_name=item.name) / 1e6)
        return sizes

    def peer_memory(self, name, network, counts):
        engines, sizes = [], []
        with contextlib.ExitStack() as children:
            for count in counts:
                while len(engines) < count:
                    note(f"memory: {peer_table.title(name)}, process {len(engines) + 1}")
                    engines.append(children.enter_context(self.start(name, network, 1, self.cores, variant=QUICK_START.get(peer_table.engine_of(name)))))
                    engines[-1].take_inputs(self.directory)
                    engines[-1].run(3)
                sizes.append(sum(pss_bytes(engine.process.pid) for engine in engines) / 1e6)
        return sizes


def measure(arguments):
    started = time.monotonic()
    for name in ("make-model", "shoal-bench", *(("shoal", "shoald") if set(arguments.parts) - {"speed"} else ())):
        binary(name)  # fails now rather than after the measurements of speed
    bench = Bench(arguments)
    result = {}

    def so_far():
        return {"rounds": arguments.rounds, "clock": arguments.clock, "peers": [PACKAGES[name][-1] for name in dict.fromkeys(map(peer_table.engine_of, bench.names)) if name in PACKAGES],
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
