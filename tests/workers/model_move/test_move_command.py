"""The command that moves a model."""

from __future__ import annotations

import json

import pytest

from calibrant_server.workers import move
from calibrant_server.workers.lifecycle import model_move
from calibrant_server.workers.lifecycle.move_states import leaving
from tests.workers.driving import MODEL, eventually
from tests.workers.model_move.moving import Killed, config_at, mover

one_server = pytest.mark.one_server


@one_server
def test_the_command(bench, moved, monkeypatch, capsys):
    _, to = moved
    bench.engine()
    settings = bench.settings
    monkeypatch.setattr(move, "EngineSettings", lambda: settings)
    assert move.main([MODEL.key]) == 0
    found = json.loads(capsys.readouterr().out)
    # The other partition has no model.
    assert (found["model"], found["former"], found["to"]) == (MODEL.key, 1 - to, to)
    assert move.main([MODEL.key, "--cancel"]) == 0
    assert json.loads(capsys.readouterr().out) == {"model": MODEL.key, "cancelled": False}

    def kill(name):
        if name == "copy":
            raise Killed

    eventually(lambda: config_at(bench, 1 - to) is None)
    with pytest.raises(Killed):
        mover(bench, on_step=kill).run(1 - to)
    assert move.main([]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "model": MODEL.key, "stage": "draining", "former": to, "to": 1 - to,
    }  # fmt: skip
    assert move.main([MODEL.key, "--cancel"]) == 0
    assert move.main([]) == 0
    assert json.loads(capsys.readouterr().out) == {"model": MODEL.key, "cancelled": True}
    assert move.main(["default/none", "1"]) == 1
    assert "no model" in json.loads(capsys.readouterr().out)["error"]
    assert model_move.MAX_WAITING_BYTES > 0 and leaving("x")["op"] == "move_out"


@one_server
def test_the_command_fails_unless_the_model_is_where_it_was_asked_to_be(
    bench, moved, monkeypatch, capsys
):
    """It completes a move that was interrupted, which may go elsewhere."""
    _, to = moved
    bench.engine()
    settings = bench.settings
    monkeypatch.setattr(move, "EngineSettings", lambda: settings)

    def kill(name):
        if name == "copy":
            raise Killed

    with pytest.raises(Killed):
        mover(bench, on_step=kill).run(to)
    assert move.main([MODEL.key, str(1 - to)]) == 1
    assert json.loads(capsys.readouterr().out)["to"] == to
    assert move.main([MODEL.key, str(to)]) == 0
