"""Contracts that are not valid, and models that do not fit theirs."""

from __future__ import annotations

import pytest

from calibrant.client.federation.contract import Contract
from calibrant.client.federation.forwarder import FederationError
from calibrant.core.errors import CalibrationInputError
from tests.client.federated import DEFINITION, Centre, Rows, Site, forwarder, terms


@pytest.mark.parametrize(("change", "pointer", "rule"), [
    ({"site": "a b"}, "/site", "id"), ({"sites": 1}, "/sites", "unknown_field"), ({"models": []}, "/models", "list"),
    ({"models": [terms(colour=1)]}, "/models/0/colour", "unknown_field"),
    ({"models": [terms(minimum=1)]}, "/models/0/minimum", "minimum"), ({"models": [terms(minimum=20.0)]}, "/models/0/minimum", "minimum"),
    ({"models": [terms(slices=["ward"])]}, "/models/0/slices/0", "slice"),
    ({"models": [terms(slices=["ward:A", "sex:f"])]}, "/models/0/slices", "one_key"),
    ({"models": [terms(slices=["ward:A", "ward:A"])]}, "/models/0/slices", "one_key"),
    ({"models": [terms(slices=["site:A"])]}, "/site_slice", "unique"),
    ({"models": [terms(), terms(to="other")]}, "/models", "unique"), ({"models": [terms(after="soon")]}, "/every", "duration"),
])  # fmt: skip
def test_a_contract_that_is_not_valid_is_rejected(change, pointer, rule):
    with pytest.raises(CalibrationInputError) as found:
        Contract.read({"site": "north", "models": [terms()], **change})
    first = found.value.violations[0]
    assert (first.pointer, first.rule) == (pointer, rule)


def test_models_that_differ_are_not_federated(ledger):
    site, centre = Site(), Centre({**DEFINITION, "grid": 600})
    site.put(-2, Rows(30, 1))
    with pytest.raises(FederationError, match="differs"):
        forwarder(site, centre, ledger).round()
    assert not centre.bodies
