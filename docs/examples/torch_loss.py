"""A training step of a segmentation network with the average calibration loss: `pip install "calibrant[torch]"`.

loss = cross_entropy(logits, target) + dice(logits, target) + ace * l1_ace(logits.softmax(1), target)
"""

from typing import Any

from calibrant.torch import CalibratedSegmentationLoss

loss_of = CalibratedSegmentationLoss(ace=1.0, bins=20, membership="soft")


def training_step(network: Any, optimiser: Any, images: Any, target: Any) -> float:
    """Take one step: `images` (n, channels, ...), `target` (n, ...) of class indices. Return the loss."""
    optimiser.zero_grad()
    loss = loss_of(network(images), target)
    loss.backward()
    optimiser.step()
    return float(loss.detach())
