"use strict";
/* Drawings of the report: each function returns a node. Colours are variables of the style sheet, so that they follow
   the theme; every drawing has a text for screen readers. */

const element = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
};

const SEED_COLOURS = ["var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c6)", "var(--c7)"];
const seedColour = (seed) => SEED_COLOURS[seed % SEED_COLOURS.length];

const plot = (label, width, options) => {
  const drawn = Plot.plot({
    width, ariaLabel: label, className: "plot", marginLeft: 44, marginRight: 12, marginBottom: 38,
    style: { background: "none", fontFamily: "inherit", fontSize: "11px", overflow: "visible" },
    ...options,
  });
  drawn.setAttribute("role", "img");
  return drawn;
};

const labelWidth = (names) => Math.min(170, 14 + 6.2 * Math.max(4, ...names.map((name) => name.length)));

const shorten = (name) => (name.length > 26 ? `${name.slice(0, 25)}…` : name);

/* One dot for each seed of each row of a column; the opened row in colour. */
const seedChart = (rows, own, label, width) => {
  const dots = rows.flatMap((row) => row.seeds.map(([seed, value]) => ({ row: row.label, seed, value, own: row === own })));
  const means = rows.filter((row) => row.seeds.length);
  const printed = rows.filter((row) => row.published !== null);
  return plot(`One dot for each seed of all methods in this column: ${label}`, width, {
    height: 48 + 20 * rows.length, marginTop: 8, marginLeft: labelWidth(rows.map((row) => shorten(row.label))),
    x: { label, grid: true, nice: true },
    y: { label: null, domain: rows.map((row) => row.label), tickFormat: shorten, tickSize: 0 },
    marks: [
      Plot.tickX(means, { x: (row) => row.measured, y: "label", stroke: (row) => (row === own ? "var(--accent)" : "var(--soft)"), strokeWidth: 2 }),
      Plot.dot(printed, { x: "published", y: "label", symbol: "diamond", r: 3.5, stroke: "var(--muted)" }),
      Plot.dot(dots, {
        x: "value", y: "row", r: 3.5, fill: (dot) => (dot.own ? "var(--accent)" : "var(--muted)"), fillOpacity: (dot) => (dot.own ? 0.9 : 0.45),
        title: (dot) => `${dot.row}, seed ${dot.seed}: ${dot.value}`, tip: true,
      }),
    ],
  });
};

/* The curves of all seeds. */
const curveChart = (runs, metric, label, width) => {
  const points = runs.flatMap((run) => (run.curves?.[metric] ?? []).map(([round, value]) => ({ seed: run.seed, round, value })));
  return plot(`${label} of each seed over rounds`, width, {
    height: 200, x: { label: "round", nice: true }, y: { label, grid: true, nice: true },
    marks: [
      Plot.line(points, { x: "round", y: "value", z: "seed", stroke: (point) => seedColour(point.seed), strokeWidth: 1.6 }),
      Plot.dot(points, {
        x: "round", y: "value", r: 2.2, fill: (point) => seedColour(point.seed),
        title: (point) => `seed ${point.seed}, round ${point.round}: ${point.value}`, tip: true,
      }),
    ],
  });
};

/* Accuracy in each class and group, one dot for each seed. */
const groupChart = (runs, name, width) => {
  const dots = runs.flatMap((run) => Object.entries(run.groups ?? {}).map(([group, value]) => ({ group: name(group), seed: run.seed, value })));
  const groups = [...new Set(dots.map((dot) => dot.group))];
  return plot("Accuracy in each class and group, one dot for each seed", width, {
    height: 48 + 17 * groups.length, marginTop: 8, marginLeft: labelWidth(groups.map(shorten)),
    x: { label: "accuracy (%)", domain: [0, 100], grid: true }, y: { label: null, domain: groups, tickFormat: shorten, tickSize: 0 },
    marks: [
      Plot.tickX(dots, Plot.groupY({ x: "mean" }, { x: "value", y: "group", stroke: "var(--soft)", strokeWidth: 2 })),
      Plot.dot(dots, { x: "value", y: "group", r: 3, fill: (dot) => seedColour(dot.seed), title: (dot) => `${dot.group}, seed ${dot.seed}: ${dot.value} %`, tip: true }),
    ],
  });
};

/* Accuracy of clients from the worst to the best, a line for each seed; dashed: clients that never take part. */
const percentileChart = (runs, width) => {
  const points = runs.flatMap((run) => Object.entries(run.over_clients).flatMap(([clients, values]) =>
    d3.range(0, 101, 10).map((percentile) => ({ clients, seed: run.seed, percentile, value: values[`percentile=${percentile}`] }))));
  const line = (clients, dashes) => Plot.line(points.filter((point) => point.clients === clients), {
    x: "percentile", y: "value", z: "seed", stroke: (point) => seedColour(point.seed), strokeWidth: 1.6, strokeDasharray: dashes,
    title: (point) => `seed ${point.seed}, percentile ${point.percentile}: ${point.value} %`, tip: true,
  });
  return plot("Accuracy at each tenth percentile of the clients, a line for each seed", width, {
    height: 200, x: { label: "percentile of clients (0: worst)" }, y: { label: "accuracy (%)", domain: [0, 100], grid: true },
    marks: [line("client", "none"), line("unseen", "4 3")],
  });
};

/* A grid of cells whose opacity is a number: participation and labels. */
const gridChart = (cells, label, width, options) =>
  plot(label, width, {
    marks: [Plot.rect(cells, {
      x1: (cell) => cell.x, x2: (cell) => cell.x + cell.width, y1: (cell) => cell.y - 0.5, y2: (cell) => cell.y + 0.5,
      fill: "var(--accent)", fillOpacity: "value", inset: options.inset ?? 0.5, title: "title", tip: true,
    }), ...(options.marks ?? [])],
    opacity: { domain: [0, Math.max(1, ...cells.map((cell) => cell.value))], range: [0, 1] },
    ...options.plot,
  });

const clientAxis = (clients) => ({
  label: "client", reverse: true, domain: [-0.5, clients - 0.5], ticks: d3.range(0, clients, Math.ceil(clients / 8)), tickFormat: "d",
});

const participationChart = ({ width: step, cells }, clients, width) =>
  gridChart(
    cells.map(([round, client, times]) => ({ x: round - 0.5, width: step, y: client, value: times / step, title: `client ${client}, round ${round}${step > 1 ? ` to ${round + step - 1}: ${times} times` : ""}` })),
    "Which clients took part in which rounds", width,
    { plot: { height: 70 + Math.min(240, 9 * clients), x: { label: step > 1 ? `round (steps of ${step})` : "round" }, y: clientAxis(clients) } },
  );

const labelChart = (counts, classes, width) => {
  const cells = counts.flatMap((row, client) => row.map((value, k) => ({ x: k - 0.5, width: 1, y: client, k, value, title: `client ${client}, ${classes[k] ?? `class ${k}`}: ${value} samples` })));
  const few = classes.length <= 12, many = counts.length > 30, long = few && Math.max(...classes.map((name) => name.length)) > 5;
  const numbers = few && !many ? [Plot.text(cells.filter((cell) => cell.value), { x: "k", y: "y", text: (cell) => d3.format(cell.value < 10000 ? "" : ".2s")(cell.value), fontSize: 9.5, fill: "var(--text)" })] : [];
  return gridChart(cells, "Number of training samples of each client in each class", width, {
    inset: many ? 0 : 0.5, marks: numbers,
    plot: {
      height: (long ? 100 : 64) + Math.min(320, (many ? 4 : 17) * counts.length), marginBottom: long ? 70 : 38,
      opacity: { domain: [0, d3.max(cells, (cell) => cell.value) || 1], range: [0, numbers.length ? 0.65 : 1] },
      x: { label: "class", domain: [-0.5, classes.length - 0.5], ticks: few ? d3.range(classes.length) : 8, tickRotate: long ? -35 : 0, tickSize: 0,
        tickFormat: (k) => (few ? shorten(classes[k] ?? "") : k) },
      y: clientAxis(counts.length),
    },
  });
};
