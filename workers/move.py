"""`python -m workers.move TENANT/MODEL [PARTITION]`: move a model to another partition while it is in use.

Without a partition, the one with the least load is taken. Without a model, the moves that are under way are listed.
`--cancel` gives up a move that was interrupted before everything was copied. Each line of the output is JSON. An interrupted
move is continued by the same command.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

from redis.exceptions import RedisError

from calibrant_server.workers.lifecycle.model_copy import OvertakenMove
from calibrant_server.workers.lifecycle.model_move import (
    ModelMove,
    MoveInterrupted,
    MoveRejected,
    moves_under_way,
)
from calibrant_server.workers.settings import EngineSettings, SettingsError
from calibrant_server.workers.store.connection import Store, connect_async
from calibrant_server.workers.store.placement import Placement, least_loaded
from calibrant_server.workers.store.properties import StoreMismatch
from calibrant_server.workers.store.server_files import EmbeddedServerError
from calibrant_server.workers.store.store_of_settings import store_of, with_partitions_of_store
from calibrant_server.workers.store.transient_errors import store_message

PATIENCE_S = 60.0


def move(
    store: Store, model: str, to: int | None, patience_s: float = PATIENCE_S
) -> dict[str, Any]:
    """Move a model, or continue its move; return what happened.

    Raises
    ------
    MoveRejected, MoveInterrupted, OvertakenMove
    """
    number = asyncio.run(_least_loaded(store)) if to is None else to
    return asdict(ModelMove(store, model, patience_s).run(number))


async def _least_loaded(store: Store) -> int:
    client = connect_async(store.settings)
    try:
        return least_loaded(await Placement(client, store.keys).survey())
    finally:
        await client.aclose()


def main(arguments: Sequence[str] | None = None) -> int:
    """Move a model; exit with 1 if it is not where it was asked to be."""
    given = _parser().parse_args(arguments)
    try:
        with (
            store_of(EngineSettings()) as stored,
            closing(Store(with_partitions_of_store(stored))) as store,
        ):
            store.fix_properties()
            if given.model is None:
                return _listed(store)
            if given.cancel:
                found = {"model": given.model, "cancelled": ModelMove(store, given.model).cancel()}
            else:
                found = move(store, given.model, given.partition, given.wait)
    except RedisError as error:
        print(json.dumps({"error": f"{store_message(error).rstrip('.')}: run the command again"}))
        return 1
    except (
        *(MoveRejected, MoveInterrupted, OvertakenMove),
        *(SettingsError, StoreMismatch, EmbeddedServerError),
    ) as error:
        print(json.dumps({"error": str(error)}))
        return 1
    print(json.dumps(found))
    # An interrupted move is completed first, wherever it goes to.
    return 0 if given.cancel or given.partition in (None, found["to"]) else 1


def _listed(store: Store) -> int:
    for each in moves_under_way(store):
        print(json.dumps(each))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workers.move",
        description="Move a model to another partition while it is in use.",
    )
    parser.add_argument(
        "model", nargs="?", metavar="TENANT/MODEL", help="default: list the moves under way"
    )
    parser.add_argument(
        "partition", nargs="?", type=int, help="default: the one with the least load"
    )
    parser.add_argument("--cancel", action="store_true", help="give up an interrupted move")
    parser.add_argument(
        "--wait",
        type=float,
        default=PATIENCE_S,
        metavar="SECONDS",
        help="for workers, in each step",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
