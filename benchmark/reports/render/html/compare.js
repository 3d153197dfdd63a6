"use strict";
/* Cells that are picked to be compared. The address after # is an opened cell or, so that a link can be shared, compare=
   and the picked cells. */

const pick = $("#pick"), tray = $("#tray");
const COMPARE = "compare=";
let picked = [];

const cellOf = (name) => (Object.hasOwn(data.cells, name) ? $(`td a[href="#${CSS.escape(name)}"]`)?.closest("td") : undefined);
const button = (text, action, attributes = {}) => {
  const node = element("button", { type: "button", ...attributes }, text);
  node.addEventListener("click", action);
  return node;
};
const keepInAddress = (otherwise) => history.replaceState(null, "", `#${picked.length ? COMPARE + picked : otherwise}`);

const setPicked = (names, remark = "") => {
  picked = names;
  $$("td a[aria-current]").forEach((link) => link.removeAttribute("aria-current"));
  names.forEach((name) => $("a", cellOf(name)).setAttribute("aria-current", "true"));
  tray.hidden = !names.length && !remark && pick.getAttribute("aria-pressed") === "false";
  tray.replaceChildren(
    ...names.map((name, k) => button(`${fullTitle(name)} ×`, () => toggle(name), { style: `--colour:${seedColour(k)}`, "aria-label": `Remove ${fullTitle(name)}` })),
    element("span", { class: "hint" }, remark || (names.length ? "" : "Click cells of any table.")),
    ...(names.length ? [button("Show curves", () => { keepInAddress(); compare(); }, { id: "curves" }), button("Clear", () => clear(), { id: "clear" })] : []),
  );
  say(`Picked cells: ${names.length}`);
};

const toggle = (name) => {
  const names = picked.includes(name) ? picked.filter((other) => other !== name) : [...picked, name];
  const most = SEED_COLOURS.length;
  setPicked(names.slice(0, most), names.length > most ? `At most ${most} cells fit into one plot.` : "");
  if (!panel.open) keepInAddress("overview");
};

const clear = () => {
  pick.setAttribute("aria-pressed", "false");
  setPicked([]);
  keepInAddress("overview");
};

pick.addEventListener("click", () => {
  pick.setAttribute("aria-pressed", pick.getAttribute("aria-pressed") === "false");
  setPicked(picked);
});
document.addEventListener("click", (event) => {
  const link = event.target.closest(".grid td a");
  if (!link || pick.getAttribute("aria-pressed") === "false") return;
  event.preventDefault();
  toggle(link.hash.slice(1));
});

/* In the panel of a cell. */
const pickButton = (name) => {
  const node = button("Compare", () => {
    toggle(name);
    node.setAttribute("aria-pressed", picked.includes(name));
  }, { id: "add", "aria-pressed": picked.includes(name) });
  return node;
};

/* The panel of the picked cells. */
const fullTitle = (name) => {
  const cell = cellOf(name), tables = new Set(picked.map((other) => other.split("/")[0]));
  return tables.size > 1 ? `${titleOf(cell)} (${cell.closest("section").dataset.name})` : titleOf(cell);
};

const settingsPart = (cells) => {
  const place = element("div");
  const options = () => cells.map((cell, k) => element("option", { value: k }, cell.title));
  const selects = ["A", "B"].map((name, k) => {
    const select = element("select", { "aria-label": `Cell ${name}` }, ...options());
    select.value = k;
    select.addEventListener("change", () => show());
    return select;
  });
  const show = () => {
    const settings = selects.map((select) => new Map(cells[select.value].sources.map(([key, value, source]) => [key, { text: words(value), source }])));
    const keys = [...new Set(settings.flatMap((all) => [...all.keys()]))];
    const differing = keys.filter((key) => settings[0].get(key)?.text !== settings[1].get(key)?.text);
    const shown = (setting) => setting && element("span", {}, setting.text, element("small", { class: "muted" }, setting.source));
    place.replaceChildren(differing.length
      ? tableOf("Settings that differ", ["setting", "A", "B"], differing.map((key) => [key, ...settings.map((all) => shown(all.get(key)))]))
      : element("p", {}, "All settings are the same."));
  };
  show();
  return part("Settings that differ, and what set them", ...selects.map((select, k) => element("p", { class: "hint" }, `${"AB"[k]}: `, select)), place);
};

const compare = async () => {
  const names = picked;
  const cells = await Promise.all(names.map(async (name, k) => ({ name, title: fullTitle(name), colour: seedColour(k), ...(await unpack(data.cells[name])) })));
  if (names !== picked || !location.hash.startsWith(`#${COMPARE}`)) return;
  const body = showPanel("Comparison", `${cells.length} cell${cells.length === 1 ? "" : "s"}`);
  const width = Math.max(260, body.clientWidth - 4);
  const metrics = [...new Set(cells.flatMap((cell) => cell.runs.flatMap((run) => Object.keys(run.curves ?? {}))))];
  const legend = legendOf(cells.map((cell) => {
    const values = cell.runs.map((run) => run.value).filter((value) => value !== null);
    const spread = values.length > 1 ? ` ± ${d3.deviation(values).toFixed(2)}` : "";
    return [cell.colour, `${cell.title}: ${values.length ? d3.mean(values).toFixed(2) + spread : "–"} (n = ${values.length})`];
  }));
  const averages = cells.filter((cell) => cell.average_of.length).map((cell) => cell.title);
  const runs = cells.filter((cell) => cell.sources.length);
  body.append(
    part("Learning curves", legend,
      element("p", { class: "hint" }, "Line: mean over the finished seeds; band: ± one standard deviation, if there are two seeds or more."),
      averages.length ? element("p", { class: "gaps" }, `An average has no curves: ${averages.join(", ")}.`) : null,
      ...metrics.map((metric) => comparisonChart(cells, metric, nameOfMetric(metric), width))),
    ...(runs.length > 1 ? [settingsPart(runs)] : []),
  );
};

/* The address. */
const unfold = (node) => {
  if (others?.contains(node)) others.open = true;
};
const route = () => {
  const name = location.hash.slice(1), cell = cellOf(name);
  if (name.startsWith(COMPARE)) {
    const names = name.slice(COMPARE.length).split(","), here = names.filter(cellOf);
    setPicked(here.slice(0, SEED_COLOURS.length), here.length < names.length ? `Cells of the address that are not on this page: ${names.length - here.length}.` : "");
    if (here.length) compare();
  } else if (cell) {
    unfold(cell);
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
    open(name, cell);
  } else {
    const target = document.getElementById(name);
    unfold(target);
    target?.scrollIntoView();
    if (panel.open) panel.close();
  }
};
panel.addEventListener("close", () => {
  const cell = cellOf(location.hash.slice(1));
  if (!cell) return;
  keepInAddress(cell.closest("section").id);
  $("a", cell).focus({ preventScroll: true });
});
panel.addEventListener("click", (event) => event.target === panel && panel.close());
addEventListener("hashchange", route);
route();
