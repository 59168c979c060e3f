#!/usr/bin/env python3
"""Futures, asyncio and as_completed: many requests at once."""
import asyncio
import concurrent.futures
import threading
import time
import unittest

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
        return {**cls.MODELS, "slow": f"{write_model(top / 'slow', '_fault_slow', 200)},workers=1"}

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

    def test_leaving_as_completed_cancels_the_rest(self):
        for _ in self.pool.as_completed([{"data": ones(1, 4)}] * 30, model="slow"):
            break
        begin = time.monotonic()
        self.pool.predict("slow", {"data": ones(1, 4)})
        self.assertLess(time.monotonic() - begin, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
