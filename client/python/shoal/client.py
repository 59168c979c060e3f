"""`Client`: what a `Pool` and an `Engine` have in common."""
from __future__ import annotations

import asyncio
import concurrent.futures
import operator
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Optional, TypeVar, Union

import numpy

from . import _extension
from .errors import Cancelled, DeadlineExceeded, FailedPrecondition, InvalidArgument

_shoal = _extension.load("_shoal", "shoal")

Array = numpy.ndarray
Inputs = Mapping[str, Any]
"""By name: arrays of NumPy, whatever has ``__dlpack__``, or what NumPy makes an array of."""
Outputs = dict[str, Array]
_Self = TypeVar("_Self", bound="Client")


class TensorInfo(NamedTuple):
    """An input or an output of a model."""

    name: str
    dtype: str
    shape: Optional[tuple[int, ...]]
    """-1 for a dimension of any size, or of one that depends on the inputs; None for any shape."""


class Preprocess(NamedTuple):
    """How pictures become a model's input: the keys of ``[preprocess]`` in model.toml (docs/serving-your-checkpoint.md)."""

    resize: int = 0
    """The shorter side in pixels before the crop; 0: straight to the crop's size."""
    crop: tuple[int, int] = (0, 0)
    """Height and width of the center crop; 0: the model's input size."""
    order: str = "RGB"
    """Channels in the model's order: ``"RGB"``, ``"BGR"`` or ``"GRAY"``."""
    mean: Union[float, Sequence[float]] = 0.0
    """Subtracted, on the 0..255 scale: a number, or one per channel in that order."""
    scale: Union[float, Sequence[float]] = 1.0
    """Multiplied after that."""
    letterbox: bool = False
    """The whole picture is resized, in proportion, until it fits into the crop, and lies in its center."""
    border: int = 127
    """The gray around the picture in a letterbox, from 0 to 255."""


class ModelInfo(NamedTuple):
    """The description of a model."""

    name: str
    version: int
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]
    state: tuple[tuple[str, str], ...]
    """Pairs of an output and the input that it becomes in the next step of a session."""
    labels: tuple[str, ...]
    precision: str
    preprocess: Optional[Preprocess]


class Future(concurrent.futures.Future):  # type: ignore[type-arg]
    """The outputs of a submitted request, or its error. Canceling it cancels the request, if that has not been answered.

    A forked child gets no outcome of what was under way: there `result` and `exception` raise FailedPrecondition, and `cancel` does
    nothing. Do not wait in it for the parent's futures by other means, such as `concurrent.futures.wait`.
    """

    _request: Any

    def __init__(self) -> None:
        super().__init__()
        self._process = os.getpid()
        self._has_outcome = False
        self.add_done_callback(_note_outcome)  # the first one: those of users may fork

    def result(self, timeout: Optional[float] = None) -> Outputs:
        """As `concurrent.futures.Future.result`."""
        self._check_process()
        return super().result(timeout)  # type: ignore[no-any-return]

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """As `concurrent.futures.Future.exception`."""
        self._check_process()
        return super().exception(timeout)

    # Before any lock, which a thread that the child does not have may hold.
    def _is_parents(self) -> bool:
        return not self._has_outcome and os.getpid() != self._process

    def _check_process(self) -> None:
        if self._is_parents():
            raise FailedPrecondition("this process was forked after the request was submitted: submit it in the child, to a Pool or "
                                     "Engine that is made there")

    def cancel(self) -> bool:
        """Cancels the request: best effort. False if it is answered already."""
        if self._is_parents() or not super().cancel():
            return False
        self._request.cancel()
        return True


def _note_outcome(future: Any) -> None:
    future._has_outcome = True


def _finish(future: Any, outputs: Optional[Outputs], error: Optional[Exception]) -> None:
    if error is None:
        future.set_result(outputs)
    else:
        future.set_exception(error)


class _Futures:
    """A thread that gives outcomes to futures."""

    def __init__(self) -> None:
        self.inbox = _shoal.Inbox()
        self.thread = threading.Thread(target=self._run, args=(self.inbox,), name="shoal-futures", daemon=True)
        self.thread.start()

    @staticmethod
    def _run(inbox: Any) -> None:
        while inbox.wait():
            for future, outputs, error in inbox.take():
                if future.set_running_or_notify_cancel():  # else canceled
                    _finish(future, outputs, error)

    def end(self) -> None:
        self.inbox.close()
        if self.thread is not threading.current_thread():
            self.thread.join()


class _Line:
    """The requests of one event loop to one model: `limit` of them are under way, and the others wait for their turn."""

    def __init__(self, key: str, limit: int) -> None:
        self.key = key
        self.limit = limit
        self.under_way = 0
        self.waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()  # the first one first

    def expire(self, turn: asyncio.Future[None], model: str, seconds: float) -> None:
        if not turn.done():
            turn.set_exception(DeadlineExceeded(
                f"model '{model}': the timeout of {seconds:g} s was over before the request could be sent: {self.limit} others of this "
                "event loop are under way (async_in_flight)"))


class _LoopInbox:
    """The requests of one event loop. The loop watches the descriptor while there are any. So no other thread of Python's runs, and
    the loop is woken once for all requests that are complete."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self.loop = weakref.ref(loop)
        self.inbox = _shoal.Inbox()
        self.limit = limit
        self.under_way = 0
        self.lines: dict[str, _Line] = {}  # those with requests

    def line(self, key: str) -> _Line:
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = _Line(key, self.limit)
        return line

    def begin(self, loop: asyncio.AbstractEventLoop, line: _Line) -> None:
        if self.under_way == 0:
            loop.add_reader(self.inbox.fd(), self._deliver)
        self.under_way += 1
        line.under_way += 1

    async def turn(self, loop: asyncio.AbstractEventLoop, line: _Line, model: str, timeout: Optional[float]) -> Optional[float]:
        """Waits until this request may begin, and begins it. Returns what is left of its timeout."""
        seconds = None if timeout is None else _shoal.seconds(timeout)
        begin = loop.time()
        turn: asyncio.Future[None] = loop.create_future()
        line.waiting[turn] = None
        late = None if seconds is None else loop.call_later(seconds, line.expire, turn, model, seconds)
        try:
            await turn
        except BaseException:  # late or canceled
            line.waiting.pop(turn, None)
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # canceled when its turn had just come
                self.end(line)
            raise
        finally:
            if late is not None:
                late.cancel()
        return None if seconds is None else seconds - (loop.time() - begin)

    def end(self, line: _Line) -> None:
        self.under_way -= 1
        line.under_way -= 1
        loop = self.loop()
        if loop is None or loop.is_closed():
            return
        while line.waiting and line.under_way < line.limit:
            turn, _ = line.waiting.popitem(last=False)
            if not turn.done():  # else it is late, or its task was canceled
                self.begin(loop, line)
                turn.set_result(None)
        if line.under_way == 0:
            del self.lines[line.key]
        if self.under_way == 0:
            loop.remove_reader(self.inbox.fd())

    def _deliver(self) -> None:
        for (future, line), outputs, error in self.inbox.take():
            if not future.done():  # else its task was canceled
                _finish(future, outputs, error)
            self.end(line)


_Submit = Callable[[Any, Any, Optional[float]], Any]
"""Takes an inbox, the receiver of the outcome, and the timeout, and returns what cancels the request."""


def _end(native: Any, futures: _Futures) -> None:
    native.close()  # before: so every future has its outcome
    futures.end()


_ASYNC_IN_FLIGHT = 512  # half of what the queue of a model, or of an Engine, holds by default


def _check_async_in_flight(given: Optional[int]) -> None:
    try:
        if given is None or operator.index(given) >= 1:
            return
    except TypeError:
        pass
    raise InvalidArgument(f"async_in_flight is {given!r}: give a whole number from 1, or None")


class _Asynchronous:
    """Ways to wait for what is submitted."""

    _native: Any

    def __init__(self, async_in_flight: int) -> None:
        self._async_in_flight = async_in_flight
        self._futures: Optional[_Futures] = None
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopInbox] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def _submit_future(self, timeout: Optional[float], submit: _Submit) -> Future:
        with self._lock:
            futures = self._futures
            if futures is None:
                futures = self._futures = _Futures()
                weakref.finalize(self, _end, self._native, futures)
        future = Future()
        try:
            future._request = submit(futures.inbox, future, timeout)
        except Exception as error:
            self._native.check_usable()
            future.set_exception(error)
        return future

    def _end_futures(self) -> None:
        with self._lock:
            futures, self._futures = self._futures, None
        if futures is not None:
            futures.end()

    def _line_of(self, model: str) -> str:
        return model

    async def _await(self, model: str, timeout: Optional[float], submit: _Submit) -> Outputs:
        loop = asyncio.get_running_loop()
        with self._lock:
            requests = self._loops.get(loop)
            if requests is None:
                for other in [other for other in self._loops if other.is_closed()]:
                    del self._loops[other]  # outcomes that came too late keep it
                requests = self._loops[loop] = _LoopInbox(loop, self._async_in_flight)
        line = requests.line(self._line_of(model))
        has_waited = line.under_way >= line.limit
        if has_waited:
            timeout = await requests.turn(loop, line, model, timeout)
        else:
            requests.begin(loop, line)
        future = loop.create_future()
        try:
            if has_waited and self._native.closed:
                raise Cancelled(f"model '{model}': this Pool or Engine was closed before the request could be sent")
            request = submit(requests.inbox, (future, line), timeout)
        except BaseException:
            requests.end(line)
            raise
        try:
            return await future  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            request.cancel()
            raise


class Client(_Asynchronous):
    """Runs models: a `Pool` in the workers of the daemon, an `Engine` in this process.

    The outputs of a request are NumPy arrays in the memory that the model wrote. They stay valid as long as they are held, also when the
    Pool or Engine is closed. The methods may be called from any threads at the same time. All but `loan`, `submit` and
    `predict_async` wait, without the GIL.

    What the methods that submit have in common:

    inputs    a dict from names to arrays: of NumPy, or what has ``__dlpack__``, in the types and shapes that `describe` names. A Pool
              copies them into shared memory before it returns, except those of `loan`; for an Engine they must not change before the
              request is answered
    timeout   in seconds, for the whole path; None for the model's default
    version   of the model; 0 is the highest
    priority  a higher one goes first among the requests of this Pool; above 0 it needs a role (docs/serving-your-checkpoint.md)
    flow      for a gateway: for whom the request is
    """

    def __init__(self, native: Any, async_in_flight: int) -> None:
        super().__init__(async_in_flight)
        self._native = native
        self._finalizer = weakref.finalize(self, native.close)

    def predict(self, model: str, inputs: Inputs, *, timeout: Optional[float] = None, version: int = 0, priority: int = 0, flow: int = 0,
                out: Optional[Mapping[str, Array]] = None) -> Outputs:
        """Runs the model once and waits.

        out     arrays for some outputs, by name: the model writes there if they are of `loan_output`; others are copied
        Returns the outputs by name
        Raises  InvalidArgument (names input, expected and given), NotFound, DeadlineExceeded, Overloaded, ...

        >>> import numpy, shoal
        >>> engine = shoal.Engine("builtin:identity")
        >>> engine.predict("", {"data": numpy.arange(3, dtype="float32")})
        {'data_output': array([0., 1., 2.], dtype=float32)}
        """
        return self._native.predict(model, inputs, timeout, version, priority, flow, out)  # type: ignore[no-any-return]

    def submit(self, model: str, inputs: Inputs, *, timeout: Optional[float] = None, version: int = 0, priority: int = 0,
               flow: int = 0) -> Future:
        """Submits a request and returns at once. Every failure of the request arrives in the future, also that of inputs that are wrong.
        Callbacks of futures run in a thread of this Client and must not wait for other futures.
        Raises  FailedPrecondition: this Client is closed, or was made by the process that this one was forked from

        >>> import numpy, shoal
        >>> engine = shoal.Engine("builtin:identity")
        >>> futures = [engine.submit("", {"data": numpy.float32([i])}) for i in range(3)]
        >>> [float(future.result()["data_output"][0]) for future in futures]
        [0.0, 1.0, 2.0]
        """
        return self._submit_future(timeout, lambda inbox, future, timeout: self._native.submit(inbox, future, model, inputs, timeout,
                                                                                               version, priority, flow))

    async def predict_async(self, model: str, inputs: Inputs, *, timeout: Optional[float] = None, version: int = 0, priority: int = 0,
                            flow: int = 0) -> Outputs:
        """Runs the model once, for ``await`` in any event loop of asyncio, by thousands at once. Canceling the task cancels the request.

        At most `async_in_flight` requests of an event loop to one model are under way; others wait for their turn, in the order of their
        calls, whatever their priority. The timeout counts from the call; that of the model counts from the moment in which the request is
        sent. The inputs must not change before the answer.

        >>> import asyncio, numpy, shoal
        >>> engine = shoal.Engine("builtin:identity")
        >>> async def main():
        ...     return await asyncio.gather(*(engine.predict_async("", {"data": numpy.float32([i])}) for i in range(3)))
        >>> [float(out["data_output"][0]) for out in asyncio.run(main())]
        [0.0, 1.0, 2.0]
        """
        return await self._await(model, timeout, lambda inbox, future, timeout: self._native.submit(inbox, future, model, inputs, timeout,
                                                                                                    version, priority, flow))

    def as_completed(self, requests: Union[Mapping[Any, Inputs], Iterable[Inputs]], model: str, in_flight: int = 64, *,
                     timeout: Optional[float] = None, version: int = 0, priority: int = 0, flow: int = 0,
                     return_exceptions: bool = False) -> Iterator[tuple[Any, Any]]:
        """Runs the model for many inputs, `in_flight` at the same time, and yields (tag, outputs) as they are complete. The tags are
        the keys of a dict, else 0, 1, 2, ... `requests` is read as the answers come, so it may be a generator that reads files.
        Leaving the loop cancels what is under way.

        return_exceptions   yield the exception of a request that failed, or whose inputs were wrong, in place of its outputs, and go on;
                            else it is raised

        >>> import numpy, shoal
        >>> engine = shoal.Engine("builtin:identity")
        >>> inputs = {name: {"data": numpy.float32([i])} for i, name in enumerate("abc")}
        >>> sorted((tag, float(out["data_output"][0])) for tag, out in engine.as_completed(inputs, model="", in_flight=2))
        [('a', 0.0), ('b', 1.0), ('c', 2.0)]
        """
        if in_flight < 1:
            raise InvalidArgument(f"in_flight is {in_flight}: at least 1 request must be under way")
        inbox = _shoal.Inbox()
        pairs = iter(requests.items() if isinstance(requests, Mapping) else enumerate(requests))
        under_way, is_over = 0, False
        try:
            while under_way or not is_over:
                if under_way == in_flight or is_over:
                    inbox.wait()
                else:
                    try:
                        tag, inputs = next(pairs)
                    except StopIteration:
                        is_over = True
                        continue
                    try:
                        self._native.submit(inbox, tag, model, inputs, timeout, version, priority, flow)
                        under_way += 1
                    except Exception as failure:
                        if not return_exceptions:
                            raise
                        yield tag, failure
                for tag, outputs, error in inbox.take():
                    under_way -= 1
                    if error is not None and not return_exceptions:
                        raise error
                    yield tag, outputs if error is None else error
        finally:
            inbox.close()

    def describe(self, model: str, version: int = 0) -> ModelInfo:
        """The description of a model, for which this waits while the model loads.

        >>> import shoal
        >>> shoal.Engine("builtin:identity").describe("").inputs
        [TensorInfo(name='data', dtype='float32', shape=None)]
        """
        told = self._native.describe(model, version)
        told["inputs"], told["outputs"] = ([TensorInfo(*spec) for spec in told[key]] for key in ("inputs", "outputs"))
        told["preprocess"] = told["preprocess"] and Preprocess(*told["preprocess"])
        return ModelInfo(**told)

    def loan(self, dtype: Any, shape: Union[int, Sequence[int]]) -> Array:
        """An array with undefined contents that requests use where it lies: shared memory of a Pool. It may be submitted again, but
        must not be changed while a request with it is unanswered.
        Raises  Overloaded: not enough room now

        >>> import shoal
        >>> engine = shoal.Engine("builtin:identity")
        >>> x = engine.loan("float32", (1, 3))
        >>> x[:] = 7
        >>> engine.predict("", {"data": x})["data_output"]
        array([[7., 7., 7.]], dtype=float32)
        """
        return self._native.loan(dtype, shape)  # type: ignore[no-any-return]

    def loan_output(self, dtype: Any, shape: Union[int, Sequence[int]]) -> Array:
        """The same for ``out`` of `predict`: the model writes its output there.

        >>> import numpy, shoal
        >>> engine = shoal.Engine("builtin:identity")
        >>> y = engine.loan_output("float32", 2)
        >>> engine.predict("", {"data": numpy.float32([1, 2])}, out={"data_output": y})["data_output"] is y
        True
        """
        return self._native.loan_output(dtype, shape)  # type: ignore[no-any-return]

    @property
    def closed(self) -> bool:
        return self._native.closed  # type: ignore[no-any-return]

    def close(self) -> None:
        """Ends it. Requests that are not answered end with Cancelled. Arrays that came of it stay valid."""
        self._finalizer()
        self._end_futures()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()
