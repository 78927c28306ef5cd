"""Clients that write the complete body before they read see why it was refused."""

from __future__ import annotations

import json
import socket

import pytest

from tests.end_to_end.deployment import Deployment

BODY = b" " * 12_000_000


@pytest.mark.parametrize("path", ["/v1/models/m/predictions?partial=banana", "/v1/score?bins=x"])
def test_a_refused_query_is_read_by_a_client_that_writes_first(
    path: str, embedded: Deployment
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", embedded.port), timeout=60) as connection:
        connection.sendall(head.encode() + BODY)
        answer = b""
        while b"\r\n\r\n" not in answer or not answer.endswith(b"}"):
            answer += connection.recv(65_536)
    head_of, _, body = answer.partition(b"\r\n\r\n")
    assert head_of.startswith(b"HTTP/1.1 422"), head_of
    assert json.loads(body)["errors"]
