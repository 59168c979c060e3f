"""Runs neural networks: MXNet checkpoints, in the workers of the local daemon (`Pool`) or in this process (`Engine`).

>>> import numpy, shoal
>>> x = numpy.ones((1, 4), numpy.float32)
>>> with shoal.Pool() as pool:                  # of the daemon in $SHOAL_DIR
...     out = pool.predict("echo", {"data": x}, timeout=0.5)
>>> out["data_output"]
array([[1., 1., 1., 1.]], dtype=float32)
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from .client import Client, Future, ModelInfo, Preprocess, TensorInfo, _shoal
from .errors import (Aborted, Cancelled, DataLoss, DeadlineExceeded, Error, FailedPrecondition, Internal, InvalidArgument, NotFound,
                     Overloaded, PermissionDenied, Poison, Unavailable, Unimplemented)
from .pool import ModelChange, Pool, Session

if TYPE_CHECKING:
    from .engine import Engine as Engine
    from .ndarrays import load_ndarrays as load_ndarrays, save_ndarrays as save_ndarrays
    from .pictures import ImageClassifier as ImageClassifier, ObjectDetector as ObjectDetector

__all__ = ["Aborted", "Cancelled", "Client", "DataLoss", "DeadlineExceeded", "Engine", "Error", "FailedPrecondition", "Future",
           "ImageClassifier", "Internal", "InvalidArgument", "ModelChange", "ModelInfo", "NotFound", "ObjectDetector", "Overloaded",
           "PermissionDenied", "Poison", "Pool", "Preprocess", "Session", "TensorInfo", "Unavailable", "Unimplemented", "load_ndarrays",
           "save_ndarrays"]

__version__: str = _shoal.VERSION

# What needs more libraries than a client does, and is loaded when it is first used.
_LAZY = {"Engine": "engine", "ImageClassifier": "pictures", "ObjectDetector": "pictures", "load_ndarrays": "ndarrays",
         "save_ndarrays": "ndarrays"}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'shoal' has no attribute '{name}'")
    import importlib
    value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
