"""Shared by the parts of tools/bench: binaries, checkpoints with computed weights, daemons. Needs only the standard library."""
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "bench"
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


class BenchError(Exception):
    """The reason why something could not be measured."""


def dies_with_us(signal_number):
    """A preexec_fn. The child gets this signal when this process ends, for any reason."""
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(PR_SET_PDEATHSIG, signal_number)


def binary(name):
    path = Path(os.environ.get("SHOAL_BIN_DIR", ROOT / "build" / "release" / "bin")) / name
    if not path.exists():
        sys.exit(f"bench: {path} is missing: cmake --preset release && cmake --build --preset release")
    return str(path)


def note(text):
    """Shows a line of progress, which the next one replaces. Only on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def processes_of(directory):
    """The pids of a daemon's processes: those with its directory in their environment."""
    mine, found = f"SHOAL_DIR={directory}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mine in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def network(name):
    """The prefix of a checkpoint. `name` is a prefix, or a network of the test data, whose checkpoint with computed weights is written once to build/bench/."""
    if Path(f"{name}-symbol.json").exists():
        return name
    data = Path(os.environ.get("SHOAL_TEST_DATA", ROOT.parent / "shared")) / "vectors" / "networks" / name
    if not data.exists():
        sys.exit(f"bench: {name} is neither the prefix of a checkpoint nor a graph in {data.parent}")
    prefix = BUILD / name / name
    if not Path(f"{prefix}-0000.params").exists():
        prefix.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=prefix.parent) as half_made:  # so that the prefix never has half a checkpoint
            subprocess.run([binary("make-model"), "--symbol", f"{data}/{name}-symbol.json", "--shape", "data=1,3,224,224",
                            f"{half_made}/{name}"], check=True, stdout=subprocess.DEVNULL)
            for file in sorted(Path(half_made).iterdir(), key=lambda file: file.suffix == ".params"):  # the parameters last
                file.rename(prefix.parent / file.name)
    return str(prefix)


def pss_bytes(pid):
    """The proportional set size: a page of n processes counts 1/n in each."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        raise BenchError(f"process {pid} ended before its memory was read") from None


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def provenance():
    """Where and of what a result was recorded. Recorded results themselves (docs/charts) do not count as changes."""
    def git(*words):
        run = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
        return run.stdout.strip() if run.returncode == 0 else ""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/charts")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "memory_gib": round(memory / 2**30), "kernel": os.uname().release},
            "date": time.strftime("%Y-%m-%d"), "commit": (git("rev-parse", "--short", "HEAD") or "unknown") + " with changes" * bool(changed)}


def as_json(value, indent=""):
    """Indented JSON, with lists of numbers on one line."""
    inner = indent + " "
    if isinstance(value, dict) and value:
        return "{\n" + ",\n".join(f"{inner}{json.dumps(key)}: {as_json(item, inner)}" for key, item in value.items()) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, (dict, list, str)) for item in value):
        return "[\n" + ",\n".join(inner + as_json(item, inner) for item in value) + f"\n{indent}]"
    return json.dumps(value)


def write_model(directory, prefix, shape, name="data"):
    """Makes a model directory: links to a checkpoint's files, and a model.toml with the shape of the input `name`."""
    directory.mkdir()
    for file in Path(prefix).parent.glob(Path(prefix).name + "-*"):
        (directory / file.name).symlink_to(file.resolve())
    (directory / "model.toml").write_text(f'inputs = [{{name = "{name}", shape = {list(shape)}}}]\n')
    return directory


def write_perceptron(directory, hidden):
    """Makes a checkpoint with 256 inputs, two layers of `hidden` units and 10 classes. Returns its prefix."""
    nodes, previous = [{"op": "null", "name": "data", "inputs": []}], 0
    for layer, units in enumerate((hidden, hidden, 10)):
        first = len(nodes)
        nodes += [{"op": "null", "name": f"fc{layer}_{part}", "inputs": []} for part in ("weight", "bias")]
        nodes.append({"op": "FullyConnected", "name": f"fc{layer}", "attrs": {"num_hidden": str(units)},
                      "inputs": [[previous, 0, 0], [first, 0, 0], [first + 1, 0, 0]]})
        nodes.append({"op": "Activation", "name": f"relu{layer}", "attrs": {"act_type": "relu"}, "inputs": [[first + 2, 0, 0]]})
        previous = first + 3
    nodes.append({"op": "softmax", "name": "prob", "inputs": [[previous, 0, 0]]})
    symbol = {"nodes": nodes, "arg_nodes": [i for i, node in enumerate(nodes) if node["op"] == "null"],
              "node_row_ptr": list(range(len(nodes) + 1)), "heads": [[len(nodes) - 1, 0, 0]],
              "attrs": {"mxnet_version": ["int", 10901]}}
    source = directory / "source-symbol.json"
    source.write_text(json.dumps(symbol))
    prefix = directory / "perceptron"
    subprocess.run([binary("make-model"), "--symbol", str(source), "--shape", "data=1,256", str(prefix)], check=True,
                   stdout=subprocess.DEVNULL)
    return str(prefix)


class Daemon:
    """shoald in its own directory, with one model. `environment` is added to this process's. Errors: BenchError."""

    def __init__(self, name, prefix, shape, environment=None, input_name="data", **options):
        self.directory = tempfile.mkdtemp(prefix="shoal-bench-")
        model = write_model(Path(self.directory) / "model", prefix, shape, input_name)
        extra = "".join(f",{key}={value}" for key, value in options.items())
        self.environment = dict(os.environ, SHOAL_DIR=self.directory, **(environment or {}))
        self.log = Path(self.directory) / "log.txt"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([binary("shoald"), "--model", f"{name}={model}{extra}"], env=self.environment,
                                            stderr=log, preexec_fn=dies_with_us(signal.SIGTERM))
        try:
            self.wait_until_ready()
        except BaseException:  # otherwise the daemon would keep running
            self.__exit__()
            raise

    def wait_until_ready(self):
        deadline = time.monotonic() + 60
        while True:
            status = subprocess.run([binary("shoal"), "status", "--ready"], env=self.environment, capture_output=True, text=True)
            if status.returncode == 0:
                return
            if self.process.poll() is not None:
                last = self.log.read_text().strip().splitlines()[-1:]
                raise BenchError(f"shoald ended with {self.process.returncode}: {' '.join(last)}")
            for model in self.models():
                if model["state"] == "failed":
                    raise BenchError(f"model '{model['name']}' failed: {model['reason']}")
            if time.monotonic() > deadline:
                raise BenchError("the daemon is not ready after 60 s: " + " ".join(status.stderr.split()))
            time.sleep(0.02)

    def models(self):
        """The models of `shoal status`; none if it fails."""
        try:
            return self.status()["models"]
        except subprocess.CalledProcessError:
            return []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def pss_bytes(self):
        return sum(pss_bytes(pid) for pid in processes_of(self.directory))

    def status(self):
        run = subprocess.run([binary("shoal"), "status", "--json"], env=self.environment, capture_output=True, check=True)
        return json.loads(run.stdout)

    def bench(self, *words):
        run = subprocess.run([binary("shoal-bench"), *map(str, words)], env=self.environment, capture_output=True, text=True)
        if run.returncode:
            raise BenchError(f"shoal-bench {' '.join(map(str, words))}: {run.stderr.strip()}")
        return json.loads(run.stdout)
