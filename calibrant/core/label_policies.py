"""The four label policies for several raters, all stored in every pane.

`pooled` uses every rating as a sample; `mean` gives each prediction weight one and its shares of ratings; `majority` scores
against the most frequent class (ties to the lowest); `single` uses one rating of each prediction, chosen by its id.
"""

POLICIES = ("pooled", "mean", "majority", "single")
N_POLICIES = len(POLICIES)
