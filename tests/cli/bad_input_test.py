#!/usr/bin/env python3
"""Bad input on the command line and to the daemon: each a clear error that names the thing; nothing lost and nobody dead."""
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
        self.assertEqual(self.run_model("--threads", "many").returncode, 2)
        for words in ("top --once --interval nan", "trace --pid -1 --chrome t.json", "trace --pid 0 --chrome t.json",
                      "predict m --input x=x.npy --output out --model-version 0"):
            self.assertEqual(shoal(*words.split()).returncode, 2, words)
        for words in (["predict", "m", "--input", "x=x.npy", "--output", ""], ["trace", "--chrome", ""]):
            self.assert_fails(shoal(*words), 2, "must not be empty")
        self.assertEqual(shoal("--help").returncode, 0)


class BadRequests(ShoalTest):
    """A daemon with the model that ships: bad requests get an error, and the next good one its answer."""

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
        self.assert_fails(self.predict(f"data={self.input}", model="nothing"), 3, "nothing")
        self.assert_fails(self.daemon.shoal("classify", "nothing", PICTURES / "none.png"), 3, "nothing")

    def test_an_unreadable_image_is_named(self):
        (self.tmp / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n garbage")
        self.assert_fails(self.daemon.shoal("classify", "shapes", self.tmp / "broken.png"), 1, "broken.png")
        self.assert_fails(self.daemon.shoal("classify", "shapes", self.tmp / "missing.png"), 1, "missing.png")


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
