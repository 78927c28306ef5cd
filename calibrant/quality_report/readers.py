"""The readers of the report: their rows, whether one differs from the others, and their agreement pair by pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calibrant.figures.numbers import MISSING, percent, plain_number
from calibrant.quality_report.contents import ReportContents
from calibrant.quality_report.odd_reader import KAPPA, odd_reader_sentences
from calibrant.quality_report.verdicts import interval_or_reason

PAIRS = {
    "dice": "Reader by reader: Dice (1: they mark the same; 0: nothing in common), mean over cases",
    "kappa": "Reader by reader: Cohen's kappa (1: they always agree; 0: as often as by chance; – : fewer than 20 common predictions)",
}
MAX_PAIRED = 12
CASES = (
    "Cases, lowest Dice first; Dice: overlap of the model with the marks of all readers together"
)
# An hour of images has more ratings than one request reads: a rating is of a voxel.
OF_SEGMENTATIONS = (
    "A rating here is of one voxel, so a few images exceed the limit. The table of cases has each case with all its readers together; "
    "`calibrant score --manifest` compares the readers case by case."
)


def of_segmentation(detail: str) -> str:
    """Return why the readers of a segmentation are not compared: a shorter window would still have too many ratings.

    >>> of_segmentation("The window contains too many ratings. Request a shorter window.")[:59]
    'The window contains too many ratings. A rating here is of o'
    """
    return f"{detail.removesuffix(' Request a shorter window.')} {OF_SEGMENTATIONS}"


def reader_rows(readers: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the readers in texts; of segmentations with `dice`, and with kappa as agreement: most voxels are background."""
    rows = []
    for each in readers:
        agreement, error = each["agreement"], each["metrics"]["ece"]
        dice = each["metrics"].get("dice")
        is_mask = dice is not None
        row = {
            "name": each["name"],
            "n": f"{each['n_ratings']:,}",
            "agreement": mean_kappa(each) if is_mask else percent(agreement),
            "error": plain_number(error["value"]),
        }
        if "interval" in error:
            row["interval"] = interval_or_reason(error)
        rows.append(row if dice is None else row | {"dice": plain_number(dice["value"])})
    return rows


def mean_kappa(reader: Mapping[str, Any]) -> str:
    """Return the mean of a reader's kappas with the others; those without a value do not count."""
    known = [each for each in (reader.get("kappa") or {}).values() if each is not None]
    return plain_number(sum(known) / len(known)) if known else MISSING


def odd_reader_sentence(contents: ReportContents) -> str:
    """Return whether one of three readers or more differs from the others, or why they are not compared; empty for fewer."""
    if contents.readers_missing is not None:
        why = contents.readers_missing.rstrip(".")
        return f"The readers are not compared. {why[:1].upper()}{why[1:]}."
    odd = contents.odd_reader
    if odd is None:
        few = len(contents.readers) < 3
        return "" if few else "These data do not show that one reader differs from the others."
    p_value = "< 0.0001" if odd["p_value"] < 1e-4 else f"= {plain_number(odd['p_value'])}"
    test = f"This is more than chance (p {p_value}, t test over {contents.unit}s). {KAPPA}"
    return " ".join([*odd_reader_sentences(odd, contents.reader_errors, contents.classes), test])


def pair_tables(
    readers: Sequence[Mapping[str, Any]],
) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return Dice and Cohen's kappa reader by reader as tables; none without several readers."""
    found = []
    for measure, caption in PAIRS.items():
        by_name = {each["name"]: each.get(measure) or {} for each in readers}
        names = [name for name, others in by_name.items() if others][:MAX_PAIRED]
        rows = [[one, *(plain_number(by_name[one].get(two)) for two in names)] for one in names]
        if any(text != MISSING for _, *texts in rows for text in texts):
            found.append((caption, ["Reader", *names], rows))
    return found
