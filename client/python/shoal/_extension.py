"""Loads the extension modules, and says what to install if a library of the system is missing."""
from __future__ import annotations

import importlib
import re
import sysconfig
from types import ModuleType

# Debian 12's packages. OpenCV's three libraries are libopencv_core.so.406 and so on.
_PACKAGES = {"libzmq.so.5": "libzmq5", "libdnnl.so.2": "libdnnl2", "libgomp.so.1": "libgomp1", "libtomlplusplus.so.3": "libtomlplusplus3",
             "libz.so.1": "zlib1g", "libopencv_core": "libopencv-core406", "libopencv_imgproc": "libopencv-imgproc406",
             "libopencv_imgcodecs": "libopencv-imgcodecs406"}


def advice(message: str) -> str | None:
    """What to do about an ImportError with this message; None if no library is missing."""
    missing = re.match(r"(lib[^:]+): cannot open shared object file", message)
    if not missing:
        return None
    package = next((package for name, package in _PACKAGES.items() if missing[1].startswith(name)), None)
    return f"needs {missing[1]}, which is not installed" + (f": apt-get install {package}" if package else "")


def load(name: str, who: str) -> ModuleType:
    """The extension module of that name. Errors: ImportError, which names `who` needs it."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise ImportError("shoal does not support free-threaded builds of Python: use one with the GIL")
    try:
        return importlib.import_module(f"shoal.{name}")
    except ImportError as error:
        said = advice(str(error))
        if said is None:
            raise
        raise ImportError(f"{who} {said}", name=error.name, path=error.path) from error
