"use strict";
/* Controls of the report. The address after # names the opened cell, so that a link to it can be shared. */

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const data = JSON.parse($("#data").textContent);
const panel = $("#panel");
const say = (text) => ($("#live").textContent = text);

const unpack = async (text) => {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).json();
};

/* Theme: the system's, until the button says otherwise. */
const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = (chosen) => {
  if (chosen) document.documentElement.dataset.theme = chosen;
  const now = document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
  $("#theme").textContent = now === "dark" ? "Light" : "Dark";
  $("#theme").setAttribute("aria-label", now === "dark" ? "Switch to light colours" : "Switch to dark colours");
  return now;
};
const stored = (value) => {
  try { return value ? localStorage.setItem("theme", value) : localStorage.getItem("theme"); } catch { return null; }
};
theme(stored());
dark.addEventListener("change", () => theme());
$("#theme").addEventListener("click", () => stored(theme(theme() === "dark" ? "light" : "dark")));

/* Tables: what cells show, filters, order. */
const number = (cell, view) => (view in cell.dataset ? Number(cell.dataset[view]) : null);
const fits = (text, words) => words.length === 0 || words.some((word) => text.toLowerCase().includes(word));
const wordsOf = (input) => input.value.toLowerCase().split(",").map((word) => word.trim()).filter(Boolean);

const filter = (section) => {
  const rows = wordsOf($(".rows", section)), columns = wordsOf($(".columns", section));
  const heads = $$("thead tr:last-child th", section).slice(1);
  const hidden = heads.map((head) => !fits(head.dataset.name, columns));
  heads.forEach((head, k) => (head.hidden = hidden[k]));
  let place = 0;
  for (const group of $$(".groups th", section)) {
    const size = Number(group.dataset.size);
    const left = hidden.slice(place, place + size).filter((gone) => !gone).length;
    group.hidden = left === 0;
    group.colSpan = left || 1;
    place += size;
  }
  let shown = 0;
  for (const row of $$("tbody tr", section)) {
    row.hidden = !fits($("th", row).textContent, rows);
    shown += !row.hidden;
    $$("td", row).forEach((cell, k) => (cell.hidden = hidden[k]));
  }
  say(`${shown} rows and ${hidden.filter((gone) => !gone).length} columns are shown`);
};

const ORDERS = { none: "descending", descending: "ascending", ascending: "none" };
const sort = (section, head, order) => {
  const heads = $$("thead tr:last-child th", section), place = heads.indexOf(head);
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

for (const section of $$("section[data-view]")) {
  [...$("tbody", section).rows].forEach((row, k) => (row.dataset.place = k));
  section.style.setProperty("--first", `${$("tbody th", section).offsetWidth}px`);
  section.addEventListener("input", (event) => {
    if (event.target.type === "search") filter(section);
    if (event.target.type === "radio") section.dataset.view = event.target.value;
  });
  section.addEventListener("change", () => {
    const head = $("[aria-sort$=cending]", section);
    if (head) sort(section, head, head.getAttribute("aria-sort"));
  });
  $("thead", section).addEventListener("click", (event) => {
    const head = event.target.closest("th[aria-sort]");
    if (head) sort(section, head, ORDERS[head.getAttribute("aria-sort")]);
  });
}

/* Copy buttons. */
document.addEventListener("click", async (event) => {
  if (!event.target.matches(".copy")) return;
  const code = $("code", event.target.parentElement);
  try {
    await navigator.clipboard.writeText(code.textContent);
    event.target.textContent = "Copied";
    setTimeout(() => (event.target.textContent = "Copy"), 2000);
  } catch {
    getSelection().selectAllChildren(code);
    event.target.textContent = "Press Ctrl-C";
  }
  say(event.target.textContent);
});

/* Mean ranks are drawn when they are first seen. */
const drawRanks = (figure) => {
  const found = data.ranks[figure.dataset.table];
  if (figure.childElementCount) return;
  const left = found.left_out.length ? ` Not ranked, as runs are missing: ${found.left_out.join(", ")}.` : "";
  figure.append(rankChart(found, figure.clientWidth || 640), element("figcaption", {},
    `Mean rank over ${found.blocks} blocks (column and seed). Bars join methods whose mean ranks differ by less than ${found.critical.toFixed(2)}, the critical difference (Nemenyi, 5 %).${left}`));
};
const seen = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => drawRanks(entry.target)));
$$("figure.ranks").forEach((figure) => seen.observe(figure));
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
const tableOf = (caption, heads, rows) =>
  element("div", { class: "scroll" }, element("table", { class: "plain" }, element("caption", { class: "sr" }, caption),
    element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((value, k) =>
      k ? element("td", {}, value ?? "–") : element("th", { scope: "row" }, value)))))));
const legendOf = (runs) => element("p", { class: "seeds" }, ...runs.map((run) =>
  element("span", { style: `--colour:${seedColour(run.seed)}` }, `seed ${run.seed}`)));
const words = (value) => (value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value));
const together = (runs, key) => [...new Set(runs.map((run) => run.origin?.[key]).filter((value) => value !== undefined))].join(", ");
const LABELS = { accuracy: "test accuracy (%)", worst_group_accuracy: "worst-group accuracy (%)" };

const columnOf = (cell) => $$("tbody tr", cell.closest("section")).map((row) => {
  const other = row.cells[cell.cellIndex];
  const seeds = other.dataset.seeds.split(" ").filter(Boolean).map((text) => text.split(":").map(Number));
  return { label: $("th", row).firstChild.textContent.trim(), seeds, measured: number(other, "measured"), published: number(other, "published"), own: other === cell };
});

const clientsPart = (runs, partitions, width) => {
  const place = element("div");
  const choose = element("select", { "aria-label": "Seed" }, ...runs.map((run) => element("option", { value: run.seed }, `seed ${run.seed}`)));
  const show = () => {
    const run = runs.find((one) => String(one.seed) === choose.value);
    const known = partitions[run.origin.partition];
    const clients = known?.counts.length || 1 + Math.max(-1, ...run.clients.cells.map((cell) => cell[1]));
    place.replaceChildren(
      element("h4", {}, "Who took part"),
      run.clients.cells.length ? participationChart(run.clients, clients, width) : element("p", {}, "All clients in every round."),
      element("h4", {}, "Samples of each class"),
      known?.counts.length ? labelChart(known.counts, known.class_names, width) : element("p", {}, "The partition’s statistics are not in the results folder."),
    );
  };
  choose.addEventListener("change", show);
  show();
  return part("Clients", runs.length > 1 ? choose : null, place);
};

const configurationPart = (found) => {
  if (found.average_of.length) return null;
  const rows = found.config.map(([key, own, other]) => [key, words(own), words(other)]);
  return part("Configuration", rows.length
    ? tableOf(`Settings that differ from ${found.baseline}`, ["setting", "here", found.baseline], rows)
    : element("p", {}, `The same as ${found.baseline} in this column.`),
  found.tuned ? element("p", {}, `Tuned values: ${found.tuned}`) : null,
  element("details", {}, element("summary", {}, "All settings, and what set them"),
    tableOf("All settings", ["setting", "value", "set in"], found.sources.map(([key, value, source]) => [key, words(value), source]))));
};

const costPart = (runs) => {
  const NAMES = { scalars_up: "numbers sent up", scalars_down: "numbers sent down", forward: "samples in forward passes", trained: "samples in further gradients" };
  const keys = Object.keys(NAMES).filter((key) => runs.some((run) => run.costs[key]));
  return part("Cost", tableOf("Cost of each seed", ["seed", "rounds", "seconds", ...keys.map((key) => NAMES[key])],
    runs.map((run) => [String(run.seed), String(run.rounds), run.seconds.toFixed(1), ...keys.map((key) => d3.format(",")(run.costs[key] ?? 0))])),
  element("p", { class: "hint" }, keys.length ? "Numbers and samples are those on top of FedAvg’s." : "Sends and computes what FedAvg does."));
};

const originPart = (found, runs) => part("Origin",
  runs.length ? listed([
    ["commit", together(runs, "commit") + (runs.some((run) => run.origin.dirty) ? " (with changes that were not committed)" : "")],
    ["versions", `Python ${together(runs, "python")}, PyTorch ${together(runs, "torch")}, NumPy ${together(runs, "numpy")}`],
    ["machine", `${together(runs, "host")}; ${together(runs, "device")}; ${together(runs, "threads")} thread(s)`],
    ...(runs.some((run) => run.other) ? [["code", [...new Set(runs.map((run) => run.other).filter(Boolean))].join(", ")]] : []),
    ["data", together(runs, "fingerprint")], ["partition", together(runs, "partition")],
  ]) : null,
  element("ul", { class: "folders" }, ...found.runs.filter((run) => run.run).flatMap((run) => run.run.split(";")).map((path) =>
    element("li", {}, element("a", { href: `${data.root}/${path}/`.split("/").map(encodeURIComponent).join("/") }, path)))));

const open = async (name, cell) => {
  const found = await unpack(data.cells[name]);
  const section = cell.closest("section"), label = section.dataset.label;
  const head = $$("thead tr:last-child th", section)[cell.cellIndex];
  const runs = found.runs.filter((run) => run.curves);
  const partitions = {};
  for (const key of new Set(runs.map((run) => run.origin.partition))) if (data.partitions[key]) partitions[key] = await unpack(data.partitions[key]);
  if (location.hash.slice(1) !== name) return; // another cell was opened meanwhile
  const rows = columnOf(cell), own = rows.find((row) => row.own);
  const close = element("button", { type: "button", class: "close", "aria-label": "Close" }, "×");
  close.addEventListener("click", () => panel.close());
  const body = element("div", { class: "body" });
  panel.replaceChildren(element("header", {}, element("div", {}, element("p", { class: "eyebrow" }, $(".grid", section).getAttribute("aria-label")),
    element("h2", { id: "panel-title" }, `${own.label} · ${head.dataset.name}`)), close), body);
  if (!panel.open) panel.showModal();
  panel.scrollTop = 0;
  const width = Math.max(260, body.clientWidth - 4);
  const named = (group) => group.split(",").map((text) => {
    const [kind, k] = text.split("=");
    return Object.values(partitions)[0]?.[`${kind}_names`]?.[k] ?? text.replace("=", " ");
  }).join(" · ");
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))];
  const bad = found.runs.filter((run) => run.value === null);
  body.append(...[
    part("Seeds", seedChart(rows, own, label, width),
      element("p", { class: "hint" }, "Dots: seeds; line: mean; diamond: published. This method in colour."),
      bad.length ? element("p", { class: "gaps" }, bad.map((run) => `seed ${run.seed}: ${run.outcome}${run.message ? `, ${run.message}` : ""}`).join("; ")) : null),
    metrics.length ? part("Learning curves", legendOf(runs), ...metrics.map((metric) => curveChart(runs, metric, LABELS[metric] ?? metric.replaceAll("_", " "), width))) : null,
    runs.some((run) => Object.keys(run.groups).length) ? part("Accuracy by class and group", legendOf(runs), groupChart(runs, named, width)) : null,
    runs.length ? clientsPart(runs, partitions, width) : null,
    found.average_of.length ? part("Average of", element("ul", {}, ...found.average_of.map((other) =>
      element("li", {}, element("a", { href: `#${other}` }, decodeURIComponent(other.split("/")[2])))))) : null,
    configurationPart(found),
    runs.length ? costPart(runs) : null,
    originPart(found, runs),
    part(found.complete ? "Repeat it" : "Carry out what is missing",
      element("p", { class: "command" }, element("code", {}, found.command), element("button", { type: "button", class: "copy" }, "Copy")),
      element("p", { class: "hint" }, found.complete ? "At the commit above. It writes into a new folder, and gives the same bits on the same kind of device." : "In the project’s folder.")),
  ].filter(Boolean));
};

const route = () => {
  const name = location.hash.slice(1);
  const link = name in data.cells ? $(`td a[href="#${CSS.escape(name)}"]`) : null;
  if (link) {
    link.scrollIntoView({ block: "nearest", inline: "nearest" });
    open(name, link.closest("td"));
  } else if (panel.open) panel.close();
};
panel.addEventListener("close", () => {
  const link = $(`td a[href="#${CSS.escape(location.hash.slice(1))}"]`);
  if (!link) return;
  history.replaceState(null, "", `#${link.closest("section").id}`);
  link.focus({ preventScroll: true });
});
panel.addEventListener("click", (event) => event.target === panel && panel.close());
addEventListener("hashchange", route);
route();
