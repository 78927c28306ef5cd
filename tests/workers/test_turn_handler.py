"""Lines of one turn of the event loop are written together; none is lost, and all stay in order."""

import asyncio
import io
import logging

from calibrant_server.workers.logs import TurnHandler


class Stream(io.StringIO):
    """A stream that counts what is written to it."""

    def __init__(self):
        super().__init__()
        self.n_writes = 0

    def write(self, text):
        self.n_writes += 1
        return super().write(text)


def logger_to(stream):
    logger = logging.Logger("service.access", logging.INFO)
    handler = TurnHandler(stream)
    logger.addHandler(handler)
    return logger, handler


def test_lines_of_a_turn_are_written_by_one_call():
    stream = Stream()
    logger, _ = logger_to(stream)

    async def turns():
        for turn in range(3):
            for number in range(4):
                logger.info("%d.%d", turn, number)
            await asyncio.sleep(0)

    asyncio.run(turns())
    expected = [f"{turn}.{number}" for turn in range(3) for number in range(4)]
    assert stream.getvalue().split() == expected
    assert stream.n_writes == 3


def test_a_warning_is_written_at_once_behind_the_lines_before_it():
    stream = Stream()
    logger, _ = logger_to(stream)

    async def turn():
        logger.info("first")
        logger.warning("second")
        assert stream.getvalue().split() == ["first", "second"]
        logger.info("third")

    asyncio.run(turn())
    logger.info("without a loop")
    assert stream.getvalue().splitlines() == ["first", "second", "third", "without a loop"]


def test_lines_of_a_loop_that_has_ended_are_written():
    """At the exit of the process the handler is flushed; before that, by the next line."""
    stream = Stream()
    logger, handler = logger_to(stream)
    for number in range(2):
        loop = asyncio.new_event_loop()
        loop.call_soon(logger.info, "of loop %d", number)
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
    handler.flush()
    assert stream.getvalue().splitlines() == ["of loop 0", "of loop 1"]


def test_a_line_that_cannot_be_made_is_reported_and_the_others_are_written(capsys):
    stream = Stream()
    logger, _ = logger_to(stream)

    async def turn():
        logger.info("%d", "no number")
        logger.info("next")

    asyncio.run(turn())
    assert stream.getvalue().split() == ["next"]
    assert "Logging error" in capsys.readouterr().err
