// The panel: what is chosen in the graph. A step with its operators, price, schedule, routes and the decisions at its edges; an operator
// with its edges; a layer.
const goTo = (id, text) => element("button", { type: "button", class: "link", onclick: () => choose(id) }, text ?? id);
const pairsOf = entries => element("dl", {}, entries.filter(([, v]) => v !== undefined && v !== null && v !== "").map(([name, v]) => [element("dt", {}, name), element("dd", {}, v)]));

function priceOf(s) {
  const p = s.price ?? {}, terms = Object.entries(p.terms_us ?? {}).filter(([, v]) => known(v)), most = Math.max(...terms.map(([, v]) => v), 1e-9);
  return [
    element("h3", {}, "Price"),
    pairsOf([["predicted", time(predicted(s))], ["measured", known(s.measured_us) ? time(s.measured_us) : null], ["unfused", time(p.unfused_us)], ["bound", p.bound], ["roofline", percent(p.roofline_share)],
      ["bytes", `${amount(s.bytes)} (read ${amount(s.bytes_read)}, written ${amount(s.bytes_written)})`], ["unfused", amount(s.bytes_unfused)], ["FLOPs", known(sized(s.flops)) ? scaled(sized(s.flops), ["", "k", "M", "G", "T"]) : s.flops?.expression], ["launches", s.launches]]),
    terms.map(([name, v]) => { const i = element("i"); i.style.width = `${((100 * v) / most).toFixed(1)}%`; return element("div", { class: "term" }, element("span", {}, name), element("div", {}, i), element("span", {}, time(v))); }),
  ];
}
function scheduleOf(s) {
  const one = c => pairsOf([["when", c.when], ["kind", c.kind], ["why", c.why], ["tile", list(c.tile).length ? `[${c.tile.join(", ")}]` : null], ["warps", c.warps], ["blocks", c.blocks], ["registers", c.registers], ["spills", known(c.spill_bytes) ? bytes(c.spill_bytes) : null],
    ["shared", known(c.shared_bytes) ? bytes(c.shared_bytes) : null], ["occupancy", known(c.occupancy) ? percent(c.occupancy) : null], ["config", c.config ? Object.entries(c.config).map(([k, v]) => `${k}=${v}`).join(" ") : null]]);
  const routes = list(s.routes);
  return [
    s.schedule ? [element("h3", {}, "Schedule"), list(s.schedules_before).map(one), one(s.schedule), list(s.tuned).length ? element("p", {}, `tuned: ${s.tuned.join("; ")}`) : null] : null,
    routes.length ? [element("h3", {}, "Routes"), element("ul", { class: "list" }, routes.map(r => element("li", {}, r.taken ? element("b", {}, r.by) : r.by, ` ${r.kind ?? ""} `,
      known(r.us) ? `predicted ${time(r.us)} ` : "", known(r.measured_us) ? `measured ${time(r.measured_us)} ` : "", r.taken ? "taken" : r.why_not ? `not taken: ${r.why_not}` : "not taken")))] : null,
  ];
}
const kMaxListed = 60;
function bounded(items, write) {
  const ul = element("ul", { class: "list" }, items.slice(0, kMaxListed).map(i => write(i)));
  if (items.length > kMaxListed)
    ul.append(element("li", {}, element("button", { type: "button", onclick: e => { e.target.parentNode.remove(); ul.append(...items.slice(kMaxListed).map(i => write(i))); } }, `${items.length - kMaxListed} more`)));
  return ul;
}
// One edge; with `times`, of equal layers, whose prices add up to `us`.
function decision(e, us = e.price_us, times = 1) {
  return element("li", {}, element("span", { class: "chip" }, e.code), ` ${e.fused ? "fused" : "not fused"}: ${e.reason} `, known(us) ? element("b", {}, `${e.fused ? "saves" : "costs"} ${time(us)}`) : null, times > 1 ? [" ", element("span", { class: "chip" }, `×${times}`)] : null,
    element("div", {}, goTo(e.producer ?? e.first), " → ", goTo(e.consumer ?? e.second)), e.detail ? element("div", { class: "note" }, e.detail) : null, e.counterfactual ? element("div", {}, advice(e.counterfactual)) : null);
}
function decisions(list) {
  const missed = list.filter(e => !e.fused).sort((a, b) => (b.price_us ?? 0) - (a.price_us ?? 0)), fused = list.filter(e => e.fused);
  return [
    missed.length ? [element("h3", {}, `Not fused (${missed.length})`), bounded(missed, decision)] : null,
    fused.length ? element("details", {}, element("summary", {}, `Fused (${fused.length})`), bounded(fused, decision)) : null,
  ];
}
const operatorLine = id => { const o = operatorOf.get(id); return element("li", {}, element("b", {}, o?.op ?? ""), " ", goTo(id, o?.name ?? id), o?.source ? element("div", { class: "note" }, o.source) : null, o?.module ? element("div", { class: "note" }, o.module) : null); };

function stepDetails(s) {
  const place = placeInLayer.get(s.id), mine = list(s.operators), code = [["nest", "Loop nest"], ["tile", "Tile IR"], ["llvm", "LLVM IR"], ["ptx", "PTX"]];
  return [
    element("h2", {}, s.id),
    element("p", {}, element("span", { class: "chip" }, kindName(s)), " step ", String(s.index), place ? [" of ", element("button", { type: "button", class: "link", onclick: () => { unfold(place.layer); } }, `${place.layer.id} ×${place.layer.times}`)] : "",
      s.inside ? [" inside ", goTo(s.inside)] : "", s.tf32 ? " in TF32" : ""),
    s.reason ? element("p", {}, s.reason) : null,
    pairsOf([["iteration", s.iteration], ["operands", list(s.operands).map(o => `${o.name} ${o.shape}`).join(" × ")], ["result", s.result]]),
    priceOf(s),
    element("h3", {}, `Operators (${mine.length})`), bounded(mine, operatorLine),
    scheduleOf(s), decisions(edgesOfStep.get(s.id) ?? []),
    element("details", {}, element("summary", {}, `Reads ${list(s.reads).length}, writes ${list(s.writes).length}`), element("ul", { class: "list" }, ["reads", "writes"].map(k => list(s[k]).map(v => element("li", {}, `${k} `, element("code", {}, `${v.name} ${v.type}`)))))),
    code.filter(([k]) => s[k]).map(([k, title]) => element("details", {}, element("summary", {}, title), Object.assign(element("pre", { tabindex: "0" }), { textContent: shownLines(s[k]) }))),
  ];
}
function operatorDetails(o) {
  return [
    element("h2", {}, o.name), element("p", {}, element("span", { class: "chip" }, o.op)),
    pairsOf([["source", o.source], ["module", o.module]]),
    list(o.steps).length ? [element("h3", {}, list(o.steps).length > 1 ? `Computed in ${o.steps.length} steps` : "Computed in"), bounded(o.steps, id => element("li", {}, goTo(id)))] : element("p", {}, "Computed while compiling: it is in no step."),
    decisions([...edges.filter(e => e.producer === o.id || e.consumer === o.id), ...list(report.pairs).filter(p => p.first === o.id || p.second === o.id)]),
  ];
}
function layerDetails(layer) {
  const ids = list(layer.instances)[0] ?? [];
  return [
    element("h2", {}, `${layer.id} ×${layer.times}`), element("p", {}, `${layer.times} runs of ${ids.length} steps that do the same on the same shapes.`),
    pairsOf([["predicted", time(layer.instances.flat().reduce((sum, id) => sum + (predicted(stepOf.get(id) ?? {}) ?? 0), 0))]]),
    element("p", {}, element("button", { type: "button", id: "unfold", onclick: () => { unfold(layer); showDetails("layer:" + layer.id); } }, unfolded.has(layer.id) ? "show one" : `unfold all ${layer.times} (u)`)),
    element("ul", { class: "list" }, ids.map(id => element("li", {}, goTo(id), " ", element("span", { class: "note" }, time(predicted(stepOf.get(id) ?? {})))))),
  ];
}
function showDetails(id) {
  const node = view.scene?.tree.nodes.get(id);
  const parts = stepOf.has(id) ? stepDetails(stepOf.get(id)) : operatorOf.has(id) ? operatorDetails(operatorOf.get(id)) : node?.kind === "layer" ? layerDetails(node.layer)
    : node?.kind === "value" ? [element("h2", {}, node.value), pairsOf([["type", node.type], ["", node.output ? "output of the model" : "input of the model"]])]
    : node ? [element("h2", {}, headOf(node)), element("p", {}, underOf(node)), bounded(stepsOf(node), s => element("li", {}, goTo(s.id), " ", element("span", { class: "note" }, time(predicted(s)))))] : overview();
  byId("details").replaceChildren(...parts.flat(Infinity).filter(p => p instanceof Node));
  byId("details").scrollTop = 0;
}
// Before anything is chosen: the most expensive steps and missed fusions.
function overview() {
  const rows = stepRows().map(r => ({ ...r, us: timeOfRow(r) })).sort((a, b) => b.us - a.us).slice(0, 5);
  const missed = missedRows().map(r => ({ ...r, us: priceOfMissed(r) })).filter(r => r.us > 0 && (r.e.counterfactual?.change ?? "none") !== "none").slice(0, 5);
  return [
    element("h2", {}, "Most expensive steps"),
    element("ul", { class: "list" }, rows.map(r => element("li", {}, element("b", {}, time(r.us)), " ", goTo(r.id), r.of?.length > 1 ? [" ", element("span", { class: "chip" }, `×${r.of.length}`)] : null, element("div", { class: "note" }, `${kindName(r.step)}, bound by ${r.step.price?.bound ?? "-"}`)))),
    missed.length ? [element("h2", {}, "Missed fusions that a change would save"), element("ul", { class: "list" }, missed.map(r => decision(r.e, r.us, r.of?.length)))] : element("p", {}, "No change would save a missed fusion."),
    element("p", { class: "note" }, "Click a box to see its details; double click opens it. Keys: ?"),
  ];
}
chosen.listeners.push(id => showDetails(id));
