#!/usr/bin/env python3
"""ImageClassifier and ObjectDetector: pictures of all kinds, in the pool and in this process, and the known results of a checkpoint."""
import json
import unittest

import numpy
from fixtures import DATA, PICTURES, SHAPES, PoolTest, ShoalTest, need_data, write_detector, write_png

import shoal

FILES = sorted(PICTURES.glob("*.png"))
NAMES = [path.name.split("-")[0] for path in FILES]
BGR = shoal.Preprocess(resize=256, crop=(224, 224), order="BGR", mean=(104, 117, 123))


class Classifier(PoolTest):
    MODELS = {"shapes": f"{SHAPES},workers=2"}

    def setUp(self):
        super().setUp()
        self.engine = self.enterContext(shoal.Engine(SHAPES))

    def test_lists_of_pictures_are_classified_as_in_process(self):
        in_pool = shoal.ImageClassifier(self.pool, "shapes", top_k=3).classify(FILES)
        in_process = shoal.ImageClassifier(self.engine, "shapes", batch=4).classify([path.read_bytes() for path in FILES], top_k=3)
        self.assertEqual([classes[0][0] for classes in in_pool], NAMES)
        self.assertEqual([[label for label, _ in classes] for classes in in_pool], [[label for label, _ in classes] for classes in in_process])
        self.assertEqual(shoal.ImageClassifier(self.pool, "shapes").classify([]), [])
        self.assertEqual(shoal.ImageClassifier(shoal.Engine(SHAPES), "", top_k=1).classify(FILES[0])[0][0], NAMES[0])  # keeps the Engine

    def test_a_picture_may_be_a_path_bytes_or_pixels(self):
        classifier = shoal.ImageClassifier(self.pool, "shapes", top_k=1)
        self.assertEqual(classifier.warnings, [])
        data = FILES[0].read_bytes()
        expected = classifier.classify(FILES[0])
        for given in (str(FILES[0]), data, bytearray(data), memoryview(data)):
            self.assertEqual(classifier.classify(given), expected)
        self.assertEqual(classifier.classify([FILES[0], data]), [expected] * 2)
        pixels = numpy.random.default_rng(1).integers(0, 256, (64, 64, 3), numpy.uint8)
        pixels[:, :, 0] = 0
        reversed_twice = numpy.ascontiguousarray(pixels[:, :, ::-1])[:, :, ::-1]  # not contiguous
        self.assertEqual(classifier.classify(pixels, top_k=12), classifier.classify(reversed_twice, top_k=12))
        self.assertNotEqual(classifier.classify(pixels, top_k=12), classifier.classify(pixels[:, :, ::-1], top_k=12))

    def test_wrong_pictures_are_errors(self):
        classifier = shoal.ImageClassifier(self.pool, "shapes")
        for wrong in (self.tmp / "none.png", b"no picture", numpy.zeros((4, 4), numpy.uint8), numpy.zeros((4, 4, 3)), numpy.zeros((0, 4, 3), numpy.uint8)):
            with self.assertRaises(shoal.Error):
                classifier.classify(wrong)
            with self.assertRaises(shoal.Error):
                classifier.classify([FILES[0], wrong])
        for wrong, said in ((numpy.zeros((5, 6, 3), numpy.float32), "float32 and shape (5, 6, 3)"),
                            (numpy.zeros((5, 6, 4), numpy.uint8), "uint8 and shape (5, 6, 4)"), (numpy.zeros(7, numpy.uint8), "shape (7,)")):
            with self.assertRaises(shoal.InvalidArgument) as caught:
                classifier.classify(wrong)
            self.assertIn("an array of uint8 and shape (height, width, 3); not an array of ", str(caught.exception))
            self.assertIn(said, str(caught.exception))
        for wrong in (3, None, (4, 5)):
            with self.assertRaises(TypeError):
                classifier.classify(wrong)
        with self.assertRaises(shoal.NotFound):
            shoal.ImageClassifier(self.pool, "nothing")
        self.pool.close()
        with self.assertRaises(shoal.Error):
            classifier.classify(FILES[0])

    def test_labels_and_preprocessing_may_be_given(self):
        self.assertEqual(self.pool.describe("shapes").preprocess, shoal.ImageClassifier(self.pool, "shapes").preprocess)
        numbers = [str(i) for i in range(12)]
        own = shoal.ImageClassifier(self.pool, "shapes", labels=numbers, top_k=1).classify(FILES[-1])
        self.assertEqual(self.pool.describe("shapes").labels[int(own[0][0])], NAMES[-1])
        given = shoal.ImageClassifier(self.pool, "shapes", preprocess=shoal.Preprocess(letterbox=True, mean=(1, 2, 3), scale=0.5))
        self.assertEqual(given.preprocess, shoal.Preprocess(crop=(64, 64), mean=(1, 2, 3), scale=(0.5, 0.5, 0.5), letterbox=True))
        for wrong, said in ((shoal.Preprocess(order="RGBA"), "order is 'RGBA'"), (shoal.Preprocess(mean=(1, 2)), "mean has 2 numbers"),
                            (shoal.Preprocess(border=300), "^preprocess: border is 300; it must be 0 to 255$"),
                            (shoal.Preprocess(crop=-1), r"^preprocess: crop is -1; it must be \(height, width\)$"),
                            (shoal.Preprocess(crop=(-1, 64)), "a side of crop is -1"), (shoal.Preprocess(resize="big"), "resize is 'big'"),
                            (shoal.Preprocess(scale=0), "scale has 0"), (shoal.Preprocess(scale=(1, 0, 1)), "scale has 0"),
                            (shoal.Preprocess(mean=float("nan")), "mean has nan"), ("imagenet", "'imagenet' is no"), ({}, "is no")):
            with self.subTest(preprocess=wrong), self.assertRaisesRegex(shoal.InvalidArgument, said):
                shoal.ImageClassifier(self.pool, "shapes", preprocess=wrong)


class Detector(PoolTest):
    @classmethod
    def models(cls):
        import tempfile
        from pathlib import Path
        cls.path = write_detector(Path(cls.enterClassContext(tempfile.TemporaryDirectory())) / "ssd")
        return {"ssd": cls.path, "shapes": SHAPES}

    def setUp(self):
        super().setUp()
        self.engine = self.enterContext(shoal.Engine(self.path))
        self.street = write_png(self.tmp / "street.png", 400, 200)

    def assert_found(self, found, expected):
        self.assertEqual([(label, box) for label, _, box in found], [(label, box) for label, _, box in expected])
        for (_, score, _), (_, wanted, _) in zip(found, expected):
            self.assertAlmostEqual(score, wanted, 5)

    def test_boxes_are_in_pixels_of_the_picture(self):
        cat, dog, fish = ("cat", 0.9, (0, 0, 200, 100)), ("dog", 0.75, (100, 100, 300, 200)), ("fish", 0.25, (0, 0, 400, 200))
        for client in (self.pool, self.engine):
            detector = shoal.ObjectDetector(client, "ssd")
            self.assertEqual(detector.warnings, [])
            self.assertEqual(detector.preprocess.crop, (32, 32))
            self.assert_found(detector.detect(self.street), [cat, dog])
            self.assert_found(detector.detect(self.street.read_bytes()), [cat, dog])
            self.assert_found(detector.detect(numpy.zeros((200, 400, 3), numpy.uint8)), [cat, dog])
            many = detector.detect([self.street, numpy.zeros((2, 4, 3), numpy.uint8)])
            self.assert_found(many[0], [cat, dog])
            self.assertEqual([box for _, _, box in many[1]], [(0, 0, 2, 1), (1, 1, 3, 2)])
            self.assert_found(shoal.ObjectDetector(client, "ssd", threshold=0.1, batch=2).detect([self.street] * 3)[2], [cat, dog, fish])
            self.assert_found(shoal.ObjectDetector(client, "ssd", threshold=0.1, top_k=1).detect(self.street), [cat])
            self.assert_found(shoal.ObjectDetector(client, "ssd", threshold=0.95).detect(self.street), [])

    def test_many_pictures_keep_their_order(self):
        pictures = [numpy.zeros((2 * i, 4, 3), numpy.uint8) for i in range(1, 151)]
        found = shoal.ObjectDetector(self.pool, "ssd").detect(pictures)
        self.assertEqual([detections[0][2][3] for detections in found], list(range(1, 151)))

    def test_what_the_outputs_mean_may_be_said(self):
        detector = shoal.ObjectDetector(self.engine, "ssd", labels=["Katze", "Hund", "Fisch"], format="multibox", outputs=["detection_output"])
        self.assertEqual([label for label, _, _ in detector.detect(self.street)], ["Katze", "Hund"])
        in_pixels = shoal.ObjectDetector(self.engine, "ssd", format="nms").detect(self.street)
        self.assertLess(max(in_pixels[0][2]), 14, "in pixels of the input, which is 32 x 32")
        boxed = shoal.ObjectDetector(self.engine, "ssd", preprocess=shoal.Preprocess(letterbox=True), threshold=0.8).detect(self.street)
        self.assert_found(boxed, [("cat", 0.9, (0, 0, 200, 100))])  # the picture lies in the center of the square

    def test_errors(self):
        for wrong, said in [({"format": "yolo"}, "multibox, nms, gluoncv"), ({"preprocess": 3}, "Preprocess"),
                            ({"threshold": 2}, "threshold is 2; it must be at most 1"), ({"threshold": float("nan")}, "threshold is nan")]:
            with self.assertRaisesRegex(shoal.InvalidArgument, said):
                shoal.ObjectDetector(self.pool, "ssd", **wrong)
        with self.assertRaises(shoal.NotFound):
            shoal.ObjectDetector(self.pool, "ssd", outputs=["nothing"])
        with self.assertRaises(shoal.FailedPrecondition):
            shoal.ObjectDetector(self.pool, "shapes")
        detector = shoal.ObjectDetector(self.pool, "ssd", labels=["cat"])
        self.assertEqual([label for label, _, _ in detector.detect(self.street)], ["cat", "1"])
        with self.assertRaisesRegex(shoal.NotFound, "none.png"):
            detector.detect(self.tmp / "none.png")


class KnownResults(ShoalTest):
    def test_squeezenet_classifies_photographs(self):
        folder = need_data("models", "squeezenet11-mxnet-derived")
        cases = [case for case in json.loads((folder / "expected" / "expected.json").read_text()) if "subtract mean" in case.get("note", "")]
        self.assertGreaterEqual(len(cases), 7)
        engine = self.enterContext(shoal.Engine(folder / "squeezenet11@0", tuning_ms=0, shapes={"data": (1, 3, 224, 224)}))
        classifier = shoal.ImageClassifier(engine, "", preprocess=BGR)
        for case, classes in zip(cases, classifier.classify([DATA / "images" / case["image"] for case in cases])):
            with self.subTest(image=case["image"]):
                found = dict(classes)
                self.assertEqual(classes[0][0], case["top5"][0][1])
                for _, label, probability in case["top5"]:
                    if probability >= 0.01:  # the order of others may differ
                        self.assertAlmostEqual(found[label], probability, delta=2e-3)  # another decoder of JPEG may differ by 1 of 255


if __name__ == "__main__":
    unittest.main(verbosity=2)
