"""How to install an extra: the same words in every error that names one."""

from __future__ import annotations


def pip_install(extras: str) -> str:
    """Return the commands that install extras: from a registry, and before publication from a clone.

    >>> pip_install("cli")
    "pip install 'calibrant[cli]' (in a clone: pip install '.[cli]')"
    """
    return f"pip install 'calibrant[{extras}]' (in a clone: pip install '.[{extras}]')"
