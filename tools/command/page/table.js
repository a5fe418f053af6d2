// A table that is sorted by a click on a head, filtered by text, and whose equal rows unfold.
// columns: {name, key(row) to sort by, cell(row) text or node (the key where absent), number, wide}.
// rows(): rows in their first order. row: {id, of?: rows that it stands for}. Long tables show kFirst rows until all are requested.
const kFirst = 400;
function table(columns, rows, options = {}) {
  let sorted = options.sort ?? null, down = options.down ?? false, all = false, wanted = "";
  const unfoldedRows = new Set();
  const heads = columns.map((c, i) => element("th", { class: c.number && "number", scope: "col" }, element("button", { type: "button", onclick: () => sortBy(i) }, c.name)));
  const body = element("tbody"), more = element("button", { type: "button", onclick: () => { all = true; fill(); } });
  const filter = element("input", { type: "search", placeholder: "filter", "aria-label": "filter the table", oninput: () => { wanted = filter.value.trim().toLowerCase(); fill(); } });
  const shownText = row => (row.text ??= columns.map(c => { const v = c.cell ? c.cell(row) : c.key(row); return v instanceof Node ? v.textContent : String(v ?? ""); }).join(" ").toLowerCase());
  function sortBy(i) {
    if (sorted === i && down === Boolean(columns[i].number)) down = !down;
    else if (sorted === i) { sorted = null; down = false; }
    else { sorted = i; down = Boolean(columns[i].number); }
    fill();
  }
  const compare = (a, b) => {
    const x = columns[sorted].key(a), y = columns[sorted].key(b);
    const none = v => v === null || v === undefined;
    if (none(x) || none(y)) return none(x) - none(y);
    return (down ? -1 : 1) * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
  };
  function line(row, instance) {
    const cells = columns.map(c => element("td", { class: [c.number && "number", c.wide && "wide", c.whole && "whole"].filter(Boolean).join(" ") || undefined }, c.cell ? c.cell(row, instance) : c.key(row)));
    if (row.of?.length > 1 && !instance)
      cells[options.fold ?? 0].append(" ", element("button", { type: "button", class: "chip fold", "aria-expanded": String(unfoldedRows.has(row.id)), title: "equal steps: unfold",
        onclick: e => { e.stopPropagation(); unfoldedRows.has(row.id) ? unfoldedRows.delete(row.id) : unfoldedRows.add(row.id); fill(); } }, `×${row.of.length}`));
    const go = options.choose && (() => options.choose(row));
    return element("tr", { tabindex: go && "0", class: instance && "instance", "data-id": row.id, onclick: go, onkeydown: go && (e => { if (e.key === "Enter" && e.target.tagName === "TR") go(); }) }, cells);
  }
  function fill() {
    let list = rows.filter(r => !wanted || shownText(r).includes(wanted) || r.of?.some(o => shownText(o).includes(wanted)));
    if (sorted !== null) list = list.map((r, i) => [r, i]).sort(([a, i], [b, j]) => compare(a, b) || i - j).map(([r]) => r);
    const some = all ? list : list.slice(0, kFirst);
    body.replaceChildren(...some.flatMap(r => [line(r, false), ...(unfoldedRows.has(r.id) ? r.of.map(o => line(o, true)) : [])]));
    heads.forEach((h, i) => (i === sorted ? h.setAttribute("aria-sort", down ? "descending" : "ascending") : h.removeAttribute("aria-sort")));
    more.hidden = some.length === list.length;
    more.textContent = `show all ${list.length} rows`;
    number.textContent = `${list.length} rows`;
  }
  const number = element("span", { class: "note" });
  fill();
  return {
    node: [element("div", { class: "row controls" }, filter, number, options.extra ?? []), element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, heads)), body)), more],
    sortBy, body,
    order(i, descending) { sorted = i; down = descending; fill(); },
  };
}
const section = (id, title, ...children) => element("section", { id }, element("h2", {}, title), ...children);

// All steps. Equal ones are one row, as in the text, with the sum of their times.
function stepRows() {
  const classes = new Map();
  for (const s of steps) addTo(classes, s.class ?? s.id, { id: s.id, step: s });
  return [...classes.values()].map(rows => (rows.length > 1 ? { ...rows[0], of: rows } : rows[0]));
}
const timeOfRow = row => (row.of ?? [row]).reduce((sum, r) => sum + (predicted(r.step) ?? 0), 0);
function stepTable() {
  const total = steps.reduce((sum, s) => sum + (predicted(s) ?? 0), 0);
  const all = row => (row.of?.length > 1 ? row.of.map(r => r.step) : [row.step]);
  const sum = f => (row, instance) => { const v = (instance ? [row.step] : all(row)).map(f).filter(known); return v.length ? v.reduce((a, b) => a + b, 0) : null; };
  const sumOf = { us: sum(predicted), bytes: sum(s => sized(s.bytes)), before: sum(s => sized(s.bytes_unfused)), launches: sum(s => s.launches), measured: sum(s => s.measured_us) };
  const number = (name, f, write) => ({ name, number: true, key: row => f(row), cell: (row, instance) => write(f(row, instance)) });
  const bar = value => { const i = element("i"); i.style.width = `${Math.min(100, (100 * (value ?? 0)) / (total || 1)).toFixed(2)}%`; return element("div", { class: "share", title: percent((value ?? 0) / (total || 1)) }, i); };
  const measured = steps.some(s => known(s.measured_us));
  const columns = [
    { name: "#", number: true, key: row => row.step.index },
    { name: "step", key: row => row.step.id, cell: row => element("code", {}, row.step.id), wide: true },
    { name: "kind", whole: true, key: row => kindName(row.step) },
    { name: "operators", number: true, key: row => list(row.step.operators).length },
    number("predicted", sumOf.us, time),
    ...(measured ? [number("measured", sumOf.measured, time)] : []),
    { name: "share", key: row => sumOf.us(row), number: true, cell: (row, instance) => bar(sumOf.us(row, instance)) },
    { name: "bound", whole: true, key: row => row.step.price?.bound ?? "" },
    number("bytes", sumOf.bytes, bytes),
    number("unfused", sumOf.before, bytes),
    { name: "roofline", number: true, key: row => row.step.price?.roofline_share ?? null, cell: row => percent(row.step.price?.roofline_share) },
    number("launches", sumOf.launches, count),
    { name: "schedule", key: row => row.step.schedule?.kind ?? list(row.step.routes).find(r => r.taken)?.by ?? "", whole: true },
  ];
  const costly = element("button", { type: "button", id: "by-cost", title: "order (s)" }, "by cost");
  const t = table(columns, stepRows(), { fold: 1, choose: row => choose(row.id), extra: costly });
  let byCost = false;
  const switchOrder = () => { byCost = !byCost; t.order(byCost ? 4 : null, true); costly.textContent = byCost ? "in execution order" : "by cost"; };
  costly.addEventListener("click", switchOrder);
  chosen.listeners.push(id => { for (const r of t.body.rows) r.classList.toggle("chosen", r.dataset.id === id); });
  return { node: section("steps", "Steps", element("p", { class: "note" }, "In execution order. ×12 stands for twelve equal steps; times and bytes are their sum. Click a head to sort, a row to see the step."), t.node), switchOrder };
}

const advice = c => (c ? `${c.change === "none" ? "Right so" : c.change === "option" ? "Option" : "In the model"}: ${c.text}` : "");
function missedTable() {
  const rows = missedRows();
  if (!rows.length) return null;
  const total = rows.reduce((sum, r) => sum + (r.of?.length ?? 1), 0);
  const columns = [
    { name: "costs", number: true, key: r => (known(r.e.price_us) ? priceOfMissed(r) : null), cell: (r, one) => time(known(r.e.price_us) ? (one ? r.e.price_us : priceOfMissed(r)) : null) },
    { name: "code", whole: true, key: r => r.e.code, cell: r => element("span", { title: r.e.reason }, r.e.code) },
    { name: "reason", key: r => r.e.reason },
    { name: "from", key: r => r.from, wide: true }, { name: "to", key: r => r.to, wide: true },
    { name: "bytes", number: true, key: r => sized(r.e.bytes), cell: r => (r.e.bytes ? amount(r.e.bytes) : "-") },
    { name: "detail and advice", key: r => r.e.detail, cell: r => element("span", {}, r.e.detail, r.e.detail && r.e.counterfactual ? ". " : "", element("b", {}, advice(r.e.counterfactual))), wide: true },
  ];
  const t = table(columns, rows, { fold: 1, sort: 0, down: true, choose: r => choose(r.from) });
  return section("missed", `Missed fusions (${total})`, element("p", { class: "note" }, "What keeping the value between the two operators out of memory would save; ×12: in twelve equal layers, summed."), t.node);
}
// Equal losses once, with the number of steps.
function lost(costs) {
  const groups = new Map();
  for (const c of costs) addTo(groups, c.lost, c.step);
  return [...groups].map(([what, ids]) => `${what} (${ids.length > 1 ? `${ids.length} steps, first ` : ""}${ids[0]})`).join("; ") || "nothing";
}
function smallTables() {
  const out = [], breaks = list(report.breaks);
  const text = (name, f, wide) => ({ name, key: f, wide });
  out.push(section("breaks", "Breaks", breaks.length ? table([
    { name: "costs", number: true, key: b => b.price_us ?? null, cell: b => time(b.price_us) },
    text("kind", b => b.kind), text("what", b => b.what, true), text("reason", b => b.reason, true),
    { name: "copies", number: true, key: b => b.copies, cell: b => `${b.copies ?? 0}${b.copy_bytes ? ", " + bytes(b.copy_bytes) : ""}` },
    { name: "launches", number: true, key: b => b.launches }, { name: "waits", number: true, key: b => b.waits }, text("advice", b => b.advice, true),
  ], breaks.map((b, i) => ({ ...b, id: b.step ?? `break ${i}` })), { sort: 0, down: true, choose: b => b.step && choose(b.step) }).node
    : element("p", {}, "None: every operator is compiled or a library call, and every size follows from the inputs.")));
  const guards = list(report.guards), symbols = list(report.symbols);
  out.push(section("guards", "Guards and symbols",
    guards.length ? table([text("condition", g => g.condition, true), text("class", g => g.class), text("reason", g => g.reason, true), text("where", g => g.where, true)], guards.map((g, i) => ({ ...g, id: "guard " + i }))).node : element("p", {}, "No guard."),
    symbols.length ? table([text("symbol", s => s.name), { name: "here", number: true, key: s => report.sizes?.[s.name] ?? null },
      text("dimension of", s => list(s.dimension_of).join(", "), true), { name: "costs", number: true, key: s => s.price_us ?? null, cell: s => time(s.price_us) },
      text("what is lost", s => lost(list(s.costs)), true)], symbols.map(s => ({ ...s, id: s.name }))).node : []));
  const codes = list(report.codes);
  if (codes.length)
    out.push(section("codes", "Edges by reason", table([text("code", c => c.code), text("reason", c => c.reason), text("fused", c => (c.fused ? "yes" : "no")), { name: "edges", number: true, key: c => c.count },
      { name: "bytes", number: true, key: c => c.bytes ?? null, cell: c => bytes(c.bytes) }, { name: "saves or costs", number: true, key: c => c.price_us ?? null, cell: c => time(c.price_us) }, text("means", c => c.summary, true)],
      codes.map(c => ({ ...c, id: c.code }))).node));
  const left = list(report.constants?.left);
  if (left.length)
    out.push(section("constants", "Constants that every call computes", table([text("value", c => c.name, true), text("operator", c => c.op), { name: "bytes", number: true, key: c => c.bytes ?? null, cell: c => bytes(c.bytes) }, text("reason", c => c.reason, true)], left.map((c, i) => ({ ...c, id: "constant " + i }))).node));
  const passes = list(report.passes), ms = v => `${digits(v ?? 0)} ms`;
  if (passes.length)
    out.push(section("compile", "Compiling", element("details", {}, element("summary", {}, Object.entries(report.compile ?? {}).filter(([k, v]) => k.endsWith("_ms") && known(v)).map(([k, v]) => `${k.slice(0, -3)} ${ms(v)}`).join(", ")),
      table([text("pass", p => p.name), text("changed", p => (p.changed ? "yes" : "")), { name: "ms", number: true, key: p => p.ms, cell: p => digits(p.ms ?? 0) }, { name: "nodes before", number: true, key: p => p.nodes_before }, { name: "after", number: true, key: p => p.nodes_after }], passes.map((p, i) => ({ ...p, id: "pass " + i }))).node)));
  return out;
}
