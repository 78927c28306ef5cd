"""Result of `fit_map`: a fitted calibration map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibrators.fitting import apply
from calibrant.input.arrays import read_arrays
from calibrant.metrics.estimate import number
from calibrant.results.values import ResultValues

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]


class CalibrationMap(ResultValues):
    """A fitted calibration map; calling it recalibrates probabilities.

    Results of the service are attributes by name: `method`, `scope`, `parameters`, `digest`, `before`, `after`,
    `heldout`, `warnings`, `n`, `reason`, ...

    Parameters
    ----------
    values : as the service returns them; `method`, `scope`, `class` and `parameters` suffice
    """

    def __call__(self, probabilities: Any = None, *, logits: Any = None) -> Floats:
        """Return recalibrated probabilities.

        Parameters
        ----------
        probabilities, logits : as in `calibrant.evaluate`

        Returns
        -------
        float64: (n, n_classes) of a map of scope `full`; (n,) of scope `positive`, `class` or `top_label`, the
        recalibrated probability of that class

        Raises
        ------
        CalibrationInputError
            A value that is not allowed, or there is no map.
        """
        return recalibrated(self._values, probabilities, logits)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the recalibrated probability over the probability; for scope `full` with two classes, of class 1.

        Raises
        ------
        ImportError
            matplotlib is not installed; the extra `plot` brings it.
        ValueError
            The map has no curve: it mixes more than two classes.
        """
        from calibrant.figures.base import plotted
        from calibrant.figures.calibration_map import draw_map, draw_mapped

        if self._values.get("scope") == "full" and self._values.get("parameters") is not None:
            self._check_two_classes()
        return plotted(draw_map, draw_mapped, self.to_dict(), ax)

    def _check_two_classes(self) -> None:
        try:
            self(np.array([[0.5, 0.5]]))
        except (ValueError, IndexError) as error:
            raise ValueError(
                "a map of more than two classes has no curve of one probability"
            ) from error

    def __repr__(self) -> str:
        values = self._values
        parts = [f"{values.get('method')}, scope={values.get('scope')!r}"]
        if values.get("parameters") is None:
            parts.append(f"parameters=None, reason={values.get('reason')!r}")
        heldout = values.get("heldout") or {}
        # The gain of a temperature over the complete window is known in NLL; in ECE only that of fits to halves.
        heldout = heldout.get("halves") or heldout
        where, losses = ("held out", heldout) if heldout else ("in sample", values)
        eces = [(losses.get(name) or {}).get("ece") for name in ("before", "after")]
        if None not in eces:
            parts.append(f"ECE {where} {number(eces[0])} -> {number(eces[1])}")
        if values.get("n") is not None:
            parts.append(f"n={values['n']}")
        return f"CalibrationMap({', '.join(parts)})"


def recalibrated(values: Mapping[str, Any], probabilities: Any, logits: Any) -> Floats:
    """Return mapped arrays, in the shape of the argument where the map covers all classes."""
    batch = read_arrays(probabilities, logits=logits)
    mapped = apply(values, batch)
    return np.asarray(mapped[:, 1] if batch.task == "binary" and mapped.ndim == 2 else mapped)
