"""The error for a framework that is not installed."""

from __future__ import annotations

from calibrant.core.extras import pip_install


def missing(error: ModuleNotFoundError, extra: str) -> ImportError:
    """Return the error that names the extra to install.

    >>> missing(ModuleNotFoundError("No module named 'onnx'", name="onnx"), "onnx")
    ImportError("This adapter needs onnx, which is not installed. Install the extra: pip install 'calibrant[onnx]' (in a clone: pip install '.[onnx]')")
    """
    return ImportError(
        f"This adapter needs {error.name}, which is not installed. Install the extra: {pip_install(extra)}"
    )
