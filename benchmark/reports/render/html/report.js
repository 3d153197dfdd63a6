"use strict";
/* Controls of the tables, and the panel of a cell. */

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const data = JSON.parse($("#data").textContent);
const panel = $("#panel");
const say = (text) => ($("#live").textContent = text);

const unpack = async (text) => {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).json();
};

const sections = $$("section[data-view]");
const board = data.board ? unpack(data.board) : null;

/* The filter hides the rows of other methods: its words, with commas between them, are parts of their names. */
const fitting = () => {
  const words = $("#filter").value.toLowerCase().split(",").map((word) => word.trim()).filter(Boolean);
  return words.length ? (name) => words.some((word) => name.toLowerCase().includes(word)) : null;
};
const filter = () => {
  const fits = fitting(), filtered = $$("section.by-method");
  for (const section of filtered) {
    const rows = $$("tbody tr", section);
    rows.forEach((row) => (row.hidden = fits !== null && !fits($("th", row).firstChild.textContent)));
    section.hidden = rows.length > 0 && rows.every((row) => row.hidden);
  }
  $("#matches").textContent = fits && filtered.every((section) => section.hidden) ? "No method has such a name." : "";
};
$("#filter").addEventListener("input", () => {
  filter();
  if (board) refresh($("#board-cost"));
  const section = sections.find(({ id }) => id === location.hash.slice(1).split(/[?/]/)[0]) ?? sections[0];
  if (section) remember(section);
});

/* What cells show, and the order of rows. */
const number = (cell, view) => (view in cell.dataset ? Number(cell.dataset[view]) : null);
const ORDERS = { none: "descending", descending: "ascending", ascending: "none" };
const sort = (section, head, order) => {
  const heads = $$("thead th[aria-sort]", section), place = heads.indexOf(head);
  const body = $("tbody", section), view = section.dataset.view;
  heads.forEach((other) => other.setAttribute("aria-sort", other === head ? order : "none"));
  const rows = [...body.rows].sort((a, b) => a.dataset.place - b.dataset.place);
  const sign = order === "ascending" ? 1 : -1;
  if (order !== "none") rows.sort((a, b) => {
    if (place === 0) return sign * $("th", a).textContent.localeCompare($("th", b).textContent);
    const [first, second] = [a, b].map((row) => number(row.cells[place], view));
    return first === null || second === null ? (first === null) - (second === null) : sign * (first - second);
  });
  body.append(...rows);
};

const measure = () => sections.forEach((section) => section.style.setProperty("--first", `${$("tbody th", section)?.offsetWidth ?? 0}px`));

/* The state of a section is in its controls, in the order of its rows and in the filter; the address after ? names it. */
const controls = (section) => $$("[data-key]", section);
const sortedHead = (section) => $("[aria-sort$=cending]", section);
const refresh = async (section) => {
  section.dataset.view = $("select[data-key], [data-key]:checked", section).value;
  const head = sortedHead(section);
  if (head) sort(section, head, head.getAttribute("aria-sort"));
  if (!Object.hasOwn(DRAWINGS, section.id)) return;
  DRAWINGS[section.id](section, await board, fitting());
  filter();
};
const address = (section) => {
  const set = controls(section).filter((control) => (control.type === "radio" ? control.checked && !control.defaultChecked : control.selectedIndex > 0));
  const state = new URLSearchParams(set.map((control) => [control.dataset.key, control.value])), head = sortedHead(section);
  if (head) state.set("sort", `${head.getAttribute("aria-sort") === "descending" ? "-" : ""}${head.cellIndex}`);
  if ($("#filter").value) state.set("filter", $("#filter").value);
  return `#${section.id}${String(state) && "?"}${state}`;
};
const remember = (section) => history.replaceState(null, "", address(section));
const restore = (section, state) => {
  for (const control of controls(section)) {
    const wanted = state.get(control.dataset.key);
    if (control.type === "radio") control.checked ||= wanted === null ? control.defaultChecked : wanted === control.value;
    else control.selectedIndex = Math.max(0, [...control.options].findIndex((option) => option.value === wanted));
  }
  const order = state.get("sort"), head = $$("thead tr:last-child th", section)[Math.abs(order)];
  if (order && head?.hasAttribute("aria-sort")) sort(section, head, order.startsWith("-") ? "descending" : "ascending");
  $("#filter").value = state.get("filter") ?? "";
  filter();
  return refresh(section);
};
for (const section of sections) {
  [...($("tbody", section)?.rows ?? [])].forEach((row, k) => (row.dataset.place = k));
  section.addEventListener("change", () => {
    refresh(section);
    remember(section);
  });
  section.addEventListener("click", (event) => {
    const head = event.target.closest("th[aria-sort]");
    if (!head) return;
    sort(section, head, ORDERS[head.getAttribute("aria-sort")]);
    remember(section);
  });
}
const drawn = Promise.all(sections.map(refresh));
measure();
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return; // a phone's address bar comes and goes
  width = innerWidth;
  $$("section.board").forEach(refresh);
});

/* Copy buttons: commands, and tables as the files of the project have them, in the view that is shown. */
const copy = async (button, text, shown) => {
  const label = (button.dataset.label ??= button.textContent);
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), 2000);
  } catch {
    getSelection().selectAllChildren(shown());
    button.textContent = "Press Ctrl-C";
  }
  say(button.textContent);
};
const copyTable = async (button) => {
  const section = button.closest("section"), form = button.dataset.form;
  const link = () => location.href.split("#")[0] + address(section);
  const text = form === "link" ? link() : (await unpack(data.copies[decodeURIComponent(section.id)]))[section.dataset.view ?? ""][form];
  copy(button, text, () => {
    const shown = element("pre", {}, text);
    showPanel("Copy", button.getAttribute("aria-label")).append(shown);
    return shown;
  });
};
document.addEventListener("click", (event) => {
  if (event.target.matches(".copy-as")) copyTable(event.target);
  if (!event.target.matches(".copy")) return;
  const code = $("code", event.target.parentElement);
  copy(event.target, code.textContent, () => code);
});

/* Captions and notes belong on paper. */
let opened = [];
addEventListener("beforeprint", () => {
  opened = $$(".notes:not([open])");
  opened.forEach((fold) => (fold.open = true));
});
addEventListener("afterprint", () => opened.forEach((fold) => (fold.open = false)));

/* The panel of a cell. */
const part = (title, ...children) => element("section", {}, element("h3", {}, title), ...children);
const listed = (pairs) => element("dl", {}, ...pairs.flatMap(([key, value]) => [element("dt", {}, key), element("dd", {}, value)]));
const tableOf = (caption, heads, rows, hints = {}) =>
  element("div", { class: "scroll" }, element("table", { class: "plain" }, element("caption", { class: "sr" }, caption),
    element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col", title: hints[head] ?? "" }, head)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((value, k) =>
      k ? element("td", {}, value ?? "–") : element("th", { scope: "row" }, value)))))));
const legendOf = (entries) => element("p", { class: "seeds" }, ...entries.map(([colour, text]) =>
  element("span", { style: `--colour:${colour}` }, text)));
const words = (value) => (value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value));
const together = (runs, key) => [...new Set(runs.map((run) => run.origin?.[key]).filter((value) => value !== undefined))].join(", ");
const LABELS = { accuracy: "test accuracy (%)", worst_group_accuracy: "worst-group accuracy (%)",
  client_mean: "mean over clients (%)", client_worst: "worst client (%)", unseen_mean: "mean over unseen clients (%)" };
const nameOfMetric = (metric) => LABELS[metric] ?? metric.replaceAll("_", " ");

const columnOf = (cell) => $$("tbody tr", cell.closest("section")).map((row) => {
  const other = row.cells[cell.cellIndex];
  const seeds = other.dataset.seeds.split(" ").filter(Boolean).map((text) => text.split(":").map(Number));
  return { label: $("th", row).firstChild.textContent.trim(), seeds, measured: number(other, "measured"), published: number(other, "published"), own: other === cell };
});

const overClientsPart = (runs, seeds, width) => {
  const CLIENTS = { client: "take part; held-out samples", unseen: "never take part; all samples" };
  const rows = runs.flatMap((run) => Object.entries(run.over_clients).map(([clients, values]) =>
    [String(run.seed), CLIENTS[clients], ...["mean", "worst", "p10", "spread"].map((key) => values[key].toFixed(2))]));
  return rows.length ? part("Accuracy over clients", seeds, percentileChart(runs, width),
    element("p", { class: "hint" }, "Last evaluation. Solid: clients that take part; dashed: clients that never do. Spread: standard deviation."),
    tableOf("Accuracy over clients of each seed", ["seed", "clients", "mean", "worst", "10th percentile", "spread"], rows)) : null;
};

const partitionOf = (run) => `${run.origin.data}/${run.origin.partition}`;

const clientsPart = (runs, partitions, width) => {
  const place = element("div");
  const choose = element("select", { "aria-label": "Seed" }, ...runs.map((run) => element("option", { value: run.seed }, `seed ${run.seed}`)));
  const show = () => {
    const run = runs.find((one) => String(one.seed) === choose.value);
    const partition = partitions[partitionOf(run)];
    const clients = partition?.counts.length || 1 + Math.max(-1, ...run.clients.cells.map((cell) => cell[1]));
    place.replaceChildren(
      element("h4", {}, "Who took part"),
      run.clients.cells.length ? participationChart(run.clients, clients, width) : element("p", {}, run.origin.unseen?.length ? "All others in every round." : "All clients in every round."),
      run.origin.unseen?.length ? element("p", {}, `Never: clients ${run.origin.unseen.join(", ")}.`) : "",
      element("h4", {}, "Samples of each class"),
      partition?.counts.length ? labelChart(partition.counts, partition.class_names, width) : element("p", {}, "The run noted no counts."),
    );
  };
  choose.addEventListener("change", show);
  show();
  return part("Clients", runs.length > 1 ? choose : null, place);
};

const configurationPart = (details) => {
  if (!details.config) return null;
  const rows = details.config.map(([key, own, other]) => [key, words(own), words(other)]);
  return part("Configuration", rows.length
    ? tableOf(`Settings that differ from ${details.baseline}`, ["setting", "here", details.baseline], rows)
    : element("p", {}, `The same as ${details.baseline} in this column.`),
  details.tuned ? element("p", {}, `Tuned values: ${details.tuned}`) : null);
};

const costPart = (runs) => {
  const NAMES = { scalars_up: "numbers sent up", scalars_down: "numbers sent down", forward: "samples in forward passes", trained: "samples in further gradients" };
  const keys = Object.keys(NAMES).filter((key) => runs.some((run) => run.costs[key]));
  return part("Cost", tableOf("Cost of each seed", ["seed", "rounds", "seconds", ...keys.map((key) => NAMES[key])],
    runs.map((run) => [String(run.seed), String(run.rounds), run.seconds.toFixed(1), ...keys.map((key) => d3.format(",")(run.costs[key] ?? 0))])),
  element("p", { class: "hint" }, keys.length ? "Numbers and samples are those on top of FedAvg’s." : "Sends and computes what FedAvg does."));
};

const originPart = (details, runs) => part("Origin",
  runs.length ? listed([
    ["commit", together(runs, "commit") + (runs.some((run) => run.origin.dirty) ? " (with changes that were not committed)" : "")],
    ["versions", `Python ${together(runs, "python")}, PyTorch ${together(runs, "torch")}, NumPy ${together(runs, "numpy")}`],
    ["machine", `${together(runs, "host")}; ${together(runs, "processor")}; ${together(runs, "threads")} thread(s)`],
    ...(runs.some((run) => run.other) ? [["code", [...new Set(runs.map((run) => run.other).filter(Boolean))].join(", ")]] : []),
    ["data", together(runs, "data")], ["partition", together(runs, "partition")],
  ]) : null,
  element("ul", { class: "folders" }, ...details.runs.filter((run) => run.run).flatMap((run) => run.run.split(";")).map((path) =>
    element("li", {}, element("a", { href: `${data.root}/${path}/`.split("/").map(encodeURIComponent).join("/") }, path)))));

const headOf = (cell) => $$("thead tr:last-child th", cell.closest("section"))[cell.cellIndex];
const titleOf = (cell) => `${$("th", cell.parentElement).firstChild.textContent.trim()} · ${headOf(cell).dataset.name}`;

const showPanel = (eyebrow, title) => {
  const close = element("button", { type: "button", class: "close", "aria-label": "Close" }, "×");
  close.addEventListener("click", () => panel.close());
  const body = element("div", { class: "body" });
  panel.replaceChildren(element("header", {}, element("div", {}, element("p", { class: "eyebrow" }, eyebrow),
    element("h2", { id: "panel-title" }, title)), close), body);
  if (!panel.open) panel.showModal();
  panel.scrollTop = 0;
  return body;
};

const seedsPart = (details, rows, own, label, width) => part("Seeds",
  seedChart(rows, own, label, width),
  element("p", { class: "hint" }, "Dots: seeds; line: mean; diamond: published. This method in colour."),
  tableOf("Value and outcome of each seed", ["seed", label, "outcome"], details.runs.map((run) =>
    [String(run.seed), run.value, [run.outcome, run.message, run.by && `run by ${run.by}`].filter(Boolean).join(", ")])));

const open = async (name, cell) => {
  const details = await unpack(data.cells[name]);
  const section = cell.closest("section"), label = headOf(cell).dataset.label;
  const runs = details.runs.filter((run) => run.curves);
  const partitions = {};
  for (const key of new Set(runs.map(partitionOf))) if (data.partitions[key]) partitions[key] = await unpack(data.partitions[key]);
  if (location.hash.slice(1) !== name) return; // another cell was opened meanwhile
  const rows = columnOf(cell), own = rows.find((row) => row.own);
  const body = showPanel($(".grid", section).getAttribute("aria-label"), titleOf(cell));
  const width = Math.max(260, body.clientWidth - 4);
  const named = (group) => group.split(",").map((text) => {
    const [kind, k] = text.split("=");
    return Object.values(partitions)[0]?.[`${kind}_names`]?.[k] ?? text.replace("=", " ");
  }).join(" · ");
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))];
  const seeds = legendOf(runs.map((run) => [seedColour(run.seed), `seed ${run.seed}`]));
  body.append(...[
    seedsPart(details, rows, own, label, width),
    metrics.length ? part("Learning curves", seeds, ...metrics.map((metric) => curveChart(runs, metric, nameOfMetric(metric), width))) : null,
    runs.some((run) => Object.keys(run.groups).length) ? part("Accuracy by class and group", seeds.cloneNode(true), groupChart(runs, named, width)) : null,
    overClientsPart(runs, seeds.cloneNode(true), width),
    runs.length ? clientsPart(runs, partitions, width) : null,
    details.average_of.length ? part("Average of", element("ul", {}, ...details.average_of.map((other) =>
      element("li", {}, element("a", { href: `#${other}` }, decodeURIComponent(other.split("/")[2])))))) : null,
    configurationPart(details),
    runs.length ? costPart(runs) : null,
    originPart(details, runs),
    part(details.ended ? "Repeat it" : "Carry out what is missing",
      element("p", { class: "command" }, element("code", {}, details.command), element("button", { type: "button", class: "copy" }, "Copy")),
      element("p", { class: "hint" }, details.ended ? "At the commit above. It writes into a new folder, and gives the same bits on the same kind of device." : "In the project’s folder.")),
  ].filter(Boolean));
};

/* The address after # names the opened cell, or a section and its state. */
const cellOf = (name) => (Object.hasOwn(data.cells, name) ? $(`td a[href="#${CSS.escape(name)}"]`)?.closest("td") : undefined);
const route = async () => {
  const [name, state] = location.hash.slice(1).split("?"), cell = cellOf(name), target = cell ?? document.getElementById(name);
  if (state && sections.includes(target)) await restore(target, new URLSearchParams(state));
  target?.scrollIntoView(cell && { block: "nearest", inline: "nearest" });
  if (cell) open(name, cell);
  else if (panel.open) panel.close();
};
panel.addEventListener("close", () => {
  const cell = cellOf(location.hash.slice(1));
  if (!cell) return;
  remember(cell.closest("section"));
  $("a", cell).focus({ preventScroll: true });
});
panel.addEventListener("click", (event) => event.target === panel && panel.close());
addEventListener("hashchange", route);
drawn.then(route); // what is drawn above a section moves it
