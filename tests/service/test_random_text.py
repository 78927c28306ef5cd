"""Random text that is drawn for many ids at once."""

import os
import re

import pytest

from calibrant_server.workers.store.random_text import DRAWN_BYTES, random_hex


def test_random_text_is_used_once():
    found = [random_hex(n) for n in (4, 16, 40) * 400]
    assert len(set(found)) == len(found)
    assert {len(each) for each in found} == {8, 32, 80}
    assert all(re.fullmatch("[0-9a-f]+", each) for each in found)
    assert len(random_hex(DRAWN_BYTES + 1)) == 2 * DRAWN_BYTES + 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_use_the_bytes_of_its_parent():
    random_hex(1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, random_hex(16).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 32).decode() != random_hex(16)
