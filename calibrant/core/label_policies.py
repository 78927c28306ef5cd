"""The four ways to read several raters' labels, side by side in every pane.

`pooled` takes every rating as a sample; `mean` gives each prediction weight one and its share of votes; `majority` scores
against the most voted class (ties to the lowest); `single` takes one rating of each prediction, chosen by its id.
"""

POLICIES = ("pooled", "mean", "majority", "single")
N_POLICIES = len(POLICIES)


def policy_index(name: str) -> int:
    """Place of a policy in `POLICIES`.

    Raises
    ------
    ValueError
        Not a policy.
    """
    if name not in POLICIES:
        raise ValueError(f"{name!r} is not one of {', '.join(POLICIES)}")
    return POLICIES.index(name)
