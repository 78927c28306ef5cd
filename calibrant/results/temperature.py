"""Result of `fit_temperature`: a fitted temperature."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError
from calibrant.metrics.estimate import number
from calibrant.printing import html_table
from calibrant.results.calibration_map import recalibrated
from calibrant.results.values import ResultValues, cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]


class Temperature(ResultValues):
    """The temperature that fits the labels best; `float(temperature)` is T, and calling it recalibrates.

    Results of the service are attributes by name: `interval`, `standard_error`, `verdict`, `detail`, `objective`,
    `before`, `after`, `curve`, `n`, `n_units`, `reason`, ...

    Parameters
    ----------
    values : as the service returns them
    """

    @property
    def value(self) -> float | None:
        """T; None where the data do not determine one, with a `reason`."""
        found = self._values.get("temperature")
        return None if found is None else float(found)

    def __float__(self) -> float:
        if self.value is None:
            raise ValueError(
                f"there is no temperature: {self._values.get('reason')}. Read `.value`, which is None."
            )
        return self.value

    def __call__(self, probabilities: Any = None, *, logits: Any = None) -> Floats:
        """Return the probabilities softmax(z / T).

        Parameters
        ----------
        probabilities, logits : as in `calibrant.evaluate`

        Returns
        -------
        float64 of the shape of the argument

        Raises
        ------
        CalibrationInputError
            A value that is not allowed, or there is no temperature.
        """
        return recalibrated(
            {"method": "temperature", "scope": "full", **_parameters(self.value)},
            probabilities,
            logits,
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the loss over the temperature, with the fitted one and its interval.

        Raises
        ------
        ImportError
            matplotlib is not installed; the extra `plot` brings it.
        """
        from calibrant.figures.base import plotted
        from calibrant.figures.losses import draw_loss, draw_losses

        loss = self._values.get("objective") or "nll"
        return plotted(
            partial(draw_losses, only=loss), partial(draw_loss, name=loss), self.to_dict(), ax
        )

    def __repr__(self) -> str:
        values = self._values
        if self.value is None:
            return f"Temperature(None, reason={values.get('reason')!r}, n={values.get('n')})"
        interval = values.get("interval")
        bounds = f", interval=[{number(interval[0])}, {number(interval[1])}]" if interval else ""
        return f"Temperature({number(self.value)}{bounds}, verdict={values.get('verdict')!r}, n={values.get('n')})"

    def _repr_html_(self) -> str:
        before, after = self._values.get("before") or {}, self._values.get("after") or {}
        rows = [
            (name.upper(), cell(before.get(name)), cell(after.get(name)))
            for name in ("nll", "brier", "ece")
        ]
        return html_table(("loss", "at T = 1", "at the fitted T"), rows, caption=repr(self))


def _parameters(temperature: float | None) -> dict[str, Any]:
    if temperature is None:
        raise CalibrationInputError.at(
            "/temperature", "not_fitted", "there is no temperature to apply"
        )
    return {"parameters": {"temperature": temperature}}
