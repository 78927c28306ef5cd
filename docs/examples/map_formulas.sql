-- Apply a calibration map in SQL, one statement for each method. `:name` is a parameter of the map; lists are tables, as each comment says.
-- Exponents are limited to ±700, because databases raise an error where others round to 0 or infinity.

-- temperature, full: predictions(id, class, p), one line a class
WITH raised AS (
  SELECT id, class, CASE WHEN p > 0 THEN EXP(GREATEST(LN(p) / :temperature, -700)) ELSE 0 END AS power FROM predictions
) SELECT id, class, power / SUM(power) OVER (PARTITION BY id) AS p FROM raised;

-- temperature, positive: predictions(id, p)
SELECT id, CASE WHEN p > 0 AND p < 1
  THEN 1 / (1 + EXP(GREATEST(LEAST((LN(1 - p) - LN(p)) / :temperature, 700), -700))) ELSE p END AS p FROM predictions;

-- vector, full: predictions(id, class, p), one line per class; map(class, slope, intercept)
WITH linear AS (
  SELECT q.id, q.class, m.slope * LN(GREATEST(q.p, :clip)) + m.intercept AS z FROM predictions q JOIN map m ON m.class = q.class
), raised AS (SELECT id, class, EXP(GREATEST(z - MAX(z) OVER (PARTITION BY id), -700)) AS power FROM linear)
SELECT id, class, power / SUM(power) OVER (PARTITION BY id) AS p FROM raised;

-- class_temperature, full: predictions(id, class, p), one line per class; map(class, temperature)
WITH linear AS (
  SELECT q.id, q.class, LN(GREATEST(q.p, :clip)) / m.temperature AS z FROM predictions q JOIN map m ON m.class = q.class
), raised AS (SELECT id, class, EXP(GREATEST(z - MAX(z) OVER (PARTITION BY id), -700)) AS power FROM linear)
SELECT id, class, power / SUM(power) OVER (PARTITION BY id) AS p FROM raised;

-- dirichlet, full: predictions(id, class, p), one line per class; map(class, input, weight) line by line of the matrix; map0(class, intercept)
WITH linear AS (
  SELECT q.id, m.class, SUM(m.weight * LN(GREATEST(q.p, :clip))) + MIN(b.intercept) AS z
  FROM predictions q JOIN map m ON m.input = q.class JOIN map0 b ON b.class = m.class GROUP BY q.id, m.class
), raised AS (SELECT id, class, EXP(GREATEST(z - MAX(z) OVER (PARTITION BY id), -700)) AS power FROM linear)
SELECT id, class, power / SUM(power) OVER (PARTITION BY id) AS p FROM raised;

-- platt: predictions(id, p)
WITH held AS (SELECT id, LEAST(GREATEST(p, :clip), 1 - :clip) AS p FROM predictions)
SELECT id, 1 / (1 + EXP(GREATEST(LEAST(-(:slope * LN(p / (1 - p)) + :intercept), 700), -700))) AS p FROM held;

-- beta: predictions(id, p)
WITH held AS (SELECT id, LEAST(GREATEST(p, :clip), 1 - :clip) AS p FROM predictions)
SELECT id, 1 / (1 + EXP(GREATEST(LEAST(-(:a * LN(p) - :b * LN(1 - p) + :c), 700), -700))) AS p FROM held;

-- isotonic, spline: predictions(id, p); map(x, y), the points
WITH segment AS (SELECT x AS x0, y AS y0, LEAD(x) OVER (ORDER BY x) AS x1, LEAD(y) OVER (ORDER BY x) AS y1 FROM map)
SELECT q.id, s.y0 + (s.y1 - s.y0) * (q.p - s.x0) / (s.x1 - s.x0) AS p FROM predictions q JOIN segment s ON q.p >= s.x0 AND q.p < s.x1
UNION ALL SELECT q.id, m.y FROM predictions q JOIN map m ON m.x = (SELECT MIN(x) FROM map) WHERE q.p < m.x
UNION ALL SELECT q.id, m.y FROM predictions q JOIN map m ON m.x = (SELECT MAX(x) FROM map) WHERE q.p >= m.x;

-- histogram, scaling_binning: predictions(id, p); map(upper, value), each bin's upper edge and value
SELECT q.id, (SELECT m.value FROM map m WHERE m.upper >= q.p ORDER BY m.upper LIMIT 1) AS p FROM predictions q;
