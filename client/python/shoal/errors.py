"""The exceptions of Shoal: a class for each code.

>>> import shoal
>>> with shoal.Engine("builtin:identity") as engine:
...     engine.predict("", {"data": 3})
Traceback (most recent call last):
  ...
shoal.InvalidArgument: model 'builtin:identity': input 'data' is int64 (wants float32)
"""
from __future__ import annotations


class Error(Exception):
    """The base of all exceptions of Shoal. ``str(error)`` says what was attempted, on what, and what to do."""

    code: str = "UNKNOWN"
    """The name of the code, as on the wire and in docs/errors.md, for example ``"OVERLOADED"``."""
    retry_after: float = 0.0
    """In how many seconds to try again; 0 if that is not known."""
    ran: str = "no"
    """Whether the model may have run: ``"no"``, ``"maybe"`` or ``"yes"``."""


class InvalidArgument(Error, ValueError):
    """The request or a file's content is wrong; sending it again does not help."""

    code = "INVALID_ARGUMENT"


class NotFound(Error, LookupError):
    """No such file, model, input or output."""

    code = "NOT_FOUND"


class DeadlineExceeded(Error, TimeoutError):
    """The timeout is over."""

    code = "DEADLINE_EXCEEDED"


class Overloaded(Error):
    """The queue is full; try again in ``retry_after`` seconds or elsewhere."""

    code = "OVERLOADED"


class Poison(Error):
    """This request crashed its worker twice; do not send it again."""

    code = "POISON"


class Cancelled(Error):
    """The caller canceled it, or closed its Pool or Engine."""

    code = "CANCELLED"


class Unavailable(Error, ConnectionError):
    """No daemon, it does not answer, or it is shutting down; try again later."""

    code = "UNAVAILABLE"


class FailedPrecondition(Error, RuntimeError):
    """The system is in the wrong state for this call."""

    code = "FAILED_PRECONDITION"


class Unimplemented(Error, NotImplementedError):
    """An operator, attribute or format that Shoal does not have."""

    code = "UNIMPLEMENTED"


class DataLoss(Error):
    """A file is damaged."""

    code = "DATA_LOSS"


class Aborted(Error):
    """Every attempt ended with the death of its worker."""

    code = "ABORTED"


class PermissionDenied(Error, PermissionError):
    """The operating system or the daemon refused."""

    code = "PERMISSION_DENIED"


class Internal(Error):
    """A bug in Shoal or an accelerator."""

    code = "INTERNAL"


# In the order of the codes' numbers, with Error in the place of OK.
ALL = (Error, InvalidArgument, NotFound, DeadlineExceeded, Overloaded, Poison, Cancelled, Unavailable, FailedPrecondition,
       Unimplemented, DataLoss, Aborted, PermissionDenied, Internal)
_BY_CODE = {error.code: error for error in ALL}
for _error in ALL:
    _error.__module__ = "shoal"


def _make(code: str, message: str, retry_after: float, ran: str) -> Error:
    """Called by the extension modules."""
    error = _BY_CODE.get(code, Error)(message)
    error.code = code
    error.retry_after = retry_after
    error.ran = ran
    return error
