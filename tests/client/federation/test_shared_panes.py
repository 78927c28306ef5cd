"""What leaves a site: no name of a unit, no row, and no more than the contract shares."""

from __future__ import annotations

import numpy as np

import calibrant as cal
from calibrant.client.federation.shared_panes import (
    REPLICATED,
    blinded,
    packed_to_share,
    replicate_order,
    total_of,
)
from calibrant.core.hashing import hash_names
from calibrant.core.pane import Pane
from tests.client.federated import (
    DAY_S,
    NOW,
    SPEC,
    Centre,
    Rows,
    Site,
    forwarder,
    unit_hashes,
)


def test_nothing_that_leaves_the_site_names_or_lists_its_rows(ledger):
    site, centre = Site(), Centre()
    rows = Rows(40, 1, prefix="Lee.Ann.")
    site.put(-2, rows)
    forwarder(site, centre, ledger).round()
    (body,) = centre.bodies
    ((_, sent),) = centre.seen
    assert set(sent.parts()) == set(site.total().parts()) - {"sample", "digest", "cases"}
    assert sent.sample.is_empty and sent.digest() is None
    raw = unit_hashes(sent).tobytes()
    for unit in rows.units:
        assert unit.encode() not in body
        assert hash_names([unit]).tobytes() not in raw
    # Units are known to be named, and how often each was split.
    assert sent.unit_source == "named" and len(unit_hashes(sent)) == 40
    # The same units in another total have other hashes.
    site.put(-1, rows)
    forwarder(site, centre, ledger, now=NOW + DAY_S).round()
    assert len(centre.seen) == 2
    assert not set(unit_hashes(centre.seen[-1][1])) & set(unit_hashes(sent))


def test_keyed_hashes_stay_below_the_thresholds_of_samples():
    hashes = np.array([0, 1, 2**63, 2**64 - 1, 2**40 + 5, 7], np.uint64)
    found = blinded(hashes, b"k" * 32, "a")
    for halvings in range(64):
        limit = np.uint64((1 << (64 - halvings)) - 1)
        assert ((found <= limit) == (hashes <= limit)).all()
    assert (found == blinded(hashes, b"k" * 32, "a")).all()
    assert (found[2:5] != blinded(hashes, b"k" * 32, "b")[2:5]).all()


def test_only_the_known_blocks_depend_on_the_names_of_units():
    """Two names for each unit: everything that differs is removed, keyed or reordered."""
    rows = Rows(300, 3)
    rows.labels = [[int(each), int(each % 2)] for each in rows.labels]
    one, two = (
        total_of(SPEC, [cal.Pane.fill(rows.probabilities, rows.labels, units=[f"{name}{i}" for i in range(300)], spec=SPEC).parts()])
        for name in "ab"
    )  # fmt: skip
    differ = {
        (name, key)
        for name in one.names
        for key, block in one[name].blocks.items()
        if any(
            part.shape != other.shape or not np.allclose(part, other, rtol=1e-9)
            for part, other in zip(block.filled(), two[name].blocks[key].filled(), strict=True)
        )
    }
    named = {(name, key) for name, keys in REPLICATED.items() for key in keys}
    assert differ == named


def test_replicates_are_in_an_order_of_the_site_and_a_unit_stays_in_one():
    rows = Rows(300, 3)
    total = total_of(SPEC, [rows.pane().parts()])
    one, two, other = (
        Pane.from_bytes(packed_to_share(total, key, subject))
        for key, subject in ((b"a" * 32, "m||1"), (b"a" * 32, "m||2"), (b"b" * 32, "m||1"))
    )
    order = replicate_order(b"a" * 32)
    assert sorted(order) == list(range(64)) and (order != np.arange(64)).sum() > 32
    for name, keys in REPLICATED.items():
        for key in keys:
            plain, found, again, elsewhere = (
                by_replicate(each[name].blocks[key]) for each in (total, one, two, other)
            )
            np.testing.assert_array_equal(found[:, order], plain)
            np.testing.assert_array_equal(found, again)
            if plain.any():
                assert not np.array_equal(found, elsewhere)


def by_replicate(block):
    places, counts, _ = block.filled()
    every = np.zeros((len(counts), block.size), np.int64)
    every[:, places] = counts
    return every.reshape(len(counts), 64, -1)
