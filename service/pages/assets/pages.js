// Pages work without this file. It adds: curves that can be read with a pointer, buttons that copy examples, and reloading of a page that is not
// ready, or sending its form again.
"use strict";

(() => {
  const charts = [];

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function shown(value) {
    return value === null || value === undefined ? "–" : Number(value.toPrecision(3)).toLocaleString("en");
  }

  const day = (at) => (at === null ? "–" : new Date(at * 1000).toISOString().slice(0, 10));

  // Panels below each other: the columns of the table that each shows, with name, colour and what it is.
  const PANELS = [
    { label: "calibration error", lines: [[3, "Calibrated model, at most", "--band", "area"], [1, "ECE", "--line"]] },
    { label: "accuracy", lines: [[5, "Confidence in the predicted class", "--dotted", "dash"], [4, "Accuracy", "--line"]] },
    { label: "predictions", lines: [[6, "Predictions", "--band", "area"], [7, "Labelled", "--line"]] },
  ];

  function overTime(figure) {
    const rows = [...document.querySelectorAll(`#${figure.dataset.series} tbody tr`)];
    if (rows.length < 2 || typeof uPlot === "undefined") return;
    const times = rows.map((row) => Date.parse(row.querySelector("time").dateTime) / 1000);
    const few = rows.map((row) => "few" in row.dataset);
    const column = (i) => rows.map((row) => (row.cells[i].dataset.value === undefined ? null : Number(row.cells[i].dataset.value)));
    const events = (figure.dataset.events || "").split(",").filter(Boolean).map((at) => Date.parse(at) / 1000);
    const due = Date.parse(figure.dataset.due) / 1000;
    const place = document.createElement("div");
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", "Calibration error, accuracy and predictions over time; the numbers are in the table below");
    figure.querySelector("img").replaceWith(place);
    for (const panel of PANELS) {
      const lines = panel.lines.map((line) => [line, column(line[0])]).filter(([, values]) => values.some((value) => value !== null));
      // Values of few labels do not set the axis: each line has those of the other rows, and the last one's are drawn hollow.
      const isCount = panel.label === "predictions";
      const usual = lines.map(([, values]) => values.map((value, i) => (few[i] && !isCount ? null : value)));
      const hollow = isCount ? [] : lines.at(-1)[1].map((value, i) => (few[i] ? value : null));
      const hooks = { drawClear: [(plot) => shade(plot, due)], draw: [(plot) => marks(plot, events, times, hollow)] };
      const make = () => new uPlot({ ...options(panel, lines.map(([line]) => line), place.clientWidth), hooks }, [times, ...usual], place);
      charts.push({ make, plot: make() });
    }
  }

  // The time for which labels are not due yet.
  function shade(plot, due) {
    const { ctx, bbox } = plot;
    const left = Math.max(bbox.left, plot.valToPos(due, "x", true));
    if (!(left < bbox.left + bbox.width)) return;
    ctx.fillStyle = colour("--code");
    ctx.fillRect(left, bbox.top, bbox.left + bbox.width - left, bbox.height);
  }

  // A dotted line at each dated event, which the caption names; a hollow point for each value of few labels.
  function marks(plot, events, times, hollow) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = colour("--ink");
    ctx.setLineDash([2, 4]);
    ctx.beginPath();
    for (const at of events) {
      const x = plot.valToPos(at, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
    }
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.strokeStyle = colour("--line");
    ctx.fillStyle = colour("--card");
    hollow.forEach((value, i) => {
      if (value === null) return;
      const y = Math.min(Math.max(plot.valToPos(value, "y", true), bbox.top), bbox.top + bbox.height);
      ctx.beginPath();
      ctx.arc(plot.valToPos(times[i], "x", true), y, 3.5 * devicePixelRatio, 0, 2 * Math.PI);
      ctx.fill();
      ctx.stroke();
    });
    ctx.restore();
  }

  function options(panel, lines, width) {
    const grid = { stroke: colour("--grid"), width: 1 };
    const axis = { stroke: colour("--muted"), grid, ticks: grid };
    const fromZero = panel.label !== "accuracy";
    return {
      width: Math.max(260, width),
      height: 190,
      cursor: { sync: { key: "time" }, points: { size: 8 } },
      scales: { y: { range: (_, low, high) => [fromZero ? 0 : low - 0.05 * (high - low || 1), high + 0.05 * (high - low || high || 1)] } },
      axes: [
        { ...axis, values: (_, marks) => marks.map((at) => day(at).slice(5)) },
        { ...axis, size: 56, label: panel.label, labelSize: 18 },
      ],
      // Without a pointer on the curves, the legend has names only.
      series: [
        { label: "From", value: (_, at, series, i) => (i === null ? "" : day(at)) },
        ...lines.map(([, label, name, kind]) => ({
          label,
          stroke: colour(name),
          fill: kind === "area" ? colour(name) : undefined,
          width: kind === "area" ? 0 : 2,
          dash: kind === "dash" ? [5, 4] : undefined,
          points: { show: kind !== "area", size: 5, fill: colour(name) },
          value: (_, value, series, i) => (i === null ? "" : shown(value)),
        })),
      ],
    };
  }

  function redraw() {
    for (const chart of charts) chart.plot.destroy();
    for (const chart of charts) chart.plot = chart.make();
  }

  function copies(button) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).innerText);
      button.textContent = "Copied";
    });
  }

  document.querySelectorAll("[data-series]").forEach(overTime);
  document.querySelectorAll("[data-reload-after]").forEach((element) => {
    setTimeout(() => location.reload(), 1000 * Number(element.dataset.reloadAfter));
  });
  if (navigator.clipboard) document.querySelectorAll("[data-copy]").forEach(copies);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 150);
  });
})();
