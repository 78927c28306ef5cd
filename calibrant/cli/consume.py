"""`calibrant consume`: the messages of Kafka topics as rows of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant.cli.connection import DEFAULT_URL, Key, Url, service
from calibrant.cli.terminal import fail, log_events, output, stop_event


def consume(
    model: Annotated[str, typer.Argument(help="id of the model")],
    topic: Annotated[list[str], typer.Option(help="topic of predictions; repeatable")],
    brokers: Annotated[
        str, typer.Option(envvar="CALIBRANT_KAFKA_BROKERS", help="addresses: host:port,host:port")
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    group: Annotated[
        str | None, typer.Option(help="consumer group; default: calibrant.MODEL")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(help="setting of librdkafka, NAME=VALUE; repeatable")
    ] = None,
    linger: Annotated[
        float,
        typer.Option(min=0.1, help="seconds for which messages are collected into one request"),
    ] = 10.0,
    max_mb: Annotated[
        int, typer.Option(min=1, help="bound of the messages that wait, in MiB")
    ] = 32,
    start: Annotated[
        str, typer.Option(help="where a partition begins that is not known: earliest or latest")
    ] = "earliest",
    source: Annotated[
        str | None,
        typer.Option(help="name of the source instead of the topic's, for a topic made again"),
    ] = None,
    decode: Annotated[
        str | None, typer.Option(help="MODULE:FUNCTION that returns the records of a message")
    ] = None,
    rejected: Annotated[
        Path | None, typer.Option(help="file to which rejected messages are added, as JSON lines")
    ] = None,
    max_rejected: Annotated[
        int,
        typer.Option(min=1, help="stop after more rejected messages than this without a valid one"),
    ] = 100,
) -> None:
    """Count the messages of Kafka topics, each once, until SIGTERM or Ctrl-C."""
    from calibrant.contrib import kafka

    log_events()
    named = {"bootstrap.servers": brokers, **_pairs(config or [])}
    if group is not None:
        named["group.id"] = group
    try:
        options = kafka.ConsumerOptions(
            linger_s=linger,
            max_bytes=max_mb << 20,
            source=source,
            start=start,
            max_rejected=max_rejected,
        )
        given: dict[str, Any] = {"options": options}
        if decode is not None:
            given["decode"] = _function(decode)
    except (ValueError, ImportError, AttributeError) as error:
        fail(str(error))
    with service(url, key) as connected, _appended(rejected, given):
        consumer = kafka.TopicConsumer(connected.client, model, topic, named, **given)
        try:
            consumer.run(stop_event().is_set)
        except (kafka.StreamError, kafka.KafkaException) as error:
            fail(str(error))
    output().print(str(consumer.statistics), markup=False, highlight=False)


def _pairs(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in given:
        name, is_pair, value = each.partition("=")
        if not is_pair:
            fail(f"Received --config {each!r}; expected NAME=VALUE.")
        found[name] = value
    return found


def _function(path: str) -> Callable[..., Any]:
    module, is_pair, name = path.partition(":")
    if not is_pair:
        raise ValueError(f"Received --decode {path!r}; expected MODULE:FUNCTION.")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


@contextmanager
def _appended(path: Path | None, given: dict[str, Any]) -> Iterator[None]:
    """Add rejected messages to a file, in addition to the log."""
    if path is None:
        yield
        return
    from calibrant.contrib import kafka

    with path.open("a", encoding="utf-8") as lines:

        def add(topic: str, partition: int, found: Any) -> None:
            kafka.log_rejected(topic, partition, found)
            lines.write(kafka.as_json(topic, partition, found) + "\n")
            lines.flush()

        given["on_rejected"] = add
        yield
