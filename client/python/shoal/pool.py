"""`Pool`: a connection to the local daemon. `Session`: a sequence of requests to a model with states."""
from __future__ import annotations

import json
import os
from typing import Any, NamedTuple, Optional, Union

from .client import _ASYNC_IN_FLIGHT, Client, Future, Inputs, Outputs, _check_async_in_flight, _shoal


class ModelChange(NamedTuple):
    """The result of a change of what the daemon serves."""

    outcome: str
    """``"loaded"``, ``"reloaded"``, ``"unchanged"``, ``"unloaded"``, ``"scaled"``, ``"drained"``"""
    version: int
    """The default version now; 0 for none."""
    versions: list[int]
    workers: int
    """Per version."""
    seconds: float


class Session:
    """One sequence of requests to a model that has ``state`` in its model.toml: what one step answers as a state is an input of the next.
    The first step begins with zeros. The states lie in this process: the sequence survives the death of any worker and of the daemon.
    A step that ends with an error changes nothing. One step at a time. `Pool.open_session` and `Engine.open_session` make sessions.
    """

    def __init__(self, client: Client, model: str, native: Any) -> None:
        self._client = client  # which does not end before its sessions
        self._model = model
        self._native = native

    def predict(self, inputs: Inputs, *, timeout: Optional[float] = None, version: int = 0, priority: int = 0) -> Outputs:
        """The next step. As `Client.predict`; the inputs are those that are no states."""
        return self._native.predict(inputs, timeout, version, priority)  # type: ignore[no-any-return]

    def submit(self, inputs: Inputs, *, timeout: Optional[float] = None, version: int = 0, priority: int = 0) -> Future:
        """As `Client.submit`."""
        return self._client._submit_future(timeout, lambda inbox, future, timeout: self._native.submit(inbox, future, inputs, timeout,
                                                                                                       version, priority))

    async def predict_async(self, inputs: Inputs, *, timeout: Optional[float] = None, version: int = 0, priority: int = 0) -> Outputs:
        """As `Client.predict_async`."""
        return await self._client._await(self._model, timeout, lambda inbox, future, timeout: self._native.submit(
            inbox, future, inputs, timeout, version, priority))

    def reset(self) -> None:
        """The next step begins a new sequence."""
        self._native.reset()

    def close(self) -> None:
        """Frees its memory. A step that is under way goes on."""
        self._native.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Pool(Client):
    """A connection to ``shoald``, the local daemon, whose workers run its models.

    directory           where daemon and clients meet; None: ``$SHOAL_DIR``, else ``$XDG_RUNTIME_DIR/shoal``, else ``/run/shoal``
    arena_limit_bytes   the most shared memory that inputs and loans may take, and likewise outputs; it is allocated as it is used
    in_flight_limit     requests that may be unanswered at the same time; one more is answered Overloaded at once
    async_in_flight     requests of `predict_async` to one model that are under way in one event loop; others wait for their turn.
                        None: 512, or in_flight_limit if that is lower. A model with a shorter queue (``queue_limit``) wants fewer
    connect_timeout, reconnect_timeout, control_timeout, session_limit, session_idle   as in PoolOptions (shoal/pool.hpp), in seconds
    Raises  Unavailable: no daemon (names the socket); PermissionDenied, Overloaded, ...

    A forked child must make its own: there everything answers FailedPrecondition.

    >>> import numpy, shoal
    >>> pool = shoal.Pool()
    >>> pool.models()
    ['echo', 'shapes', 'ssd']
    >>> pool.describe("shapes").outputs
    [TensorInfo(name='prob_output', dtype='float32', shape=(-1, 12))]
    >>> x = pool.loan("float32", (1, 4))        # in shared memory
    >>> x[:] = 5
    >>> pool.submit("echo", {"data": x}).result()["data_output"]
    array([[5., 5., 5., 5.]], dtype=float32)
    >>> pool.close()                            # or: with shoal.Pool() as pool
    """

    def __init__(self, directory: Union[str, os.PathLike[str], None] = None, *, arena_limit_bytes: Optional[int] = None,
                 connect_timeout: Optional[float] = None, reconnect_timeout: Optional[float] = None,
                 control_timeout: Optional[float] = None, in_flight_limit: Optional[int] = None, session_limit: Optional[int] = None,
                 session_idle: Optional[float] = None, async_in_flight: Optional[int] = None) -> None:
        _check_async_in_flight(async_in_flight)
        super().__init__(_shoal.Pool("" if directory is None else os.fspath(directory), arena_limit_bytes, connect_timeout,
                                     reconnect_timeout, control_timeout, in_flight_limit, session_limit, session_idle),
                         async_in_flight or min(_ASYNC_IN_FLIGHT, in_flight_limit or _ASYNC_IN_FLIGHT))

    def models(self) -> list[str]:
        """The names of the models that the daemon serves."""
        return self._native.list()  # type: ignore[no-any-return]

    def status(self) -> dict[str, Any]:
        """The state of the daemon and its models (supervisor/admin/README.md)."""
        return json.loads(self._native.stats())  # type: ignore[no-any-return]

    def crashes(self, model: str = "") -> Any:
        """The last deaths of workers of one model, or of all models (supervisor/admin/README.md)."""
        return json.loads(self._native.crashes(model))

    def load(self, name: str, path: Union[str, os.PathLike[str]]) -> ModelChange:
        """Serves another model: ``pool.load("resnet", "models/resnet-50,workers=4")``. Waits until it serves. The next four wait, too.

        >>> import shoal
        >>> with shoal.Pool() as pool:
        ...     print(pool.load("other", "builtin:identity,workers=2").outcome)
        ...     print(pool.scale("other", 1).workers)
        ...     print(pool.unload("other").outcome)
        loaded
        1
        unloaded
        """
        return ModelChange(*self._native.load(name, os.fspath(path)))

    def reload(self, name: str, path: Union[str, os.PathLike[str]] = "", *, force: bool = False) -> ModelChange:
        """Reads the model's files again, or those of another path, and serves their content. No request fails because of that.

        force   also if nothing has changed
        """
        return ModelChange(*self._native.reload(name, os.fspath(path), force))

    def unload(self, name: str) -> ModelChange:
        """Stops serving the model, after the requests that it has admitted."""
        return ModelChange(*self._native.unload(name))

    def scale(self, name: str, workers: int) -> ModelChange:
        """Changes the number of workers."""
        return ModelChange(*self._native.scale(name, workers))

    def drain(self, name: str) -> ModelChange:
        """Refuses new requests for the model, and returns when the admitted ones are answered. `reload` ends this."""
        return ModelChange(*self._native.drain(name))

    def stop(self) -> None:
        """Asks the daemon to answer its admitted requests and to end."""
        self._native.stop()

    def usage(self) -> dict[str, dict[str, int]]:
        """The shared memory of this Pool: ``usage()["inputs"]["copied_bytes"]`` are those that travelled inside messages instead."""
        return self._native.usage()  # type: ignore[no-any-return]

    def open_session(self, model: str) -> Session:
        """Opens a session, without asking the daemon."""
        return Session(self, model, self._native.open_session(model))
