"""Kept answers name the code that computed them."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant_server.workers.queries.ask import OK, QueryRequest, Reply, Side, result_digest
from calibrant_server.workers.queries.query import CODE_VERSION, ROOTS, digest_of_code


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "ece.py").write_text("BINS = 15\n")
    (tmp_path / "pane.py").write_text("")
    return tmp_path


def _edit(code: Path) -> None:
    (code / "metrics" / "ece.py").write_text("BINS = 10\n")


def _rename(code: Path) -> None:
    (code / "pane.py").rename(code / "panes.py")


def _add(code: Path) -> None:
    (code / "metrics" / "mce.py").write_text("")


@pytest.mark.parametrize("change", [_edit, _rename, _add])
def test_any_change_of_code_is_another_version(code: Path, change) -> None:
    before = digest_of_code([code])
    (code / "notes.txt").write_text("no code")
    assert digest_of_code([code]) == before
    change(code)
    assert digest_of_code([code]) != before


def test_other_code_does_not_find_the_answer() -> None:
    asked = ("0a", "metrics", {"bins": 15}, None)
    assert (
        result_digest(*asked)
        == result_digest(*asked, CODE_VERSION)
        != result_digest(*asked, "of before")
    )


def test_the_version_covers_library_and_engine() -> None:
    assert [root.name for root in ROOTS] == ["calibrant", "workers"]
    for root in ROOTS:
        folders = {path.relative_to(root).parts[0] for path in root.rglob("*.py")}
        assert len(folders) >= 10, f"code below {root} is not found"


def test_a_reply_names_the_code_that_computed_it() -> None:
    own = Reply(OK, "0a", b"{}")
    assert own.code_version == CODE_VERSION
    other = Reply(OK, "0a", b"{}", "former")
    assert Reply.from_bytes(own.to_bytes()) == own
    assert Reply.from_bytes(other.to_bytes()) == other


def test_fields_of_a_query_that_another_version_added_are_ignored() -> None:
    request = QueryRequest("d", "metrics", {}, Side("default/m", "", (0, 1)), "r", 5.0)
    newer = request.to_json()[:-1] + b',"added":{"a":1}}'
    assert QueryRequest.from_json(newer) == QueryRequest.from_json(request.to_json())
