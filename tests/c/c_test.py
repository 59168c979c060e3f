#!/usr/bin/env python3
"""C programs compile against the headers as C11, by gcc and by clang, and do what the headers say, with a real daemon."""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))
from detect_test import read_png  # noqa: E402
from support import BIN, PICTURES, SHAPES, SOURCE, Daemon, ShoalTest  # noqa: E402

LIB = Path(os.environ.get("SHOAL_LIB_DIR", BIN.parent / "lib"))
HEADERS = [*sorted(SOURCE.glob("shm/include/shoal/c/*.h")), SOURCE / "client/c/include/shoal/shoal.h",
           SOURCE / "worker/c/include/shoal/shoal_engine.h"]
INCLUDE = [word for folder in ("", "shm/include", "client/c/include", "worker/c/include") for word in ("-I", SOURCE / folder)]
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Werror"]
COMPILERS = ["gcc", "clang"]  # both are tools of the project


def run(*words, **options):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=300, **options)
    if done.returncode != 0:
        raise AssertionError(f"{words} gave {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def declared_functions():
    """The names of the functions that the headers declare, by header."""
    return {header.name: re.findall(r"^SHOAL_API [^;]*?\b(shoal_\w+)\(", header.read_text(), re.M) for header in HEADERS}


def write_network(directory, nodes, heads, toml=""):
    """A checkpoint without parameters: nodes are (operator, name, attributes, inputs)."""
    directory.mkdir()
    symbol = {"nodes": [{"op": op, "name": name, "attrs": attributes, "inputs": [[i, 0, 0] for i in inputs]}
                        for op, name, attributes, inputs in nodes],
              "arg_nodes": [i for i, node in enumerate(nodes) if node[0] == "null"],
              "heads": [[i, 0, 0] for i in heads], "attrs": {"mxnet_version": ["int", 10901]}}
    (directory / "net-symbol.json").write_text(json.dumps(symbol))
    (directory / "net-0000.params").write_bytes(struct.pack("<QQQQ", 0x112, 0, 0, 0))
    (directory / "model.toml").write_text(toml)
    return directory


def write_sum(directory):
    """total = data + so_far, whose copy `next` is the state of the next step."""
    write_network(directory,
                  [("null", "data", {}, []), ("null", "so_far", {}, []), ("elemwise_add", "total", {}, [0, 1]),
                   ("_copy", "next", {}, [2])], [2, 3],
                  'inputs = [{name = "data", shape = ["1..8", 4], layout = "NC"}, {name = "so_far", shape = [-1, 4]}]\n'
                  'state = [{out = "next_output", in = "so_far"}]\nlabels = "classes.txt"\ntuning_ms = 0\n'
                  '[preprocess]\nresize = 8\ncrop = 4\norder = "BGR"\nmean = [1, 2, 3]\nscale = 0.5\n')
    (directory / "classes.txt").write_text("small\nlarge\n")
    return directory


def write_ppm(path, picture, size=64):
    """A picture of tools/shapes in the size of the model's input."""
    width, height, rows = read_png(picture)

    def mean(x, y, channel):
        ys = range(y * height // size, max((y + 1) * height // size, y * height // size + 1))
        xs = range(x * width // size, max((x + 1) * width // size, x * width // size + 1))
        return sum(rows[v][3 * u + channel] for v in ys for u in xs) // (len(xs) * len(ys))

    pixels = bytes(mean(x, y, channel) for y in range(size) for x in range(size) for channel in range(3))
    path.write_bytes(b"P6 %d %d 255\n" % (size, size) + pixels)
    return path


class C(ShoalTest):
    def compile(self, compiler, name):
        program = self.tmp / f"{name}-{compiler}"
        run(compiler, "-std=c11", *STRICT, *INCLUDE, HERE / f"{name}.c", "-o", program, "-L", LIB, "-lshoal-engine", "-lshoal",
            f"-Wl,-rpath,{LIB}")
        return program

    def by_each_compiler(self, name, check):
        """Calls check(program) with the program as each compiler makes it."""
        self.assertEqual([compiler for compiler in COMPILERS if shutil.which(compiler)], COMPILERS)
        for compiler in COMPILERS:
            with self.subTest(compiler=compiler):
                check(self.compile(compiler, name))

    def test_each_header_stands_alone_in_c_and_in_cpp(self):
        for header in HEADERS:
            for compiler in COMPILERS:
                for language, standard in (("c", "c11"), ("c", "c17"), ("c++", "c++11"), ("c++", "c++20")):
                    with self.subTest(header=header.name, compiler=compiler, standard=standard):
                        run(compiler, f"-std={standard}", *STRICT, *INCLUDE, "-fsyntax-only", "-x", language, "-include", header,
                            "/dev/null")

    def test_every_function_is_documented_as_exported_and_called(self):
        exported = {library: set(re.findall(r" T (shoal_\w+)@@SHOAL_", run("nm", "-D", "--defined-only", LIB / f"{library}.so")))
                    for library in ("libshoal", "libshoal-engine")}
        declared = declared_functions()
        self.assertGreater(sum(map(len, declared.values())), 120)
        engine = set(declared.pop("shoal_engine.h"))
        self.assertEqual(exported, {"libshoal": {name for names in declared.values() for name in names}, "libshoal-engine": engine})
        wrong = (HERE / "wrong_arguments.c").read_text()
        takes_no_pointer = {"shoal_now_ns", "shoal_dtype_size", "shoal_dtype_name"}
        names = exported["libshoal"] | engine

        def called_in(text):
            return names & set(re.findall(r"\b(shoal_\w+)\(", text))
        others = [path for path in sorted(HERE.glob("*.[ch]")) if path.stem != "wrong_arguments"]
        self.assertEqual(names - called_in("\n".join(path.read_text() for path in others)), set())
        self.assertEqual(names - takes_no_pointer - called_in(wrong), set())

    def test_every_function_of_the_pool_works(self):
        model = write_sum(self.tmp / "sum")

        def check(program):
            with Daemon({"echo": "builtin:identity", "sum": model}) as daemon:
                said = run(program, model, self.tmp / "nowhere", env=dict(os.environ, SHOAL_DIR=str(daemon.directory)))
                self.assertEqual(said, "every function works\n")
                self.assertEqual(daemon.process.wait(30), 0)  # the program has stopped it
        self.by_each_compiler("pool_functions", check)

    def test_every_function_of_the_engine_works(self):
        model = write_sum(self.tmp / "sum")
        self.by_each_compiler("engine_functions", lambda program: self.assertEqual(run(program, model), "every function works\n"))

    def test_every_wrong_argument_is_an_error_that_names_it(self):
        def check(program):
            with Daemon({"echo": "builtin:identity"}) as daemon:
                said = run(program, env=dict(os.environ, SHOAL_DIR=str(daemon.directory)))
                self.assertEqual(said, "every wrong argument is an error\n")
        self.by_each_compiler("wrong_arguments", check)

    def test_many_threads_get_their_own_answers(self):
        twice = write_network(self.tmp / "twice", [("null", "data", {}, []), ("_mul_scalar", "twice", {"scalar": "2"}, [0])], [1])

        def check(program):
            with Daemon({"echo": "builtin:identity,workers=2"}) as daemon:
                said = run(program, twice / "net-symbol.json", twice / "net-0000.params",
                           env=dict(os.environ, SHOAL_DIR=str(daemon.directory)))
                self.assertEqual(said, "1280 answers\n")
        self.by_each_compiler("threads", check)


class Examples(ShoalTest):
    def test_hello_sends_one_request(self):
        with Daemon({"echo": "builtin:identity"}) as daemon:
            said = run(BIN / "example_hello_c", env=dict(os.environ, SHOAL_DIR=str(daemon.directory)))
            self.assertEqual(said, "data_output: 42\n")
        failed = subprocess.run([BIN / "example_hello_c"], env=dict(os.environ, SHOAL_DIR=str(self.tmp)), capture_output=True, text=True)
        self.assertEqual((failed.returncode, failed.stdout), (1, ""))
        self.assertTrue(failed.stderr.startswith("UNAVAILABLE: "), failed.stderr)

    def test_multi_threaded_inference_answers_in_the_order_of_the_files(self):
        names = ["star", "circle", "heart", "arrow", "ring", "square", "star", "cross"]
        files = [write_ppm(self.tmp / f"{i}.ppm", PICTURES / f"{name}-1.png") for i, name in enumerate(names)]
        said = run(BIN / "example_multi_threaded_inference", SHAPES, *files)
        self.assertEqual([re.fullmatch(r"(\S+): (\w+) \([01]\.\d+\)|.*", line).groups() for line in said.splitlines()],
                         [(str(file), name) for file, name in zip(files, names)])

    def test_multi_threaded_inference_has_60_lines(self):
        text = (SOURCE / "client" / "examples" / "multi_threaded_inference.c").read_text()
        self.assertLessEqual(len([line for line in map(str.strip, text.splitlines()) if line and not line.startswith("//")]), 60)

    def test_multi_threaded_inference_names_what_is_no_picture(self):
        (self.tmp / "text.ppm").write_text("P6 64 64 255\nshort")
        failed = subprocess.run([BIN / "example_multi_threaded_inference", SHAPES, self.tmp / "text.ppm"], capture_output=True, text=True)
        self.assertEqual((failed.returncode, failed.stdout), (1, ""))
        self.assertEqual(failed.stderr, f"{self.tmp}/text.ppm: is no PPM picture of 64 x 64 pixels\n")
        failed = subprocess.run([BIN / "example_multi_threaded_inference", SHAPES, self.tmp / "none.ppm"], capture_output=True, text=True)
        self.assertEqual((failed.returncode, failed.stdout, failed.stderr), (1, "", f"{self.tmp}/none.ppm: No such file or directory\n"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
