"""Training losses of segmentation networks in PyTorch, with the numbers of the library. Install the extra `torch`.

Nothing else of the library imports this package. PyTorch is otherwise imported only by adapters (`calibrant.contrib`) and by a map that is
applied to a tensor (`calibrant.client.current_map`).
"""

from calibrant.torch.average_calibration import L1ACELoss, l1_ace_loss
from calibrant.torch.weighted import CalibratedSegmentationLoss, dice_loss

__all__ = ["CalibratedSegmentationLoss", "L1ACELoss", "dice_loss", "l1_ace_loss"]
