"""The Python package beside the C++ client and beside MXNet's Python interface, in turns of one run."""
import os
import statistics
import tempfile

import networks
from engine import Engine
from environments import CLIENT_PYTHON, environment
from harness import THIS_BUILD, BenchError, Daemon, binary, note

HERE = os.path.dirname(__file__)
MOST_OVER_US, LEAST_ASYNC = 15, 10_000


def measure(arguments):
    package = THIS_BUILD.directory.parent / "python"
    if not (package / "shoal" / "__init__.py").exists():
        raise BenchError(f"{package} has no package shoal: configure with -DSHOAL_PYTHON=$(tools/python-environment), and build python_package")
    python, mxnet = environment("python", CLIENT_PYTHON), environment("mxnet")
    network = networks.find(arguments.network, 1)
    cores = set(range(os.cpu_count()))
    with tempfile.TemporaryDirectory() as inputs, Daemon("model", network.prefix, network.inputs[0].shape, threads=1, workers=1) as daemon:
        network.write_inputs(inputs)
        peer = [mxnet, f"{HERE}/peer.py", "mxnet", "--prefix", network.prefix, "--onnx", "-", "--threads", "1", "--precision", "f32"]
        with Engine("C++", [binary("shoal-bench"), "requests"], cores, daemon.environment) as cpp, \
                Engine("MXNet", [*map(str, peer), *(word for shape in network.shapes() for word in ("--shape", shape))], cores, {}) as mx, \
                Engine("Python", [python, f"{HERE}/python_client.py"], cores, {**daemon.environment, "PYTHONPATH": str(package)}) as py:
            times = {"engine": [], "pool": [], "model": []}
            rates = []
            py.take_inputs(inputs)
            mx.take_inputs(inputs)
            for round_ in range(arguments.rounds + 1):
                note(f"python: round {round_} of {arguments.rounds}")
                measured = {what: (float(cpp.ask(f"{what} {arguments.requests}")), float(py.ask(f"{what} {arguments.requests}"))) for what in ("engine", "pool")}
                measured["model"] = (mx.burst(), py.burst())
                rate = float(py.ask(f"async {arguments.tasks} {20 * arguments.tasks}"))
                if round_:  # the first one warms up
                    rates.append(rate)
                    for what, pair in measured.items():
                        times[what].append(pair)
            version = mx.ask("version")

    def medians(what, *names):
        return {name: statistics.median(values) for name, values in zip(names, zip(*times[what]))}

    over = statistics.median(python - cpp for cpp, python in times["engine"])
    ratio = statistics.median(python / mxnet for mxnet, python in times["model"])
    return {"rounds": arguments.rounds,
            "engine": {**medians("engine", "cpp_us", "python_us"), "python_over_cpp_us": over},
            "pool": {**medians("pool", "cpp_us", "python_us"), "python_over_cpp_us": statistics.median(python - cpp for cpp, python in times["pool"])},
            "model": {"network": arguments.network, "peer": version, **medians("model", "mxnet_ms", "pool_ms"), "pool_by_mxnet": ratio},
            "asyncio": {"tasks": arguments.tasks, "requests_per_second": statistics.median(rates)},
            "ok": over <= MOST_OVER_US and ratio <= 1 and statistics.median(rates) >= LEAST_ASYNC}
