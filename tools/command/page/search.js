// Search over operators, steps and source lines. Enter goes to the next hit, Shift+Enter to the one before.
const hits = { ids: [], at: -1, set: new Set() };
const texts = [
  ...steps.map(s => [s.id, `${s.id} ${s.kind} ${s.library_call ?? ""}`.toLowerCase()]),
  ...operators.map(o => [o.id, `${o.name} ${o.op} ${o.module ?? ""} ${o.source ?? ""}`.toLowerCase()]),
];
function search(text) {
  const wanted = text.trim().toLowerCase();
  hits.ids = wanted ? texts.filter(([, t]) => t.includes(wanted)).map(([id]) => id) : [];
  hits.at = -1;
  markHits();
  byId("hits").textContent = wanted ? (hits.ids.length ? `${hits.ids.length} hits` : "no hit") : "";
}
function markHits() {
  hits.set = new Set(hits.ids.map(id => nodeOf(id)?.id).filter(Boolean));
  draw();
}
function nextHit(by) {
  if (!hits.ids.length) return;
  hits.at = (hits.at + by + hits.ids.length) % hits.ids.length;
  byId("hits").textContent = `${hits.at + 1} of ${hits.ids.length}`;
  choose(hits.ids[hits.at]);
  markHits();
}
