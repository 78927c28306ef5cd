"""Training losses of segmentation networks in PyTorch, with the numbers of the library. Install the extra `torch`.

Nothing else of the library imports this package, and it is the only one that imports PyTorch.
"""

from calibrant.torch.average_calibration import L1ACELoss, l1_ace_loss
from calibrant.torch.weighted import CalibratedSegmentationLoss, dice_loss

__all__ = ["CalibratedSegmentationLoss", "L1ACELoss", "dice_loss", "l1_ace_loss"]
