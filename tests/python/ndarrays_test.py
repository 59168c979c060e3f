#!/usr/bin/env python3
"""load_ndarrays and save_ndarrays: MXNet's files of arrays."""
import os
import struct
import subprocess
import sys
import unittest
import unittest.mock
from pathlib import Path

import ml_dtypes
import numpy
from fixtures import SHAPES, SOURCE, ShoalTest, need_data

import shoal

TYPES = ["float32", "float64", "float16", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool", ml_dtypes.bfloat16]


class Ndarrays(ShoalTest):
    def again(self, arrays):
        shoal.save_ndarrays(self.tmp / "x.params", arrays)
        return shoal.load_ndarrays(self.tmp / "x.params")

    def test_every_type_and_shape_comes_back(self):
        arrays = {f"arg:{numpy.dtype(dtype).name}": numpy.arange(6).reshape(2, 3).astype(dtype) for dtype in TYPES}
        arrays |= {"scalar": numpy.float32(3), "empty": numpy.zeros((0, 2), "int32"), "transposed": numpy.arange(6).reshape(2, 3).T,
                   "big-endian": numpy.arange(3).astype(">i4"), "größe": [1.5, 2.5]}
        back = self.again(arrays)
        self.assertEqual(list(back), list(arrays))
        for name, array in arrays.items():
            with self.subTest(name=name):
                wanted = numpy.asarray(array)
                self.assertEqual(back[name].dtype, wanted.dtype.newbyteorder("="))
                numpy.testing.assert_array_equal(back[name], wanted)
        back["scalar"] += 1  # they are the caller's own

    def test_arrays_without_names_are_a_list(self):
        [a, b] = self.again([numpy.float32([1]), numpy.uint8([2, 3])])
        self.assertEqual((a.tolist(), b.tolist()), ([1], [2, 3]))
        self.assertEqual(self.again([]), [])

    def test_files_of_every_era_are_read(self):
        directory = need_data("models", "params-formats")
        oldest = shoal.load_ndarrays(directory / "legacy_ndarray.v0")
        self.assertEqual(len(oldest), 6)
        for array in oldest:
            numpy.testing.assert_array_equal(array, numpy.arange(128))
        v1 = shoal.load_ndarrays(directory / "straight-dope-testnet.params")
        self.assertEqual((len(v1), v1["dense0_weight"].dtype), (6, numpy.float32))
        v2, npz = (shoal.load_ndarrays(directory / name) for name in ("sockeye-2.3.x-params.best.mx", "sockeye-2.4.x-params.best.npz"))
        self.assertEqual((len(v2), sum(array.size for array in npz.values())), (33, 7711))

    def test_sparse_arrays_become_dense(self):
        csr = struct.pack("<QQQ", 0x112, 0, 1) + struct.pack("<Ii", 0xF993FAC9, 2)  # a list of one csr array in V2
        csr += struct.pack("<iq", 1, 2) + struct.pack("<iqq", 2, 2, 3) + struct.pack("<iii", 1, 0, 0)
        csr += struct.pack("<iiq", 6, 1, 3) + struct.pack("<iiq", 6, 1, 2)
        csr += struct.pack("<2f", 5, 6) + struct.pack("<3q", 0, 1, 2) + struct.pack("<2q", 2, 0)
        (self.tmp / "csr.params").write_bytes(csr + struct.pack("<Q", 0))
        [dense] = shoal.load_ndarrays(self.tmp / "csr.params")
        self.assertEqual(dense.tolist(), [[0, 0, 5], [6, 0, 0]])

    def test_damaged_files_are_named(self):
        whole = (SHAPES / "shapes-0000.params").read_bytes()
        (self.tmp / "short.params").write_bytes(whole[:len(whole) // 2])
        with self.assertRaisesRegex(shoal.DataLoss, "short.params: offset"):
            shoal.load_ndarrays(self.tmp / "short.params")
        with self.assertRaisesRegex(shoal.NotFound, "none.params"):
            shoal.load_ndarrays(self.tmp / "none.params")
        with self.assertRaisesRegex(shoal.NotFound, "nowhere/y.params.*directory"):
            shoal.save_ndarrays(self.tmp / "nowhere" / "y.params", {"x": numpy.ones(1)})
        with self.assertRaisesRegex(shoal.InvalidArgument, f"cannot write {self.tmp}: Is a directory"):
            shoal.save_ndarrays(self.tmp, {"x": numpy.ones(1)})

    def test_an_error_leaves_the_old_file_as_it_was(self):
        class Broken:
            def __dlpack__(self, **_):
                raise BufferError("lost")

        file = self.tmp / "x.params"
        shoal.save_ndarrays(file, {"old": numpy.ones(3)})
        before = file.read_bytes()
        good = numpy.ones(1000)
        for wrong, said in [({"good": good, 3: good}, "names of arrays are strings, and not 3"), ({"good": good, "\udc80": good}, r"and not '\\udc80'"),
                            ({"good": good, b"x": good}, "and not b'x'"), ({"good": good, "x": numpy.array([1j])}, "'x'.*complex128"),
                            ({"good": good, "x": numpy.ones([1] * 9)}, "'x'.* 8"), ({"good": good, "x": object()}, "'x'.*object"),
                            ([good, numpy.array(["a"])], "'1'.*<U1"), ({"good": good, "x": Broken()}, "'x'.*lost"), ("good", "not str"),
                            (3, "not int"), (None, "not NoneType")]:
            with self.subTest(said=said), self.assertRaisesRegex(shoal.InvalidArgument, f"cannot write {file}: .*{said}"):
                shoal.save_ndarrays(file, wrong)
            self.assertEqual(file.read_bytes(), before)
        with unittest.mock.patch("os.fsync", side_effect=OSError(28, "No space left on device")), \
                self.assertRaisesRegex(shoal.FailedPrecondition, f"cannot write {file}: No space left"):
            shoal.save_ndarrays(file, {"good": good})
        self.assertEqual(file.read_bytes(), before)
        self.assertEqual(os.listdir(self.tmp), ["x.params"], "something was left beside it")

    def test_a_file_may_have_the_longest_name(self):
        shoal.save_ndarrays(self.tmp / ("x" * 255), {"x": numpy.ones(2)})
        self.assertEqual(os.listdir(self.tmp), ["x" * 255])

    def test_a_file_is_replaced_where_it_is(self):
        file, link = self.tmp / "x.params", self.tmp / "link.params"
        shoal.save_ndarrays(file, [numpy.ones(3)])
        file.chmod(0o640)
        link.symlink_to("x.params")
        old = open(file, "rb")
        self.addCleanup(old.close)
        shoal.save_ndarrays(link, [numpy.zeros(3)])
        self.assertTrue(link.is_symlink())
        self.assertEqual((file.stat().st_mode & 0o777, shoal.load_ndarrays(file)[0].sum()), (0o640, 0))
        self.assertNotEqual(old.read(), file.read_bytes(), "a reader of the old file saw the new one")
        os.mkfifo(self.tmp / "pipe")
        with subprocess.Popen(["cat", self.tmp / "pipe"], stdout=subprocess.PIPE) as reader:
            shoal.save_ndarrays(self.tmp / "pipe", [numpy.zeros(3)])
            self.assertEqual(reader.stdout.read(), file.read_bytes())
        shoal.save_ndarrays(os.fsencode(file), [])
        self.assertEqual(shoal.load_ndarrays(file), [])

    def test_one_array_is_saved_as_one(self):
        x = numpy.arange(6, dtype="float32").reshape(2, 3)

        class Only:
            def __dlpack__(self, **options):
                return x.__dlpack__(**options)

        for given in (x, Only(), [Only()], (x,), iter([x])):
            [back] = self.again(given)
            numpy.testing.assert_array_equal(back, x)
        numpy.testing.assert_array_equal(self.again({"x": Only()})["x"], x)
        self.assertEqual(self.again(numpy.float32(3))[0], 3)

    def test_eight_dimensions_come_back(self):
        self.assertEqual(self.again([numpy.ones([1, 2] * 4)])[0].shape, (1, 2) * 4)

    def test_without_ml_dtypes_it_is_named(self):
        shoal.save_ndarrays(self.tmp / "b.params", {"b": numpy.ones(2, ml_dtypes.bfloat16)})
        with unittest.mock.patch.dict(sys.modules, ml_dtypes=None), self.assertRaisesRegex(shoal.FailedPrecondition, "pip install ml_dtypes"):
            shoal.load_ndarrays(self.tmp / "b.params")

    def test_mxnet_reads_what_is_written_and_the_other_way_round(self):
        python = SOURCE / "build" / "bench" / "venv-mxnet" / "bin" / "python"
        python = Path(os.environ.get("SHOAL_MXNET_PYTHON", python))
        if not python.exists():
            raise unittest.SkipTest(f"no MXNet at {python} (tools/bench peers makes it)")
        shoal.save_ndarrays(self.tmp / "a.params", {"arg:w": numpy.arange(6, dtype="float32").reshape(2, 3), "aux:n": numpy.arange(3)})
        code = "import sys, mxnet as mx; a = mx.nd.load(sys.argv[1]); print({k: v.asnumpy().tolist() for k, v in a.items()}); mx.nd.save(sys.argv[2], a)"
        done = subprocess.run([python, "-c", code, self.tmp / "a.params", self.tmp / "b.params"], capture_output=True, text=True)
        self.assertEqual(done.stdout.strip(), "{'arg:w': [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], 'aux:n': [0, 1, 2]}", done.stderr)
        self.assertEqual((self.tmp / "a.params").read_bytes(), (self.tmp / "b.params").read_bytes())


if __name__ == "__main__":
    unittest.main(verbosity=2)
