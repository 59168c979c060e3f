#!/usr/bin/env python3
"""C programs that were written for MXNet's C predict API compile against our header, link the library and run. If MXNet 1.9.1 is in
build/bench/venv-mxnet, the same holds for MXNet's header, and both declare the same functions. SHOAL_MXNET_INCLUDE=DIR names another
place: DIR has mxnet/c_predict_api.h (of MXNet's wheel: site-packages/mxnet/include)."""
import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ.get("SHOAL_SOURCE_DIR", Path(__file__).resolve().parents[4]))
LIB = Path(os.environ.get("SHOAL_LIB_DIR", SOURCE / "build" / "release" / "lib"))
BIN = Path(os.environ.get("SHOAL_BIN_DIR", SOURCE / "build" / "release" / "bin"))
OURS = SOURCE / "client" / "predict" / "include"
VENV = SOURCE / "build" / "bench" / "venv-mxnet"
THEIRS = os.environ.get("SHOAL_MXNET_INCLUDE") or next(VENV.glob("lib/python*/site-packages/mxnet/include"), None)
PROGRAM = SOURCE / "tests" / "unit" / "client" / "predict" / "every_function.c"
EXAMPLE = SOURCE / "client" / "predict" / "examples" / "mxnet_predict.cpp"
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Werror"]
LINK = ["-L", LIB, "-lshoal_predict", f"-Wl,-rpath,{LIB}"]

needs_mxnet = unittest.skipUnless(THEIRS, f"no header of MXNet in {VENV} (tools/bench peers makes it): set SHOAL_MXNET_INCLUDE")


def compilers():
    """C compilers that are here; clang is one of the project's tools."""
    return [name for name in ("gcc", "clang") if shutil.which(name)]


def run(*words, **options):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=120, **options)
    if done.returncode != 0:
        raise AssertionError(f"{words} gave {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


class Header(unittest.TestCase):
    def setUp(self):
        self.tmp = Path(tempfile.mkdtemp(prefix="shoal-test-"))
        self.addCleanup(shutil.rmtree, self.tmp, ignore_errors=True)
        nodes = [{"op": "null", "name": "data", "inputs": []}, {"op": "null", "name": "one", "inputs": []},
                 {"op": "broadcast_add", "name": "plus", "inputs": [[0, 0, 0], [1, 0, 0]]}]
        self.symbol, self.params = self.tmp / "net-symbol.json", self.tmp / "net-0000.params"
        self.symbol.write_text(json.dumps({"nodes": nodes, "arg_nodes": [0, 1], "heads": [[2, 0, 0]]}))
        record = struct.pack("<IiIqiiif", 0xF993FAC9, 0, 1, 1, 1, 0, 0, 1.0)
        self.params.write_bytes(struct.pack("<QQQ", 0x112, 0, 1) + record + struct.pack("<QQ", 1, 7) + b"arg:one")

    def check_program(self, include):
        for compiler in compilers():
            with self.subTest(compiler=compiler):
                program = self.tmp / f"every_function-{compiler}"
                run(compiler, "-std=c11", *STRICT, "-I", include, PROGRAM, "-o", program, *LINK)
                self.assertEqual(run(program, self.symbol, self.params), "every function works\n")

    def check_example(self, include):
        program = self.tmp / "mxnet_predict"
        run("g++", "-std=c++11", "-Wall", "-Werror", "-I", include, EXAMPLE, "-o", program, *LINK)
        (self.tmp / "x.f32").write_bytes(struct.pack("<4f", 0, 3, 1, 2))
        self.assertEqual(run(program, self.symbol, self.params, self.tmp / "x.f32", "1,4"), "1 4.0000\n3 3.0000\n2 2.0000\n")

    def test_a_c11_program_compiles_and_runs(self):
        self.assertEqual(compilers(), ["gcc", "clang"])
        self.check_program(OURS)

    def test_a_program_of_old_c_plus_plus_compiles_and_runs(self):
        self.check_example(OURS)

    def test_the_example_of_the_build_runs(self):
        (self.tmp / "x.f32").write_bytes(struct.pack("<8f", 0, 3, 1, 2, 9, 0, 0, 0))
        said = run(BIN / "example_mxnet_predict", self.symbol, self.params, self.tmp / "x.f32", "2,4")
        self.assertEqual(said, "4 10.0000\n1 4.0000\n3 3.0000\n")
        failed = subprocess.run([BIN / "example_mxnet_predict", self.symbol, self.params, self.tmp / "x.f32", "2,5"],
                                capture_output=True, text=True, timeout=60)
        self.assertEqual(failed.returncode, 1)
        self.assertIn("MXPredSetInput: INVALID_ARGUMENT: input 'data'", failed.stderr)

    @needs_mxnet
    def test_the_same_programs_compile_against_mxnets_header(self):
        self.check_program(THEIRS)
        header = (Path(THEIRS) / "mxnet" / "c_predict_api.h").read_text()
        self.assertNotIn("Shoal", header)
        self.check_example(THEIRS)

    @needs_mxnet
    def test_both_headers_declare_the_same_functions(self):
        both = ["-include", "stdint.h", "-include", "stdbool.h", "-include", Path(THEIRS) / "mxnet" / "c_predict_api.h",
                "-include", OURS / "mxnet" / "c_predict_api.h", "-fsyntax-only"]
        for compiler in compilers():
            run(compiler, "-std=c11", *both, "-x", "c", "/dev/null")
            run(compiler, "-std=c++11", *both, "-x", "c++", "/dev/null")
        different = (OURS / "mxnet" / "c_predict_api.h").read_text().replace("int dev_type, int dev_id,", "int dev_type, long dev_id,")
        different = different.replace("SHOAL_MXNET_C_PREDICT_API_H", "ANOTHER_GUARD")
        (self.tmp / "other.h").write_text(different)
        with self.assertRaisesRegex(AssertionError, "conflicting types"):
            run("gcc", "-std=c11", *both, "-include", self.tmp / "other.h", "-x", "c", "/dev/null")


if __name__ == "__main__":
    unittest.main(verbosity=2)
