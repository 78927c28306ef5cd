// Apply a calibration map without Calibrant: recalibrate(fitted, given).
// fitted is the response of GET calibration-map or GET maps/current. given is a row of probabilities for the scope "full",
// otherwise one probability.

const scaled = (power) => {
  const total = power.reduce((a, b) => a + b, 0);
  return power.map((v) => v / total);
};
const softmax = (z) => scaled(z.map((v) => Math.exp(v - Math.max(...z))));
const held = (p, clip) => Math.min(Math.max(p, clip), 1 - clip);

const linesBetweenPoints = ({x, y}, p) => {
  const last = x.length - 1;
  if (p <= x[0]) return y[0];
  if (p >= x[last]) return y[last];
  const j = x.findIndex((v) => v > p);
  return y[j - 1] + (y[j] - y[j - 1]) * (p - x[j - 1]) / (x[j] - x[j - 1]);
};
const valueOfBin = ({edges, values}, p) => values[edges.findIndex((e, i) => i > 0 && (p <= e || i === values.length)) - 1];

const OF_ROWS = {
  temperature: ({temperature}, row) => scaled(row.map((p) => p ** (1 / temperature))),
  vector: ({slopes, intercepts, clip}, row) => softmax(row.map((p, k) => slopes[k] * Math.log(Math.max(p, clip)) + intercepts[k])),
  class_temperature: ({temperatures, clip}, row) => softmax(row.map((p, k) => Math.log(Math.max(p, clip)) / temperatures[k])),
  dirichlet: ({matrix, intercepts, clip}, row) => {
    const x = row.map((p) => Math.log(Math.max(p, clip)));
    return softmax(matrix.map((line, k) => line.reduce((sum, w, j) => sum + w * x[j], intercepts[k])));
  },
};
const OF_SCORES = {
  temperature: ({temperature}, p) => {
    const [low, high] = [(1 - p) ** (1 / temperature), p ** (1 / temperature)];
    return high / (low + high);
  },
  platt: ({slope, intercept, clip}, p) => {
    const q = held(p, clip);
    return 1 / (1 + Math.exp(-(slope * Math.log(q / (1 - q)) + intercept)));
  },
  beta: ({a, b, c, clip}, p) => {
    const q = held(p, clip);
    return 1 / (1 + Math.exp(-(a * Math.log(q) - b * Math.log(1 - q) + c)));
  },
  isotonic: linesBetweenPoints,
  spline: linesBetweenPoints,
  histogram: valueOfBin,
  scaling_binning: valueOfBin,
};

const classesAgainstTheRest = (formula, maps, row) => {
  const mapped = row.map((p, k) => (maps[k] === null ? p : formula(maps[k], p)));
  return mapped.some((v) => v > 0) ? scaled(mapped) : row.map(() => 1 / row.length);
};

const recalibrate = ({method, scope, parameters}, given) =>
  parameters.classes
    ? classesAgainstTheRest(OF_SCORES[method], parameters.classes, given)
    : (scope === "full" ? OF_ROWS : OF_SCORES)[method](parameters, given);
