#!/usr/bin/env python3
"""`shoal detect` finds what its model answers, in pixels of the picture, in this process and with the daemon, and draws it."""
import json
import os
import struct
import subprocess
import unittest
import zlib

from support import FAULTY, PICTURES, SHAPES, Daemon, ShoalTest, need_data, shoal, start

# Class, score, and the box as shares of the picture's sides: what the model below finds in every picture.
ROWS = [[1, 0.75, 0.25, 0.5, 0.75, 1.0], [0, 0.9, 0.0, 0.0, 0.5, 0.5], [-1, 0.99, 0, 0, 1, 1], [2, 0.25, 0, 0, 1, 1]]


def write_png(path, width, height, rgb=(0, 0, 0)):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + bytes(rgb) * width) * height
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
                     + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return path


def read_png(path):
    """Width, height and rows of a PNG with 8-bit red, green and blue."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", path
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack_from(">IIBB", data, at + 8)
            assert (depth, color) == (8, 2), path
        elif kind == b"IDAT":
            packed += data[at + 8:at + 8 + size]
        at += size + 12
    raw, stride, rows, above = zlib.decompress(packed), width * 3, [], bytes(width * 3)
    for y in range(height):
        filter_, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride):
            left, up, corner = line[i - 3] if i >= 3 else 0, above[i], above[i - 3] if i >= 3 else 0
            nearest = min((left, up, corner), key=lambda value: abs(left + up - corner - value))
            line[i] = (line[i] + (0, left, up, (left + up) // 2, nearest)[filter_]) & 255
        rows.append(bytes(line))
        above = rows[-1]
    return width, height, rows


def write_detector(directory, labels="cat\ndog\nfish\n", preset="mxnet-ssd", last=()):
    """A checkpoint that answers with ROWS, whatever the picture is: 0 * mean(data) + rows. last: more nodes behind that."""
    directory.mkdir()
    nodes = [{"op": "null", "name": "data", "inputs": []}, {"op": "null", "name": "rows", "inputs": []},
             {"op": "mean", "name": "mean", "attrs": {"axis": "(1, 2, 3)", "keepdims": "True"}, "inputs": [[0, 0, 0]]},
             {"op": "_mul_scalar", "name": "nothing", "attrs": {"scalar": "0"}, "inputs": [[2, 0, 0]]},
             {"op": "Reshape", "name": "flat", "attrs": {"shape": "(-1, 1, 1)"}, "inputs": [[3, 0, 0]]},
             {"op": "broadcast_add", "name": "detection", "inputs": [[4, 0, 0], [1, 0, 0]]}, *last]
    graph = {"nodes": nodes, "arg_nodes": [0, 1], "heads": [[len(nodes) - 1, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}
    (directory / "ssd-symbol.json").write_text(json.dumps(graph))
    values = struct.pack(f"<{len(ROWS) * 6}f", *(value for row in ROWS for value in row))
    array = struct.pack("<IiI3qiii", 0xF993FAC9, 0, 3, 1, len(ROWS), 6, 1, 0, 0) + values
    name = b"arg:rows"
    (directory / "ssd-0000.params").write_bytes(
        struct.pack("<QQQ", 0x112, 0, 1) + array + struct.pack("<QQ", 1, len(name)) + name)
    (directory / "synset.txt").write_text(labels)
    (directory / "model.toml").write_text('inputs = [{name = "data", shape = [-1, 3, 32, 32]}]\ntuning_ms = 0\n'
                                          f'[preprocess]\npreset = "{preset}"\n')
    return directory


class Detect(ShoalTest):
    def setUp(self):
        super().setUp()
        self.model = write_detector(self.tmp / "model")
        self.picture = write_png(self.tmp / "street.png", 400, 200)

    def found(self, run):
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)["pictures"]

    def test_boxes_are_in_pixels_of_the_picture(self):
        expected = [{"index": 0, "label": "cat", "score": 0.9, "box": [0, 0, 200, 100]},
                    {"index": 1, "label": "dog", "score": 0.75, "box": [100, 100, 300, 200]}]
        with Daemon({"ssd": self.model}) as daemon:
            runs = [shoal("detect", self.model, self.picture, "--json"), daemon.shoal("detect", "ssd", self.picture, "--json")]
        for run in runs:
            (picture,) = self.found(run)
            self.assertEqual(picture["file"], str(self.picture))
            self.assertEqual(len(picture["detections"]), 2, "the others have a low score, or no class")
            for got, want in zip(picture["detections"], expected):
                self.assertEqual((got["index"], got["label"]), (want["index"], want["label"]))
                self.assertAlmostEqual(got["score"], want["score"], 5)
                for a, b in zip(got["box"], want["box"]):
                    self.assertAlmostEqual(a, b, 3)

    def test_a_letterbox_is_mapped_back(self):
        model = write_detector(self.tmp / "darknet", preset="darknet")
        (picture,) = self.found(shoal("detect", model, self.picture, "--json"))
        # The picture is 2 : 1. Its letterbox has borders of a quarter of the height above and below.
        self.assertEqual([[round(side) for side in found["box"]] for found in picture["detections"]],
                         [[0, 0, 200, 100], [100, 100, 300, 200]])

    def test_options_choose_what_is_shown(self):
        labels = self.tmp / "labels.txt"
        labels.write_text("Katze\nHund\nFisch\n")
        (picture,) = self.found(shoal("detect", self.model, self.picture, "--json", "--threshold", "0.1", "--labels", labels))
        self.assertEqual([found["label"] for found in picture["detections"]], ["Katze", "Hund", "Fisch"])
        (picture,) = self.found(shoal("detect", self.model, self.picture, "--json", "--top-k", "1"))
        self.assertEqual(len(picture["detections"]), 1)
        (picture,) = self.found(shoal("detect", self.model, self.picture, "--json", "--threshold", "0.1", "--format", "nms"))
        self.assertLess(max(picture["detections"][0]["box"]), 14, "in pixels of the input, which is 32 x 32")

    def test_the_table_is_for_people(self):
        empty = write_png(self.tmp / "empty.png", 4, 4)
        run = shoal("detect", self.model, self.picture, empty)
        self.assertEqual(run.returncode, 0, run.stderr)
        lines = [line.split() for line in run.stdout.splitlines()]
        self.assertEqual(lines[0], [str(self.picture), "90.0", "%", "cat", "0", "0", "200", "100"])
        self.assertEqual(lines[1], ["75.0", "%", "dog", "100", "100", "300", "200"])
        none = shoal("detect", self.model, empty, "--threshold", "0.95")
        self.assertIn("nothing found", none.stdout)

    def test_draws_the_boxes(self):
        drawn = self.tmp / "drawn.png"
        self.found(shoal("detect", self.model, self.picture, "--json", "--draw", drawn))
        width, height, rows = read_png(drawn)
        self.assertEqual((width, height), (400, 200))
        self.assertNotEqual(rows[150][300:303], b"\0\0\0", "the left side of the dog's box")
        self.assertEqual(rows[180][50 * 3:50 * 3 + 3], b"\0\0\0", "where nothing is")
        second = write_png(self.tmp / "second.png", 10, 10)
        out = self.tmp / "out"
        self.found(shoal("detect", self.model, self.picture, second, "--json", "--draw", out, "--contexts", "2"))
        self.assertEqual(sorted(path.name for path in out.iterdir()), ["second.png", "street.png"])
        jpeg = self.tmp / "drawn.jpg"
        self.found(shoal("detect", self.model, self.picture, "--json", "--draw", jpeg))
        self.assertEqual(jpeg.read_bytes()[:2], b"\xff\xd8")

    def test_a_picture_is_read_once(self):
        slow = write_detector(self.tmp / "slow", last=[{"op": "_fault_spin", "name": "slow", "attrs": {"scalar": "1500"}, "inputs": [[5, 0, 0]]}])
        drawn = self.tmp / "drawn.png"
        with Daemon({"ssd": slow}, worker=FAULTY) as daemon:
            process = start(["detect", "ssd", self.picture, "--draw", drawn], daemon.directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            daemon.wait_for("ssd", lambda model: model["queue"]["running"] > 0)
            self.picture.unlink()
            text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, text)
        self.assertEqual(read_png(drawn)[:2], (400, 200))

    def test_a_drawing_goes_into_what_is_there(self):
        """As a shell's > does: it follows a link, writes into a pipe, and needs no other name."""
        real, link, pipe, long = self.tmp / "real.png", self.tmp / "link.png", self.tmp / "pipe.png", self.tmp / f"{'x' * 251}.png"
        real.write_text("old")
        link.symlink_to(real)
        os.mkfifo(pipe)
        for drawn in (link, long):
            self.found(shoal("detect", self.model, self.picture, "--json", "--draw", drawn))
            self.assertEqual(read_png(drawn)[:2], (400, 200))
        self.assertTrue(link.is_symlink())
        self.assertEqual(read_png(real)[:2], (400, 200))
        with start(["detect", self.model, self.picture, "--draw", pipe], self.tmp, stdout=subprocess.DEVNULL) as process:
            reader = os.open(pipe, os.O_RDWR)  # does not wait for the writer; the drawing fits into the pipe
            self.assertEqual(process.wait(60), 0)
            os.set_blocking(reader, False)
            self.assertTrue(os.read(reader, 65536).startswith(b"\x89PNG"))
            os.close(reader)

    def test_drawings_stay_if_a_later_picture_fails(self):
        out = self.tmp / "out"
        out.mkdir()
        (out / "street.png").write_text("old")
        run = shoal("detect", self.model, self.picture, self.tmp / "missing.png", "--draw", out)
        self.assert_fails(run, 1, "missing.png")
        self.assertEqual(os.listdir(out), ["street.png"])
        self.assertEqual(read_png(out / "street.png")[:2], (400, 200))

    def test_a_drawing_never_replaces_a_picture_that_was_given(self):
        pictures = self.tmp / "pictures"
        pictures.mkdir()
        first, second = write_png(pictures / "first.png", 20, 10), write_png(pictures / "second.png", 20, 10)
        link, hard = self.tmp / "link.png", self.tmp / "hard.png"
        link.symlink_to(second)
        hard.hardlink_to(second)
        before = second.read_bytes()
        for files, draw, target in (((first, second), pictures, first), ((second,), pictures, second), ((second,), second, second),
                                    ((second,), link, link), ((first, hard), pictures, first), ((link,), hard, hard)):
            with self.subTest(draw=draw):
                # Before anything is asked of a model: there is no daemon.
                run = shoal("detect", "ssd", *files, "--draw", draw, directory=self.tmp)
                self.assert_fails(run, 1, f"--draw would write {target} over the picture {files[0]}", "another")
                self.assertEqual((first.read_bytes(), second.read_bytes()), (before, before))
        (pictures / "first.jpg").write_bytes(first.read_bytes())
        self.assert_fails(shoal("detect", "ssd", pictures / "first.jpg", second, "--draw", pictures, directory=self.tmp), 1, second)
        self.found(shoal("detect", self.model, pictures / "first.jpg", "--json", "--draw", pictures))  # it was not given: as > does
        self.assertNotEqual(first.read_bytes(), before)

    def test_a_directory_is_one_for_a_single_picture_too(self):
        out = self.tmp / "out.jpg"
        out.mkdir()
        self.found(shoal("detect", self.model, self.picture, "--json", "--draw", out))
        self.assertEqual(os.listdir(out), ["street.png"])
        self.found(shoal("detect", self.model, self.picture, "--json", "--draw", f"{self.tmp / 'new'}/"))
        self.assertEqual(os.listdir(self.tmp / "new"), ["street.png"])

    def test_the_format_of_a_drawing_is_looked_at_first(self):
        for name in ("drawn.what", "drawn"):
            run = shoal("detect", "ssd", self.picture, "--draw", self.tmp / name, directory=self.tmp)  # there is no daemon
            self.assert_fails(run, 1, f"{self.tmp / name}: no format of pictures", ".png or .jpg")

    def test_mistakes_are_named(self):
        draw = ["detect", self.model, self.picture, "--draw"]
        self.assert_fails(shoal(*draw, self.tmp / "drawn.what"), 1, "drawn.what", ".png or .jpg")
        run = shoal(*draw, self.tmp / "none" / "x.png")
        self.assert_fails(run, 1, "none/x.png")
        self.assertNotIn(".part", run.stderr)
        self.assert_fails(shoal("detect", self.model, self.picture, self.picture, "--draw", self.tmp / "out"), 1, "street.png", "two pictures")
        self.assert_fails(shoal("detect", self.model, self.tmp / "missing.png"), 1, "missing.png")
        self.assert_fails(shoal("detect", self.model, self.picture, "--labels", self.tmp / "none.txt"), 1, "none.txt")
        self.assertEqual(shoal("detect", self.model, self.picture, "--threshold", "2").returncode, 2)
        self.assertEqual(shoal("detect", self.model, self.picture, "--threshold", "nan").returncode, 2)
        self.assertEqual(shoal("detect", self.model, self.picture, "--preset", "what").returncode, 2)
        self.assert_fails(shoal("detect", SHAPES, next(PICTURES.glob("star-1.png"))), 1, "shapes", "no detector")
        self.assert_fails(shoal("detect", "ssd", self.picture, directory=self.tmp), 3, self.tmp)

    def test_a_class_without_a_label_is_its_number(self):
        run = shoal("detect", write_detector(self.tmp / "few", labels="cat\n"), self.picture)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([line.split("%")[1].split()[:-4] for line in run.stdout.splitlines()], [["cat"], ["class", "1"]])

    def test_a_model_that_says_nothing_of_its_pictures_warns(self):
        (self.model / "model.toml").write_text('inputs = [{name = "data", shape = [-1, 3, 32, 32]}]\ntuning_ms = 0\n')
        run = shoal("detect", self.model, self.picture, "--json")
        self.assertEqual(len(self.found(run)[0]["detections"]), 2)
        self.assertIn("GluonCV", run.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
