"""hL1-ACE and sL1-ACE of PyTorch tensors: the numbers of `calibrant.segmentation.training_loss`, and gradients by autograd.

Computed on the tensors' own device in float64, on Apple's in float32, and returned in the tensors' type.

Source
------
Barfoot et al., Average Calibration Losses.
"""

from __future__ import annotations

from typing import Any

import torch

from calibrant.segmentation.case_bins import MEMBERSHIPS, SOFT_EMPTY
from calibrant.torch.layout import float64_of, pixels, shares


def l1_ace_loss(
    probabilities: Any,
    target: Any,
    bins: int = 20,
    *,
    membership: str = "soft",
    edges: str = "right",
    mask_missing: bool = True,
) -> Any:
    """Return the mean marginal L1 average calibration error of a batch of images.

    Parameters
    ----------
    probabilities : tensor (images, classes, ...), in [0, 1]
    target : integer tensor (images, ...) of classes, or floating tensor (images, classes, ...) of shares
    bins : at least 1
    membership : "soft" for sL1-ACE, "hard" for hL1-ACE
    edges : of hard bins, "right" for (a, b] or "left" for [a, b)
    mask_missing : whether classes that an image's target lacks contribute 0

    Returns
    -------
    tensor without axes.

    Raises
    ------
    ValueError
        An unknown membership or edge, fewer than one bin, or shapes that differ.

    Examples
    --------
    >>> round(float(l1_ace_loss(torch.tensor([[[0.2], [0.8]]]), torch.tensor([[1]]), 5, membership="hard")), 3)
    0.1
    """
    if membership not in MEMBERSHIPS or edges not in ("right", "left") or bins < 1:
        raise ValueError(
            f"Received membership={membership!r}, edges={edges!r}, bins={bins}; expected membership "
            "'soft' or 'hard', edges 'right' or 'left', and at least one bin."
        )
    scores = pixels(probabilities, float64_of(probabilities))
    rates = shares(target, scores)
    sums = _soft_sums if membership == "soft" else _hard_sums
    weight, gaps = sums(scores, rates, bins, edges)
    filled = weight >= (SOFT_EMPTY if membership == "soft" else 0.5)
    mean_gap = torch.where(filled, gaps / torch.where(filled, weight, 1.0), 0.0)
    by_class = mean_gap.abs().sum(2) / filled.sum(2).clamp(min=1)
    if mask_missing:
        by_class = by_class * (rates > 0).any(2)
    return by_class.mean().to(probabilities.dtype)


class L1ACELoss(torch.nn.Module):
    """hL1-ACE or sL1-ACE of logits or probabilities.

    Parameters
    ----------
    bins, membership, edges, mask_missing : as `l1_ace_loss`
    from_logits : whether the input is logits, whose softmax over axis 1 is taken
    """

    def __init__(
        self,
        bins: int = 20,
        *,
        membership: str = "soft",
        edges: str = "right",
        mask_missing: bool = True,
        from_logits: bool = True,
    ) -> None:
        super().__init__()
        self.bins, self.membership, self.edges = bins, membership, edges
        self.mask_missing, self.from_logits = mask_missing, from_logits

    def forward(self, prediction: Any, target: Any) -> Any:
        """Return the loss of a batch of images."""
        return l1_ace_loss(
            prediction.softmax(1) if self.from_logits else prediction,
            target,
            self.bins,
            membership=self.membership,
            edges=self.edges,
            mask_missing=self.mask_missing,
        )


def _hard_sums(scores: Any, rates: Any, bins: int, edges: str) -> tuple[Any, Any]:
    """Return Σ ψ and Σ ψ (p - y) by image, class and bin; ψ has no gradient."""
    limits = torch.arange(1, bins, dtype=scores.dtype, device=scores.device) / bins
    place = torch.bucketize(scores.detach().contiguous(), limits, right=edges == "left")
    shape = (*scores.shape[:2], bins)
    weight = scores.new_zeros(shape).scatter_add(2, place, torch.ones_like(scores))
    return weight, scores.new_zeros(shape).scatter_add(2, place, scores - rates)


def _soft_sums(scores: Any, rates: Any, bins: int, edges: str) -> tuple[Any, Any]:
    """Return the same for triangles: a score is in at most two of them."""
    along = scores * bins - 0.5
    lower = along.detach().floor().clamp(0, bins - 1)
    between = (along > lower) & (lower < bins - 1)
    upper_share = torch.where(between, along - lower, 0.0)
    place, above = lower.long(), (lower + 1).clamp(max=bins - 1).long()
    shape, gaps = (*scores.shape[:2], bins), scores - rates
    weight = (
        scores.new_zeros(shape)
        .scatter_add(2, place, 1.0 - upper_share)
        .scatter_add(2, above, upper_share)
    )
    total = (
        scores.new_zeros(shape)
        .scatter_add(2, place, (1.0 - upper_share) * gaps)
        .scatter_add(2, above, upper_share * gaps)
    )
    return weight, total
