#!/usr/bin/env python3
"""Bad input to the command line and to the daemon: every error names its cause, no process dies, and later requests are answered."""
import json
import os
import random
import shutil
import subprocess
import time
import unittest

from support import BIN, PICTURES, SHAPES, Daemon, ShoalTest, read_npy, shoal, write_npy

INPUT_SHAPE = (1, 3, 64, 64)


class BadFiles(ShoalTest):
    """`shoal run` and `shoal inspect` on damaged copies of the model that ships."""

    def setUp(self):
        super().setUp()
        self.model = self.tmp / "model"
        shutil.copytree(SHAPES, self.model)
        self.params = next(self.model.glob("*-0000.params"))
        self.symbol = next(self.model.glob("*-symbol.json"))
        count = INPUT_SHAPE[1] * INPUT_SHAPE[2] * INPUT_SHAPE[3]
        self.input = write_npy(self.tmp / "x.npy", INPUT_SHAPE, [0.5] * count)

    def run_model(self, *extra, input_=None):
        return shoal("run", self.model, "--input", input_ or f"data={self.input}", "--output", self.tmp / "out", *extra)

    def change_symbol(self, change):
        graph = json.loads(self.symbol.read_text())
        change(graph)
        self.symbol.write_text(json.dumps(graph))

    def test_the_untouched_model_runs(self):
        self.assertEqual(self.run_model().returncode, 0)

    def test_missing_files_are_named(self):
        self.assert_fails(shoal("run", self.tmp / "nowhere", "--input", f"data={self.input}", "--output", self.tmp), 1, "nowhere")
        self.assert_fails(shoal("inspect", self.tmp / "nowhere"), 1, "nowhere")
        self.assert_fails(self.run_model(input_=f"data={self.tmp}/none.npy"), 1, "none.npy")
        self.params.unlink()
        self.assert_fails(self.run_model(), 1, self.symbol.name.removesuffix("-symbol.json"))

    def test_truncated_parameters_are_refused_at_every_length(self):
        whole = self.params.read_bytes()
        cuts = sorted({0, 1, 7, 8, 23, 24, 30, 48, 100, len(whole) // 2, len(whole) - 9, len(whole) - 1})
        for cut in cuts:
            with self.subTest(cut=cut):
                self.params.write_bytes(whole[:cut])
                self.assert_fails(self.run_model(), 1, self.params.name)

    def test_flipped_bits_never_crash(self):
        whole = self.params.read_bytes()
        generator = random.Random(1)
        for _ in range(40):
            bytes_ = bytearray(whole)
            at = generator.randrange(min(400, len(bytes_)))
            bytes_[at] ^= 1 << generator.randrange(8)
            self.params.write_bytes(bytes_)
            run = self.run_model()
            self.assertIn(run.returncode, (0, 1), f"byte {at}: {run.stderr}")  # a flip inside a value is a legal file

    def test_garbage_for_a_symbol_file_is_refused(self):
        for text in ("", "{", "[]", "nonsense", '{"nodes": 3}', '{"nodes": [], "arg_nodes": [], "heads": [[0, 0, 0]]}', "\x00" * 100):
            with self.subTest(text=text[:20]):
                self.symbol.write_text(text)
                self.assert_fails(self.run_model(), 1, self.symbol.name)

    def test_an_unknown_operator_is_named_with_its_node(self):
        def change(graph):
            node = next(n for n in graph["nodes"] if n["op"] == "Activation")
            node["op"], node["name"] = "Frobnicate", "frob1"
        self.change_symbol(change)
        self.assert_fails(self.run_model(), 1, "Frobnicate", "frob1")
        inspected = shoal("inspect", self.model)
        self.assertIn("Frobnicate", inspected.stdout + inspected.stderr)

    def test_inspect_tells_what_loading_would_refuse_of_the_configuration(self):
        config = self.model / "model.toml"
        text = config.read_text()
        for line, name in (('device = "abacus"', "abacus"), ('golden = "none.npz"', "none.npz"), ('outputs = ["prob"]', "'prob'"),
                           ('state = [{out = "prob", in = "data"}]', "'state' names an output 'prob'"),
                           ('buckets = [{input = "ids", dim = 1, sizes = [4]}]', "ids"), ('shapes = [{picture = [1]}]', "picture")):
            with self.subTest(line=line):
                key = line.split()[0]
                config.write_text("".join([line + "\n"] + [o for o in text.splitlines(True) if o.split()[:1] != [key]]))
                notes = json.loads(shoal("inspect", self.model, "--json").stdout)["notes"]
                self.assertEqual(len(notes), 1, notes)
                self.assertIn(name, notes[0])
        config.write_text(text)
        self.assertEqual(json.loads(shoal("inspect", self.model, "--json").stdout)["notes"], [])

    def test_an_input_that_does_not_fit_is_named(self):
        count = 3 * 64 * 64
        narrow = write_npy(self.tmp / "narrow.npy", (1, 1, 64, 64), [0.0] * (64 * 64))
        self.assert_fails(self.run_model(input_=f"data={narrow}"), 1, "1x1x64x64")
        whole = write_npy(self.tmp / "int.npy", INPUT_SHAPE, [0] * count, "<i4")
        self.assert_fails(self.run_model(input_=f"data={whole}"), 1, "int32")
        self.assert_fails(self.run_model(input_=f"picture={self.input}"), 1, "picture", "data")
        self.assert_fails(self.run_model("--input", f"more={self.input}"), 1, "more")
        (self.tmp / "bad.npy").write_bytes(b"\x93NUMPY garbage")
        self.assert_fails(self.run_model(input_=f"data={self.tmp}/bad.npy"), 1, "bad.npy")
        self.assert_fails(self.run_model("--device", "abacus"), 1, "abacus")

    def test_wrong_words_are_a_usage_error(self):
        self.assertEqual(shoal("run").returncode, 2)
        self.assertEqual(shoal("dance").returncode, 2)
        self.assert_fails(shoal("bench", "m", "--seconds", "1"), 2, "shoal bench: ", "not expected: --seconds 1")
        self.assert_fails(shoal("stop", "-z"), 2, "shoal stop: ", "not expected: -z")
        self.assertEqual(self.run_model("--threads", "many").returncode, 2)
        for words in ("top --once --interval nan", "trace --pid -1 --chrome t.json", "trace --pid 0 --chrome t.json",
                      "predict m --input x=x.npy --output out --model-version 0"):
            self.assertEqual(shoal(*words.split()).returncode, 2, words)
        for words in (["predict", "m", "--input", "x=x.npy", "--output", ""], ["trace", "--chrome", ""]):
            self.assert_fails(shoal(*words), 2, "must not be empty")
        self.assertEqual(shoal("--help").returncode, 0)


class BadRequests(ShoalTest):
    """A daemon with the model that ships: a bad request gets an error, and the next good one gets its answer."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon({"shapes": f"{SHAPES},workers=2"})

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__()

    def setUp(self):
        super().setUp()
        self.input = write_npy(self.tmp / "x.npy", INPUT_SHAPE, [0.5] * (3 * 64 * 64))

    def predict(self, *inputs, model="shapes"):
        words = [w for i in inputs for w in ("--input", i)]
        return self.daemon.shoal("predict", model, *words, "--output", self.tmp / "out", "--json")

    def tearDown(self):
        pids = sorted(w["pid"] for w in self.daemon.model("shapes")["workers"])
        self.assertEqual(self.predict(f"data={self.input}").returncode, 0, "a good request after the bad ones")
        self.assertEqual(len(pids), 2, "nobody died")

    def test_wrong_inputs_are_named(self):
        small = write_npy(self.tmp / "small.npy", (1, 3, 8, 8, 1), [0.0] * 192)
        self.assert_fails(self.predict(f"data={small}"), 1, "1x3x8x8x1", "data")
        whole = write_npy(self.tmp / "int.npy", INPUT_SHAPE, [0] * (3 * 64 * 64), "<i4")
        self.assert_fails(self.predict(f"data={whole}"), 1, "int32", "float32")
        self.assert_fails(self.predict(f"picture={self.input}"), 1, "picture")
        self.assert_fails(self.predict(f"data={self.input}", f"data={self.input}"), 1, "data")

    def test_a_model_that_is_not_loaded_is_not_available(self):
        self.assert_fails(self.predict(f"data={self.input}", model="nothing"), 1, "nothing")
        self.assert_fails(self.daemon.shoal("classify", "nothing", PICTURES / "none.png"), 1, "nothing")

    def test_an_unreadable_image_is_named(self):
        (self.tmp / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n garbage")
        self.assert_fails(self.daemon.shoal("classify", "shapes", self.tmp / "broken.png"), 1, "broken.png")
        self.assert_fails(self.daemon.shoal("classify", "shapes", self.tmp / "missing.png"), 1, "missing.png")


class NamesThatAreNotUtf8(ShoalTest):
    """Paths and names with the byte 0xff: they work or give an error, no program dies, and JSON stays valid."""

    ODD = "x\udcff"  # Python's form of the bytes "x\xff"

    def setUp(self):
        super().setUp()
        self.model = self.tmp / self.ODD
        shutil.copytree(SHAPES, self.model)
        self.input = write_npy(self.tmp / (self.ODD + ".npy"), INPUT_SHAPE, [0.5] * (3 * 64 * 64))

    def call(self, program, *words, codes=(0,), directory=None):
        """Returns the output of a program as bytes. Checks its exit code, that stderr begins with its error, and its JSON."""
        environment = dict(os.environ, SHOAL_DIR=str(directory)) if directory else None
        run = subprocess.run([BIN / program, *map(str, words)], capture_output=True, timeout=60, env=environment)
        self.assertIn(run.returncode, codes, f"{program} {words}: {run.stderr}")
        if run.returncode not in (0, 2):
            self.assertTrue(run.stderr.startswith(program.encode() + b": "), f"{words}: {run.stderr}")
        if "--json" in words and run.returncode == 0:
            json.loads(run.stdout.decode("utf-8"))  # strict
        return run.stdout + run.stderr

    def test_a_checkpoint_in_this_process(self):
        prefix, missing, picture = self.model / "shapes", self.tmp / (self.ODD + "none"), self.tmp / (self.ODD + ".png")
        shutil.copy(next(PICTURES.glob("star-1.png")), picture)
        self.call("shoal", "inspect", prefix, "--json")
        self.assertIn(b"x\xff", self.call("shoal", "inspect", prefix))
        self.assertIn(b"x\xffnone", self.call("shoal", "inspect", missing, "--json", codes=(1,)))
        out = self.tmp / (self.ODD + "out")
        self.call("shoal", "run", prefix, "--input", f"data={self.input}", "--output", out, "--json")
        self.assertEqual(len(list(out.iterdir())), 1)
        self.call("shoal", "run", prefix, "--input", f"{self.ODD}={self.input}", "--output", out, "--json", codes=(1,))
        self.call("shoal", "run", missing, "--input", f"data={missing}", "--output", out, codes=(1,))
        self.call("shoal", "classify", prefix, picture, "--json")
        self.call("shoal", "classify", prefix, missing, "--json", codes=(1,))
        self.call("shoal", "run", prefix, "--device", self.ODD, "--input", f"data={self.input}", "--output", out, codes=(1,))
        self.call("shoal", self.ODD, codes=(2,))

    def test_requests_to_the_daemon(self):
        directory = self.tmp / (self.ODD + "dir")
        daemon = subprocess.Popen([BIN / "shoald", "--model", "good=builtin:identity", "--model", f"odd={self.model}",
                                   "--model", f"wrong={SHAPES},device={self.ODD}"],
                                  env=dict(os.environ, SHOAL_DIR=str(directory)), stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait, 20)
        self.addCleanup(daemon.terminate)
        deadline = time.monotonic() + 30
        while b'"good"' not in (status := self.call("shoal", "status", "--json", codes=(0, 3), directory=directory)) \
                or b'"loading"' in status:
            self.assertLess(time.monotonic(), deadline, status)
            time.sleep(0.05)
        for words in (("load", f"{self.ODD}=builtin:identity"), ("load", f"more={self.model}"), ("reload", self.ODD),
                      ("unload", self.ODD), ("drain", self.ODD), ("scale", self.ODD, "2"), ("reload", "good", self.ODD),
                      ("predict", self.ODD, "--input", f"data={self.input}", "--output", self.tmp),
                      ("predict", "good", "--input", f"{self.ODD}={self.input}", "--output", self.tmp),
                      ("classify", self.ODD, self.ODD), ("crashes", self.ODD), ("trace", self.ODD, "--chrome", self.input)):
            self.call("shoal", *words, "--json", codes=(0, 1, 2, 3), directory=directory)
        for words in (("status",), ("top", "--once"), ("crashes",)):
            self.call("shoal", *words, directory=directory)
            self.call("shoal", *words, "--json", directory=directory)
        self.call("shoal", "predict", "good", "--input", f"data={self.input}", "--output", self.tmp / self.ODD / "o", "--json",
                  directory=directory)
        self.call("shoal", "trace", "--chrome", self.tmp / (self.ODD + ".json"), directory=directory)
        json.loads((self.tmp / (self.ODD + ".json")).read_bytes().decode("utf-8"))
        self.call("shoal", "stop", directory=directory)
        self.assertEqual(daemon.wait(20), 0)

    def test_the_daemons_own_arguments(self):
        directory = self.tmp / "dir"
        for words in (("--config", self.tmp / (self.ODD + ".toml")), ("--model", f"{self.ODD}={self.model}"),
                      ("--model", f"m={self.model},{self.ODD}=1"),
                      ("--log-format", self.ODD)):
            self.call("shoald", *words, codes=(1, 2), directory=directory)

    def test_tools(self):
        symbol, prefix = self.model / "shapes-symbol.json", self.tmp / (self.ODD + "made")
        self.call("make-model", "--symbol", symbol, "--shape", "data=1,3,64,64", prefix)
        self.call("make-model", "--symbol", self.ODD, "--shape", "data=1,3,64,64", prefix, codes=(1,))
        self.call("make-model", "--symbol", symbol, "--shape", f"{self.ODD}=1,3,64,64", prefix, codes=(1,))
        self.call("make-model", "--symbol", symbol, "--shape", "data=1,3,64,64", "--parameters", self.ODD, prefix, codes=(1,))
        self.call("shoal-bench", "model", self.model, "--shape", "data=1,3,64,64", "--profile", "--runs", "1", "--json")
        self.call("shoal-bench", "model", self.ODD, "--shape", "data=1,3,64,64", codes=(1,))
        self.call("shoal-bench", "reload", self.ODD, "--rounds", "1", codes=(1,))


class PathsThatTheSystemRefuses(ShoalTest):
    """An exception of the file system library becomes an error."""

    def run_there(self, *words):
        """Runs a program in a directory that was removed."""
        script = f"mkdir {self.tmp}/gone && cd {self.tmp}/gone && rmdir {self.tmp}/gone && exec \"$@\""
        environment = dict(os.environ, SHOAL_DIR="here")
        return subprocess.run(["sh", "-c", script, "sh", BIN / words[0], *words[1:]], capture_output=True, text=True, timeout=60,
                              env=environment)

    def test_a_name_that_is_too_long(self):
        long = self.tmp / ("n" * 300 + "-symbol.json")
        for program, words in (("make-model", ["--symbol", long, "--shape", "data=1,3,64,64", self.tmp / "made"]),
                               ("shoal", ["inspect", long]), ("shoal", ["run", long, "--input", f"data={long}", "--output", long]),
                               ("shoal-bench", ["model", long, "--shape", "data=1,3,64,64"])):
            with self.subTest(program=program, words=words[0]):
                run = subprocess.run([BIN / program, *words], capture_output=True, text=True, timeout=60)
                self.assert_fails(run, 1, program + ": ", "nnnn")

    def test_a_working_directory_that_is_gone(self):
        for words in (["shoald", "--config", "shoal.toml"], ["shoald", "--model", "m=builtin:identity", "--worker", "worker"],
                      ["shoald", "--model", "m=builtin:identity"], ["shoal", "inspect", "model"], ["shoal", "load", "m=model"],
                      ["make-model", "--symbol", "m-symbol.json", "--shape", "data=1,3,64,64", "made"],
                      ["shoal-bench", "model", "model", "--shape", "data=1,3,64,64"]):
            with self.subTest(words=words):
                run = self.run_there(*words)
                self.assertIn(run.returncode, (1, 3), run.stderr)
                self.assertTrue(run.stderr.startswith(words[0] + ": "), run.stderr)


class BadDaemons(ShoalTest):
    def test_words_of_the_environment_that_nobody_knows_are_told(self):
        os.environ["SHOAL_LOG"] = "trace"
        self.addCleanup(os.environ.pop, "SHOAL_LOG")
        with Daemon({"identity": "builtin:identity"}) as daemon:
            daemon.log.seek(0)
            self.assertRegex(daemon.log.read(), 'unknown_word variable=SHOAL_LOG value="?trace')

    def test_without_a_daemon_the_place_is_named(self):
        for words in (("status",), ("predict", "m", "--input", "data=x.npy", "--output", self.tmp), ("stop",)):
            with self.subTest(words=words):
                self.assert_fails(shoal(*words, directory=self.tmp), 3, self.tmp)

    def test_a_second_daemon_on_the_same_directory_refuses(self):
        with Daemon({"identity": "builtin:identity"}) as daemon:
            second = subprocess.run([BIN / "shoald", "--model", "identity=builtin:identity"], capture_output=True, text=True, timeout=20,
                                    env=dict(os.environ, SHOAL_DIR=str(daemon.directory)))
            self.assertNotEqual(second.returncode, 0)
            self.assertIn(str(daemon.directory), second.stderr)
            self.assertEqual(daemon.shoal("status", "--ready").returncode, 0)

    def test_a_model_that_does_not_load_leaves_the_others_serving(self):
        broken = self.tmp / "broken"
        shutil.copytree(SHAPES, broken)
        params = next(broken.glob("*-0000.params"))
        params.write_bytes(params.read_bytes()[:1000])
        with Daemon({"shapes": SHAPES, "broken": broken}, wait=False) as daemon:
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                run = daemon.shoal("status", "--json")
                models = {m["name"]: m for m in json.loads(run.stdout)["models"]} if run.returncode == 0 else {}
                if models.get("broken", {}).get("state") == "failed" and models["shapes"]["state"] == "ready":
                    break
                time.sleep(0.05)
            self.assertEqual(models["broken"]["state"], "failed")
            self.assertIn(params.name, models["broken"]["reason"])
            self.assertEqual(daemon.shoal("status", "--ready").returncode, 3)
            source = write_npy(self.tmp / "x.npy", INPUT_SHAPE, [0.5] * (3 * 64 * 64))
            run = daemon.shoal("predict", "shapes", "--input", f"data={source}", "--output", self.tmp / "out", "--json")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertTrue(read_npy(json.loads(run.stdout)["outputs"][0]["file"])[1])
            self.assert_fails(daemon.shoal("predict", "broken", "--input", f"data={source}", "--output", self.tmp), 3, "broken")


if __name__ == "__main__":
    unittest.main(verbosity=2)
