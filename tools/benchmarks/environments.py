"""Virtual environments in build/bench: those of the other engines, and that of client/python. Needs only the standard library."""
import shutil
import signal
import subprocess
import sys

from harness import BUILD, BenchError, dies_with_us, note

PACKAGES = {"onnxruntime": ["numpy==2.4.6", "onnx==1.23.2", "onnxruntime==1.31.1"],
            "openvino": ["numpy==2.4.6", "openvino==2026.4.1"],
            "pytorch": ["numpy==2.4.6", "torch==2.15.0"],
            "mxnet": ["numpy==1.23.5", "mxnet==1.9.1"]}
CLIENT_PYTHON = ["numpy==2.4.6", "nanobind==3.1.0", "scikit-build-core==1.1.2", "ml_dtypes==0.6.0"]  # to build and test client/python
PYTHONS = {"mxnet": ("3.8", "3.9", "3.10", "3.11")}  # numpy 1.23.5, the last one that works with MXNet, has no wheels for newer versions


def interpreter(name):
    """A Python for which this engine's packages exist. Errors: BenchError"""
    wanted = PYTHONS.get(name)
    for candidate in [sys.executable] + [shutil.which(f"python{v}") for v in reversed(wanted or ())]:
        if not candidate:
            continue
        run = subprocess.run([candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True)
        if run.returncode == 0 and (not wanted or run.stdout.strip() in wanted):
            return candidate
    raise BenchError(f"no Python {' or '.join(wanted)} on PATH")


def environment(name, packages=None):
    """The Python of this engine's virtual environment under build/bench. Makes the environment if it is missing or has other packages.
    `packages`: those of PACKAGES[name], unless given. Errors: BenchError"""
    packages = packages or PACKAGES[name]
    directory = BUILD / f"venv-{name}"
    python, made_of = directory / "bin" / "python", directory / "packages.txt"
    wanted = "\n".join(packages)
    if made_of.exists() and made_of.read_text() == wanted:
        return str(python)
    print(f"bench: installing {', '.join(packages)} into {directory}", file=sys.stderr)
    shutil.rmtree(directory, ignore_errors=True)
    try:
        subprocess.run([interpreter(name), "-m", "venv", directory], check=True)
        pip = subprocess.Popen([python, "-m", "pip", "install", "--progress-bar", "off", *packages], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, preexec_fn=dies_with_us(signal.SIGTERM))
    except (OSError, subprocess.CalledProcessError) as error:
        raise BenchError(str(error)) from error
    lines = []
    for line in pip.stdout:
        lines.append(line.rstrip())
        note(f"{name}: {lines[-1][:100]}")
    if pip.wait():
        raise BenchError("pip could not install it: " + " ".join(lines[-3:]))
    made_of.write_text(wanted)
    return str(python)
