#!/usr/bin/env python3
"""shoal.Engine: the bits of the pool, OpenMP's waiting, measuring without a fork, types, what is said when something is missing."""
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import unittest
from pathlib import Path

import numpy
from fixtures import SHAPES, Daemon, ShoalTest, ones, write_counter, write_detector

import shoal


def python(code, **environment):
    """Runs code in a new interpreter, and returns the finished process."""
    kept = {key: value for key, value in os.environ.items() if key not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env={**kept, **environment}, capture_output=True, text=True, timeout=120)


class SameAsPool(ShoalTest):
    def test_outputs_are_bit_equal_to_the_pools(self):
        pictures = numpy.random.default_rng(1).random((5, 3, 64, 64), numpy.float32)
        engine = self.enterContext(shoal.Engine(SHAPES))
        with Daemon({"shapes": f"{SHAPES},workers=2"}) as daemon, shoal.Pool(daemon.directory) as pool:
            for client in (pool, engine):
                self.assertEqual(client.describe("shapes").outputs[0].name, "prob_output")
            for picture in pictures:
                inputs = {"data": picture[None]}
                a, b, c = (pool.predict("shapes", inputs)["prob_output"], engine.predict("shapes", inputs)["prob_output"], engine.submit("shapes", inputs).result()["prob_output"])
                self.assertEqual((a.tobytes(), a.tobytes()), (b.tobytes(), c.tobytes()))
        self.assertEqual(a.shape, (1, 12))

    def test_all_ways_to_wait_work(self):
        import asyncio
        engine = self.enterContext(shoal.Engine("builtin:identity", contexts=2))
        inputs = [{"data": numpy.float32([i])} for i in range(200)]
        values = range(200)
        self.assertEqual([engine.submit("", each).result(10)["data_output"][0] for each in inputs], list(values))
        self.assertEqual({tag: out["data_output"][0] for tag, out in engine.as_completed(inputs, model="")}, dict(enumerate(values)))

        async def main():
            return await asyncio.gather(*(engine.predict_async("", each) for each in inputs))

        self.assertEqual([out["data_output"][0] for out in asyncio.run(main())], list(values))

    def test_an_input_is_kept_until_it_is_used(self):
        engine = self.enterContext(shoal.Engine("builtin:identity"))
        futures = [engine.submit("", {"data": numpy.full(100_000, i, numpy.float32)}) for i in range(50)]
        for i, future in enumerate(futures):
            self.assertEqual(future.result(10)["data_output"].mean(), i)

    def test_options_and_errors(self):
        engine = self.enterContext(shoal.Engine(SHAPES, threads=1, tuning_ms=0, shapes={"data": (4, 3, 64, 64)}, precision="f32"))
        self.assertGreater(engine.packed_bytes, 0)
        self.assertGreater(engine.arena_bytes, 0)
        self.assertIsInstance(engine.warnings, list)
        self.assertEqual(engine.predict("", {"data": ones(4, 3, 64, 64)})["prob_output"].shape, (4, 12))
        for use in (engine.predict, lambda *given, **options: engine.submit(*given, **options).result(10)):
            with self.assertRaisesRegex(shoal.NotFound, "version 1 of model 'shapes', not 7"):
                use("shapes", {"data": ones(4, 3, 64, 64)}, version=7)
        with self.assertRaisesRegex(shoal.NotFound, "version 1.*not 7"):
            engine.describe("shapes", version=7)
        with self.assertRaisesRegex(shoal.NotFound, "/nowhere"):
            shoal.Engine("/nowhere/model")
        with self.assertRaisesRegex(shoal.InvalidArgument, "quick"):
            shoal.Engine(SHAPES, precision="quick")
        engine.close()
        with self.assertRaisesRegex(shoal.FailedPrecondition, "closed"):
            engine.predict("", {"data": ones(4, 3, 64, 64)})

    def test_numbers_that_cannot_be_are_named(self):
        for name, wrong in [("contexts", 0), ("contexts", -1), ("threads", -1), ("queue_limit", -3), ("queue_limit", 0), ("tuning_ms", -2),
                            ("threads", 1 << 40), ("contexts", 1.5), ("queue_limit", "many")]:
            with self.subTest(name=name, wrong=wrong), self.assertRaisesRegex(shoal.InvalidArgument, f"^{name} is {wrong!r}: give a whole number from"):
                shoal.Engine("builtin:identity", **{name: wrong})
        for wrong in ({"data": "ab"}, {"data": [1.5]}, {3: [1]}):
            with self.assertRaisesRegex(shoal.InvalidArgument, "shapes has"):
                shoal.Engine("builtin:identity", shapes=wrong)

    def test_a_picture_may_have_a_name_that_is_no_utf8(self):
        classifier = shoal.ImageClassifier(shoal.Engine(SHAPES, tuning_ms=0), "", top_k=1)
        file = self.tmp / os.fsdecode(b"star-\xff.png")
        with self.assertRaisesRegex(shoal.NotFound, r"star-\\xff.png"):
            classifier.classify(file)
        shutil.copy(SHAPES.parent / "pictures" / "star-1.png", file)
        self.assertEqual(classifier.classify(file)[0][0], "star")

    def test_any_name_of_a_model_means_the_only_one(self):
        import asyncio
        engine = self.enterContext(shoal.Engine(SHAPES, tuning_ms=0))
        x = {"data": ones(1, 3, 64, 64)}
        expected = engine.predict("shapes", x)["prob_output"].tobytes()
        y = engine.loan_output("float32", (1, 12))
        for name in ("resnet", "", "shapes", "größe"):
            with self.subTest(name=name):
                self.assertEqual(engine.describe(name).name, "shapes")
                outputs = [engine.predict(name, x), engine.predict(name, x, out={"prob_output": y}), engine.submit(name, x).result(10),
                           asyncio.run(engine.predict_async(name, x)), dict(engine.as_completed([x], model=name))[0]]
                self.assertEqual({each["prob_output"].tobytes() for each in outputs}, {expected})
                star = SHAPES.parent / "pictures" / "star-1.png"
                self.assertEqual(shoal.ImageClassifier(engine, name, top_k=1).classify(star)[0][0], "star")
        self.assertEqual(engine.models(), ["shapes"])
        detector = write_detector(self.tmp / "ssd")
        self.assertTrue(shoal.ObjectDetector(shoal.Engine(detector), "street").detect(numpy.zeros((200, 400, 3), numpy.uint8)))

    def test_errors_name_the_model_of_the_engine(self):
        engine = self.enterContext(shoal.Engine(SHAPES, tuning_ms=0))
        y = numpy.zeros((1, 12), numpy.float32)
        for call in (lambda: engine.predict("", {"date": ones(1)}), lambda: engine.predict("", {"date": ones(1)}, out={"prob_output": y}),
                     lambda: engine.predict("", {"data": ones(1, 3, 64, 64)}, out={"nothing": y}),
                     lambda: engine.predict("", {"data": ones(1, 3, 64, 64)}, timeout=0), lambda: engine.open_session("")):
            with self.assertRaisesRegex(shoal.Error, "model 'shapes'"):
                call()

    def test_a_session_keeps_its_state_as_that_of_a_pool(self):
        import asyncio
        path = write_counter(self.tmp / "counter")
        with Daemon({"counter": f"{path},workers=1"}) as daemon, shoal.Pool(daemon.directory) as pool, shoal.Engine(path) as engine:
            for client in (pool, engine):
                with self.subTest(client=type(client).__name__), client.open_session("counter") as session:
                    step = {"data": ones(1, 2)}
                    first = session.predict(step)
                    self.assertEqual(first["y_output"].tolist(), [[2, 2]])
                    first["h_out_output"][:] = 100  # the outputs are the caller's own
                    second = session.submit(step, timeout=10).result(10)
                    self.assertEqual(second["y_output"].tolist(), [[4, 4]])
                    second["h_out_output"][:] = 100
                    self.assertEqual(asyncio.run(session.predict_async(step))["h_out_output"].tolist(), [[3, 3]])
                    with self.assertRaises(shoal.InvalidArgument):
                        session.predict({"data": ones(1, 3)})
                    self.assertEqual(session.predict(step)["y_output"].tolist(), [[8, 8]], "a step that failed changed the state")
                    self.assertEqual(session.predict({"data": ones(1, 2), "h_in": ones(1, 2)})["y_output"].tolist(), [[4, 4]])
                    self.assertEqual(session.predict(step)["y_output"].tolist(), [[6, 6]])
                    session.reset()
                    self.assertEqual(session.predict(step)["y_output"].tolist(), [[2, 2]])
                    for _ in range(200):
                        last = session.predict(step)["h_out_output"]
                    self.assertEqual(last.tolist(), [[201, 201]])
                with self.assertRaisesRegex(shoal.FailedPrecondition, "closed"):
                    session.predict(step)
            big = {"data": ones(500_000, 2)}
            with engine.open_session() as session:
                futures = [session.submit(big) for _ in range(20)]
                errors = [future.exception(10) for future in futures]
                done = errors.count(None)
                self.assertGreaterEqual(done, 1)
                for error in filter(None, errors):
                    self.assertRegex(str(error), "model 'm': a step of this session is under way")
                self.assertEqual(session.predict(big)["h_out_output"][0, 0], done + 1)
            kept = shoal.Engine(path).open_session()
            self.assertEqual(kept.predict(step)["y_output"].tolist(), [[2, 2]])

    def test_a_forked_child_is_told_to_load_it_again(self):
        engine = self.enterContext(shoal.Engine("builtin:identity"))
        engine.predict("", {"data": ones(1)})
        session = self.enterContext(shoal.Engine(write_counter(self.tmp / "counter")).open_session())
        for call in (lambda: engine.predict("", {"data": ones(1)}), lambda: session.predict({"data": ones(1, 2)}), session.reset):
            pid = os.fork()
            if pid == 0:
                try:
                    call()
                except shoal.FailedPrecondition as error:
                    os._exit(0 if "forked" in str(error) else 2)
                finally:
                    os._exit(1)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)


class Types(ShoalTest):
    def test_each_type_goes_in_and_out(self):
        import json
        import struct
        names = ["float32", "float64", "float16", "uint8", "int8", "int32", "int64"]
        for name in names:
            with self.subTest(dtype=name):
                directory = self.tmp / name
                directory.mkdir()
                nodes = [{"op": "null", "name": "data", "inputs": []}, {"op": "identity", "name": "y", "inputs": [[0, 0, 0]]}]
                (directory / "m-symbol.json").write_text(json.dumps({"nodes": nodes, "arg_nodes": [0], "heads": [[1, 0, 0]],
                                                                     "attrs": {"mxnet_version": ["int", 10901]}}))
                (directory / "m-0000.params").write_bytes(struct.pack("<QQQQ", 0x112, 0, 0, 0))
                (directory / "model.toml").write_text(f'inputs = [{{name = "data", shape = [-1, 2], dtype = "{name}"}}]\ntuning_ms = 0\n')
                with shoal.Engine(directory) as engine:
                    x = numpy.array([[1, 2], [3, 0]], name)
                    y = engine.predict("", {"data": x})["y_output"]
                self.assertEqual(y.dtype, x.dtype)
                numpy.testing.assert_array_equal(y, x)

    def test_loans_have_any_type(self):
        engine = self.enterContext(shoal.Engine("builtin:identity"))
        for dtype in ["float64", numpy.uint8, numpy.dtype("int16"), "bool", ">f4", float]:
            self.assertEqual(engine.loan(dtype, (2, 3)).dtype, numpy.dtype(dtype).newbyteorder("="))
        self.assertEqual(engine.loan("int8", 5).shape, (5,))
        for dtype, shape in [("float99", 3), (object, 3), ("float32", "ab"), ("float32", (2, -1)), ("float32", [1] * 9), ("float32", 2.5)]:
            with self.subTest(dtype=dtype, shape=shape), self.assertRaises(shoal.InvalidArgument):
                engine.loan(dtype, shape)

    def test_bfloat16_is_that_of_ml_dtypes(self):
        import ml_dtypes
        engine = self.enterContext(shoal.Engine("builtin:identity"))
        x = engine.loan("bfloat16", 3)
        self.assertEqual(x.dtype, ml_dtypes.bfloat16)
        with self.assertRaisesRegex(shoal.InvalidArgument, "bfloat16.*float32"):
            engine.predict("", {"data": x})

    def test_without_ml_dtypes_it_is_named(self):
        done = python("""
            import sys
            sys.modules["ml_dtypes"] = None
            import shoal
            shoal.Engine("builtin:identity").loan("bfloat16", 3)
            """)
        self.assertIn("pip install ml_dtypes", done.stderr)
        self.assertIn("shoal.FailedPrecondition", done.stderr)


class OpenMp(ShoalTest):
    CODE = f"""
        import os, threading, time
        pid, command = os.getpid(), open("/proc/self/cmdline").read()
        import shoal.engine
        def ticks():  # of the other threads
            return sum(sum(map(int, open(f"/proc/self/task/{{t}}/stat").read().rsplit(")")[1].split()[11:13])) for t in os.listdir("/proc/self/task") if int(t) != pid)
        import numpy
        x = {{"data": numpy.ones((8, 3, 64, 64), numpy.float32)}}
        engine = shoal.Engine({str(SHAPES)!r}, threads=2, tuning_ms=0)
        for _ in range(20):
            engine.predict("", x)
        before = ticks()
        time.sleep(0.5)
        idle = ticks() - before
        print(idle, os.environ.get("OMP_WAIT_POLICY"), os.getpid() == pid, open("/proc/self/cmdline").read() == command)
        """

    def test_its_threads_sleep_between_runs_and_the_interpreter_is_not_executed_anew(self):
        done = python(self.CODE)
        self.assertEqual(done.returncode, 0, done.stderr)
        idle, policy, *same = done.stdout.split()
        self.assertLess(int(idle), 10, "hundredths of a second of processor time within 0.5 s")
        self.assertEqual((policy, same), ("None", ["True", "True"]))
        self.assertEqual(done.stderr, "")

    def test_what_the_user_has_set_stays(self):
        done = python("import os, shoal.engine; print(os.environ['OMP_WAIT_POLICY'], os.environ.get('GOMP_SPINCOUNT'))", OMP_WAIT_POLICY="active")
        self.assertEqual(done.stdout.split(), ["active", "None"])

    def test_an_openmp_that_is_loaded_already_is_named(self):
        done = python("import ctypes; ctypes.CDLL('libgomp.so.1'); import shoal; shoal.Engine('builtin:identity')")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("RuntimeWarning: OpenMP (libgomp.so.1) was loaded before shoal.engine", done.stderr)
        self.assertIn("OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=30000", done.stderr)
        done = python("import ctypes; ctypes.CDLL('libgomp.so.1'); import shoal; shoal.Engine('builtin:identity')", OMP_WAIT_POLICY="passive")
        self.assertEqual(done.stderr, "")

    def test_importing_shoal_loads_neither_openmp_nor_onednn_nor_opencv(self):
        done = python("import shoal; print(open('/proc/self/maps').read())")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("libzmq", done.stdout)
        self.assertNotRegex(done.stdout, "gomp|dnnl|opencv")


class Measuring(ShoalTest):
    def load(self, on_measuring, **options):
        model = shutil.copytree(SHAPES, self.tmp / "model", dirs_exist_ok=True)
        before = os.environ.get("SHOAL_CACHE_DIR")
        os.environ["SHOAL_CACHE_DIR"] = str(self.tmp / "cache")
        try:
            return shoal.Engine(model, tuning_ms=1500, on_measuring=on_measuring, **options)
        finally:
            os.environ.pop("SHOAL_CACHE_DIR") if before is None else os.environ.update(SHOAL_CACHE_DIR=before)

    def children(self):
        """The programs of this process's children."""
        of_thread = (Path(task) / "children" for task in Path("/proc/self/task").iterdir())
        pids = [pid for path in of_thread for pid in path.read_text().split()]
        return [os.readlink(f"/proc/{pid}/exe") for pid in pids if Path(f"/proc/{pid}/exe").exists()]

    def test_a_shoal_worker_measures_and_this_process_is_not_forked(self):
        programs, spent, threads = set(), [], set()

        def on_measuring(seconds, budget):
            spent.append((seconds, budget))
            threads.add(threading.current_thread())
            programs.update(self.children())

        forks = []
        os.register_at_fork(before=lambda: forks.append(1))
        with self.load(on_measuring) as engine:
            engine.predict("", {"data": ones(1, 3, 64, 64)})
        self.assertEqual({Path(program).name for program in programs}, {"shoal-worker"})
        self.assertEqual(forks, [])
        self.assertEqual((threads, spent[0][1]), ({threading.main_thread()}, 1.5))
        self.assertTrue(list((self.tmp / "cache").rglob("*")), "no record of what was measured")
        spent.clear()
        self.load(on_measuring).close()
        self.assertEqual(spent, [], "it was measured again")

    def test_what_the_callers_function_raises_ends_it(self):
        def on_measuring(*_):
            raise KeyError("enough")

        begin = time.monotonic()
        with self.assertRaisesRegex(KeyError, "enough"):
            self.load(on_measuring)
        self.assertLess(time.monotonic() - begin, 1.5)
        self.assertEqual(self.children(), [])


class Missing(ShoalTest):
    def test_a_missing_library_is_named_with_its_package(self):
        package = Path(shoal.__file__).parent
        for extension, ours, library, use, who, said in [
                ("_shoal", b"libshoal.so.0.3", "libzmq.so.5", "Pool", "shoal", "apt-get install libzmq5"),
                ("_engine", b"libshoal-engine.so.0.3", "libdnnl.so.2", "Engine", "shoal.Engine", "apt-get install libdnnl2"),
                ("_vision", b"libshoal-vision.so.0.3", "libopencv_core.so.406", "ImageClassifier", "shoal, for pictures,", "apt-get install libopencv-core406")]:
            with self.subTest(library=library):
                copy = self.tmp / extension / "shoal"
                copy.mkdir(parents=True)
                for file in package.iterdir():
                    if file.suffix in (".py", ".so"):
                        shutil.copy(file, copy)
                [module] = copy.glob(f"{extension}.*.so")
                data = module.read_bytes()
                self.assertIn(ours + b"\0", data)
                module.write_bytes(data.replace(ours + b"\0", (library.encode() + b"X").ljust(len(ours), b"\0") + b"\0"))
                done = python(f"import shoal; shoal.{use}", PYTHONPATH=str(copy.parent))
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(f"ImportError: {who} needs {library}X, which is not installed: {said}", done.stderr)

    def test_a_free_threaded_python_is_refused(self):
        done = python("""
            import sysconfig
            read = sysconfig.get_config_var
            sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else read(name)
            import shoal
            """)
        self.assertIn("ImportError: shoal does not support free-threaded builds of Python: use one with the GIL", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
