#!/usr/bin/env python3
"""Real trained checkpoints give the expected outputs, by `shoal run` on both devices and through the pool. Run and pool agree bit for bit."""
import json
import unittest

from support import DATA, Daemon, ShoalTest, largest_error, link_model, need_data, read_npy, shoal, write_npy

TOLERANCE = 1e-4  # of max |ref|: the figure for checkpoints; MXNet itself differs by up to 9e-6

# Directory in ../shared/models, prefix and epoch, shape in model.toml.
MODELS = [
    ("cifar-resnet20-v1", "cifar_resnet20_v1@0", (-1, 3, 32, 32)),
    ("cifar-resnet20-v2", "cifar_resnet20_v2@0", (-1, 3, 32, 32)),
    ("mnist-mlp-mx14", "model@0", (-1, 1, 28, 28)),
    ("mnist-lenet-mx05", "mnist-lenet-0@10", (-1, 1, 28, 28)),
    ("mtcnn", "det1@1", (-1, 3, -1, -1)),
    ("mtcnn", "det2@1", (-1, 3, 24, 24)),
    ("mtcnn", "det3@1", (-1, 3, 48, 48)),
    ("lffd-head", "lffd-head@0", (-1, 3, -1, -1)),
    ("tiny-linear-mx11", "model@0", (-1, 2)),
    ("tiny-softmax-mx09", "go_test@1", (1, 10)),
    ("squeezenet11-mxnet-derived", "squeezenet11@0", (-1, 3, 224, 224)),
    ("squeezenet11-mxnet-derived", "squeezenet11@16", (-1, 3, 224, 224)),
]
CAFFE_MEAN = (104, 117, 123)  # blue, green, red: what the expected.json's notes have subtracted from the bytes of *_meansub inputs
FLOAT16_TOLERANCE = 2e-2  # epoch 16 holds the same weights rounded to float16


class Models(ShoalTest):
    def cases(self, folder, prefix):
        """(case, input file as float32, values of each output) of a model's expected/."""
        expected = need_data("models", folder, "expected")
        for case in json.loads((expected / "expected.json").read_text()):
            if case.get("model", prefix) != prefix:  # one list for the three networks of a cascade
                continue
            source = expected / case["inputs"][0]["file"]
            shape, values = read_npy(source)
            if case["case"].endswith("_meansub"):
                plane = shape[2] * shape[3]
                values = [v - CAFFE_MEAN[i // plane % 3] for i, v in enumerate(values)]
            if case["inputs"][0]["dtype"] != "float32":
                source = write_npy(self.tmp / f"{case['case']}.npy", shape, values)
            yield case["case"], source, [read_npy(expected / output["file"])[1] for output in case["outputs"]]

    def check(self, run, references, tolerance=TOLERANCE):
        self.assertEqual(run.returncode, 0, run.stderr)
        outputs = json.loads(run.stdout)["outputs"]
        self.assertEqual(len(outputs), len(references))
        every = []
        for output, reference in zip(outputs, references):
            self.assertEqual(output["dtype"], "float32")
            values = read_npy(output["file"])[1]
            self.assertEqual(len(values), len(reference))
            self.assertLessEqual(largest_error(values, reference), tolerance, output["name"])
            every.append(values)
        return every

    def test_outputs_are_as_expected_by_run_and_pool(self):
        for folder, checkpoint, shape in MODELS:
            prefix = checkpoint.split("@")[0]
            tolerance = FLOAT16_TOLERANCE if checkpoint == "squeezenet11@16" else TOLERANCE
            files = need_data("models", folder)
            first = [1 if axis == 0 else 64 if dim < 0 else dim for axis, dim in enumerate(shape)]  # what the pool compiles at once
            # Algorithms are measured for the first shape compiled, which differs between the two: equal bits are those of equal choices.
            linked = link_model(self.tmp / folder / checkpoint, files / prefix, shape, shapes=f"[{{data = {first}}}]", tuning_ms=0)
            with Daemon({"model": f"{linked}/{checkpoint},workers=2"}) as daemon:
                for case, source, references in self.cases(folder, prefix):
                    with self.subTest(model=checkpoint, case=case):
                        words = ["--input", f"data={source}", "--json", "--output"]
                        in_process = self.check(shoal("run", f"{linked}/{checkpoint}", *words, self.tmp / "run"), references, tolerance)
                        pool = self.check(daemon.shoal("predict", "model", *words, self.tmp / "pool"), references, tolerance)
                        self.assertEqual(pool, in_process, "pool and in process differ")
            if folder.startswith("squeezenet"):
                continue  # plain loops take long
            with Daemon({"model": f"{linked}/{checkpoint},device=cpu-reference"}) as daemon:
                for case, source, references in self.cases(folder, prefix):
                    with self.subTest(model=checkpoint, case=case, device="cpu-reference"):
                        words = ["--input", f"data={source}", "--json", "--output"]
                        self.check(shoal("run", files / checkpoint, "--device", "cpu-reference", *words, self.tmp / "run"), references, tolerance)
                        self.check(daemon.shoal("predict", "model", *words, self.tmp / "pool"), references, tolerance)

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
