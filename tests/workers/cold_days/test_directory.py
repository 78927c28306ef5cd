"""Files in a directory: durable when they were written, and their folders go with them."""

from __future__ import annotations

import os

from calibrant_server.workers.store.file_store import Directory


def test_a_file_and_its_folders_are_synced(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda at: (synced.append(os.fstat(at).st_ino), fsync(at)))
    Directory(str(tmp_path)).put("a/b/0", b"data")
    written = [tmp_path / "a/b/0", tmp_path / "a/b", tmp_path / "a", tmp_path]
    assert synced == [path.stat().st_ino for path in written]


def test_folders_that_are_empty_go_with_their_last_file(tmp_path):
    files = Directory(f"file://{tmp_path}")
    files.put("a/b/0", b"data")
    files.put("a/c/0", b"other")
    assert files.get("a/c/0") == b"other"
    files.delete("a/b/0")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["c"]
    files.delete("a/b/0")
    files.delete("a/c/0")
    assert list(tmp_path.iterdir()) == []
