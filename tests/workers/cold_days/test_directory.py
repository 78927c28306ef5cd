"""Files in a directory: complete or absent, whoever writes them at the same time."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from calibrant_server.workers.store.file_store import Directory

DATA = b"of the store" * 1000


def test_a_writer_renames_only_what_it_has_written(tmp_path, monkeypatch):
    """A second writer of the same name begins while the first is about to rename its file."""
    files, has_begun, may_write = Directory(tmp_path), threading.Event(), threading.Event()
    second = threading.Thread(target=lambda: files.write("a/b", DATA))
    open_, fsync = Path.open, os.fsync

    def opened(path, mode="r", *given):
        file = open_(path, mode, *given)
        if threading.current_thread() is second:
            has_begun.set()
            may_write.wait(60)
        return file

    def synced(number):
        if threading.current_thread() is not second and not second.is_alive():
            second.start()
            assert has_begun.wait(60)
        fsync(number)

    monkeypatch.setattr(Path, "open", opened)
    monkeypatch.setattr(os, "fsync", synced)
    try:
        files.write("a/b", DATA)
        assert files.read("a/b") == DATA
    finally:
        may_write.set()
        second.join(60)
    assert files.read("a/b") == DATA
    assert files.names() == ["a/b"]


def test_what_a_killed_writer_left_is_removed_with_its_file(tmp_path, monkeypatch):
    files = Directory(tmp_path)

    def killed(draft, path):
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        patched.setattr(Path, "unlink", lambda path, missing_ok: None)
        with pytest.raises(SystemExit):
            files.write("a/b[1]", DATA)
    [left] = files.names()
    assert left.startswith("a/.b[1].")
    files.write("a/c", DATA)
    files.remove("a/b[1]")
    assert files.names() == ["a/c"]
    files.remove("a/c")
    assert not (tmp_path / "a").exists()
