#!/usr/bin/env python3
"""The model that ships classifies the pictures that ship, in process and through the pool. Both agree bit for bit."""
import json
import unittest

from support import PICTURES, SHAPES, Daemon, ShoalTest, shoal


class Shapes(ShoalTest):
    def classified(self, run):
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)["pictures"]

    def test_every_picture_gets_its_label_by_run_and_pool(self):
        files = sorted(PICTURES.glob("*.png"))
        self.assertGreaterEqual(len(files), 12)
        in_process = self.classified(shoal("classify", SHAPES, *files, "--top-k", "3", "--contexts", "2", "--json"))
        with Daemon({"shapes": f"{SHAPES},workers=2"}) as daemon:
            pool = self.classified(daemon.shoal("classify", "shapes", *files, "--top-k", "3", "--json"))
        self.assertEqual([p["classes"] for p in pool], [p["classes"] for p in in_process])
        for file, picture in zip(files, in_process):
            with self.subTest(file=file.name):
                self.assertEqual(picture["file"], str(file))
                self.assertEqual(picture["classes"][0]["label"], file.name.split("-")[0])

    def test_the_precision_is_chosen_where_the_model_runs_here(self):
        picture = next(PICTURES.glob("star-*.png"))
        for precision in ("f32", "f32-fast"):
            [result] = self.classified(shoal("classify", SHAPES, picture, "--precision", precision, "--json"))
            self.assertEqual(result["classes"][0]["label"], "star")
        self.assert_fails(shoal("classify", "shapes", picture, "--precision", "f32"), 2, "--precision", "model.toml")
        self.assertNotEqual(shoal("classify", SHAPES, picture, "--precision", "f16").returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
