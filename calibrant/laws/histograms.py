"""What came as plain histograms."""

from __future__ import annotations

from calibrant.laws.basis import Laws, inside, slack
from calibrant.pane import Pane


def laws(pane: Pane) -> Laws:
    for key, block in pane.histograms.blocks.items():
        places, _, (count, confidence, correct) = block.filled()
        lower, upper = places / block.size, (places + 1) / block.size
        yield f"histograms {key}: a negative count", count >= -slack(1.0)
        yield (
            f"histograms {key}: confidence outside its cell",
            inside(lower * count, confidence, upper * count, count + 1.0),
        )
        yield (
            f"histograms {key}: more correct than counted",
            inside(0.0, correct, count, count + 1.0),
        )
