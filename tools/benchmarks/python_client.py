"""The Python side of tools/bench python. Executes lines of standard input, and answers each with one line:

  engine N       the median of N requests to an Engine with builtin:identity, in microseconds
  pool N         the same by a Pool, to the model "echo" of the daemon in $SHOAL_DIR
  async TASKS N  requests per second to "echo", N of them by TASKS tasks of asyncio
  inputs DIR     takes the input "data" of the model "model" from DIR/0.npy                -> "ok"
  run N          N requests to it                                                         -> their wall times in milliseconds
"""
import asyncio
import statistics
import sys
import time

import numpy

import shoal

pool, engine = shoal.Pool(), shoal.Engine("builtin:identity")
pool.load("echo", "builtin:identity,queue_limit=20000")
small = {"data": numpy.zeros((1, 4), numpy.float32)}
inputs = {}


def times_ns(call, count):
    times = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - begin)
    return times


async def many(tasks, count):
    left = iter(range(count))

    async def one():
        for _ in left:
            await pool.predict_async("echo", small)

    begin = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(tasks)))
    return count / (time.perf_counter() - begin)


for line in sys.stdin:
    what, *words = line.split()
    if what == "engine":
        print(statistics.median(times_ns(lambda: engine.predict("", small), int(words[0]))) / 1e3, flush=True)
    elif what == "pool":
        print(statistics.median(times_ns(lambda: pool.predict("echo", small), int(words[0]))) / 1e3, flush=True)
    elif what == "async":
        print(asyncio.run(many(*map(int, words))), flush=True)
    elif what == "inputs":
        inputs["data"] = numpy.load(f"{words[0]}/0.npy")
        print("ok", flush=True)
    elif what == "run":
        print(*(time / 1e6 for time in times_ns(lambda: pool.predict("model", inputs), int(words[0]))), flush=True)
