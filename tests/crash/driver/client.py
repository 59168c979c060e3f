"""shoal-crash-client-python DIRECTORY HISTORY WORD...: what client.cpp does, in Python on the package shoal: futures and loans."""
import concurrent.futures
import ctypes
import itertools
import os
import random
import signal
import sys
import time
import zlib

is_over = False


def end(*_):
    global is_over
    is_over = True


signal.signal(signal.SIGTERM, end)  # before the imports, which take long
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

import numpy  # noqa: E402
import shoal  # noqa: E402

PLAN_WORDS, MODEL_WORDS = 6, 4  # plan.hpp: to_words()
ROWS, FLAT = 0, 1  # pattern.hpp
TOO_LARGE = 200
LOOK_S, TURN_NS = 0.005, 15_000_000
VERSION = 1  # futures do not say which version answered, so it asks for this one
CODES = ["OK", *(error.code for error in shoal.errors.ALL[1:])]


def lcg_terms(count):
    """The factors and summands by which a state of pattern.cpp's random numbers becomes the next `count` ones."""
    factors = numpy.cumprod(numpy.full(count, 1664525, numpy.uint32), dtype=numpy.uint32)
    before = numpy.concatenate((numpy.ones(1, numpy.uint32), factors[:-1]))
    return factors, numpy.cumsum(before, dtype=numpy.uint32) * numpy.uint32(1013904223)


FACTORS, SUMMANDS = lcg_terms(1 + 997 * TOO_LARGE)


class Client:
    def __init__(self, pool, history, words):
        self.pool, self.history = pool, history
        self.random = random.Random(int(words[0]))
        self.window, self.timeout_ns = int(words[1]), int(words[5]) * 1_000_000
        self.cancel_share, self.deadline_share, self.guilty_share = map(float, words[2:5])
        self.models = [(words[i], *map(int, words[i + 1:i + MODEL_WORDS])) for i in range(PLAN_WORDS, len(words), MODEL_WORDS)]
        self.ids, self.under_way, self.stalled_ns = itertools.count(1), {}, 0

    def write(self, *words):
        os.write(self.history, (" ".join(map(str, words)) + "\n").encode())

    def pattern_input(self, inputs, size, seed, is_guilty):
        """As in pattern.cpp. Every second one is a loan, as long as there is room for it."""
        shape = (size, 16) if inputs == ROWS else (1 + 997 * size,)
        count = numpy.prod(shape)
        x = numpy.empty(shape, numpy.float32)
        if self.random.random() < 0.5:
            try:
                x = self.pool.loan("float32", shape)
            except shoal.Overloaded:
                pass
        state = numpy.uint32((seed * 2654435761 + size) % 2**32)
        x[...] = ((state * FACTORS[:count] + SUMMANDS[:count] >> numpy.uint32(20)).astype(numpy.float32) * numpy.float32(0.125)).reshape(shape)
        if is_guilty:
            x.flat[0] = 666
        return x

    def ask(self):
        draw = self.random
        name, inputs, sizes, contents = draw.choice(self.models)
        seed, size = draw.randrange(contents), 1
        if draw.randrange(3) == 0:
            size = 1 + draw.randrange(sizes)
        if inputs == FLAT and draw.randrange(50) == 0:
            size = TOO_LARGE
        timeout_ns = self.timeout_ns if draw.random() < self.deadline_share else 0
        how = "cancel" if draw.random() < self.cancel_share else "plain"
        if inputs == ROWS and draw.random() < self.guilty_share:
            how = "guilty"
        x = self.pattern_input(inputs, size, seed, how == "guilty")
        number = next(self.ids)
        self.write("ask", number, time.monotonic_ns(), name, size, seed, timeout_ns, how)
        future = self.pool.submit(name, {"data": x}, timeout=timeout_ns / 1e9 if timeout_ns else None, version=VERSION)
        self.under_way[future] = number, self.stalled_ns
        if how == "cancel":
            future.cancel()

    def write_answers(self):
        for future in [future for future in self.under_way if future.done()]:
            now_ns = time.monotonic_ns()
            number, stalled_before_ns = self.under_way.pop(future)
            code, digest = "OK", 0
            if future.cancelled():
                code = "CANCELLED"
            elif (error := future.exception()) is not None:
                code = error.code
                if code in ("UNAVAILABLE", "INTERNAL", "ABORTED"):
                    print(f"client {os.getpid()}: {error}", file=sys.stderr)
            else:
                y, = future.result().values()
                digest = zlib.crc32(y.data, zlib.crc32("x".join(map(str, y.shape)).encode()))
            self.write("answer", number, now_ns, CODES.index(code), VERSION, digest, 0, self.stalled_ns + self.since_turn() - stalled_before_ns)

    def since_turn(self):
        """How much longer than TURN_NS the current turn has taken so far."""
        return max(time.monotonic_ns() - self.last_turn_ns - TURN_NS, 0)

    def run(self):
        self.last_turn_ns = time.monotonic_ns()
        while not is_over or self.under_way:
            while not is_over and len(self.under_way) < self.window:
                self.ask()
            self.write_answers()
            if self.under_way:
                concurrent.futures.wait(self.under_way, LOOK_S, concurrent.futures.FIRST_COMPLETED)
            self.stalled_ns += self.since_turn()
            self.last_turn_ns = time.monotonic_ns()
        self.write("end")


def connect(directory):
    for _ in range(10):  # a client that is stopped fails its handshake
        try:
            return shoal.Pool(directory, arena_limit_bytes=192 << 10, connect_timeout=20, control_timeout=20)
        except shoal.Unavailable as error:
            failed = error
    raise failed


def main(directory, history, *words):
    with connect(directory) as pool:
        Client(pool, os.open(history, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), words).run()


main(*sys.argv[1:])
