"""How the door holds the engine: its settings, its two objects, its errors in our words.

Without a Redis URL the private store and the engine's threads run in this process; with one, this process
only hands over and asks, and workers run beside it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

from redis.exceptions import RedisError

from service.errors import (
    AnswerLate,
    BacklogFull,
    BatchConflict,
    BatchUnknown,
    IdsFull,
    ModelConflict,
    StoreUnavailable,
)
from service.settings import Settings
from workers import inbox, questions
from workers.engine import Engine
from workers.inbox import Inbox
from workers.main import store_of
from workers.settings import EngineSettings
from workers.state.registry import Registry


@dataclass(frozen=True)
class Connection:
    """What the routes need of the engine; `engine` where it runs in this process."""

    inbox: Inbox
    registry: Registry
    engine: Engine | None = None

    async def check(self) -> None:
        """Raise StoreUnavailable unless batches can be taken and merged now."""
        with engine_errors():
            await self.inbox.ping()
        if self.engine is not None and not self.engine.is_alive:
            raise StoreUnavailable("The engine of this process has stopped.")


def engine_settings(settings: Settings) -> EngineSettings:
    """Return the engine's settings, agreeing with the door's where both have them."""
    return replace(
        EngineSettings.from_environment(),
        redis_url=settings.redis_url,
        data_dir=settings.data_dir,
        create_models=settings.create_models,
        answer_deadline_s=settings.answer_timeout_s,
    )


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[Connection]:
    """Join the store, or start it with the engine; leave it at the end."""
    stored, engine = engine_settings(settings), None
    async with AsyncExitStack() as stack:
        if stored.redis_url is None:
            running = ExitStack()
            stack.push_async_callback(asyncio.to_thread, running.close)
            stored, engine = await asyncio.to_thread(_start, running, stored)
        box = await stack.enter_async_context(Inbox(stored))
        yield Connection(box, Registry(box.client, box.keys), engine)


def _start(stack: ExitStack, settings: EngineSettings) -> tuple[EngineSettings, Engine]:
    """Start the private store and the engine's threads; `stack` stops them."""
    stored = stack.enter_context(store_of(settings))
    engine = Engine(stored)
    engine.start()
    stack.callback(engine.stop)
    return stored, engine


@contextmanager
def engine_errors() -> Iterator[None]:
    """Translate what the engine raises into problems."""
    try:
        yield
    except inbox.BatchConflict as error:
        raise BatchConflict() from error
    except inbox.ModelMismatch as error:
        raise ModelConflict(f"Not done: {error}.") from error
    except inbox.UnknownBatch as error:
        raise BatchUnknown() from error
    except inbox.BacklogFull as error:
        raise BacklogFull(retry_after_s=error.retry_after_s) from error
    except inbox.IdsFull as error:
        raise IdsFull(retry_after_s=error.retry_after_s) from error
    except (inbox.StoreUnavailable, RedisError) as error:
        raise StoreUnavailable(retry_after_s=getattr(error, "retry_after_s", 2)) from error
    except questions.AnswerTimeout as error:
        raise AnswerLate() from error
