"""Pseudonyms: the same name has the same one everywhere, and a log replaces names before it sends them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from pathlib import Path

import numpy as np
import pytest

from calibrant.client import AsyncClient, Client, Pseudonyms
from tests.client.service import Service
from tests.waiting import PATIENCE_S

SALT = b"a salt of at least 16 bytes"
NAMES = ["Müller, Anna", "Lee, Bo"]


def expected(name: object) -> str:
    return "p." + hmac.new(SALT, str(name).encode(), hashlib.sha256).hexdigest()[:32]


def test_it_is_a_keyed_digest_that_depends_on_the_salt() -> None:
    coded = Pseudonyms(SALT)
    assert coded.of("x") == expected("x") != Pseudonyms(SALT + b"!").of("x")
    assert coded.of(17) == coded.of("17") == expected("17")
    assert SALT.decode() not in repr(coded) + str(vars(coded).keys())


@pytest.mark.parametrize(
    ("column", "replaced"),
    [
        (NAMES, [expected(name) for name in NAMES]),
        (np.array([3, 4]), [expected("3"), expected("4")]),
        (["x", None], [expected("x"), None]),
        ([["x", "y"], None], [[expected("x"), expected("y")], None]),
        (("x",), [expected("x")]),
    ],
)
def test_columns_are_replaced(column: object, replaced: list[object]) -> None:
    found = Pseudonyms(SALT).columns({"units": column, "slices": {"site": NAMES}, "cases": None})
    assert found == {"units": replaced, "slices": {"site": NAMES}, "cases": None}


def test_raters_are_replaced_on_request() -> None:
    columns = {"ids": ["i"], "raters": [["ann", None]]}
    assert Pseudonyms(SALT).columns(columns)["raters"] == [["ann", None]]
    both = Pseudonyms(SALT, ("ids", "raters")).columns(columns)
    assert both == {"ids": [expected("i")], "raters": [[expected("ann"), None]]}


def test_files_keep_their_ending_and_nothing_else() -> None:
    coded = Pseudonyms(SALT)
    path = Path("/data/Müller/Müller.Anna.nii.gz")
    assert str(coded.file(path)) == expected("Müller.Anna") + ".nii.gz"
    text = coded.without_files(f"{path}: differs from that of {path.name}.", [path])
    assert "Müller" not in text and text.count(expected("Müller.Anna")) == 2


def test_salts_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"short \n")
    with pytest.raises(ValueError, match=r"5 bytes .* expected at least 16"):
        Pseudonyms.from_file(tmp_path / "short")
    with pytest.raises(ValueError, match="cannot be read"):
        Pseudonyms.from_file(tmp_path / "absent")
    (tmp_path / "salt").write_bytes(SALT + b"\n")
    assert Pseudonyms.from_file(tmp_path / "salt").of("x") == expected("x")


def test_a_log_sends_pseudonyms() -> None:
    with Service() as service:
        url = f"http://127.0.0.1:{service.port}"
        with Client(url, timeout=PATIENCE_S, pseudonyms=Pseudonyms(SALT)) as client:
            model = client.model("m", linger=0.0)
            assert model.log([[0.7, 0.3], [0.2, 0.8]], [0, 1], ids=["i", "j"], units=NAMES, cases=np.array([1, 2])) == 2  # fmt: skip
            assert model.flush(PATIENCE_S)
    (body,) = service.bodies
    assert body["units"] == [expected(name) for name in NAMES]
    assert body["ids"] == [expected("i"), expected("j")]
    assert body["cases"] == [expected("1"), expected("2")]
    assert all(name.encode() not in service.raw[0] for name in NAMES)


def test_requests_of_both_clients_hold_pseudonyms() -> None:
    with Service() as service:
        url = f"http://127.0.0.1:{service.port}"
        with Client(url, pseudonyms=Pseudonyms(SALT)) as client:
            client.model("m").send(
                probabilities=[[0.7, 0.3]], labels=[0], ids=["i"], units=NAMES[:1]
            )
            client.model("m").label(["i"], [0], raters=["ann"])

        async def both() -> None:
            async with AsyncClient(url, pseudonyms=Pseudonyms(SALT)) as other:
                await other.model("m").send(probabilities=[[0.7, 0.3]], ids=["i"])
                await other.model("m").label(["i"], [0])

        asyncio.run(both())
    assert [body["ids"] for body in service.bodies] == [[expected("i")]] * 4
    assert service.bodies[0]["units"] == [expected(NAMES[0])]
    assert service.bodies[1]["raters"] == ["ann"]
