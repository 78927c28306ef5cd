"""The four label policies for several raters, all stored in every pane.

`pooled` uses every rating as a sample; `mean` gives each prediction weight one and its shares of ratings; `majority` scores
against the most frequent class (ties to the lowest); `single` uses one rating of each prediction, chosen by its id.
"""

POLICIES = ("pooled", "mean", "majority", "single")
POLICY_TEXTS = {
    "pooled": "every rating counts once",
    "mean": "each prediction counts once, with the shares of its ratings",
    "majority": "each prediction counts once, with its most frequent class (ties: the lowest), so disagreement is hidden and errors look smaller",
    "single": "each prediction counts once, with one of its ratings",
}
N_POLICIES = len(POLICIES)
