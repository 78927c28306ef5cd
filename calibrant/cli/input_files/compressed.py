"""Text files that may be compressed with gzip."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from calibrant.cli.input_files.file_errors import InputFileError

GZIP = ".gz"


def ending_of(path: Path) -> str:
    """Return the ending that names the format of a file, without that of its compression.

    >>> ending_of(Path("rows.CSV.gz")), ending_of(Path("p.npy"))
    ('.csv', '.npy')
    """
    ending = path.suffix.lower()
    return Path(path.stem).suffix.lower() if ending == GZIP else ending


@contextmanager
def opened_text(path: Path, encoding: str) -> Iterator[IO[str]]:
    """Open a text file for reading, decompressed if its name ends in `.gz`.

    Raises
    ------
    InputFileError
        A compressed file that is damaged.
    """
    is_compressed = path.suffix.lower() == GZIP
    try:
        with (
            gzip.open(path, "rt", newline="", encoding=encoding)
            if is_compressed
            else path.open(newline="", encoding=encoding)
        ) as file:
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        detail = f"Expected a file compressed with gzip; reading failed: {error}"
        raise InputFileError(path, detail, "gzip") from error
