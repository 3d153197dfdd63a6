"use strict";
/* The comparison of the leaderboard's methods: cost, wins, one method. Each function fills its section. */

const TRACKS = ["default", "tuned"];
const MARKS = { "+": ["win", "up"], "=": ["tie", ""], "-": ["loss", "down"], ".": ["not compared", ""] };
const controlOf = (section, key) => $(`select[data-key="${key}"], [data-key="${key}"]:checked`, section).value;
const widthOf = (section) => Math.max(280, section.clientWidth);
const dataOf = (board, key) => board.data.find((data) => data.key === key);

/* Result against cost. A point that no cheaper one beats is named, as are FedAvg, Local, Central and what the filter finds. */
const costPoints = (board, data, cost) => board.rows.flatMap(({ key, label, anchor }) => TRACKS.flatMap((track) => {
  const line = board.tracks[track][key], cell = line?.cells[data];
  const x = cost === "spent" ? cell?.spent : (board.tracks.default[key] ?? line)?.costs[cost], y = cell?.value;
  return [x, y].some((value) => value === null || value === undefined) ? [] : [{ key, label, anchor, track, x, y }];
}));

/* Names stand right or left of their points, or above or below: x and y from the point, and text-anchor.
   One that finds no free place on the page is left out. */
const PLACES = [[8, "0.32em", "start"], [-8, "0.32em", "end"], [0, -8, "middle"], [0, 15, "middle"]];
const overlap = (one, other) => one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
const placeNames = (names, page) => names.reduce((taken, name) => {
  const free = PLACES.some(([x, y, anchor]) => {
    Object.entries({ x, y, "text-anchor": anchor }).forEach((pair) => name.setAttribute(...pair));
    const box = name.getBoundingClientRect();
    return box.left >= page.left && box.right <= page.right && !taken.some((other) => overlap(box, other));
  });
  if (!free) name.remove();
  return free ? [...taken, name.getBoundingClientRect()] : taken;
}, []);

const drawCost = (section, board, fits) => {
  const data = controlOf(section, "data"), cost = controlOf(section, "cost"), width = widthOf(section);
  const upward = board.higher, points = costPoints(board, data, cost);
  let best = upward ? -Infinity : Infinity;
  const front = new Set(d3.sort(points.filter((point) => !point.anchor), (point) => point.x, (point) => (upward ? -point.y : point.y)).filter(({ y }) => (upward ? y > best : y < best) && ((best = y), true)));
  const named = (point) => (fits ? fits(point.label) : front.has(point) || point.anchor || /^fedavg(_m0)?$/.test(point.key));
  const pairs = d3.groups(points, (point) => point.key).map(([, pair]) => pair).filter((pair) => pair.length === 2);
  const colour = (point) => (named(point) ? "var(--accent)" : "var(--soft)");
  const label = dataOf(board, data).axis;
  const many = (d3.max(points, (point) => point.x) ?? 1) > 8 * (d3.min(points, (point) => point.x) ?? 1);
  $(".drawing", section).replaceChildren(points.length ? plot(`${label} against ${board.costs[cost]}, a point for each method with default and with tuned values`, width, {
    height: Math.min(520, Math.max(340, width * 0.5)), marginTop: 28, marginRight: width > 600 ? 120 : 70,
    x: { label: board.costs[cost], type: many && points.every((point) => point.x > 0) ? "log" : "linear", nice: true, grid: true, ticks: 6, tickFormat: "~s" },
    y: { label, reverse: !upward, nice: true, grid: true },
    marks: [
      Plot.link(pairs, { x1: (pair) => pair[0].x, y1: (pair) => pair[0].y, x2: (pair) => pair[1].x, y2: (pair) => pair[1].y, stroke: (pair) => (pair.some(named) ? "var(--accent)" : "var(--soft)"), strokeOpacity: 0.6 }),
      Plot.dot(points, { x: "x", y: "y", r: 4, stroke: colour, fill: (point) => (point.track === "tuned" ? colour(point) : "var(--page)"), strokeWidth: 1.5,
        title: (point) => `${point.label}, ${point.track} values\n${label}: ${point.y}\n${board.costs[cost]}: ${point.x}`, tip: true }),
      Plot.text(points.filter(named), { x: "x", y: "y", text: "label", fill: "var(--text)", stroke: "var(--page)", strokeWidth: 3, paintOrder: "stroke" }),
    ],
  }) : element("p", { class: "muted" }, "No method has both numbers."));
  placeNames($$("[aria-label=text] text", section), section.getBoundingClientRect());
};

const drawWins = (section, board) => {
  const track = controlOf(section, "view"), data = controlOf(section, "data"), wins = board.wins[track], counts = board.counts[track];
  const place = board.data.findIndex((one) => one.key === data);
  const rows = board.rows.filter(({ key }) => key in wins);
  const cell = (row, other, k, j) => {
    if (row === other) return element("td", { class: "self" });
    const marks = wins[row.key][other.key], mark = MARKS[marks[place]];
    const balance = [...marks].reduce((sum, one) => sum + (one === "+") - (one === "-"), 0);
    const lists = Object.entries(MARKS).map(([sign, [word]]) => [word, board.data.filter((_, at) => marks[at] === sign).map((one) => one.label)]);
    const title = `${row.label} against ${other.label}: ${lists.filter(([, names]) => names.length).map(([word, names]) => `${word} on ${names.join(", ")}`).join("; ")}`;
    const kind = mark ? mark[1] : balance > 0 ? "up" : balance < 0 ? "down" : "";
    return element("td", { title, class: kind, style: `--tint:${mark ? 60 : (100 * Math.abs(balance)) / marks.length}` }, mark ? (mark[0] === "not compared" ? "–" : mark[0]) : counts.rows[k][j + 1]);
  };
  $(".drawing", section).replaceChildren(rows.length > 1 ? element("table", { class: "wins" },
    element("caption", { class: "sr" }, `Wins, ties and losses of the row against the column, ${track} values`),
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Method"), ...rows.map(({ label }) => element("th", { scope: "col", title: `${label}: columns are what the row is compared with` }, element("span", {}, label))))),
    element("tbody", {}, ...rows.map((row, k) => element("tr", {}, element("th", { scope: "row" }, element("a", { href: `#board-method?method=${encodeURIComponent(row.key)}` }, row.label)), ...rows.map((other, j) => cell(row, other, k, j)))))) : element("p", { class: "muted" }, "Fewer than two methods have runs with these values."));
};

/* Differences with their intervals: tuned above, default below. */
const differenceChart = (board, key, width) => {
  const points = TRACKS.flatMap((track) => board.data.flatMap(({ key: data, label }) => {
    const cell = board.tracks[track][key]?.cells[data];
    return cell && cell.difference !== null ? [{ ...cell, track, label }] : [];
  }));
  const of = (track) => points.filter((point) => point.track === track), colour = { tuned: "var(--accent)", default: "var(--muted)" };
  const marks = TRACKS.flatMap((track) => {
    const dy = track === "tuned" ? -5 : 5;
    return [
      Plot.ruleY(of(track).filter((point) => point.interval), { x1: (point) => point.interval[0], x2: (point) => point.interval[1], y: "label", dy, stroke: colour[track], strokeWidth: 1.6 }),
      Plot.dot(of(track), { x: "difference", y: "label", dy, r: 4, stroke: colour[track], fill: track === "tuned" ? colour[track] : "var(--page)", strokeWidth: 1.5, tip: true,
        title: (point) => `${point.label}, ${track} values: ${d3.format("+.2f")(point.difference)}${point.interval ? ` [${point.interval.map(d3.format("+.2f")).join(", ")}]` : ""} from ${point.base}` }),
    ];
  });
  return points.length ? plot("Difference from FedAvg on every data set, with 95 % intervals", width, {
    height: 60 + 34 * board.data.length, marginLeft: labelWidth(board.data.map(({ label }) => shorten(label))), marginTop: 8,
    x: { label: "difference from FedAvg (points), 95 % interval", grid: true, nice: true },
    y: { label: null, domain: board.data.map(({ label }) => label), tickFormat: shorten, tickSize: 0 },
    marks: [Plot.ruleX([0], { stroke: "var(--soft)" }), ...marks],
  }) : element("p", { class: "muted" }, "This is the row that others are compared with.");
};

const methodCurves = (board, key, data, width) => {
  const base = (track) => (track === "tuned" || board.tracks.default[key]?.cells[data.key]?.base !== board.rows.find((row) => row.key === "fedavg_m0")?.label ? "fedavg" : "fedavg_m0");
  const lines = TRACKS.flatMap((track) => [key, base(track)].filter((row, k, all) => all.indexOf(row) === k).map((row) => ({ row, track, points: board.curves[track][row]?.[data.key] ?? [] })));
  const points = lines.flatMap(({ row, track, points: curve }) => curve.map(([round, value]) => ({ row, track, round, value })));
  return points.some((point) => point.row === key) ? element("figure", {}, element("figcaption", {}, data.label), plot(`${data.axis} on ${data.label} over rounds`, width, {
    height: 190, x: { label: "round", nice: true }, y: { label: data.axis, grid: true, nice: true },
    marks: [Plot.line(points, { x: "round", y: "value", z: (point) => `${point.row} ${point.track}`, stroke: (point) => (point.row === key ? "var(--accent)" : "var(--muted)"),
      strokeDasharray: "none", strokeOpacity: (point) => (point.track === "tuned" ? 1 : 0.45), strokeWidth: 1.6 }),
    Plot.dot(points, { x: "round", y: "value", r: 1.5, fill: (point) => (point.row === key ? "var(--accent)" : "var(--muted)"), fillOpacity: (point) => (point.track === "tuned" ? 1 : 0.45), tip: true,
      title: (point) => `${board.rows.find((row) => row.key === point.row)?.label}, ${point.track} values, round ${point.round}: ${point.value}` })],
  })) : null;
};

const drawMethod = (section, board) => {
  const key = controlOf(section, "method"), { heads, rows } = board.methods[key], width = widthOf(section);
  const columns = Math.max(1, Math.floor(width / 380)), entries = board.entries[key];
  const charts = board.data.map((data) => methodCurves(board, key, data, width / columns - 16)).filter(Boolean);
  $(".drawing", section).replaceChildren(...[
    differenceChart(board, key, Math.min(width, 760)),
    legendOf([["var(--accent)", "tuned values"], ["var(--muted)", "default values (hollow)"]]),
    tableOf("The method on every data set", heads, rows, board.hints),
    charts.length ? element("h3", {}, "Curves beside FedAvg’s, mean over seeds") : null,
    charts.length ? legendOf([["var(--accent)", "this method"], ["var(--muted)", "FedAvg"]]) : null,
    charts.length ? element("p", { class: "hint" }, "Strong: tuned values; pale: default values.") : null,
    element("div", { class: "charts" }, ...charts),
    entries.length ? element("h3", {}, "Where paper and code disagree") : null,
    ...entries.flatMap(({ title, ...texts }) => [element("h4", {}, title), listed(Object.entries(texts).filter(([, text]) => text))]),
  ].filter(Boolean));
};

const DRAWINGS = { "board-cost": drawCost, "board-wins": drawWins, "board-method": drawMethod };
