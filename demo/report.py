"""Results of the service about the deployment, compared with numbers from raw rows."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from rich.console import Console
from rich.table import Table

from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import compute_metrics
from demo.client import Client
from demo.digits import Deployment
from demo.late import LATE, raw, results_by_wave
from demo.play import LOGISTIC, NETWORK, Timeline, columns, fill, start_alarm
from demo.server import DemoFailed
from demo.truth import raw_metrics, raw_temperature, votes_of

METRICS_TOLERANCE = 1e-9  # the order of summation differs
MAP_TOLERANCE = 1e-12
FITTED = 3 / 14  # share of the time that the map is fitted to
ALARM_S = 60
TEMPERATURE_TOLERANCE = 1e-4  # relative; the service fits it without raw rows


@dataclass
class Report:
    """Report: queries the service, prints each result with its curl command, and checks the numbers."""

    client: Client
    console: Console
    deployment: Deployment
    timeline: Timeline
    output: Path

    @property
    def window(self) -> dict[str, str]:
        return self._between(0.0, 1.0)

    def print_everything(self) -> None:
        """Print metrics, temperature, map, diagram, the change over time, the second model, and the drift alarm."""
        self.metrics()
        self.temperature()
        self.calibration_map()
        self.applied_map()
        self.diagram()
        self.page()
        self.change()
        self.second_model()
        self.late_labels()
        self.verify()
        self.drift()

    def metrics(self) -> None:
        path, query = self._path("metrics"), self.window
        answer = self.client.get(path, **query)
        self._title("Metrics", self.client.curl(path, **query))
        self.console.print(
            f"{answer['n_predictions']} predictions, {answer['n_ratings']} ratings, "
            f"{answer['window']['from']} to {answer['window']['to']}"
        )
        self.console.print(_metrics_table(answer["metrics"]))

    def temperature(self) -> None:
        path, query = self._path("temperature"), self.window
        answer = self.client.get(path, **query)
        self._title("Temperature", self.client.curl(path, **query))
        self.console.print(
            f"T = {_number(answer['temperature'])} {_interval(answer.get('interval'))}: the model "
            f"is {'over' if answer['temperature'] > 1 else 'under'}-confident"
        )
        self.console.print(_before_after(answer))

    def calibration_map(self) -> None:
        path, query = self._path("calibration-map"), {"method": "temperature", **self.window}
        answer = self.client.get(path, **query)
        self._title("Calibration map", self.client.curl(path, **query))
        self.console.print(
            f"{answer['method']}, scope {answer['scope']}, fitted to {answer['n']}: "
            f"{json.dumps(answer['parameters'])}"
        )

    def applied_map(self) -> None:
        """Use the map like a serving process: fetch it after six days and apply it to the later days."""
        path, query = (
            self._path("calibration-map"),
            {"method": "temperature", **self._between(0.0, FITTED)},
        )
        fetched = self.client.get(path, **query)
        when = self.deployment.when
        rows = np.flatnonzero((when >= FITTED) & (when < 0.5))[:2000]
        said = self.deployment.probabilities[rows]
        mapped = said ** (1.0 / fetched["parameters"]["temperature"])
        mapped /= mapped.sum(axis=1, keepdims=True)
        applied = f"{path}/apply?{urlencode(query, safe=':,')}"
        there = np.array(
            self.client.post(applied, {"probabilities": said.tolist()})["probabilities"]
        )
        if not np.abs(there - mapped).max() < MAP_TOLERANCE:
            raise DemoFailed("the model and the service make different numbers of one map")
        labels = [self.deployment.ratings[row] for row in rows]
        self._title(
            "The map, applied to days that it was not fitted to",
            self.client.curl(path, **query),
        )
        table = Table("", "ece", "nll", "brier")
        errors = []
        for name, scores in (("as the model said", said), ("after the map", mapped)):
            body = {"probabilities": scores.tolist(), "labels": labels}
            served = self.client.post("/v1/score?metrics=ece,nll,brier", body)["metrics"]
            table.add_row(
                name, *(_number(served[slug]["value"]) for slug in ("ece", "nll", "brier"))
            )
            errors.append(served["ece"]["value"])
        self.console.print(table)
        self.console.print(
            f"[green]equal[/green] to POST calibration-map/apply within {MAP_TOLERANCE:g}"
        )
        if errors[1] >= errors[0]:
            raise DemoFailed("the map did not correct the model")

    def late_labels(self) -> None:
        """Report delayed labels in three waves."""
        path, query = self._path("metrics", LATE), {"metrics": "ece,accuracy,brier,nll"}
        self._title("Delayed labels in three waves", self.client.curl(path, **query))
        table = Table(
            "after", "predictions", "labelled", "ratings", "ece", "accuracy", "brier", "nll"
        )
        for settling in results_by_wave(self.client, self.deployment, self.timeline):
            answer = settling.answer
            values = (
                _number(answer["metrics"][slug]["value"]) for slug in query["metrics"].split(",")
            )
            numbers = (str(answer[name]) for name in ("n_predictions", "n_labelled", "n_ratings"))
            table.add_row(settling.wave, *numbers, *values)
        self.console.print(table)
        served = _values(answer["metrics"])
        exact = {slug: value for slug, value in raw(self.deployment).items() if slug in served}
        self._same("raw rows with every label at once", exact, served, METRICS_TOLERANCE)

    def diagram(self) -> None:
        path = self._path("reliability")
        self._title(
            "Reliability diagram",
            self.client.curl(path, accept="image/svg+xml", **self.window) + " -o reliability.svg",
        )
        for suffix, media_type in (("svg", "image/svg+xml"), ("png", "image/png")):
            file = self.output / f"reliability.{suffix}"
            file.write_bytes(self.client.picture(path, media_type, **self.window))
            self.console.print(f"written to {file}")

    def page(self) -> None:
        """Write the report for a quality committee."""
        path, query = self._path("report"), {**self.window, "tolerance": "0.05"}
        file = self.output / "report.html"
        self._title(
            "Report for a quality committee", self.client.curl(path, **query) + " -o report.html"
        )
        file.write_bytes(self.client.picture(path, "text/html", **query))
        self.console.print(f"written to {file}")

    def change(self) -> None:
        """Run the same query on both halves: the camera loses its focus half way."""
        path = self._path("metrics")
        query = {"metrics": "ece,debiased_ece,brier,accuracy"}
        windows = {"before": self._between(0.0, 0.5), "after": self._between(0.5, 1.0)}
        answers = {
            name: self.client.get(path, **query, **window)["metrics"]
            for name, window in windows.items()
        }
        self._title(
            "Drift: the first and the second week",
            *(self.client.curl(path, **query, **window) for window in windows.values()),
        )
        table = Table("metric", "before", "", "after", "")
        for slug in answers["before"]:
            row = [slug]
            for answer in answers.values():
                estimate = answer[slug]
                row += [_number(estimate["value"]), _interval(estimate.get("interval"))]
            table.add_row(*row)
        self.console.print(table)
        if answers["after"]["ece"]["value"] <= answers["before"]["ece"]["value"]:
            raise DemoFailed("the service does not see that calibration became worse")

    def drift(self) -> None:
        """Report the sequential alarm over sealed days, once each day is sealed."""
        path = self._path("drift")
        start_alarm(self.client)
        deadline = time.monotonic() + ALARM_S
        # The verdict fits maps to the cohorts; their list is cheap to read.
        while (
            len(self.client.get(f"{path}/history")["cohorts"]) < self.timeline.days
            and time.monotonic() < deadline
        ):
            time.sleep(0.5)
        answer = self.client.get(path)
        self._title("Drift: the alarm", self.client.curl(path))
        for name in ("calibration", "change", "scores"):
            self.console.print(f"{name}: {answer[name]['sentence']}", markup=False)
        self.console.print(f"recommended: {answer['recommendation']['reason']}", markup=False)
        self.console.print(
            f"$ {self.client.curl(path, accept='image/png')} -o drift.png",
            style="dim",
            soft_wrap=True,
        )
        for suffix, media_type in (("svg", "image/svg+xml"), ("png", "image/png")):
            file = self.output / f"drift.{suffix}"
            file.write_bytes(self.client.picture(path, media_type))
            self.console.print(f"written to {file}")
        if answer["status"] != "alarm":
            raise DemoFailed(
                f"no alarm {ALARM_S} s after the days were sealed, although the camera failed: {answer['status']}"
            )

    def second_model(self) -> None:
        path = self._path("metrics", LOGISTIC)
        query = {"metrics": "ece,mce,brier", **self.window}
        answer = self.client.get(path, **query)
        self._title("The second model, from histograms only", self.client.curl(path, **query))
        self.console.print(_metrics_table(answer["metrics"]))

    def verify(self) -> None:
        """Compare with numbers from raw rows, and with one pane filled at once."""
        self._title("Comparison with raw rows")
        rows = votes_of(self.deployment.ratings, 10)
        exact = raw_metrics(self.deployment.probabilities, rows)
        served = self.client.get(self._path("metrics"), metrics=",".join(exact), **self.window)[
            "metrics"
        ]
        self._same("raw rows, numpy alone", exact, _values(served), METRICS_TOLERANCE)

        temperature = {"temperature": raw_temperature(self.deployment.probabilities, rows)}
        fitted = self.client.get(self._path("temperature"), **self.window)
        self._same("raw rows, scipy alone", temperature, fitted, TEMPERATURE_TOLERANCE)

        every = self.client.get(self._path("metrics"), **self.window)["metrics"]
        everything = np.arange(len(self.deployment.digit))
        pane = fill(columns(self.deployment, self.timeline, everything))
        here = _values(compute_metrics(View(pane, PaneQuery()), every))
        self._same("one pane filled here", here, _values(every), METRICS_TOLERANCE)

        logistic = raw_metrics(self.deployment.logistic, rows)
        served = self.client.get(self._path("metrics", LOGISTIC), metrics="ece,mce", **self.window)[
            "metrics"
        ]
        binned = {slug: logistic[slug] for slug in served}
        self._same("raw rows of the second model", binned, _values(served), METRICS_TOLERANCE)

    def _same(
        self, source: str, here: dict[str, Any], there: dict[str, Any], tolerance: float
    ) -> None:
        for name, value in here.items():
            other = there[name]
            if value is None and other is None:
                continue
            if None in (value, other) or abs(value - other) > tolerance * max(1.0, abs(value)):
                raise DemoFailed(f"{name}: {value} from {source}, {other} from the service")
        self.console.print(
            f"[green]equal[/green] to {source} within {tolerance:g}: {', '.join(here)}"
        )

    def _between(self, start: float, end: float) -> dict[str, str]:
        return {
            "from": f"{self.timeline.at(start):%Y-%m-%dT%H:%M:%SZ}",
            "to": f"{self.timeline.at(end):%Y-%m-%dT%H:%M:%SZ}",
        }

    @staticmethod
    def _path(noun: str, model: str = NETWORK) -> str:
        return f"/v1/models/{model}/{noun}"

    def _title(self, title: str, *curls: str) -> None:
        self.console.print()
        self.console.rule(f"[bold]{title}", align="left")
        for curl in curls:
            self.console.print(f"$ {curl}", style="dim", soft_wrap=True, highlight=False)


def _values(estimates: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {slug: estimate["value"] for slug, estimate in estimates.items()}


def _metrics_table(estimates: dict[str, dict[str, Any]]) -> Table:
    table = Table("metric", "value", "interval", "if calibrated, 95 % below", "n", "")
    for slug, estimate in estimates.items():
        table.add_row(
            slug,
            _number(estimate["value"]),
            _interval(estimate.get("interval")),
            _number(estimate.get("null_q95")),
            str(estimate.get("n", "")),
            "" if estimate["value"] is not None else str(estimate.get("reason", "")),
        )
    return table


def _before_after(answer: dict[str, Any]) -> Table:
    table = Table("", *answer["before"])
    for moment in ("before", "after"):
        table.add_row(moment, *(_number(value) for value in answer[moment].values()))
    return table


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "" if value is None else str(value)


def _interval(interval: list[float] | None) -> str:
    return "" if not interval else f"[{interval[0]:.4f}, {interval[1]:.4f}]".replace("[", "\\[")
