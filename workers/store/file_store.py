"""Stores of files outside Redis: a directory, or an object store that fsspec reaches.

Names are relative, with `/`. A file is written once under a name of its own and never changed. A write is durable when it returns.
"""

from __future__ import annotations

import os
from contextlib import suppress
from glob import escape
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

# An object store that does not respond: requests wait for it, so briefly.
_CONNECT_S, _READ_S = 3, 20
_S3 = ("s3", "s3a")
_DRAFT = ".draft"


class FilesUnavailable(RuntimeError):
    """The file store cannot be reached. Nothing was decided: the same request succeeds later."""

    retry_after_s = 5


class FileStore(Protocol):
    """What is needed of a store of files. A file that does not exist raises FileNotFoundError."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file durably."""

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a file from `start` to before `end`."""

    def remove(self, name: str) -> None:
        """Remove a file; one that does not exist counts as removed."""

    def names(self) -> list[str]:
        """Return the names of all files."""


class Directory:
    """Files in a directory of this machine, or of a file system that all machines mount."""

    def __init__(self, root: Path):
        self._root = root

    def write(self, name: str, data: bytes) -> None:
        """Write under another name, then rename: a reader finds the complete file or none."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # A name of its own: with one for all, a writer would rename what another has just begun to write.
        draft = path.with_name(f".{path.name}.{token_hex(4)}{_DRAFT}")
        try:
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(path)
        except FileNotFoundError:
            # Another writer of the same file was first, and removed this draft.
            if path.read_bytes() != data:
                raise
        _remove_drafts(path)
        for folder in (path.parent, *path.parent.parents):
            _sync(folder)
            if folder == self._root:
                break

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        with (self._root / name).open("rb") as file:
            file.seek(start)
            return file.read() if end is None else file.read(end - start)

    def remove(self, name: str) -> None:
        """Remove a file, or what a kill left of it, and its folders if they are empty then."""
        path = self._root / name
        path.unlink(missing_ok=True)
        _remove_drafts(path)
        for folder in path.parents:
            if folder == self._root:
                return
            try:
                folder.rmdir()
            except OSError:
                return

    def names(self) -> list[str]:
        return sorted(
            path.relative_to(self._root).as_posix()
            for path in self._root.rglob("*")
            if path.is_file()
        )


def _remove_drafts(path: Path) -> None:
    """Remove what killed writers of a file left."""
    for draft in path.parent.glob(f".{escape(path.name)}.*{_DRAFT}"):
        draft.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


class ObjectStore:
    """Files of a store that fsspec reaches, such as `s3://bucket/prefix`. It is opened where it is used first: not before a fork."""

    def __init__(self, url: str):
        self._url = url
        self._opened: tuple[int, Any, str] | None = None

    def _open(self) -> tuple[Any, str]:
        if self._opened is None or self._opened[0] != os.getpid():
            from fsspec.core import url_to_fs

            files, root = url_to_fs(self._url, **_options(self._url))
            if hasattr(files, "retries"):
                files.retries = (
                    1  # of s3fs, in addition to those of its client; the engine repeats by itself
                )
            self._opened = (os.getpid(), files, root.rstrip("/"))
        return self._opened[1:]

    def write(self, name: str, data: bytes) -> None:
        files, root = self._open()
        files.pipe_file(f"{root}/{name}", data)

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        files, root = self._open()
        found: bytes = files.cat_file(f"{root}/{name}", start=start or None, end=end)
        return found

    def remove(self, name: str) -> None:
        files, root = self._open()
        with suppress(FileNotFoundError):
            files.rm_file(f"{root}/{name}")

    def names(self) -> list[str]:
        files, root = self._open()
        return sorted(found.removeprefix(f"{root}/") for found in files.find(root))


def _options(url: str) -> dict[str, Any]:
    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if url.partition("://")[0] in _S3:
        times = {"connect_timeout": _CONNECT_S, "read_timeout": _READ_S}
        options["config_kwargs"] = {**times, "retries": {"max_attempts": 2}}
    return options


def file_store(url: str) -> FileStore:
    """Return the store of a URL or path.

    >>> type(file_store("/var/lib/calibrant/days")).__name__, type(file_store("s3://bucket/days")).__name__
    ('Directory', 'ObjectStore')
    """
    scheme, found, path = url.partition("://")
    if not found:
        return Directory(Path(url))
    return Directory(Path(path)) if scheme == "file" else ObjectStore(url)
