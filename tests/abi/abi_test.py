#!/usr/bin/env python3
"""Programs compiled against the headers of release 0.3 run with these libraries (README.md). SHOAL_UPDATE_ABI=1 writes the base line."""
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))
from support import BIN, SHAPES, SOURCE, Daemon, ShoalTest  # noqa: E402

LIB = Path(os.environ.get("SHOAL_LIB_DIR", BIN.parent / "lib"))
LIBRARIES = ["libshoal", "libshoal-engine", "libshoal-vision", "libshoal_predict"]
BASE = "0.3"
IS_RELEASED = not re.search(rf"^## Unreleased \({re.escape(BASE)}\.0\)", (SOURCE / "CHANGELOG.md").read_text(), re.M)


def run(*words, **options):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=300, **options)
    if done.returncode != 0:
        raise AssertionError(f"{words} gave {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def present_headers():
    """The public headers by the path that programs include."""
    folders = ["shm/include", "client/include", "client/c/include", "client/vision/include", "client/predict/include",
               "worker/engine/include", "worker/c/include"]
    return {str(file.relative_to(SOURCE / folder)): file.read_text()
            for folder in folders for file in sorted((SOURCE / folder).rglob("*.h*"))}


def present_symbols():
    """What the libraries export to programs: lines of library and name@@version."""
    lines = []
    for library in LIBRARIES:
        for line in run("nm", "-D", "--defined-only", "--with-symbol-versions", LIB / f"{library}.so").splitlines():
            name = line.split()[-1]
            if "@@SHOAL_" in name and "@@SHOAL_PRIVATE" not in name:
                lines.append(f"{library} {name}")
    return sorted(set(lines))


def base_headers():
    parts = re.split(r"^==> (\S+) <==\n", (HERE / f"{BASE}.headers").read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def write_base():
    (HERE / f"{BASE}.headers").write_text("".join(f"==> {path} <==\n{text}" for path, text in sorted(present_headers().items())))
    (HERE / f"{BASE}.symbols").write_text("".join(f"{line}\n" for line in present_symbols()))


def without_last_members(text):
    """The header as it was before the last member of each struct that may grow was added. Returns it and the members."""
    removed = []

    def shorten(struct):
        lines = struct[0].split("\n")
        members = [i for i, line in enumerate(lines) if re.match(r"  [\w:<>, ]+ \w+.*;", line) and not line.startswith("  friend")]
        comment = members[-1]
        while lines[comment - 1].startswith("  ///"):
            comment -= 1
        removed.append(lines[members[-1]].strip())
        return "\n".join(lines[:comment] + lines[members[-1] + 1:])

    grows = r"^struct (?:\w+ \{\n  StructSize<|(?:ModelInfo|Outcome|ModelChange) \{\n).*?^\};"
    return re.sub(grows, shorten, text, flags=re.M | re.S), removed


class Abi(ShoalTest):
    def build(self, source, headers):
        for path, text in headers.items():
            file = self.tmp / "include" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        program = self.tmp / source.replace(".", "_")
        compiler = ["c++", "-std=c++20"] if source.endswith(".cpp") else ["cc", "-std=c11"]
        run(*compiler, "-O1", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", HERE / source, "-o", program,
            "-I", self.tmp / "include", "-L", LIB, f"-Wl,-rpath,{LIB}", "-lshoal-vision", "-lshoal-engine", "-lshoal")
        return program

    def run_with_daemon(self, *programs):
        with Daemon({"echo": "builtin:identity,workers=1"}) as daemon:
            environment = dict(os.environ, SHOAL_DIR=str(daemon.directory), SHOAL_CACHE_DIR=str(self.tmp / "cache"))
            for program in programs:
                self.assertEqual(run(program, SHAPES, env=environment), "right\n", program.name)

    def test_programs_of_the_base_line_run(self):
        headers = base_headers()
        self.run_with_daemon(self.build("program.cpp", headers), self.build("program.c", headers))

    def test_a_program_that_knows_fewer_members_runs(self):
        headers, removed = {}, []
        for path, text in base_headers().items():
            headers[path], members = without_last_members(text)
            removed += members
        self.assertGreaterEqual(len(removed), 12, removed)
        self.assertTrue(any("session_idle" in member for member in removed), removed)
        self.assertTrue(any("retry_after" in member for member in removed), removed)
        self.run_with_daemon(self.build("program.cpp", headers))

    def test_every_symbol_is_still_there(self):
        base = (HERE / f"{BASE}.symbols").read_text().splitlines()
        self.assertGreater(len(base), 300)
        self.assertEqual(sorted(set(base) - set(present_symbols())), [], "programs that need these do not start any more")

    @unittest.skipIf(IS_RELEASED, f"{BASE} is released, and stays as it is")
    def test_the_base_line_is_what_will_be_released(self):
        remedy = "SHOAL_UPDATE_ABI=1 python3 tests/abi/abi_test.py writes it anew"
        self.assertEqual(base_headers(), present_headers(), remedy)
        self.assertEqual((HERE / f"{BASE}.symbols").read_text().splitlines(), present_symbols(), remedy)


if __name__ == "__main__":
    if os.environ.get("SHOAL_UPDATE_ABI") == "1":
        if IS_RELEASED:
            sys.exit(f"{BASE} is released: its base line stays as it is")
        write_base()
    unittest.main()
