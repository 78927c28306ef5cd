"""The weighted sum of Dice, cross-entropy and average calibration losses, with which a segmentation network is trained.

Source
------
Barfoot et al., Average Calibration Losses: weights 1 : 1 : 1, background included.
"""

from __future__ import annotations

from typing import Any

import torch

from calibrant.segmentation.voxel_losses import SMOOTHING
from calibrant.torch.average_calibration import l1_ace_loss
from calibrant.torch.layout import float64_of, pixels, shares


def dice_loss(probabilities: Any, target: Any) -> Any:
    """Return the soft Dice loss of a batch: the mean over images and classes, background included.

    Parameters
    ----------
    probabilities : tensor (images, classes, ...), in [0, 1]
    target : integer tensor (images, ...) of classes, or floating tensor (images, classes, ...) of shares

    Examples
    --------
    >>> round(float(dice_loss(torch.tensor([[[0.2], [0.8]]]), torch.tensor([[1]]))), 4)
    0.5555
    """
    scores = pixels(probabilities, float64_of(probabilities))
    rates = shares(target, scores)
    over = 2.0 * (scores * rates).sum(2) + SMOOTHING
    under = scores.sum(2) + rates.sum(2) + SMOOTHING
    return (1.0 - over / under).mean().to(probabilities.dtype)


class CalibratedSegmentationLoss(torch.nn.Module):
    """Dice + cross-entropy + hL1-ACE or sL1-ACE of logits.

    Parameters
    ----------
    ace, dice, cross_entropy : factors of the three terms; `ace` is the λ of the paper
    bins, membership, edges, mask_missing : as `l1_ace_loss`
    """

    def __init__(
        self,
        ace: float = 1.0,
        dice: float = 1.0,
        cross_entropy: float = 1.0,
        *,
        bins: int = 20,
        membership: str = "soft",
        edges: str = "right",
        mask_missing: bool = True,
    ) -> None:
        super().__init__()
        self.ace, self.dice, self.cross_entropy = ace, dice, cross_entropy
        self.options: dict[str, Any] = {
            "bins": bins,
            "membership": membership,
            "edges": edges,
            "mask_missing": mask_missing,
        }

    def forward(self, logits: Any, target: Any) -> Any:
        """Return the loss of a batch: logits (images, classes, ...), target as `l1_ace_loss`."""
        probabilities = logits.softmax(1)
        total = logits.new_zeros(())
        if self.ace:
            total = total + self.ace * l1_ace_loss(probabilities, target, **self.options)
        if self.dice:
            total = total + self.dice * dice_loss(probabilities, target)
        if self.cross_entropy:
            logs = pixels(logits, float64_of(logits)).log_softmax(1)
            entropy = -(shares(target, logs) * logs).sum(1).mean()
            total = total + self.cross_entropy * entropy.to(logits.dtype)
        return total
