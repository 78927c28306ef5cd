"""The engine in the HTTP service: its settings, its two objects, models by their id, and its errors as problems.

Without a Redis URL, the private store and the engine's threads run in this process. With one, this process
only appends batches and sends queries, and workers run as separate processes.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from redis.exceptions import RedisError

from calibrant.core.errors import Violation
from calibrant_server.service.http.errors import (
    AnswerLate,
    BacklogFull,
    BatchConflict,
    BatchUnknown,
    IdsFull,
    ImportUnfinished,
    ModelConflict,
    ModelDeleted,
    ModelUnknown,
    OffsetConflict,
    PaneDamaged,
    QuotaFull,
    RecordsFull,
    StoreUnavailable,
)
from calibrant_server.service.process_board import Board
from calibrant_server.service.security.keys import Caller
from calibrant_server.service.settings import Settings
from calibrant_server.workers.engine import Engine
from calibrant_server.workers.ingest import errors
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.queries import ask
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.file_store import FilesUnavailable
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.registry import HalfImported, Registry
from calibrant_server.workers.store.store_of_settings import running_store_of

STORE_FULL = (
    "The store's memory is full, so it accepts no batch. Nothing of the request was written. Reads and deletions are served, "
    "and waiting batches are merged."
)
OTHER_VERSION = "The workers are of another version, which does not compute this result. Send the request again when the upgrade is complete."


@dataclass(frozen=True)
class Connection:
    """The parts of the engine that routes need."""

    inbox: Inbox
    registry: Registry
    engine: Engine | None = None
    board: Board | None = None

    async def check(self) -> bool:
        """Return whether the store's memory is full: it then takes no batch, and serves reads and deletions.

        Raises
        ------
        StoreUnavailable
            The store takes no writes, or this process should merge and does not.
        """
        with engine_errors():
            is_full = not await self.inbox.check_writable()
        if self.engine is not None and not self.engine.is_alive:
            raise StoreUnavailable("The engine of this process has stopped.")
        if self.board is not None and not self.board.is_engine_alive:
            raise StoreUnavailable("The engine of this service has stopped, and is restarted.")
        return is_full


def engine_settings(settings: Settings) -> EngineSettings:
    """Return the engine's settings, equal to the HTTP service's if both have them."""
    return EngineSettings(
        redis_url=settings.redis_url,
        data_dir=settings.data_dir,
        create_models=settings.create_models,
        webhook_networks=settings.webhook_networks,
    )


@asynccontextmanager
async def connected(settings: Settings, board: Board | None = None) -> AsyncIterator[Connection]:
    """Connect to the store, or start it with the engine; disconnect at the end.

    Parameters
    ----------
    board : of the processes of this service; the engine then runs in another process than this one
    """
    of_engine = engine_settings(settings)
    if board is not None:
        of_engine = running_store_of(of_engine)
    async with Engine(of_engine, works_here=None if board is None else False) as engine:
        yield Connection(engine.inbox, engine.registry, engine, board)


class engine_errors:
    """Translate errors of the engine into problems, in a `with` block. Entered by every request: a generator would take longer."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if error is not None:
            with _translated():
                raise error


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except errors.BatchConflictError as error:
        detail = "Received other content under a batch id that was used before. Use another id."
        raise BatchConflict(errors=[Violation("/batch_id", "same_content", detail)]) from error
    except errors.OffsetMismatchError as error:
        rule = "offset_gap" if error.is_gap else "offset_overlap"
        detail = f"R{str(error)[1:]}."
        found = [Violation("/offsets", rule, detail)]
        raise OffsetConflict(detail, errors=found, watermark=error.watermark) from error
    except errors.SourcesFullError as error:
        raise QuotaFull(f"There is no room: {error}.", retry_after_s=error.retry_after_s) from error
    except errors.ModelMismatchError as error:
        raise ModelConflict(f"The request was not carried out: {error}.") from error
    except HalfImported as error:
        raise ImportUnfinished() from error
    except errors.ModelGoneError as error:
        raise ModelDeleted() from error
    except errors.UnknownBatchError as error:
        raise BatchUnknown() from error
    except errors.BacklogFullError as error:
        raise BacklogFull(retry_after_s=error.retry_after_s) from error
    except errors.IdsFullError as error:
        raise IdsFull(retry_after_s=error.retry_after_s) from error
    except errors.RecordsFullError as error:
        raise RecordsFull(
            f"There is no room: {error}", retry_after_s=error.retry_after_s
        ) from error
    except errors.StoreFullError as error:
        raise StoreUnavailable(STORE_FULL, retry_after_s=error.retry_after_s) from error
    except (errors.StoreUnavailableError, RedisError) as error:
        raise _unavailable(error) from error
    except FilesUnavailable as error:
        raise StoreUnavailable(
            f"A part of the window cannot be read now: {error}.", retry_after_s=error.retry_after_s
        ) from error
    except ask.SubjectGone as error:
        raise ModelUnknown(f"The query has no result: {error}.") from error
    except ask.WindowDamaged as error:
        raise PaneDamaged(errors=[_damage(each) for each in error.panes]) from error
    except ask.ResultTimeoutError as error:
        raise AnswerLate() from error
    except ask.UnknownQueryError as error:
        raise AnswerLate(OTHER_VERSION) from error


def _unavailable(error: Exception) -> StoreUnavailable:
    """Return the problem of a store that cannot be reached, or that rejected the request."""
    found = error if isinstance(error, errors.StoreUnavailableError) else errors.unavailable(error)
    if isinstance(found, errors.StoreFullError):
        return StoreUnavailable(STORE_FULL, retry_after_s=found.retry_after_s)
    detail = f"T{str(found)[1:]}." if isinstance(found, errors.StoreRejectedError) else None
    return StoreUnavailable(detail, retry_after_s=found.retry_after_s)


def _damage(pane: dict[str, str]) -> Violation:
    """Name a damaged pane by its slice and window."""
    name = f" of slice {pane['slice']}" if pane["slice"] else ""
    detail = f"The pane from {pane['from']} to {pane['to']}{name} cannot be read: {pane['error']}."
    return Violation("/window", "damaged_pane", detail)


async def model_of(connection: Connection, caller: Caller, model: str) -> ModelConfig:
    """Return the caller's model; one of another tenant, outside the key's models, or half imported is unknown."""
    if not caller.may_use(model):
        raise ModelUnknown(f"There is no model {model!r} among the models of your key.")
    with engine_errors():
        try:
            config = await connection.registry.get(caller.tenant, model)
        except HalfImported as error:
            raise ModelUnknown(ImportUnfinished.message()) from error
    if config is None:
        raise ModelUnknown(f"There is no model {model!r} among the models of your key.")
    return config
