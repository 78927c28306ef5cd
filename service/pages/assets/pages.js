// Pages work without this file. It adds: evidence as a chart that can be zoomed and read with a pointer, buttons that copy examples,
// and reloading of a page that is not ready, or sending its form again.
"use strict";

(() => {
  const charts = [];

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function shown(value) {
    if (value === null || value === undefined) return "–";
    return value >= 6 ? "above 1,000,000" : Number(Math.pow(10, value).toPrecision(3)).toLocaleString("en");
  }

  function evidence(figure) {
    const table = document.getElementById(figure.dataset.evidence);
    const threshold = Number(figure.dataset.threshold);
    const rows = [...table.querySelectorAll("tbody tr")];
    const times = rows.map((row) => Date.parse(row.querySelector("time").dateTime) / 1000);
    const values = rows.map((row) => Number(row.querySelector("[data-value]").dataset.value));
    if (rows.length < 2 || typeof uPlot === "undefined") return;
    const most = 2 * threshold;
    const since = Date.parse(figure.dataset.since) / 1000;
    // A line leads to the first value beyond the axis, and not along its end.
    const clipped = values.map((value, i) => {
      const near = values.slice(Math.max(i - 1, 0), i + 2);
      return value <= most || Math.min(...near) <= most ? Math.min(value, most) : null;
    });
    const svg = figure.querySelector("svg");
    const place = document.createElement("div");
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", "Change statistic by cohort; the numbers are in the table below");
    svg.after(place);
    svg.remove();
    const make = () => {
      const lines = { stroke: colour("--grid"), width: 1 };
      const axis = { stroke: colour("--muted"), grid: lines, ticks: lines };
      const options = {
        width: Math.max(260, Math.min(figure.clientWidth, 560)),
        height: 260,
        scales: { y: { range: [Math.min(0, ...values, -0.2), most] } },
        legend: { live: true },
        cursor: { points: { size: 8 } },
        axes: [
          { ...axis, values: (_, splits) => splits.map((at) => new Date(at * 1000).toISOString().slice(5, 10)) },
          { ...axis, size: 46, label: "change statistic, log₁₀", labelSize: 18 },
        ],
        series: [
          { label: "Cohort", value: (_, at) => (at === null ? "–" : new Date(at * 1000).toISOString().slice(0, 10)) },
          { label: "Statistic", stroke: colour("--line"), width: 2, points: { show: true, size: 6 }, value: (_, __, ___, i) => shown(i === null ? null : values[i]) },
          { label: "Threshold", stroke: colour("--muted"), width: 1.5, dash: [5, 4], points: { show: false }, value: () => Math.round(Math.pow(10, threshold)).toLocaleString("en") },
        ],
        hooks: { drawClear: [(plot) => shade(plot, since)], draw: [(plot) => arrows(plot, times, values, most)] },
      };
      return new uPlot(options, [times, clipped, times.map(() => threshold)], place);
    };
    charts.push({ make, place, plot: make() });
  }

  function arrows(plot, times, values, most) {
    const size = 5 * devicePixelRatio;
    plot.ctx.fillStyle = colour("--dotted");
    values.forEach((value, i) => {
      if (value <= most) return;
      const x = plot.valToPos(times[i], "x", true);
      const y = plot.bbox.top;
      plot.ctx.beginPath();
      plot.ctx.moveTo(x, y);
      plot.ctx.lineTo(x - size, y + 2 * size);
      plot.ctx.lineTo(x + size, y + 2 * size);
      plot.ctx.fill();
    });
  }

  function shade(plot, since) {
    if (Number.isNaN(since)) return;
    const left = Math.max(plot.valToPos(since, "x", true), plot.bbox.left);
    const right = plot.bbox.left + plot.bbox.width;
    if (left >= right) return;
    plot.ctx.fillStyle = colour("--shade");
    plot.ctx.fillRect(left, plot.bbox.top, right - left, plot.bbox.height);
  }

  function redraw() {
    for (const chart of charts) {
      chart.plot.destroy();
      chart.plot = chart.make();
    }
  }

  function copies(button) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).innerText);
      button.textContent = "Copied";
    });
  }

  document.querySelectorAll("[data-evidence]").forEach(evidence);
  document.querySelectorAll("[data-reload-after]").forEach((element) => {
    setTimeout(() => location.reload(), 1000 * Number(element.dataset.reloadAfter));
  });
  document.querySelectorAll("[data-send-after]").forEach((form) => {
    setTimeout(() => form.submit(), 1000 * Number(form.dataset.sendAfter));
  });
  if (navigator.clipboard) document.querySelectorAll("[data-copy]").forEach(copies);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 150);
  });
})();
