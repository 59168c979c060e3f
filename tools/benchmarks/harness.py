"""Shared by the parts of tools/bench: binaries, checkpoints with computed weights, daemons. Needs only the standard library."""
import ctypes
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "bench"
NETWORKS = ["resnet50-v1b", "resnet18-v1", "mobilenetv2-1.0", "squeezenet1.1", "inception-bn", "vgg16"]  # whose speed is compared
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
PT_NOTE, NT_GNU_BUILD_ID = 4, 3  # <elf.h>


class BenchError(Exception):
    """The reason why something could not be measured."""


def dies_with_us(signal_number):
    """A preexec_fn. The child gets this signal when this process ends, for any reason."""
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(PR_SET_PDEATHSIG, signal_number)


def git(directory, *words):
    """The output of git in this directory; empty if it fails."""
    run = subprocess.run(["git", "-C", directory, *words], capture_output=True, text=True)
    return run.stdout.strip() if run.returncode == 0 else ""


def commit_of(directory):
    """The commit of the checkout that holds this directory. Recorded results (docs/charts) do not count as changes."""
    root = git(directory, "rev-parse", "--show-toplevel")
    changed = root and git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/charts")
    return (git(directory, "rev-parse", "--short", "HEAD") or "unknown") + " with changes" * bool(changed)


def build_id_of(binary):
    """The GNU build id of a 64-bit little-endian ELF file: it names what was linked. "unknown" if it has none."""
    data = Path(binary).read_bytes()
    if data[:6] != b"\x7fELF\2\1":
        return "unknown"
    (table,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    for header in range(table, table + size * count, size):
        (kind,), (at,), (length,) = (struct.unpack_from(form, data, header + offset) for form, offset in (("<I", 0), ("<Q", 8), ("<Q", 32)))
        end = at + length
        while kind == PT_NOTE and at + 12 <= end:
            name_size, value_size, note_type = struct.unpack_from("<III", data, at)
            value = at + 12 + (name_size + 3) // 4 * 4
            if note_type == NT_GNU_BUILD_ID and data[at + 12:at + 16] == b"GNU\0":
                return data[value:value + value_size].hex()
            at = value + (value_size + 3) // 4 * 4
    return "unknown"


class Build:
    """The programs of one build. Immutable."""

    def __init__(self, directory):
        self.directory = Path(directory)

    @classmethod
    def find(cls, path):
        """A checkout with a release build, a build directory, or its folder of programs. Errors: BenchError."""
        places = [Path(path) / inner for inner in ("build/release/bin", "bin", ".")]
        for place in places:
            if (place / "shoal-bench").exists():
                return cls(place.resolve())
        raise BenchError(f"no build in {path}: shoal-bench is in none of {', '.join(map(str, places))}; build it there: "
                         "cmake --preset release && cmake --build --preset release")

    def binary(self, name):
        path = self.directory / name
        if not path.exists():
            raise BenchError(f"{path} is missing: cmake --preset release && cmake --build --preset release")
        return str(path)

    def provenance(self):
        return {"commit": commit_of(self.directory), "build_id": build_id_of(self.binary("shoal-worker"))}


THIS_BUILD = Build(os.environ.get("SHOAL_BIN_DIR", ROOT / "build" / "release" / "bin"))


def binary(name):
    return THIS_BUILD.binary(name)


def shoal_bench(*words, build=THIS_BUILD, environment=None):
    """What `shoal-bench` printed as JSON. Errors: BenchError."""
    run = subprocess.run([build.binary("shoal-bench"), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env=dict(os.environ, **(environment or {})), preexec_fn=dies_with_us(signal.SIGTERM))
    if run.returncode:
        raise BenchError(f"shoal-bench {' '.join(map(str, words))}: {run.stderr.strip()}")
    return json.loads(run.stdout)


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


def test_network(name):
    """The folder of a network of the test data. It may be missing."""
    return Path(os.environ.get("SHOAL_TEST_DATA", ROOT.parent / "shared")) / "vectors" / "networks" / name


def network(name):
    """The prefix of a checkpoint. `name` is a prefix, or a network of the test data, whose checkpoint with computed weights is written once to build/bench/."""
    if Path(f"{name}-symbol.json").exists():
        return name
    data = test_network(name)
    if not data.exists():
        sys.exit(f"bench: {name} is neither the prefix of a checkpoint nor a graph in {data.parent}")
    prefix = BUILD / name / name
    if not Path(f"{prefix}-0000.params").exists():
        write_checkpoint(data / f"{name}-symbol.json", ["data=1,3,224,224"], prefix)
    return str(prefix)


def write_checkpoint(symbol, shapes, prefix):
    """Writes the checkpoint PREFIX with computed weights, or nothing. Errors: BenchError"""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    options = [word for shape in shapes for word in ("--shape", shape)]
    with tempfile.TemporaryDirectory(dir=prefix.parent) as half_made:  # so that the prefix never has half a checkpoint
        run = subprocess.run([binary("make-model"), "--symbol", symbol, *options, f"{half_made}/{prefix.name}"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True)
        if run.returncode:
            raise BenchError(f"{prefix.name}: {run.stderr.strip()}")
        for file in sorted(Path(half_made).iterdir(), key=lambda file: file.suffix == ".params"):  # the parameters last
            file.rename(prefix.parent / file.name)


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
    """Where and of what a result was recorded."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "memory_gib": round(memory / 2**30), "kernel": os.uname().release},
            "date": time.strftime("%Y-%m-%d"), "commit": commit_of(ROOT)}


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
    """shoald of a build in its own directory, with one model. `environment` is added to this process's; `limits` are lines of the
    configuration's [limits]. Without a prefix the model is builtin:identity. Errors: BenchError."""

    def __init__(self, name, prefix, shape, environment=None, input_name="data", build=THIS_BUILD, limits="", **options):
        self.build = build
        self.directory = tempfile.mkdtemp(prefix="shoal-bench-")
        model = write_model(Path(self.directory) / "model", prefix, shape, input_name) if prefix else "builtin:identity"
        configuration = Path(self.directory) / "shoald.toml"
        configuration.write_text(f"[limits]\n{limits}\n")
        extra = "".join(f",{key}={value}" for key, value in options.items())
        self.environment = dict(os.environ, SHOAL_DIR=self.directory, **(environment or {}))
        self.log = Path(self.directory) / "log.txt"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([build.binary("shoald"), "--config", configuration, "--model", f"{name}={model}{extra}"], env=self.environment,
                                            stderr=log, preexec_fn=dies_with_us(signal.SIGTERM))
        try:
            self.wait_until_ready()
        except BaseException:  # otherwise the daemon would keep running
            self.__exit__()
            raise

    def wait_until_ready(self):
        deadline = time.monotonic() + 60
        while True:
            status = subprocess.run([self.build.binary("shoal"), "status", "--ready"], env=self.environment, capture_output=True, text=True)
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
        run = subprocess.run([self.build.binary("shoal"), "status", "--json"], env=self.environment, capture_output=True, check=True)
        return json.loads(run.stdout)

    def bench(self, *words):
        return shoal_bench(*words, build=self.build, environment=self.environment)
