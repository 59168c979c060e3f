"""MXNet's files of arrays: ``.params``."""
from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO, Optional, Union

import numpy

from . import _extension
from .client import Array, _shoal
from .errors import Error, FailedPrecondition, Internal, InvalidArgument, NotFound, PermissionDenied, Unavailable

_params = _extension.load("_params", "shoal.load_ndarrays")

_LIST, _V2, _V3 = 0x112, 0xF993FAC9, 0xF993FACA  # the first words of a list, and of an array in it
_FLAGS: dict[str, int] = _params.FLAGS


def _dtype(name: str) -> numpy.dtype[Any]:
    if name != "bfloat16":
        return numpy.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise FailedPrecondition("NumPy has bfloat16 by the package ml_dtypes: pip install ml_dtypes") from None
    return numpy.dtype(ml_dtypes.bfloat16)  # type: ignore[no-any-return]


def load_ndarrays(file: Union[str, os.PathLike[str]]) -> Union[dict[str, Optional[Array]], list[Optional[Array]]]:
    """Reads a file of arrays as ``mxnet.nd.load`` does, of any version of MXNet: lists of arrays (V0 to V3), .npz and .npy. Sparse
    arrays become dense.

    Returns  a dict from names as they are stored ("arg:conv0_weight"), or a list if the arrays have none. None stands for an array
             without a value
    Raises   NotFound; DataLoss: names file, offset and field; FailedPrecondition: bfloat16 without the package ml_dtypes; ...

    >>> import shoal
    >>> shoal.load_ndarrays("tools/shapes/model/shapes-0000.params")["arg:conv1_weight"].shape
    (32, 16, 3, 3)
    """
    names, arrays = [], []
    for name, dtype, shape, data in _params.read(os.fspath(file)):
        names.append(name)
        arrays.append(None if dtype is None else numpy.frombuffer(data, _dtype(dtype)).reshape(shape))
    return dict(zip(names, arrays)) if any(names) else arrays


def save_ndarrays(file: Union[str, os.PathLike[str]], arrays: Union[Mapping[str, Any], Sequence[Any], Any]) -> None:
    """Writes arrays as ``mxnet.nd.save`` of MXNet 1.x does. Scalars and empty arrays are written as MXNet 2 writes them (V3). The file is
    written beside its place and then put there, so an error leaves an old one as it was.

    arrays   by name, or a list, or one array: of NumPy, what has ``__dlpack__``, or what NumPy makes an array of
    Raises   InvalidArgument: a type or more dimensions than `load_ndarrays` reads, a name that is no text; NotFound: no such directory;
             PermissionDenied; ... All name the file

    >>> import numpy, shoal, tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     shoal.save_ndarrays(file.name, {"arg:w": numpy.float32([[1, 2]])})
    ...     shoal.load_ndarrays(file.name)
    {'arg:w': array([[1., 2.]], dtype=float32)}
    """
    path = os.fsdecode(file)
    try:
        names, made = _whole(arrays)
    except Error as error:
        raise type(error)(f"cannot write {path}: {error}") from error
    try:
        _write(os.path.realpath(path), names, made)
    except (OSError, ValueError) as error:
        code = _CODES.get(getattr(error, "errno", None), InvalidArgument if isinstance(error, ValueError) else Internal)
        raise code(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error


# As in shm/base: status_from_errno.
_CODES: dict[Any, type[Error]] = {
    errno.ENOENT: NotFound, errno.ENOTDIR: InvalidArgument, errno.EISDIR: InvalidArgument, errno.ENAMETOOLONG: InvalidArgument,
    errno.ELOOP: InvalidArgument, errno.EACCES: PermissionDenied, errno.EPERM: PermissionDenied, errno.EROFS: PermissionDenied,
    errno.ENOSPC: FailedPrecondition, errno.EDQUOT: FailedPrecondition, errno.EMFILE: Unavailable, errno.ENFILE: Unavailable}


def _whole(arrays: Any) -> tuple[list[bytes], list[Array]]:
    """The names and arrays of a file, all of which it can hold."""
    if isinstance(arrays, Mapping):
        pairs = list(arrays.items())
    elif hasattr(arrays, "__dlpack__") or hasattr(arrays, "__array__"):
        pairs = [("0", arrays)]
    elif isinstance(arrays, Iterable) and not isinstance(arrays, (str, bytes)):
        pairs = [(str(i), array) for i, array in enumerate(arrays)]
    else:
        raise InvalidArgument(f"give a dict, a list, or an array, and not {type(arrays).__name__}")
    names, made = [], []
    for name, array in pairs:
        try:
            names.append(name.encode())
        except (AttributeError, UnicodeEncodeError):
            raise InvalidArgument(f"the names of arrays are strings, and not {name!r}") from None
        if array is None:
            raise InvalidArgument(f"'{name}' is None: an array without a value cannot be written")
        made.append(_shoal.array(array, name))
    return names if isinstance(arrays, Mapping) else [], made


def _write(path: str, names: list[bytes], arrays: list[Array]) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = 0
    if mode and not stat.S_ISREG(mode):  # a pipe, for example, cannot be replaced
        with open(path, "wb") as out:
            return _write_to(out, names, arrays)
    beside = os.path.join(os.path.dirname(path), f".{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(beside, "xb") as out:
            if mode:
                os.fchmod(out.fileno(), stat.S_IMODE(mode))
            _write_to(out, names, arrays)
            out.flush()
            os.fsync(out.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _write_to(out: BinaryIO, names: list[bytes], arrays: list[Array]) -> None:
    out.write(struct.pack("<QQQ", _LIST, 0, len(arrays)))
    for array in arrays:
        out.write(struct.pack("<Iii", _V2 if array.ndim and array.size else _V3, 0, array.ndim))
        out.write(struct.pack(f"<{array.ndim}q", *array.shape))
        out.write(struct.pack("<iii", 1, 0, _FLAGS[array.dtype.name]))  # of cpu(0)
        out.write(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    out.write(struct.pack("<Q", len(names)))
    for name in names:
        out.write(struct.pack("<Q", len(name)) + name)
