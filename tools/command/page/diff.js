// Two reports side by side: what differs as tables, then the page of each report in a frame. What is chosen in one frame is
// chosen in the other.
const { diff, a: reportA, b: reportB } = report, frames = {};

// The step of the other side that computes what this one does: of its group of changed steps, else of its first operator.
function counterpart(side, id) {
  const other = side === "a" ? "b" : "a", [here, there] = side === "a" ? [reportA, reportB] : [reportB, reportA];
  const group = records(diff.steps).find(s => list(s[side]).includes(id));
  if (group && list(group[other]).length) return group[other][0];
  const step = records(here.steps).find(s => s.id === id), operator = records(here.operators).find(o => o.id === id);
  const known = new Map(records(there.operators).map(o => [o.id, o]));
  if (operator) return known.has(id) ? id : null;
  for (const o of list(step?.operators)) if (known.has(o) && list(known.get(o).steps).length) return known.get(o).steps[0];
  return records(there.steps).some(s => s.id === id) ? id : null;
}
const tell = (side, id) => id && frames[side]?.contentWindow?.postMessage({ choose: id }, "*");
// In both frames; where only one side has it, in that one.
function chooseBoth(idsA, idsB) {
  tell("a", list(idsA)[0]);
  tell("b", list(idsB)[0]);
  byId("panes").scrollIntoView({ behavior: "smooth" });
}
addEventListener("message", e => {
  const side = ["a", "b"].find(s => frames[s]?.contentWindow === e.source);
  if (side && typeof e.data?.chosen === "string") tell(side === "a" ? "b" : "a", counterpart(side, e.data.chosen));
});

const signed = (v, write) => (known(v) && v !== 0 ? (v > 0 ? "+" : "−") + write(Math.abs(v)) : "");
const less = (x, y) => (known(x) && known(y) ? y - x : null);
const text = (name, f, wide) => ({ name, key: f, wide });
const numberColumn = (name, f, write) => ({ name, number: true, key: f, cell: r => write(f(r)) });

function totalsTable() {
  const write = key => (key.startsWith("bytes") ? bytes : key.endsWith("_us") ? time : count);
  const rows = records(diff.totals).filter(t => t.a || t.b).map(t => ({ ...t, id: t.name }));
  return section("totals", diff.same ? "The same plan" : "Totals", table([
    text("", t => t.name.replace(/_us$/, " time").replaceAll("_", " ")),
    { name: "A", number: true, key: t => t.a, cell: t => write(t.name)(t.a) }, { name: "B", number: true, key: t => t.b, cell: t => write(t.name)(t.b) },
    { name: "B - A", number: true, key: t => less(t.a, t.b), cell: t => signed(less(t.a, t.b), write(t.name)) },
  ], rows).node);
}
function stepsTable() {
  const rows = records(diff.steps).map((s, i) => ({ ...s, id: "steps " + i }));
  if (!rows.length) return null;
  return section("changed-steps", `Steps that differ (${rows.length})`, element("p", { class: "note" }, "Steps that compute the same operators. Click a row to see both in the graphs."), table([
    { name: "B - A", number: true, key: s => less(s.us_a, s.us_b), cell: s => signed(less(s.us_a, s.us_b), time) },
    numberColumn("A", s => s.us_a, time), numberColumn("B", s => s.us_b, time),
    { name: "bytes", number: true, key: s => less(s.bytes_a, s.bytes_b), cell: s => signed(less(s.bytes_a, s.bytes_b), bytes) },
    text("steps of A", s => list(s.a).join(", "), true), text("steps of B", s => list(s.b).join(", "), true),
    text("divided", s => (s.divided_alike ? "alike" : "otherwise")), text("operators", s => list(s.operators).join(", "), true),
  ], rows, { choose: s => chooseBoth(s.a, s.b) }).node);
}
function edgesTable() {
  const rows = records(diff.edges).map((e, i) => ({ ...e, id: "edge " + i }));
  if (!rows.length) return null;
  const side = key => ({ name: key.toUpperCase(), key: e => e[key].code, cell: e => [element("span", { class: "chip" }, e[key].code), ` ${e[key].reason}`, e[key].detail ? element("div", { class: "note" }, e[key].detail) : null], wide: true });
  return section("changed-edges", `Edges with another verdict or reason (${rows.length})`, table([
    text("change", e => e.change), text("from", e => e.producer, true), text("to", e => e.consumer, true), side("a"), side("b"),
  ], rows, { choose: e => chooseBoth([e.producer], [e.in_b?.[0] ?? e.producer]) }).node);
}
function onlyTable(id, title, one, columns) {
  const rows = ["a", "b"].flatMap(side => records(one["only_" + side]).map((r, i) => ({ ...r, side: side.toUpperCase(), id: `${id} ${side} ${i}` })));
  return rows.length ? section(id, `${title} (${rows.length})`, table([text("only in", r => r.side), ...columns], rows).node) : null;
}
function operatorsOnly() {
  const names = side => ({ ["only_" + side]: list(diff.operators?.["only_" + side]).map(name => ({ name })) });
  return onlyTable("operators", "Operators that one has", { ...names("a"), ...names("b") }, [text("operator", r => r.name, true)]);
}

const label = side => `${shown(side.model ?? "").split("/").at(-1)}, ${side.target ?? ""}${side.figures ? ` (${side.figures})` : ""}, Tessera ${side.tessera ?? ""}${Object.entries(side.sizes ?? {}).map(([k, v]) => ` ${k}=${v}`).join("")}`;
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
byId("model").textContent = diff.same ? "The same plan" : "Two plans";
byId("about").replaceChildren(element("b", {}, "A "), label(diff.a), element("br"), element("b", {}, "B "), label(diff.b),
  diff.same_sizes ? "" : " (of other sizes: bytes and times differ for this alone)");
const parts = [totalsTable(), stepsTable(), edgesTable(), operatorsOnly(),
  onlyTable("breaks", "Breaks that one has", diff.breaks ?? {}, [text("kind", b => b.kind), text("what", b => b.what, true), text("reason", b => b.reason, true)]),
  onlyTable("guards", "Guards that one has", diff.guards ?? {}, [text("condition", g => g.condition, true), text("reason", g => g.reason, true)])];
byId("sections").append(...parts.filter(Boolean));
// JSON within a script: what could end it is escaped, as the command does.
const inScript = json => JSON.stringify(json).replaceAll("<", "\\u003c");
let loaded = 0;
for (const [side, one] of [["a", reportA], ["b", reportB]]) {
  frames[side] = element("iframe", { title: `report ${side.toUpperCase()}` });
  frames[side].addEventListener("load", () => { if (++loaded === 2) performance.mark("page done"); });
  frames[side].srcdoc = report.page[0] + inScript(one) + report.page[1];
  byId("panes").append(frames[side]);
}
