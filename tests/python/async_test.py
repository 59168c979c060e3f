#!/usr/bin/env python3
"""Futures, asyncio and as_completed: many requests at once."""
import asyncio
import concurrent.futures
import contextlib
import gc
import threading
import time
import unittest
import weakref

import numpy
from fixtures import FAULTY, PoolTest, ones, write_model

import shoal


class Asynchronous(PoolTest):
    WORKER = FAULTY

    @classmethod
    def models(cls):
        import tempfile
        from pathlib import Path
        top = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        return {**cls.MODELS, "slow": f"{write_model(top / 'slow', '_fault_slow', 200)},workers=1",
                "usual": f"{write_model(top / 'usual', '_fault_slow', 1)},workers=1,timeout_ms=60000"}

    def numbered(self, i):
        return {"data": numpy.float32([i])}

    # ---- futures ----

    def test_futures_are_those_of_the_standard_library(self):
        futures = {self.pool.submit("echo", self.numbered(i)): i for i in range(500)}
        self.assertTrue(all(isinstance(future, concurrent.futures.Future) for future in futures))
        for future in concurrent.futures.as_completed(futures, timeout=30):
            self.assertEqual(future.result()["data_output"][0], futures[future])

    def test_callbacks_run(self):
        called = threading.Event()
        self.pool.submit("echo", self.numbered(1)).add_done_callback(lambda future: called.set())
        self.assertTrue(called.wait(10))

    def test_a_canceled_future_cancels_its_request(self):
        running = self.pool.submit("slow", {"data": ones(1, 4)})
        waiting = [self.pool.submit("slow", {"data": ones(1, 4)}) for _ in range(20)]
        self.assertTrue(all(future.cancel() for future in waiting))
        done, not_done = concurrent.futures.wait(waiting, timeout=10)
        self.assertEqual(len(done), 20)
        running.result(10)
        begin = time.monotonic()
        self.pool.predict("slow", {"data": ones(1, 4)})
        self.assertLess(time.monotonic() - begin, 2, "the canceled requests ran all the same")
        self.assertFalse(running.cancel())

    def test_more_than_the_limit_is_refused_at_once(self):
        with shoal.Pool(self.daemon.directory, in_flight_limit=2) as pool:
            pool.describe("slow")
            futures = [pool.submit("slow", {"data": ones(1, 4)}) for _ in range(3)]
            self.assertEqual(futures[2].exception(10).code, "OVERLOADED")
            for future in futures[:2]:
                future.result(10)

    def test_failures_arrive_in_the_future(self):
        self.assertIsInstance(self.pool.submit("nothing", self.numbered(0)).exception(10), shoal.NotFound)

    def test_every_failure_of_a_request_arrives_in_the_future(self):
        class Broken:
            def __dlpack__(self, **_):
                raise BufferError("lost")

        for inputs, said in [({"data": object()}, "object"), ({"data": Broken()}, "lost"), (3, "dict"), ({1: ones(1)}, "strings")]:
            future = self.pool.submit("echo", inputs)
            self.assertTrue(future.done())
            self.assertFalse(future.cancel())
            with self.assertRaisesRegex(shoal.InvalidArgument, said):
                future.result(10)
        self.assertIsInstance(self.pool.submit("echo", self.numbered(1), version=-1).exception(10), shoal.InvalidArgument)
        with shoal.Pool(self.daemon.directory) as pool:
            pass
        with self.assertRaisesRegex(shoal.FailedPrecondition, "closed"):
            pool.submit("echo", self.numbered(1))

    def test_submit_does_not_wait_for_a_model_that_is_not_known(self):
        for _ in range(3):
            with shoal.Pool(self.daemon.directory) as pool:
                begin = time.monotonic()
                future = pool.submit("slow", {"data": ones(1, 4)})
                self.assertLess(time.monotonic() - begin, 0.15)
                future.result(10)

    def test_a_pool_that_is_dropped_ends_its_thread(self):
        pool = shoal.Pool(self.daemon.directory)
        pool.submit("echo", self.numbered(0)).result(10)
        self.assertIn("shoal-futures", [thread.name for thread in threading.enumerate()])
        del pool
        self.assertNotIn("shoal-futures", [thread.name for thread in threading.enumerate()])

    def test_threads_of_the_program_submit_at_the_same_time(self):
        def work(base):
            for i in range(base, base + 200):
                self.assertEqual(self.pool.submit("echo", self.numbered(i)).result(10)["data_output"][0], i)
                self.assertEqual(self.pool.predict("echo", self.numbered(i))["data_output"][0], i)

        with concurrent.futures.ThreadPoolExecutor(8) as executor:
            list(executor.map(work, range(0, 8000, 1000)))

    # ---- asyncio ----

    def test_thousands_of_tasks_get_their_own_answers(self):
        async def one(i):
            return (await self.pool.predict_async("echo", self.numbered(i)))["data_output"][0] == i

        async def main():
            before = threading.active_count()
            right = await asyncio.gather(*(one(i) for i in range(5000)))
            return all(right), threading.active_count() - before

        self.assertEqual(asyncio.run(main()), (True, 0))

    def test_thousands_of_tasks_wait_for_their_turn_in_the_queue_of_a_usual_model(self):
        # With the defaults: queue_limit is 1024 for a model and for an Engine.
        engine = self.enterContext(shoal.Engine("builtin:identity"))
        order = []

        async def one(client, model, x):
            await client.predict_async(model, {"data": x}, timeout=60)
            order.append(len(order))

        async def main(client, model, x):
            await asyncio.gather(*(one(client, model, x) for _ in range(3000)))

        for client, model, x in [(self.pool, "usual", ones(1, 4)), (engine, "", ones(1, 50_000))]:
            with self.subTest(client=type(client).__name__):
                order.clear()
                asyncio.run(main(client, model, x))
                self.assertEqual(len(order), 3000)

    def test_tasks_wait_in_order_and_their_timeout_counts_from_the_call(self):
        pool = self.enterContext(shoal.Pool(self.daemon.directory, async_in_flight=1))
        order = []

        async def one(tag, **options):
            try:
                await pool.predict_async("slow", {"data": ones(1, 4)}, **options)
            finally:
                order.append(tag)

        async def main():
            tasks = [asyncio.create_task(one(i)) for i in range(4)]
            late = asyncio.create_task(one("late", timeout=0.05))
            wrong = asyncio.create_task(one("wrong", timeout="soon"))
            with self.assertRaisesRegex(shoal.DeadlineExceeded, "'slow'.*async_in_flight"):
                await late
            with self.assertRaisesRegex(shoal.InvalidArgument, "timeout"):
                await wrong
            await asyncio.gather(*tasks)

        asyncio.run(main())
        self.assertLess(order.index("late"), order.index(3), "its timeout was over when its turn had come")
        self.assertEqual([tag for tag in order if isinstance(tag, int)], [0, 1, 2, 3])

    def test_a_task_that_is_canceled_while_it_waits_leaves_nothing(self):
        pool = self.enterContext(shoal.Pool(self.daemon.directory, async_in_flight=2))

        async def main():
            running = [asyncio.create_task(pool.predict_async("slow", {"data": ones(1, 4)})) for _ in range(2)]
            waiting = [asyncio.create_task(pool.predict_async("slow", {"data": ones(1, 4)}, timeout=60)) for _ in range(500)]
            await asyncio.sleep(0.01)
            [inbox] = pool._loops.values()
            line = inbox.lines["slow"]
            self.assertEqual((line.under_way, len(line.waiting)), (2, 500))
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            self.assertEqual(len(line.waiting), 0)
            # One that is canceled when its turn has just come.
            last = [asyncio.create_task(pool.predict_async("slow", {"data": ones(1, 4)})) for _ in range(2)]
            await running[0]
            for task in last:
                task.cancel()
            await asyncio.gather(*running, *last, return_exceptions=True)
            for i in range(5):
                self.assertEqual((await asyncio.wait_for(pool.predict_async("echo", self.numbered(i)), 10))["data_output"][0], i)
            deadline = time.monotonic() + 10
            while inbox.under_way and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
            self.assertEqual((inbox.under_way, line.under_way, len(line.waiting), inbox.lines), (0, 0, 0, {}))

        asyncio.run(main())

    def test_tasks_of_one_model_do_not_wait_for_those_of_another(self):
        pool = self.enterContext(shoal.Pool(self.daemon.directory, async_in_flight=1))

        async def main():
            slow = [asyncio.create_task(pool.predict_async("slow", {"data": ones(1, 4)})) for _ in range(4)]
            await asyncio.sleep(0)
            await asyncio.wait_for(pool.predict_async("echo", self.numbered(1)), 10)
            self.assertFalse(slow[-1].done())
            await asyncio.gather(*slow)

        asyncio.run(main())

    def test_loops_that_ended_are_not_kept(self):
        async def canceled():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.pool.predict_async("slow", {"data": ones(1, 4)}), 0.005)

        loops = weakref.WeakSet()
        for _ in range(20):
            loop = asyncio.new_event_loop()
            loops.add(loop)
            loop.run_until_complete(canceled())
            loop.close()
            del loop
        deadline = time.monotonic() + 10
        while len(loops) > 1 and time.monotonic() < deadline:  # the last one is left when another comes
            time.sleep(0.02)
            asyncio.run(self.pool.predict_async("echo", self.numbered(1)))
            gc.collect()
        self.assertLessEqual(len(loops), 1)

    def test_a_future_ends_when_its_client_is_dropped(self):
        future = shoal.Pool(self.daemon.directory).submit("slow", {"data": ones(1, 4)})
        try:
            future.result(timeout=10)
        except shoal.Cancelled:
            pass

    def test_loops_of_several_threads_have_lines_of_their_own(self):
        pool = self.enterContext(shoal.Pool(self.daemon.directory, async_in_flight=3))

        async def one(i):
            return (await pool.predict_async("echo", self.numbered(i)))["data_output"][0] == i

        async def main():
            return all(await asyncio.gather(*(one(i) for i in range(500))))

        with concurrent.futures.ThreadPoolExecutor(4) as executor:
            self.assertEqual(list(executor.map(lambda _: asyncio.run(main()), range(4))), [True] * 4)

    def test_a_pool_that_is_closed_ends_those_that_wait_for_their_turn(self):
        pool = shoal.Pool(self.daemon.directory, async_in_flight=1)

        async def main():
            tasks = [asyncio.create_task(pool.predict_async("slow", {"data": ones(1, 4)})) for _ in range(5)]
            await asyncio.sleep(0.02)
            await asyncio.to_thread(pool.close)
            return await asyncio.gather(*tasks, return_exceptions=True)

        self.assertEqual([type(outcome) for outcome in asyncio.run(main())], [shoal.Cancelled] * 5)

    def test_how_many_are_under_way_is_checked(self):
        for wrong in (0, -1, "many"):
            for make in (lambda: shoal.Pool("/nonexistent", async_in_flight=wrong),  # before anything is connected or loaded
                         lambda: shoal.Engine("/nonexistent", async_in_flight=wrong)):
                with self.assertRaisesRegex(shoal.InvalidArgument, f"async_in_flight is {wrong!r}: give a whole number from 1"):
                    make()
        shoal.Engine("builtin:identity", async_in_flight=numpy.int64(8)).close()
        with shoal.Engine("builtin:identity", queue_limit=3) as engine:  # the default is not above that
            async def main():
                await asyncio.gather(*(engine.predict_async("", {"data": ones(20_000)}) for _ in range(200)))

            asyncio.run(main())

    def test_a_canceled_task_cancels_its_request(self):
        async def main():
            running = asyncio.create_task(self.pool.predict_async("slow", {"data": ones(1, 4)}))
            waiting = [asyncio.create_task(self.pool.predict_async("slow", {"data": ones(1, 4)})) for _ in range(20)]
            await asyncio.sleep(0.05)
            for task in waiting:
                task.cancel()
            self.assertTrue(all(isinstance(outcome, asyncio.CancelledError) for outcome in await asyncio.gather(*waiting, return_exceptions=True)))
            await running
            begin = time.monotonic()
            await asyncio.wait_for(self.pool.predict_async("slow", {"data": ones(1, 4)}), 10)
            return time.monotonic() - begin

        self.assertLess(asyncio.run(main()), 2)

    def test_failures_are_raised(self):
        async def main():
            with self.assertRaises(shoal.NotFound):
                await self.pool.predict_async("nothing", self.numbered(0))
            with self.assertRaises(shoal.InvalidArgument):
                await self.pool.predict_async("echo", {"data": object()})
            return (await self.pool.predict_async("echo", self.numbered(4)))["data_output"][0]

        self.assertEqual(asyncio.run(main(), debug=True), 4)

    def test_each_loop_has_its_own_answers(self):
        async def main(base):
            for i in range(base, base + 100):
                self.assertEqual((await self.pool.predict_async("echo", self.numbered(i)))["data_output"][0], i)

        with concurrent.futures.ThreadPoolExecutor(4) as executor:
            list(executor.map(lambda base: asyncio.run(main(base)), range(0, 4000, 1000)))

    def test_a_pool_that_is_closed_ends_what_is_awaited(self):
        async def main():
            task = asyncio.create_task(self.pool.predict_async("slow", {"data": ones(1, 4)}))
            await asyncio.sleep(0.02)
            await asyncio.to_thread(self.pool.close)
            with self.assertRaises(shoal.Cancelled):
                await task

        asyncio.run(main())

    def test_a_loop_that_ends_first_harms_nobody(self):
        async def main():
            asyncio.create_task(self.pool.predict_async("slow", {"data": ones(1, 4)}))
            await asyncio.sleep(0.01)

        asyncio.run(main())
        self.assertEqual(self.pool.predict("echo", self.numbered(1))["data_output"][0], 1)

    # ---- as_completed ----

    def test_as_completed_bounds_what_is_under_way(self):
        under_way = most = 0

        def inputs():
            nonlocal under_way, most
            for i in range(300):
                under_way += 1
                most = max(most, under_way)
                yield self.numbered(i)

        seen = {}
        for tag, outputs in self.pool.as_completed(inputs(), model="echo", in_flight=7):
            under_way -= 1
            seen[tag] = outputs["data_output"][0]
        self.assertEqual(seen, {i: i for i in range(300)})
        self.assertLessEqual(most, 8)
        self.assertGreater(most, 1)

    def test_as_completed_raises_or_returns_failures(self):
        requests = {"good": self.numbered(1), "bad": {"data": numpy.float64([1])}}
        with self.assertRaises(shoal.InvalidArgument):
            dict(self.pool.as_completed(requests, model="echo"))
        outcomes = dict(self.pool.as_completed(requests, model="echo", return_exceptions=True))
        self.assertEqual(outcomes["good"]["data_output"][0], 1)
        self.assertIsInstance(outcomes["bad"], shoal.InvalidArgument)
        self.assertEqual(list(self.pool.as_completed([], model="echo")), [])
        with self.assertRaisesRegex(shoal.InvalidArgument, "in_flight is 0"):
            list(self.pool.as_completed(requests, model="echo", in_flight=0))

    def test_as_completed_goes_on_after_inputs_that_cannot_be_converted(self):
        class Broken:
            def __dlpack__(self, **_):
                raise BufferError("lost")

        requests = {"a": self.numbered(1), "object": {"data": object()}, "dlpack": {"data": Broken()}, "list": [1], "b": self.numbered(2)}
        for in_flight in (1, 64):
            outcomes = dict(self.pool.as_completed(requests, "echo", in_flight, return_exceptions=True))
            self.assertEqual((outcomes.keys(), outcomes["a"]["data_output"][0], outcomes["b"]["data_output"][0]), (requests.keys(), 1, 2))
            for tag in ("object", "dlpack", "list"):
                self.assertIsInstance(outcomes[tag], shoal.InvalidArgument)
        with self.assertRaises(shoal.InvalidArgument):
            dict(self.pool.as_completed(requests, "echo"))

    def test_leaving_as_completed_cancels_the_rest(self):
        for _ in self.pool.as_completed([{"data": ones(1, 4)}] * 30, model="slow"):
            break
        begin = time.monotonic()
        self.pool.predict("slow", {"data": ones(1, 4)})
        self.assertLess(time.monotonic() - begin, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
