// The report, what the other files look up in it, and how its numbers and names are written. Names come from the model:
// they reach the page as text nodes only.
"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
const list = value => (Array.isArray(value) ? value : []);
const records = value => list(value).filter(v => v && typeof v === "object");
const steps = records(report.steps), edges = records(report.edges), layers = records(report.layers), operators = records(report.operators);
const stepOf = new Map(steps.map(s => [s.id, s])), operatorOf = new Map(operators.map(o => [o.id, o]));

// Edges of an operator and of a step, and what reads and writes each value.
const edgesOfStep = new Map(), writerOf = new Map();
const addTo = (map, key, value) => (map.has(key) ? map.get(key).push(value) : map.set(key, [value]));
for (const e of edges) for (const s of new Set([...list(e.producer_steps), ...list(e.consumer_steps)])) addTo(edgesOfStep, s, e);
for (const s of steps) for (const w of list(s.writes)) addTo(writerOf, w.name, s.id);

// Where a step stands in its layer: {layer, instance, position}.
const placeInLayer = new Map();
for (const layer of layers)
  list(layer.instances).forEach((ids, instance) => ids.forEach((id, position) => placeInLayer.set(id, { layer, instance, position })));
// The step of the first instance that stands for this one.
const standsFor = id => { const p = placeInLayer.get(id); return p ? p.layer.instances[0][p.position] : id; };

// Missed fusions that are alike are one row, as in the text: {id, e, of}, the first standing for all. Those that cost
// nothing are rows by themselves.
function missedRows() {
  const all = [...edges, ...list(report.pairs)], seen = new Set();
  const row = i => ({ id: all[i].id ?? `pair ${i}`, e: all[i], from: all[i].producer ?? all[i].first, to: all[i].consumer ?? all[i].second });
  const rows = list(report.missed).map(group => {
    group.forEach(i => seen.add(i));
    return group.length > 1 ? { ...row(group[0]), of: group.map(row) } : row(group[0]);
  });
  all.forEach((e, i) => { if (e.fused === false && !seen.has(i)) rows.push(row(i)); });
  return rows;
}
const priceOfMissed = row => (row.of ?? [row]).reduce((sum, r) => sum + (r.e.price_us ?? 0), 0);

// Characters that control a reader. shown() escapes them, as that of base/text.h does.
const hidden = /[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;
const escaped = c => ({ "\n": "\\n", "\t": "\\t", "\r": "\\r" })[c] ?? (c.codePointAt(0) < 256 ? "\\x" + c.codePointAt(0).toString(16).padStart(2, "0") : "\\u" + c.codePointAt(0).toString(16));
function shown(text, most = 1024) {
  text = String(text ?? "");
  if (text.length > most) text = `${text.slice(0, most / 2)} ...[${text.length - most} characters left out]... ${text.slice(-most / 2)}`;
  return text.replace(hidden, escaped);
}
const shownLines = text => String(text).split("\n").map(line => line.split("\t").map(part => shown(part, 16384)).join("\t")).join("\n");
const short = (text, most) => { text = shown(text); return text.length <= most ? text : text.slice(0, most - 1) + "…"; };

// Numbers. A null is a number that the sizes do not say.
const known = v => typeof v === "number" && Number.isFinite(v);
const digits = v => (Math.abs(v) >= 100 ? v.toFixed(0) : Math.abs(v) >= 10 ? v.toFixed(1) : v.toFixed(2));
const scaled = (v, units) => { let u = 0; while (Math.abs(v) >= 1000 && u < units.length - 1) { v /= 1000; ++u; } return `${digits(v).replace(/\.0+$/, "")}\u00a0${units[u]}`; };
const time = us => (known(us) ? scaled(us, ["µs", "ms", "s"]) : "-");
const bytes = v => (known(v) ? scaled(v, ["B", "kB", "MB", "GB", "TB"]) : "-");
const sized = s => (s && known(s.at_sizes) ? s.at_sizes : null);
const amount = s => (known(sized(s)) ? bytes(sized(s)) : (s?.expression ?? "-").length > 40 ? "unknown" : shown(s?.expression ?? "-"));
const count = v => (known(v) ? v.toLocaleString("en").replaceAll(",", "\u202f") : "-");
const percent = v => (known(v) ? `${(100 * v).toFixed(v < 0.1 ? 1 : 0)} %` : "-");
const predicted = s => (known(s.call_us) ? s.call_us : null);

// element("td", {class: "number", onclick: f}, "text", child): strings become text, never markup.
function element(tag, attributes = {}, ...children) {
  const e = tag.startsWith("svg:") ? document.createElementNS(svgSpace, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else e.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) e.append(child instanceof Node ? child : shown(child));
  return e;
}
const svgSpace = document.createElementNS && new DOMParser().parseFromString("<svg/>", "text/html").body.firstChild.namespaceURI;
const byId = id => document.getElementById(id);

// Kinds, bounds and times as colours: readable on both themes.
const palette = ["#4a8fd8", "#e08e2b", "#3fa66b", "#b565c4", "#d1495b", "#2aa5a0", "#8c7ae6", "#a08a3c", "#7d8793"];
const distinct = values => [...new Set(values.filter(v => v !== undefined && v !== null))].sort();
const kinds = distinct(steps.map(s => s.kind)), bounds = distinct(steps.map(s => s.price?.bound));
const longest = Math.max(1e-9, ...steps.map(s => predicted(s) ?? 0));
// From a cool to a warm colour with the logarithm of the time: three decades.
const heat = us => { const t = Math.max(0, 1 + Math.log10(Math.max(us, 1e-9) / longest) / 3); return `hsl(${220 - 215 * t} 65% 52%)`; };
function colourOf(step, by) {
  if (by === "time") return known(predicted(step)) ? heat(predicted(step)) : palette[8];
  const values = by === "bound" ? bounds : kinds, at = values.indexOf(by === "bound" ? step.price?.bound : step.kind);
  return at < 0 ? palette[8] : palette[at % palette.length];
}
const kindName = s => s.library_call ?? s.kind;
// "gather_add_reduce_sum_div_more" of "k2_gather_add_reduce_sum_div_more".
const stepTitle = s => String(s.id).replace(/^[a-z]+\d+_/, "").replaceAll("_", " ") || String(s.id);

// The selection in the graph, the panel and the table at once. Listeners get (step or operator id, whether to move the
// graph to it).
const chosen = { id: null, listeners: [] };
function choose(id, move = true) { chosen.id = id; for (const f of chosen.listeners) f(id, move); }
