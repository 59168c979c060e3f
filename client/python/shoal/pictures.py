"""`ImageClassifier` and `ObjectDetector`: pictures in, class names or boxes out."""
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Optional, TypeVar, Union, overload

import numpy

from . import _extension
from .client import Array, Client, Preprocess

_vision = _extension.load("_vision", "shoal, for pictures,")

Picture = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, Array]
"""The path of a file, the bytes of one, or pixels: red, green and blue in uint8, of shape (height, width, 3); also what NumPy makes such
an array of, for example a picture of Pillow."""
_P = TypeVar("_P", bound=Picture)
Classes = list[tuple[str, float]]
"""(label, probability), the most probable first."""
Detections = list[tuple[str, float, tuple[float, float, float, float]]]
"""(label, score, (x0, y0, x1, y1)), the highest score first. The box is in pixels of the picture: x to the right, y down."""


def _given(picture: Picture) -> Union[str, bytes, Array]:
    """What the extension module takes."""
    if isinstance(picture, (str, bytes)):
        return picture
    if isinstance(picture, (bytearray, memoryview)):
        return bytes(picture)
    return numpy.ascontiguousarray(picture) if hasattr(picture, "__array__") else os.fspath(picture)


class _PictureTask:
    _native: Any

    def __init__(self, client: Client, native: Any) -> None:
        self._client = client  # else the Engine of `ImageClassifier(Engine(path), "")` would end
        self._native = native

    @property
    def warnings(self) -> list[str]:
        """For example that the model does not say how its pictures are prepared."""
        return self._native.warnings  # type: ignore[no-any-return]

    @property
    def preprocess(self) -> Preprocess:
        """How pictures are prepared, with all sizes filled in."""
        return Preprocess(*self._native.preprocess)


class ImageClassifier(_PictureTask):
    """Turns pictures into a model's input, runs it, and reads its first output.

    client      a Pool or an Engine
    top_k       classes per picture
    preprocess  used instead of the model's ``[preprocess]`` in model.toml; without both, ImageNet's with a warning
    labels      used instead of the model's, one for each class. Without any, the label of a class is its number
    batch       pictures per request, if the model takes several
    timeout     of each request, in seconds
    version     of the model; 0 is the highest
    Raises      FailedPrecondition: the model takes no pictures; InvalidArgument: the preprocessing does not fit it

    >>> import shoal
    >>> engine = shoal.Engine("tools/shapes/model", tuning_ms=0)
    >>> classifier = shoal.ImageClassifier(engine, "shapes")
    >>> [(label, probability)] = classifier.classify("tools/shapes/pictures/star-1.png", top_k=1)
    >>> label, probability > 0.9
    ('star', True)
    """

    def __init__(self, client: Client, model: str, *, top_k: int = 5, preprocess: Optional[Preprocess] = None, labels: Sequence[str] = (),
                 batch: int = 1, timeout: Optional[float] = None, version: int = 0) -> None:
        super().__init__(client, _vision.ImageClassifier(client._native, model, top_k, preprocess, list(labels), batch, timeout, version))
        self._top_k = top_k

    @overload
    def classify(self, picture: Picture, *, top_k: Optional[int] = None) -> Classes: ...
    @overload
    def classify(self, picture: list[_P], *, top_k: Optional[int] = None) -> list[Classes]: ...

    def classify(self, picture: Union[Picture, list[_P]], *, top_k: Optional[int] = None) -> Union[Classes, list[Classes]]:
        """The classes of one picture, or of each picture of a list, several of which are read and run at the same time.

        Raises  what the first picture or request that fails gives

        >>> import shoal
        >>> classifier = shoal.ImageClassifier(shoal.Engine("tools/shapes/model", tuning_ms=0), "", top_k=1)
        >>> [label for [(label, _)] in classifier.classify([f"tools/shapes/pictures/{name}-1.png" for name in ("ring", "star")])]
        ['ring', 'star']
        """
        k = self._top_k if top_k is None else top_k
        if isinstance(picture, list):
            return self._native.classify([_given(each) for each in picture], k)  # type: ignore[no-any-return]
        return self._native.classify([_given(picture)], k)[0]  # type: ignore[no-any-return]


class ObjectDetector(_PictureTask):
    """Turns pictures into a model's input, runs it, and reads boxes, which it maps back to the pictures.

    client      a Pool or an Engine
    threshold   detections with a lower score are left out
    top_k       detections per picture; 0: all
    preprocess  used instead of the model's ``[preprocess]`` in model.toml; without both, GluonCV's with a warning
    labels      used instead of the model's. The label of a class without one is its number
    format      what the outputs mean: "multibox" and "nms" are one output with rows of (class, score, x0, y0, x1, y1), in shares of the
                input's sides or in pixels of it; "gluoncv" are three: classes, scores, boxes. Empty: found by their shapes
    outputs     the name of the output with rows, or of the three in this order; empty: found by their shapes, classes and scores by their
                names
    batch       pictures per request, if the model takes several
    timeout     of each request, in seconds
    version     of the model; 0 is the highest
    Raises      FailedPrecondition: the model takes no pictures, or its outputs are no detections or cannot be told apart;
                InvalidArgument: the preprocessing does not fit it; NotFound: no such output

    >>> import shoal
    >>> pool = shoal.Pool()
    >>> detector = shoal.ObjectDetector(pool, "ssd", threshold=0.8)
    >>> for label, score, (x0, y0, x1, y1) in detector.detect("tools/shapes/pictures/star-1.png"):
    ...     print(f"{label} {score:.2f}: {x0:.0f} {y0:.0f} {x1:.0f} {y1:.0f}")
    cat 0.90: 0 0 61 61
    """

    def __init__(self, client: Client, model: str, *, threshold: float = 0.5, top_k: int = 0, preprocess: Optional[Preprocess] = None,
                 labels: Sequence[str] = (), format: str = "", outputs: Sequence[str] = (), batch: int = 1,
                 timeout: Optional[float] = None, version: int = 0) -> None:
        super().__init__(client, _vision.ObjectDetector(client._native, model, threshold, top_k, preprocess, list(labels), format,
                                                        list(outputs), batch, timeout, version))

    @overload
    def detect(self, picture: Picture) -> Detections: ...
    @overload
    def detect(self, picture: list[_P]) -> list[Detections]: ...

    def detect(self, picture: Union[Picture, list[_P]]) -> Union[Detections, list[Detections]]:
        """The objects in one picture, or in each picture of a list, several of which are read and run at the same time.

        Raises  what the first picture or request that fails gives
        """
        if isinstance(picture, list):
            return self._native.detect([_given(each) for each in picture])  # type: ignore[no-any-return]
        return self._native.detect([_given(picture)])[0]  # type: ignore[no-any-return]
