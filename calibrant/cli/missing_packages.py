"""Extras of the command line: a sentence instead of a traceback if one is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from calibrant.core.extras import pip_install

OURS = ("calibrant", "calibrant_server")


class MissingExtraError(ImportError):
    """A command needs packages of an extra that is not installed."""


@contextmanager
def needed_by(what: str, extra: str) -> Iterator[None]:
    """Name the extra if an import inside fails.

    Parameters
    ----------
    what : beginning of the sentence
    extra : that installs the package

    Raises
    ------
    MissingExtraError
        A package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OURS:
            raise
        raise MissingExtraError(
            f"{what} needs the package {error.name.partition('.')[0]!r}, which is not installed. "
            f"Install the extra `{extra}`: {pip_install(extra)}"
        ) from error
