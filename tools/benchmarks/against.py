"""Compares this build (new) with another one (old) in one run: speed of the networks, cold start, memory, respawn, and the pool. Prints
a table and, in the last line, whether the limits are held; then the exit code is 0, else 1. Needs only the standard library.

Both builds are measured in turns, in the order old new new old, which the next round reverses. Each network is loaded by several
processes of each build, which live through all rounds: each measures its algorithms and lies in memory by itself, and the best one counts
in each round. A process is stopped (SIGSTOP) while another one runs. Outputs are compared before a time counts. Only options that
differ from a build's defaults are passed to it, so the other build may be older. What it cannot do is reported as not compared.
"""
import contextlib
import itertools
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import against_table
from engine import (TOLERANCE, EngineError, daemon_seconds_to_answer, difference, pool_bytes, seconds_to_answer, shoal_engine,
                    write_input)
from harness import THIS_BUILD, BenchError, Build, network, note, shoal_bench, write_model

MOST_RUNS = 200  # of a burst


class Comparison:
    """One run of tools/bench against. Thread-bound."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.builds = {"old": Build.find(arguments.directory), "new": THIS_BUILD}
        self.cores = sorted(os.sched_getaffinity(0))
        self.directory = Path(tempfile.mkdtemp(prefix="shoal-against-"))
        self.input_file = self.directory / "input.npy"
        self.missing = []

    def cache(self, side, number):
        """Where one repeat keeps its records of measured algorithms."""
        return self.directory / f"{side}{number}"

    def rows(self, part, unit, measure, where=""):
        """The rows of the values in `unit` that measure(side, number) returns by name. Empty, and noted as missing, if it fails."""
        samples = {}
        for round_ in range(self.arguments.rounds):
            for side, number in against_table.turns(round_, self.arguments.repeats):
                note(f"{part}{where}: round {round_ + 1} of {self.arguments.rounds}, {side}")
                try:
                    values = measure(side, number)
                except BenchError as error:
                    self.missed(part + where, side, error)
                    return []
                for what, value in values.items():
                    rounds = samples.setdefault(what, {"old": [], "new": []})[side]
                    if len(rounds) == round_:
                        rounds.append([])
                    rounds[round_].append(value)
        return [against_table.row(part, what, unit, of_it) for what, of_it in samples.items()]

    def missed(self, where, side, error):
        self.missing.append(f"{where}: {side}: {error}")

    # Each part yields rows.

    def networks(self):
        arguments = self.arguments
        for model, batch, threads, precision in itertools.product(arguments.models, arguments.batch, arguments.threads, arguments.precision):
            what = f"{Path(model).name}, batch {batch}, threads {threads}" + f", {precision}" * (precision != "f32")
            shape = [batch, *arguments.shape]
            write_input(self.input_file, shape)
            with contextlib.ExitStack() as children:
                try:
                    engines = self.load(children, network(model), shape, threads, precision, what)
                except EngineError as error:
                    self.missing.append(f"{against_table.NETWORKS}, {what}: {error}")
                    continue
                for row in self.rows(against_table.NETWORKS, "ms", lambda side, number: {
                        what: engines[side, number].burst(arguments.clock, MOST_RUNS)}, f", {what}"):
                    yield {**row, "settings": self.settings(engines)}

    def load(self, children, prefix, shape, threads, precision, what):
        """{(side, number): an engine whose output is right}."""
        engines, reference = {}, None
        for side, number in against_table.turns(0, self.arguments.repeats):
            note(f"{what}: {side} loads")
            engine = children.enter_context(shoal_engine(
                side, prefix, [self.shape_option(shape)], threads, cores=self.cores[:threads], cache=self.cache(side, number),
                build=self.builds[side], precision=None if precision == "f32" else precision, tuning_ms=self.arguments.tuning_ms))
            try:
                engine.take_input(self.input_file)
                engine.run(2)
                output = engine.output(self.directory)
            except EngineError as error:
                raise EngineError(f"{side}: {error}") from None
            reference = reference or output
            if (distance := difference(output, reference)) > TOLERANCE:
                raise EngineError(f"{side}: its output differs by {distance:.1e} of max|reference| from that of the first load of old")
            engines[side, number] = engine
        return engines

    @staticmethod
    def settings(engines):
        """{side: what each load says of its choice of algorithms}; None for a build that cannot say it, whose process then ends."""
        said = {side: [] for side in against_table.SIDES}
        for (side, _), engine in engines.items():
            try:
                said[side].append(engine.ask("tuning"))
            except EngineError:
                said[side].append(None)
        return said

    def shape_option(self, shape):
        return f"{self.arguments.input}={','.join(map(str, shape))}"

    def first_model(self):
        """The prefix and the shape of the model for all parts but the networks. Writes its input."""
        shape = [1, *self.arguments.shape]
        write_input(self.input_file, shape)
        return network(self.arguments.models[0]), shape

    def cold(self):
        prefix, shape = self.first_model()

        def in_process(side, cache):
            return seconds_to_answer(shoal_engine(side, prefix, [self.shape_option(shape)], 1, cores=self.cores[:1], cache=cache, build=self.builds[side]),
                                     lambda engine: engine.take_input(self.input_file))

        def in_pool(side, cache):
            return daemon_seconds_to_answer(prefix, shape, cores=self.cores[:1], cache=cache, input_name=self.arguments.input, build=self.builds[side])

        def starts(start, where):
            def measure(side, _):
                with tempfile.TemporaryDirectory(dir=self.directory) as cache:
                    return {f"{which} start, {where}": start(side, cache) for which in ("first", "second")}
            return measure

        for start, where in ((in_process, "in process"), (in_pool, "daemon, worker, client")):
            yield from self.rows("cold", "s", starts(start, where), f", {where}")

    def memory(self):
        prefix, shape = self.first_model()
        few, many = self.arguments.workers

        def measure(side, number):
            mb = [pool_bytes(prefix, shape, workers, environment={"SHOAL_CACHE_DIR": str(self.cache(side, number))},
                             input_name=self.arguments.input, build=self.builds[side]) / 1e6 for workers in (few, many)]
            return {f"all processes, {few} workers": mb[0], "each further worker": (mb[1] - mb[0]) / (many - few)}

        yield from self.rows("memory", "MB", measure)

    def respawn(self):
        yield from self.rows("respawn", "ms", lambda side, _: {"kill() to answer": self.shoal_bench(
            side, "respawn", "--rounds", self.arguments.kills)["kill_to_answer_ms"]["p50"]})

    def roundtrip(self):
        yield from self.rows("roundtrip", "us", lambda side, _: {"no-op": self.shoal_bench(side, "roundtrip", "--rounds", 1)["pool_p50_us"]})

    def pipelined(self):
        yield from self.rows("pipelined", "us", lambda side, _: {
            "per request": 1e6 / self.shoal_bench(side, "pipelined", "--rounds", 1)["pool_per_second"]})

    def pool(self):
        prefix, shape = self.first_model()
        model = write_model(self.directory / "model", prefix, shape, self.arguments.input)

        def measure(side, number):
            result = self.shoal_bench(side, "pool", model, "--rounds", 1, cache=self.cache(side, number))
            return {"one request at a time": result["latency"]["pool_ms"], "per request, one worker": 1e3 / result["throughput"]["one_worker_per_s"],
                    "per request, two workers": 1e3 / result["throughput"]["two_workers_per_s"]}

        yield from self.rows("pool", "ms", measure)

    def shoal_bench(self, side, *words, cache=None):
        return shoal_bench(*words, build=self.builds[side], environment={"SHOAL_CACHE_DIR": str(cache)} if cache else None)


PARTS = {against_table.NETWORKS: Comparison.networks, "cold": Comparison.cold, "memory": Comparison.memory, "respawn": Comparison.respawn,
         "roundtrip": Comparison.roundtrip, "pipelined": Comparison.pipelined, "pool": Comparison.pool}
DEFAULT_PARTS = list(PARTS)[:4]


def measure(arguments):
    started = time.monotonic()
    comparison, rows = Comparison(arguments), []
    sides = {side: build.provenance() for side, build in comparison.builds.items()}
    for build, name in itertools.product(comparison.builds.values(), ("shoal", "shoal-bench", "shoald", "shoal-worker")):
        build.binary(name)  # fails now rather than after the measurements of speed

    for model in arguments.models:
        network(model)

    def so_far():
        return {**sides, "rounds": arguments.rounds, "repeats": arguments.repeats, "clock": arguments.clock, "seconds": time.monotonic() - started,
                "rows": rows, "missing": comparison.missing}

    try:
        for part in arguments.parts:
            for row in PARTS[part](comparison):
                rows.append(row)
                note("")
                print(against_table.line(row), file=sys.stderr)
                arguments.keep(so_far())
    finally:
        shutil.rmtree(comparison.directory, ignore_errors=True)
    return {**so_far(), **against_table.judge(rows, comparison.missing, arguments.mean_limit, arguments.row_limit)}
