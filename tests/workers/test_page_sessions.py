"""Sessions of pages in a real store: their number is bounded by key."""

from __future__ import annotations

from calibrant_server.workers.store import page_sessions


def test_a_key_has_a_maximum_of_sessions_and_the_oldest_ends(bench, monkeypatch):
    monkeypatch.setattr(page_sessions, "MAX_SESSIONS", 3)
    sessions = bench.inbox.page_sessions
    other = bench.run(sessions.begin("o" * 64))
    tokens = [bench.run(sessions.begin("d" * 64)) for _ in range(5)]
    opened = [bench.run(sessions.key_digest(each)) for each in tokens]
    assert opened == [None, None, *["d" * 64] * 3]
    assert bench.run(sessions.key_digest(other)) == "o" * 64
    assert len(list(bench.client.scan_iter("*:ps:*"))) == 4
    # One that was ended leaves its place to the next.
    bench.run(sessions.end(tokens[3]))
    bench.run(sessions.begin("d" * 64))
    assert bench.run(sessions.key_digest(tokens[2])) == "d" * 64
    for name in bench.client.scan_iter("*:p[sk]:*"):
        assert 0 < bench.client.ttl(name) <= page_sessions.SESSION_S


def test_every_process_reads_the_same_secret_of_forms(bench):
    """A page of one replica sends its form to another, also after a restart."""
    inbox = bench.inbox

    def of_a_process() -> str:
        parts = inbox.client, inbox.keys, inbox._retried
        return bench.run(page_sessions.PageSessions(*parts).form_secret())

    secret = bench.run(inbox.page_sessions.form_secret())
    assert len(secret) >= page_sessions.TOKEN_BYTES
    assert [of_a_process(), of_a_process()] == [secret, secret]


def test_the_documented_maximum():
    assert page_sessions.MAX_SESSIONS == 100
