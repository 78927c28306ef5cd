"""The synchronous client is the asynchronous one without `async` and `await`."""

import inspect

import pytest

from calibrant import client
from scripts import synchronous_client


def test_the_committed_file_is_what_the_script_writes():
    assert synchronous_client.TARGET.read_text(encoding="utf-8") == synchronous_client.text()


@pytest.mark.parametrize("name", ["Client", "Model"])
def test_both_have_the_same_methods_with_the_same_parameters(name):
    one, other = (vars(getattr(client, prefix + name)) for prefix in ("", "Async"))

    def methods(found):
        public = (each for each in found if not each.startswith("_") and callable(found[each]))
        return {each: list(inspect.signature(found[each]).parameters) for each in public}

    assert methods(one) == methods(other)
    assert not any(inspect.iscoroutinefunction(each) for each in one.values())


def test_log_waits_in_neither_client():
    assert not inspect.iscoroutinefunction(client.AsyncModel.log)
    assert inspect.iscoroutinefunction(client.AsyncModel.send)
