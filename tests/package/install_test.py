#!/usr/bin/env python3
"""A project of somebody else builds against the installed libraries, by find_package and by pkg-config, and talks to the installed
daemon. Everything is in a temporary directory."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("SHOAL_BUILD_DIR", HERE.parents[1] / "build" / "release"))
TOP = Path(tempfile.mkdtemp(prefix="shoal-package-"))
PREFIX = TOP / "prefix"
os.environ["SHOAL_BIN_DIR"] = str(PREFIX / "bin")  # before support looks: the daemon of these tests is the installed one
os.environ["SHOAL_CACHE_DIR"] = str(TOP / "cache")
sys.path.insert(0, str(HERE.parent / "cli"))
from support import SOURCE, Daemon, write_npy  # noqa: E402

EXAMPLES = PREFIX / "share/doc/libshoal-dev/examples"
MODEL = PREFIX / "share/shoal/models/shapes"
PICTURE = PREFIX / "share/shoal/pictures/star-1.png"

VERSION = re.search(r"project\(shoal VERSION ([\d.]+)", (SOURCE / "CMakeLists.txt").read_text())[1]
ABI_VERSION = "0.3"  # the base line (tests/abi)
NODES = {f"SHOAL_{ABI_VERSION}", f"SHOAL_PRIVATE_{VERSION}"}


def run(*words, **options):
    """Runs a command that must succeed, and returns the finished process."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{words} gave {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done


def setUpModule():
    run("cmake", "--install", BUILD, "--prefix", PREFIX)


def tearDownModule():
    shutil.rmtree(TOP, ignore_errors=True)


def libraries():
    return sorted(PREFIX.glob("lib/**/libshoal*.so"))


def system_calls(names):
    """The system calls behind names and @sets of a SystemCallFilter=."""
    calls = {name for name in names if not name.startswith("@")}
    for name in set(names) - calls:
        lines = run("systemd-analyze", "syscall-filter", name).stdout.split("\n")[1:]
        calls |= system_calls([line.strip() for line in lines if line.strip() and line.strip()[0] != "#"])
    return calls


class Installed(unittest.TestCase):
    def test_every_public_header_and_no_other_is_installed(self):
        public = {path.name for pattern in ("**/include/shoal/*.hpp", "**/include/shoal/**/*.h", "**/include/mxnet/*.h") for path in SOURCE.glob(pattern)
                  if "build" not in path.relative_to(SOURCE).parts}
        self.assertEqual({path.name for path in PREFIX.glob("include/**/*") if path.is_file()}, public)
        self.assertIn("pool.hpp", public)

    def test_each_header_stands_alone_without_a_warning(self):
        opencv = run("pkg-config", "--cflags-only-I", "opencv4").stdout.replace("-I", "-isystem").split()  # of image_opencv.hpp
        for header in sorted(PREFIX.glob("include/shoal/*.hpp")):
            run("c++", "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", "c++",
                "-I", PREFIX / "include", *(opencv if header.stem.endswith("_opencv") else ()), "-include", header, "/dev/null")
        for header in sorted(PREFIX.glob("include/**/*.h")):
            run("cc", "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-x", "c",
                "-I", PREFIX / "include", "-include", header, "/dev/null")

    def test_the_libraries_show_nothing_but_their_public_classes(self):
        self.assertEqual([path.name for path in libraries()],
                         ["libshoal-engine.so", "libshoal-vision.so", "libshoal.so", "libshoal_predict.so"])
        header = (PREFIX / "include/mxnet/c_predict_api.h").read_text()
        functions = set(re.findall(r"^(?:int|const char\*) (MX\w+)\(", header, re.M))
        self.assertEqual(len(functions), 16)
        private = re.compile(r"shoal::(wire|worker|client|supervisor|internal)::|::Impl::")
        for library in libraries():
            for line in run("nm", "-DC", "--defined-only", library).stdout.splitlines():
                name = line.split(" ", 2)[2]
                with self.subTest(library=library.name, symbol=name):
                    if library.name == "libshoal_predict.so":
                        self.assertIn(name.split("@")[0], functions | NODES)
                        continue
                    is_c = re.fullmatch(rf"shoal_\w+@@SHOAL_{ABI_VERSION}", name)
                    self.assertTrue(is_c or name in NODES or "shoal::" in name.split("(")[0] or "operator==(shoal::" in name)
                    self.assertNotRegex(name.split("(")[0], private)

    def test_a_library_of_another_version_is_not_taken_for_this_one(self):
        for library in libraries():
            self.assertIn(f"Library soname: [{library.name}.{ABI_VERSION}]", run("readelf", "-d", library).stdout)

    def test_shells_get_their_completions(self):
        for program in ("shoal", "shoald"):
            self.assertIn("complete -F _shoal shoal shoald\n", (PREFIX / "share/bash-completion/completions" / program).read_text())
        for directory in ("site-functions", "vendor-completions"):
            self.assertTrue((PREFIX / "share/zsh" / directory / "_shoal").read_text().startswith("#compdef shoal shoald\n"))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze here")
    def test_systemd_takes_the_unit(self):
        unit = TOP / "shoald.service"
        text = (PREFIX / "lib/systemd/system/shoald.service").read_text()
        unit.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={PREFIX}/bin/shoald", text))
        said = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
        self.assertEqual([line for line in said.stderr.splitlines() if "shoald" in line], [])
        self.assertIn("u     shoal ", (PREFIX / "lib/sysusers.d/shoal.conf").read_text())

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze here")
    def test_serves_with_the_system_calls_that_the_unit_leaves_it(self):
        unit = (PREFIX / "lib/systemd/system/shoald.service").read_text()
        allowed = system_calls(["@default", *re.search(r"^SystemCallFilter=(.*)$", unit, re.M).group(1).split()])
        self.assertGreater(len(allowed), 100)
        write_npy(TOP / "x.npy", (1, 4), [1, 2, 3, 4])

        def daemon_with(calls, **options):
            filtered = [sys.executable, HERE / "filtered.py", ",".join(sorted(calls))]
            return Daemon({"echo": "builtin:identity,workers=1"}, under=filtered, **options)

        with daemon_with(allowed) as daemon:
            done = daemon.shoal("predict", "echo", "--input", f"data={TOP / 'x.npy'}", "--output", TOP)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("has no ", Path(daemon.log.name).read_text())
        with daemon_with(allowed - {"mincore"}, wait=False) as daemon:
            self.assertNotEqual(daemon.process.wait(30), 0)
            self.assertIn("mincore: Operation not permitted", Path(daemon.log.name).read_text())

    def test_a_client_needs_no_executor_and_no_pictures(self):
        needed = run("readelf", "-d", next(path for path in libraries() if path.name == "libshoal.so")).stdout
        self.assertNotRegex(needed, r"NEEDED.*(dnnl|opencv|spdlog|toml|gomp)")

    def test_only_shoal_measure_loads_what_draws(self):
        for program in ("bin/shoal", "bin/shoald", "libexec/shoal/shoal-worker", "libexec/shoal/shoal-fetch"):
            self.assertNotIn("libcairo", run("readelf", "-d", PREFIX / program).stdout)
        done = run(PREFIX / "bin" / "shoal", "bench", "builtin:identity", "--in-flight", "1", "--duration", "0.1", "--warmup", "0", "--plot", TOP / "plot.svg")
        self.assertIn("answers/s", done.stdout)
        self.assertIn("<svg", (TOP / "plot.svg").read_text())

    def test_only_shoal_fetch_loads_what_talks_to_servers(self):
        for program in ("bin/shoal", "bin/shoald", "libexec/shoal/shoal-worker"):
            self.assertNotRegex(run("ldd", PREFIX / program).stdout, "libcurl|libpugixml")
        self.assertRegex(run("ldd", PREFIX / "libexec/shoal/shoal-fetch").stdout, "libcurl")
        run(PREFIX / "bin" / "shoal", "fetch", f"file://{MODEL}", TOP / "fetched")
        self.assertEqual({file.name: file.read_bytes() for file in (TOP / "fetched").iterdir()},
                         {file.name: file.read_bytes() for file in MODEL.iterdir()})

    def test_only_shoal_pictures_loads_the_hundred_libraries_of_pictures(self):
        self.assertNotIn("opencv", run("ldd", PREFIX / "bin" / "shoal").stdout)
        classes = json.loads(run(PREFIX / "bin" / "shoal", "classify", MODEL, PICTURE, "--json").stdout)
        self.assertEqual(classes["pictures"][0]["classes"][0]["label"], "star")


class SomebodyElsesProject(unittest.TestCase):
    def check_programs(self, directory):
        environment = dict(os.environ, LD_LIBRARY_PATH=str(libraries()[0].parent))
        with Daemon({"shapes": f"{MODEL},workers=1", "echo": "builtin:identity"}) as daemon:
            environment["SHOAL_DIR"] = str(daemon.directory)
            answer = run(directory / "predict", "echo", env=environment).stdout
            self.assertIn("data_output: float32 of shape 4", answer)
            self.assertEqual(run(directory / "compare", "shapes", MODEL, PICTURE, env=environment).stdout, "star star\n")
            self.assertEqual(daemon.model("shapes")["counts"]["ok"], 1)
            (directory / "x.f32").write_bytes(bytes(4 * 3 * 64 * 64))
            predict = [directory / "mxnet_predict", *MODEL.glob("*-symbol.json"), *MODEL.glob("*.params"), directory / "x.f32", "1,3,64,64"]
            by_itself = run(*predict, env=environment).stdout
            self.assertEqual(len(by_itself.splitlines()), 3)
            self.assertEqual(run(*predict, env=dict(environment, SHOAL_PREDICT_MODEL="shapes")).stdout, by_itself)
            self.assertEqual(daemon.model("shapes")["counts"]["ok"], 2)
            self.assertEqual(run(directory / "hello", env=environment).stdout, "data_output: 42\n")
            self.assertEqual(run(directory / "describe", MODEL, env=environment).stdout, "shapes: 1 input, 1 output, 12 labels\n")

    def test_builds_by_find_package_and_runs(self):
        build = TOP / "by-cmake"
        run("cmake", "-S", HERE / "project", "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={PREFIX}", f"-DEXAMPLES={EXAMPLES}")
        run("cmake", "--build", build)
        self.check_programs(build)

    def test_builds_by_pkg_config_and_runs(self):
        build = TOP / "by-pkg-config"
        build.mkdir()
        environment = dict(os.environ, PKG_CONFIG_PATH=str(next(PREFIX.glob("lib/**/pkgconfig"))))
        for source, modules in {EXAMPLES / "predict.cpp": ["shoal"], EXAMPLES / "mxnet_predict.cpp": ["shoal_predict"],
                                HERE / "project/compare.cpp": ["shoal-vision", "shoal-engine"]}.items():
            flags = run("pkg-config", "--cflags", "--libs", *modules, env=environment).stdout.split()
            run("c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", source, "-o", build / source.stem, *flags)
        for source, module in {EXAMPLES / "hello.c": "shoal", HERE / "project/describe.c": "shoal-engine"}.items():
            flags = run("pkg-config", "--cflags", "--libs", module, env=environment).stdout.split()
            run("cc", "-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", source, "-o", build / source.stem, *flags)
        self.check_programs(build)

    def test_a_project_of_c_needs_no_compiler_of_cpp(self):
        project, build = TOP / "of-c", TOP / "of-c-build"
        project.mkdir()
        (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(of_c LANGUAGES C)\n"
                                                "find_package(shoal 0.3 REQUIRED)\n"
                                                f"add_executable(hello {EXAMPLES}/hello.c)\n"
                                                "target_link_libraries(hello PRIVATE shoal::shoal)\n")
        run("cmake", "-S", project, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={PREFIX}")
        run("cmake", "--build", build)

    def test_asks_for_a_part_that_does_not_exist_and_is_told(self):
        project = TOP / "wrong"
        project.mkdir()
        (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(wrong NONE)\n"
                                                "find_package(shoal REQUIRED COMPONENTS sonar)\n")
        done = subprocess.run(["cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={PREFIX}"],
                              capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("sonar", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
