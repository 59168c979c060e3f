"""`ImageClassifier`: pictures in, class names with probabilities out."""
from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Optional, Union

from . import _extension
from .client import Array, Client

_vision = _extension.load("_vision", "shoal.ImageClassifier")

Picture = Union[str, "os.PathLike[str]", bytes, Array]
"""The path of a file, the bytes of one, or pixels: red, green and blue in uint8, of shape (height, width, 3)."""
Classes = list[tuple[str, float]]


class ImageClassifier:
    """Turns pictures into a model's input, runs it, and reads its first output. The preprocessing is the model's (``[preprocess]`` in
    model.toml), else ImageNet's with a warning.

    client   a Pool or an Engine
    top_k    classes per picture, the most probable first
    batch    pictures per request, if the model takes several
    timeout  of each request

    >>> import shoal
    >>> engine = shoal.Engine("tools/shapes/model", tuning_ms=0)
    >>> classifier = shoal.ImageClassifier(engine, "shapes")
    >>> [(label, probability)] = classifier.classify("tools/shapes/pictures/star-1.png", top_k=1)
    >>> label, probability > 0.9
    ('star', True)
    """

    def __init__(self, client: Client, model: str, *, top_k: int = 5, batch: int = 1, timeout: Optional[float] = None,
                 version: int = 0) -> None:
        self._native = _vision.ImageClassifier(client._native, model, top_k, batch, timeout, version)
        self._top_k = top_k

    def classify(self, picture: Picture, *, top_k: Optional[int] = None) -> Classes:
        """The classes of one picture: (label, probability), the most probable first."""
        return self.classify_all([picture], top_k=top_k)[0]

    def classify_all(self, pictures: Iterable[Picture], *, top_k: Optional[int] = None) -> list[Classes]:
        """Those of many pictures, several at the same time.
        Raises  what the first picture or request that fails gives
        """
        given = [picture if isinstance(picture, (bytes, Array)) else os.fspath(picture) for picture in pictures]
        return self._native.classify(given, self._top_k if top_k is None else top_k)  # type: ignore[no-any-return]

    @property
    def warnings(self) -> list[str]:
        """For example that the model does not say how its pictures are prepared."""
        return self._native.warnings  # type: ignore[no-any-return]
