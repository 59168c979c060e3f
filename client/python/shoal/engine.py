"""`Engine`: a model in this process, the same bits as from the pool."""
from __future__ import annotations

import contextlib
import ctypes
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional, Union

from . import _extension
from .client import _ASYNC_IN_FLIGHT, Client, _check_async_in_flight, _shoal
from .pool import Session

# OpenMP's threads look for work for about a millisecond and then sleep; otherwise they keep their cores busy between runs. libgomp reads
# this when it is loaded. Why this number: worker/engine/passive_openmp.cpp.
_PASSIVE_OPENMP = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": _shoal.OPENMP_SPIN_COUNT}


def _is_loaded(library: str) -> bool:
    try:
        ctypes.CDLL(library, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _passive_openmp() -> Iterator[None]:
    """For what loads libgomp. What the user has set keeps its value. Children of this process see nothing of it."""
    added = {} if "OMP_WAIT_POLICY" in os.environ else {name: value for name, value in _PASSIVE_OPENMP.items() if name not in os.environ}
    if added and _is_loaded("libgomp.so.1"):
        warnings.warn("OpenMP (libgomp.so.1) was loaded before shoal.engine: its threads keep their cores busy between the runs of an "
                      "Engine with threads > 1. Import shoal.engine first, or start Python with OMP_WAIT_POLICY=passive "
                      f"GOMP_SPINCOUNT={_shoal.OPENMP_SPIN_COUNT}", RuntimeWarning, stacklevel=5)
        added = {}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


with _passive_openmp():
    _engine = _extension.load("_engine", "shoal.Engine")


class Engine(Client):
    """One model in this process, with the same code as the pool's workers. The methods are those of `Client`, `models` and `open_session`;
    what changes a daemon or asks it is a Pool's. There is only one model, so any name of a model means it: code that also runs with a
    Pool gives the name there.

    path          a prefix, prefix@epoch, a directory, or "builtin:identity"
    device        "cpu" or "cpu-reference"; empty: as model.toml says; likewise the next two
    precision     "f32", "f32-fast", "bf16" or "auto"
    threads       cores per run
    contexts      runs at the same time
    queue_limit   submitted requests that may wait; one more is answered with Overloaded
    async_in_flight  as for a Pool; None: 512, or queue_limit if that is lower
    tuning_ms     how long loading may measure algorithms: the first time on this machine; 0: not at all, -1: as model.toml says
    shapes        the inputs to compile for, by name, or several of such dicts; empty: as model.toml says. A shape, or (dtype, shape)
    on_measuring  called with the seconds spent and the seconds that it may take, while it measures
    Raises        NotFound, InvalidArgument, Unimplemented, DataLoss: names file, node or key

    Measuring runs in a ``shoal-worker``, a program of this package: this process is not forked. A forked child must load its own Engine.

    >>> import numpy, shoal
    >>> with shoal.Engine("tools/shapes/model", threads=1, tuning_ms=0) as engine:
    ...     out = engine.predict("shapes", {"data": numpy.zeros((1, 3, 64, 64), numpy.float32)})
    >>> out["prob_output"].shape
    (1, 12)
    """

    def __init__(self, path: Union[str, os.PathLike[str]], *, device: str = "", precision: str = "", threads: int = 0, contexts: int = 1,
                 queue_limit: int = 1024, tuning_ms: int = -1,
                 shapes: Union[Mapping[str, Any], Sequence[Mapping[str, Any]]] = (),
                 on_measuring: Optional[Callable[[float, float], Any]] = None, async_in_flight: Optional[int] = None) -> None:
        _check_async_in_flight(async_in_flight)
        sets = [shapes] if isinstance(shapes, Mapping) else shapes
        super().__init__(_engine.Engine(os.fspath(path), device, precision, threads, contexts, queue_limit, tuning_ms,
                                        [[_spec(name, spec) for name, spec in one.items()] for one in sets], on_measuring),
                         async_in_flight or min(_ASYNC_IN_FLIGHT, queue_limit))

    def _line_of(self, model: str) -> str:
        return ""  # any name means the one model

    def models(self) -> list[str]:
        """A list of the model's name, which is the prefix of its files.

        >>> import shoal
        >>> shoal.Engine("tools/shapes/model", tuning_ms=0).models()
        ['shapes']
        """
        return [self.describe("").name]

    def open_session(self, model: str = "") -> Session:
        """As `Pool.open_session`.
        Raises  FailedPrecondition: the model has no states
        """
        return Session(self, model, self._native.open_session(model))

    @property
    def warnings(self) -> list[str]:
        """Warnings of loading, such as unused parameters."""
        return self._native.warnings  # type: ignore[no-any-return]

    @property
    def packed_bytes(self) -> int:
        """Weights, shared by all contexts."""
        return self._native.packed_bytes  # type: ignore[no-any-return]

    @property
    def arena_bytes(self) -> int:
        """Activations of one context."""
        return self._native.arena_bytes  # type: ignore[no-any-return]


def _spec(name: str, spec: Any) -> tuple[str, str, list[int]]:
    dtype, shape = spec if len(spec) == 2 and isinstance(spec[0], str) else ("float32", spec)
    return name, dtype, list(shape)
