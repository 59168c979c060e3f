#!/usr/bin/env python3
"""Real trained checkpoints: expected outputs by `shoal run` on both devices and through the pool; both bit-equal."""
import json
import unittest

from support import DATA, Daemon, ShoalTest, largest_error, link_model, need_data, read_npy, shoal, write_npy

TOLERANCE = 1e-4  # of max |ref|: the figure for checkpoints; MXNet itself differs by up to 9e-6

# Directory in ../shared/models, prefix and epoch, shape in model.toml.
MODELS = [
    ("cifar-resnet20-v1", "cifar_resnet20_v1", (-1, 3, 32, 32)),
    ("cifar-resnet20-v2", "cifar_resnet20_v2", (-1, 3, 32, 32)),
    ("mnist-mlp-mx14", "model", (-1, 1, 28, 28)),
    ("squeezenet11-mxnet-derived", "squeezenet11", (-1, 3, 224, 224)),
    ("squeezenet11-mxnet-derived", "squeezenet11@16", (-1, 3, 224, 224)),
]
CAFFE_MEAN = (104, 117, 123)  # blue, green, red: what the expected.json's notes have subtracted from the bytes of *_meansub inputs
FLOAT16_TOLERANCE = 2e-2  # epoch 16 holds the same weights rounded to float16


class Models(ShoalTest):
    def cases(self, folder):
        """(case, input file as float32, reference values) of a model's expected/."""
        expected = need_data("models", folder, "expected")
        for case in json.loads((expected / "expected.json").read_text()):
            source = expected / case["inputs"][0]["file"]
            shape, values = read_npy(source)
            if case["case"].endswith("_meansub"):
                plane = shape[2] * shape[3]
                values = [v - CAFFE_MEAN[i // plane % 3] for i, v in enumerate(values)]
            if case["inputs"][0]["dtype"] != "float32":
                source = write_npy(self.tmp / f"{case['case']}.npy", shape, values)
            yield case["case"], source, read_npy(expected / case["outputs"][0]["file"])[1]

    def check(self, run, reference, tolerance=TOLERANCE):
        self.assertEqual(run.returncode, 0, run.stderr)
        output = json.loads(run.stdout)["outputs"][0]
        self.assertEqual(output["dtype"], "float32")
        values = read_npy(output["file"])[1]
        self.assertLessEqual(largest_error(values, reference), tolerance)
        return values

    def test_outputs_are_as_expected_by_run_and_pool(self):
        for folder, prefix, shape in MODELS:
            tolerance = FLOAT16_TOLERANCE if "@" in prefix else TOLERANCE
            path = need_data("models", folder) / prefix
            linked = link_model(self.tmp / prefix / "linked", DATA / "models" / folder / prefix.split("@")[0], shape)
            if "@" in prefix:
                continue_in_pool = f"{linked}/{prefix}"
            else:
                continue_in_pool = f"{linked}/{prefix}@0"
            with Daemon({"model": f"{continue_in_pool},workers=2"}) as daemon:
                for case, source, reference in self.cases(folder):
                    with self.subTest(model=prefix, case=case):
                        words = ["--input", f"data={source}", "--json", "--output"]
                        in_process = self.check(shoal("run", path, *words, self.tmp / "run"), reference, tolerance)
                        self.check(shoal("run", path, "--device", "cpu-reference", *words, self.tmp / "reference"), reference, tolerance)
                        pool = self.check(daemon.shoal("predict", "model", *words, self.tmp / "pool"), reference, tolerance)
                        self.assertEqual(pool, in_process, "pool and in process differ")

    def test_squeezenet_names_the_pictures(self):
        pictures = need_data("images")
        linked = link_model(self.tmp / "squeezenet", need_data("models", "squeezenet11-mxnet-derived") / "squeezenet11", (-1, 3, 224, 224))
        expected = {"dog.jpg": "pug", "bald_eagle.jpeg": "bald eagle", "goldfish.jpg": "goldfish", "pelican.jpeg": "pelican",
                    "cat.jpg": "tiger cat", "grace_hopper.jpg": "bow tie"}
        files = [pictures / name for name in expected]
        preset = ["--preset", "imagenet-bgr-caffe", "--top-k", "1", "--json"]
        in_process = shoal("classify", f"{linked}/squeezenet11@0", *files, *preset, "--contexts", "2")
        with Daemon({"squeezenet": f"{linked}/squeezenet11@0,workers=2"}) as daemon:
            pool = daemon.shoal("classify", "squeezenet", *files, *preset)
        for run in (in_process, pool):
            self.assertEqual(run.returncode, 0, run.stderr)
            named = [picture["classes"][0]["label"] for picture in json.loads(run.stdout)["pictures"]]
            for label, want in zip(named, expected.values()):
                self.assertIn(want, label)


if __name__ == "__main__":
    unittest.main(verbosity=2)
