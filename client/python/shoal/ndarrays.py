"""MXNet's files of arrays: ``.params``."""
from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

import numpy

from . import _extension
from .client import Array
from .errors import FailedPrecondition, InvalidArgument, NotFound

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


def save_ndarrays(file: Union[str, os.PathLike[str]], arrays: Union[Mapping[str, Any], Sequence[Any]]) -> None:
    """Writes arrays as ``mxnet.nd.save`` of MXNet 1.x does. Scalars and empty arrays are written as MXNet 2 writes them (V3).

    Raises   NotFound: no such directory; InvalidArgument: a type that these files do not have. Other errors of the file are OSError

    >>> import numpy, shoal, tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     shoal.save_ndarrays(file.name, {"arg:w": numpy.float32([[1, 2]])})
    ...     shoal.load_ndarrays(file.name)
    {'arg:w': array([[1., 2.]], dtype=float32)}
    """
    named = arrays if isinstance(arrays, Mapping) else {}
    made = [(name, numpy.asarray(array)) for name, array in (named.items() or (("", array) for array in arrays))]
    for name, array in made:
        if array.dtype.name not in _FLAGS:
            raise InvalidArgument(f"'{name}' is an array of {array.dtype}, which MXNet's files do not have")
    try:
        out = open(file, "wb")
    except FileNotFoundError as error:
        raise NotFound(f"cannot write {os.fspath(file)}: {error.strerror}: make its directory") from error
    with out:
        out.write(struct.pack("<QQQ", _LIST, 0, len(made)))
        for name, array in made:
            array = numpy.ascontiguousarray(array).reshape(array.shape).astype(array.dtype.newbyteorder("<"), copy=False)
            out.write(struct.pack("<Iii", _V2 if array.ndim and array.size else _V3, 0, array.ndim))
            out.write(struct.pack(f"<{array.ndim}q", *array.shape))
            out.write(struct.pack("<iii", 1, 0, _FLAGS[array.dtype.name]))  # of cpu(0)
            out.write(array.tobytes())
        out.write(struct.pack("<Q", len(named)))
        for name in named:
            encoded = name.encode()
            out.write(struct.pack("<Q", len(encoded)) + encoded)
