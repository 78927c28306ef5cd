"""The average calibration loss in a PyTorch training loop.

    loss = cross_entropy(logits, target) + dice(logits, target) + 1.0 * l1_ace(logits.softmax(1), one_hot, bins=20)

Value and gradient are computed by `calibrant.segmentation.training_loss` in float64 on the CPU; PyTorch sees one differentiable
function. An image of a million pixels and four classes takes a fraction of a second, beside which a segmentation
network's step is slow.
"""

from typing import Any

import numpy as np
import torch

from calibrant.segmentation.training_loss import mean_l1_ace_loss


class L1AverageCalibrationError(torch.autograd.Function):
    """Mean loss of a batch of images; differentiable once, by the probabilities."""

    @staticmethod
    def forward(ctx: Any, probabilities: Any, one_hot: Any, bins: int, membership: str) -> Any:
        """Return the loss; `probabilities` and `one_hot` are (images, classes, ...)."""
        scores, shares = _rows(probabilities), _rows(one_hot)
        value, gradients = mean_l1_ace_loss(scores, shares, bins, membership=membership)
        stacked = np.stack([gradient.T for gradient in gradients]).reshape(
            tuple(probabilities.shape)
        )
        gradient = torch.as_tensor(stacked, dtype=probabilities.dtype, device=probabilities.device)
        ctx.save_for_backward(gradient)
        return torch.as_tensor(value, dtype=probabilities.dtype, device=probabilities.device)

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> tuple[Any, None, None, None]:
        """Return the gradient by the probabilities; labels and options have none."""
        (gradient,) = ctx.saved_tensors
        return upstream * gradient, None, None, None


def l1_ace(probabilities: Any, one_hot: Any, bins: int = 20, membership: str = "soft") -> Any:
    """Return the mean loss of a batch of images."""
    return L1AverageCalibrationError.apply(probabilities, one_hot, bins, membership)


def _rows(tensor: Any) -> list[np.ndarray]:
    """Each image as float64 (pixels, classes). Float32 rounding may leave [0, 1] by an ulp, which is taken back."""
    images = tensor.detach().cpu().numpy().astype(np.float64)
    return [np.clip(image.reshape(image.shape[0], -1).T, 0.0, 1.0) for image in images]
