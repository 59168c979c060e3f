#!/usr/bin/env python3
"""shoal.Pool: requests, arrays without copies, what is served, sessions, errors."""
import concurrent.futures
import gc
import os
import threading
import time
import unittest

import numpy
from fixtures import FAULTY, SHAPES, PoolTest, is_long, ones, rss_kb, write_counter, write_model

import shoal
from shoal import errors

TYPES = ["float32", "float64", "float16", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]


class Arrays(PoolTest):
    """Of float32, whose values and shapes come back. Other types are tested by their tensors (ndarrays_test, engine_test)."""

    def test_any_shape_comes_back(self):
        for shape in [(), (0,), (3,), (2, 0, 3), (1, 2, 3, 4, 1, 2, 1, 2)]:
            with self.subTest(shape=shape):
                x = numpy.arange(numpy.prod(shape), dtype="float32").reshape(shape)
                numpy.testing.assert_array_equal(self.echo(x), x)

    def test_what_numpy_makes_an_array_of_is_an_input(self):
        x = numpy.arange(12, dtype="float32").reshape(3, 4)
        for given in [x.T, x[::2], x[:, ::-1], x.astype(">f4"), numpy.asfortranarray(x)]:
            numpy.testing.assert_array_equal(self.echo(given), given)
        frozen = x.copy()
        frozen.flags.writeable = False
        numpy.testing.assert_array_equal(self.echo(frozen), x)
        self.assertEqual(self.echo(numpy.float32(3)), 3)

    def test_outputs_are_arrays_of_the_arena_that_can_be_written_and_outlive_the_pool(self):
        y = self.echo(ones(4, 1000))
        self.assertFalse(y.flags.owndata)
        part = y[2:]
        del y
        self.pool.close()
        gc.collect()
        part += 1
        self.assertEqual(part.sum(), 4000)

    def test_loans_and_outputs_are_not_copied(self):
        x, y = self.pool.loan("float32", (64, 1024)), self.pool.loan_output(numpy.float32, (64, 1024))
        x[:] = 7
        outputs = self.pool.predict("echo", {"data": x}, out={"data_output": y})
        self.assertIs(outputs["data_output"], y)
        self.assertEqual(y.min(), 7)
        for kind in ("inputs", "outputs"):
            self.assertEqual(self.pool.usage()[kind]["copied_bytes"], 0)
        part = x[32:]
        self.echo(part)  # the first answer of a size that the model's description does not tell comes in a message
        before = self.pool.usage()
        y = self.echo(part)
        after = self.pool.usage()
        self.assertEqual((y.shape, y.min()), ((32, 1024), 7))
        self.assertEqual(after["inputs"]["used_bytes"], before["inputs"]["used_bytes"], "the input was copied into the arena")
        for kind in ("inputs", "outputs"):
            self.assertEqual(after[kind]["copied_bytes"], before[kind]["copied_bytes"])

    def test_a_loan_is_given_back_when_its_last_view_is_gone(self):
        x = self.pool.loan("float32", 1 << 20)
        view = x[5:7]
        del x
        self.assertGreaterEqual(self.pool.usage()["inputs"]["used_bytes"], 4 << 20)
        del view
        self.assertEqual(self.pool.usage()["inputs"]["used_bytes"], 0)

    def test_an_output_of_the_callers_own_is_filled(self):
        y = numpy.zeros((2, 3), numpy.float32)
        self.assertIs(self.pool.predict("echo", {"data": ones(2, 3)}, out={"data_output": y})["data_output"], y)
        self.assertEqual(y.sum(), 6)
        for wrong in [numpy.zeros((3, 2), numpy.float32), numpy.zeros((2, 6), numpy.float32)[:, ::2], numpy.zeros((2, 3))]:
            with self.assertRaises(shoal.InvalidArgument):
                self.pool.predict("echo", {"data": ones(2, 3)}, out={"data_output": wrong})
        with self.assertRaisesRegex(shoal.NotFound, "nothing.*data_output"):
            self.pool.predict("echo", {"data": ones(2, 3)}, out={"nothing": y})

    def test_any_mapping_names_inputs_and_outputs(self):
        import collections
        from types import MappingProxyType

        class Own(collections.abc.Mapping):
            def __init__(self, items):
                self.items_ = items

            def __getitem__(self, key):
                return self.items_[key]

            def __iter__(self):
                return iter(self.items_)

            def __len__(self):
                return len(self.items_)

        for kind in (dict, MappingProxyType, Own, collections.OrderedDict, collections.UserDict, lambda items: collections.ChainMap({}, items)):
            y = numpy.zeros((2, 3), numpy.float32)
            self.pool.predict("echo", kind({"data": ones(2, 3)}), out=kind({"data_output": y}))
            self.assertEqual(y.sum(), 6)
            self.assertEqual(self.pool.submit("echo", kind({"data": ones(2)})).result(10)["data_output"].sum(), 2)
        for wrong, said in [([y], "outputs are a dict from names to arrays, and not of type list"), (y, "not of type ndarray"), (3, "not of type int"),
                            ({1: y}, "names of outputs are strings, and not 1"), ({"\udc80": y}, "names of outputs"), ({b"data_output": y}, "not b'"),
                            ({"data_output": [1.0]}, "'data_output' needs a NumPy array")]:
            with self.subTest(said=said), self.assertRaisesRegex(shoal.InvalidArgument, said):
                self.pool.predict("echo", {"data": ones(2, 3)}, out=wrong)

    def test_memory_does_not_grow(self):
        x = ones(1, 16)
        loan = self.pool.loan("float32", (1, 16))
        loan[:] = 1

        def run(count):
            for _ in range(count):
                self.echo(x)
                self.echo(loan)
                with self.assertRaises(shoal.InvalidArgument):
                    self.pool.predict("echo", {"date": x})
            for _ in self.pool.as_completed(({"data": x} for _ in range(count)), model="echo"):
                pass

        run(2000)
        before = rss_kb()
        count = 333_000 if is_long() else 5000
        run(count)
        self.assertLess(rss_kb() - before, 1024, f"KB more after {3 * count} requests")
        self.assertEqual(self.pool.usage()["outputs"]["used_bytes"], 0)


class Dlpack(PoolTest):
    class Only:
        """Something that is no NumPy array, and has __dlpack__."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    def test_what_has_dlpack_is_an_input(self):
        x = numpy.arange(6, dtype="float32").reshape(2, 3)
        for given in (x, x.T, x[:, 1:]):
            numpy.testing.assert_array_equal(self.echo(self.Only(given)), given)

    def test_outputs_have_dlpack(self):
        x = numpy.arange(6, dtype="float32")
        numpy.testing.assert_array_equal(numpy.from_dlpack(self.echo(x)), x)
        numpy.testing.assert_array_equal(self.echo(numpy.from_dlpack(self.echo(x))), x)

    def test_its_memory_is_kept_and_let_go(self):
        import weakref
        array = ones(1000)
        gone = weakref.ref(array)
        future = self.pool.submit("echo", {"data": self.Only(array)})
        del array
        self.assertEqual(future.result(10)["data_output"].sum(), 1000)
        deadline = time.monotonic() + 10
        while gone() is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertIsNone(gone())

    def test_an_array_of_another_device_is_refused_by_name(self):
        class Elsewhere:
            def __dlpack__(self, **_):
                raise BufferError("this array is on the moon")

            def __dlpack_device__(self):
                return (2, 0)

        with self.assertRaisesRegex(shoal.InvalidArgument, "'data'.*BufferError: this array is on the moon") as caught:
            self.echo(Elsewhere())
        self.assertIsInstance(caught.exception.__cause__, BufferError)
        self.assertIsNotNone(caught.exception.__cause__.__traceback__)

    def test_what_the_users_code_raises_is_the_cause(self):
        class Own:
            def __array__(self, *_, **__):
                raise KeyError("lost")

        for given, cause in ((Own(), KeyError), ([[1.0], [1.0, 2.0]], ValueError)):
            with self.assertRaisesRegex(shoal.InvalidArgument, f"'data': NumPy makes no array of it: {cause.__name__}") as caught:
                self.echo(given)
            self.assertIsInstance(caught.exception.__cause__, cause)

        class Stop:
            def __dlpack__(self, **_):
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.echo(Stop())


class Errors(PoolTest):
    WORKER = FAULTY

    @classmethod
    def models(cls):
        import tempfile
        from pathlib import Path
        top = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        return {**cls.MODELS, "slow": f"{write_model(top / 'slow', '_fault_slow', 300)},workers=1",
                "one": f"{write_model(top / 'one', '_fault_slow', 1)},workers=1", "fatal": f"{write_model(top / 'fatal', '_fault_abort', 1)},workers=1"}

    def test_each_code_has_its_class(self):
        self.assertEqual(len({error.code for error in errors.ALL}), 14)
        for code, base in {"INVALID_ARGUMENT": ValueError, "NOT_FOUND": LookupError, "DEADLINE_EXCEEDED": TimeoutError,
                           "UNAVAILABLE": ConnectionError, "PERMISSION_DENIED": PermissionError}.items():
            error = errors._make(code, "why", 0.5, "maybe")
            self.assertIsInstance(error, base)
            self.assertIsInstance(error, shoal.Error)
            self.assertEqual((str(error), error.code, error.retry_after, error.ran), ("why", code, 0.5, "maybe"))
            self.assertEqual(type(error).__module__, "shoal")
        self.assertIs(type(errors._make("NEW_CODE", "why", 0, "no")), shoal.Error)

    def test_the_codes_are_those_of_the_wire(self):
        import re
        from fixtures import SOURCE
        names = re.findall(r"^  k(\w+) = \d+,", (SOURCE / "shm/include/shoal/status.hpp").read_text(), re.M)
        self.assertEqual([name for name in names if name != "Ok"], [error.__name__ for error in errors.ALL[1:]])

    def test_wrong_inputs_are_named(self):
        for inputs, said in [({"date": ones(1)}, "'date'"), ({}, "'data'"), ({"data": numpy.ones(3)}, "float64.*float32"),
                             ({"data": numpy.array(["a"])}, "'data'.*<U1"), ([1], "dict"), ({1: ones(1)}, "strings"),
                             ({"data": ones(*[1] * 9)}, "'data'")]:
            with self.subTest(said=said), self.assertRaisesRegex(shoal.InvalidArgument, said):
                self.pool.predict("echo", inputs)
            with self.subTest(said=said), self.assertRaisesRegex(shoal.InvalidArgument, said):
                self.pool.submit("echo", inputs).result(10)
        with self.assertRaisesRegex(shoal.NotFound, "nothing"):
            self.pool.predict("nothing", {"data": ones(1)})

    def test_a_timeout_ends_the_wait(self):
        for timeout in (0.05, 0, -1):
            begin = time.monotonic()
            with self.assertRaises(TimeoutError) as caught:
                self.pool.predict("slow", {"data": ones(1, 4)}, timeout=timeout)
            self.assertEqual(caught.exception.code, "DEADLINE_EXCEEDED")
            self.assertLess(time.monotonic() - begin, 0.25)
        with self.assertRaisesRegex(shoal.InvalidArgument, "in_flight_limit is -1"):
            shoal.Pool(self.daemon.directory, in_flight_limit=-1)
        for wrong in ("soon", float("nan")):
            with self.assertRaisesRegex(shoal.InvalidArgument, "timeout"):
                self.pool.predict("echo", {"data": ones(1)}, timeout=wrong)
        self.assertEqual(self.echo(ones(2), timeout=1e300).sum(), 2)

    def test_wrong_numbers_are_named(self):
        x = {"data": ones(1)}
        for name, wrong in [("version", -1), ("version", 1.5), ("version", "1"), ("version", 1 << 64), ("priority", 1000), ("flow", -1)]:
            for call in (self.pool.predict, lambda *given, **options: self.pool.submit(*given, **options).result(10)):
                with self.subTest(name=name, wrong=wrong), self.assertRaisesRegex(shoal.InvalidArgument, f"^{name} is {wrong!r}: give a whole number from"):
                    call("echo", x, **{name: wrong})
        for call in (lambda: self.pool.describe("echo", version=-1), lambda: self.pool.scale("echo", -1),
                     lambda: self.pool.scale("echo", 1 << 40)):
            with self.assertRaisesRegex(ValueError, " is "):
                call()
        self.assertEqual(self.pool.predict("echo", x, version=numpy.int64(1))["data_output"].sum(), 1)

    def test_a_request_that_crashes_its_worker_is_poison(self):
        with self.assertRaises(shoal.Poison) as caught:
            self.pool.predict("fatal", {"data": ones(1, 4)}, timeout=30)
        self.assertEqual((caught.exception.code, caught.exception.ran), ("POISON", "yes"))
        self.assertEqual(len(self.pool.crashes("fatal")["crashes"]), 2)

    def test_no_daemon_is_unavailable_and_names_the_socket(self):
        with self.assertRaisesRegex(shoal.Unavailable, str(self.tmp)) as caught:
            shoal.Pool(self.tmp, connect_timeout=0.1)
        self.assertIsInstance(caught.exception, ConnectionError)

    def test_the_interpreter_runs_on_while_a_call_waits(self):
        count = 0
        waiting = threading.Thread(target=lambda: self.pool.predict("slow", {"data": ones(1, 4)}))
        waiting.start()
        while waiting.is_alive():
            count += 1
            time.sleep(0.001)
        self.assertGreater(count, 50, "other threads stood still")

    def test_a_loan_is_sent_where_it_lies(self):
        def used():
            return self.pool.usage()["inputs"]["used_bytes"]

        loan = self.pool.loan("float32", (1, 4))
        loan[:] = 1
        self.pool.predict("slow", {"data": loan})
        alone = used()
        futures = [self.pool.submit("slow", {"data": loan})]
        self.assertEqual(used(), alone, "a request with a loan took more shared memory")
        futures.append(self.pool.submit("slow", {"data": ones(1, 4)}))
        self.assertGreater(used(), alone)
        for future in futures:
            future.result(10)
        self.assertEqual(used(), alone)

    def test_a_signal_ends_the_wait(self):
        import signal

        def interrupt(*_):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        for wait in (lambda: self.pool.predict("slow", {"data": ones(1, 4)}),
                     lambda: list(self.pool.as_completed([{"data": ones(1, 4)}] * 4, model="slow"))):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            begin = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                wait()
            self.assertLess(time.monotonic() - begin, 0.28)

    def test_a_forked_child_is_told_what_to_do(self):
        future = self.pool.submit("echo", {"data": ones(1)})
        future.result(10)
        session_error = "was forked"
        under_way = [self.pool.submit("slow", {"data": ones(1, 4)}) for _ in range(8)][-1]  # takes 2.4 s
        for use in (lambda: under_way.result(), lambda: under_way.exception(20), lambda: self.echo(ones(1)),
                    lambda: self.pool.submit("echo", {"data": ones(1)}), lambda: self.pool.models(),
                    lambda: self.pool.loan("float32", 3), lambda: next(self.pool.as_completed([{"data": ones(1)}], model="echo"))):
            pid = os.fork()
            if pid == 0:
                try:
                    use()
                except shoal.FailedPrecondition as error:
                    os._exit(0 if session_error in str(error) else 2)
                finally:
                    os._exit(1)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
        canceled = self.pool.submit("slow", {"data": ones(1, 4)})
        self.assertTrue(canceled.cancel())
        pid = os.fork()
        if pid == 0:  # what had its outcome before keeps it
            try:
                canceled.result()
            except concurrent.futures.CancelledError:
                os._exit(int(future.result()["data_output"].sum()) + 2 * under_way.cancel())
            finally:
                os._exit(9)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 1)
        pid = os.fork()
        if pid == 0:  # a pool of its own
            with shoal.Pool(self.daemon.directory) as pool:
                total = pool.submit("echo", {"data": ones(5)}).result(10)["data_output"].sum()
            os._exit(int(total))
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 5)
        self.assertEqual(self.echo(ones(3)).sum(), 3, "the parent's pool is harmed")

    def test_a_closed_pool_says_so(self):
        future = self.pool.submit("slow", {"data": ones(1, 4)})
        self.pool.close()
        self.pool.close()
        with self.assertRaises(shoal.Cancelled):
            future.result(10)
        for use in (lambda: self.echo(ones(1)), lambda: self.pool.status(), lambda: self.pool.loan("float32", 1)):
            with self.assertRaisesRegex(shoal.FailedPrecondition, "closed"):
                use()
        self.assertTrue(self.pool.closed)


class Served(PoolTest):
    def test_the_package_knows_its_version(self):
        from fixtures import SOURCE
        self.assertIn(f"project(shoal VERSION {shoal.__version__}", (SOURCE / "CMakeLists.txt").read_text())
        self.assertRegex(shoal.__version__, r"^\d+\.\d+\.\d+$")

    def test_models_are_loaded_scaled_reloaded_drained_and_unloaded(self):
        change = self.pool.load("shapes", SHAPES)
        self.assertEqual((change.outcome, change.version, change.versions), ("loaded", 1, [1]))
        self.assertEqual(self.pool.models(), ["echo", "shapes"])
        self.assertEqual(self.pool.scale("shapes", 2).workers, 2)
        self.assertEqual(self.pool.reload("shapes").outcome, "unchanged")
        self.assertEqual(self.pool.reload("shapes", force=True).outcome, "reloaded")
        info = self.pool.describe("shapes")
        self.assertEqual((info.name, info.inputs[0].name, info.inputs[0].dtype), ("shapes", "data", "float32"))
        self.assertIn("star", info.labels)
        [status] = [model for model in self.pool.status()["models"] if model["name"] == "shapes"]
        self.assertEqual(len(status["workers"]), 2)
        self.assertEqual(self.pool.drain("shapes").outcome, "drained")
        with self.assertRaises(shoal.Error):
            self.pool.predict("shapes", {"data": ones(1, 3, 64, 64)})
        self.assertEqual(self.pool.unload("shapes").outcome, "unloaded")
        self.assertEqual(self.pool.models(), ["echo"])
        with self.assertRaisesRegex(shoal.Error, "nowhere"):
            self.pool.load("x", "/nowhere/x")

    def test_a_session_keeps_its_state(self):
        self.pool.load("counter", write_counter(self.tmp / "counter"))
        self.addCleanup(self.pool.unload, "counter")
        with self.pool.open_session("counter") as session:
            step = {"data": ones(1, 2)}
            self.assertEqual(session.predict(step)["y_output"].tolist(), [[2, 2]])
            self.assertEqual(session.submit(step, timeout=10).result(10)["y_output"].tolist(), [[4, 4]])
            import asyncio
            self.assertEqual(asyncio.run(session.predict_async(step))["h_out_output"].tolist(), [[3, 3]])
            with self.assertRaises(shoal.InvalidArgument):
                session.predict({"data": ones(1, 3)})
            self.assertEqual(session.predict(step)["y_output"].tolist(), [[8, 8]], "a step that failed changed the state")
            session.reset()
            self.assertEqual(session.predict(step)["y_output"].tolist(), [[2, 2]])
        kept = shoal.Pool(self.daemon.directory).open_session("counter")
        self.assertEqual(kept.predict(step)["y_output"].tolist(), [[2, 2]])
        with self.assertRaisesRegex(shoal.FailedPrecondition, "closed"):
            session.predict(step)


if __name__ == "__main__":
    unittest.main(verbosity=2)
