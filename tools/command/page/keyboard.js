// Keys, as "?" lists them. They do nothing while a field has the focus.
const keys = [
  ["/", "search", () => byId("search").focus()],
  ["n", "next hit", () => nextHit(1)], ["p", "hit before", () => nextHit(-1)],
  ["+", "zoom in", () => zoom(1.25)], ["-", "zoom out", () => zoom(0.8)], ["0", "show the whole graph", () => fit(true)],
  ["ArrowLeft", "move the graph", () => pan(60, 0)], ["ArrowRight", null, () => pan(-60, 0)], ["ArrowUp", null, () => pan(0, 60)], ["ArrowDown", null, () => pan(0, -60)],
  ["j", "next step", () => walk(1)], ["k", "step before", () => walk(-1)],
  ["e", "open or close what is chosen", () => { const n = chosenNode(); if (n) toggle(n.kind === "operator" ? n.parent : n); }],
  ["u", "unfold or fold its layer", () => { const n = chosenNode(), l = n?.layer ?? (n?.step && placeInLayer.get(n.step.id)?.layer); if (l) unfold(l); }],
  ["o", "open every cluster", openAll], ["c", "close every cluster", closeAll],
  ["b", "colour by time, bound or kind", () => { const s = byId("colour"); s.selectedIndex = (s.selectedIndex + 1) % s.options.length; setColour(); }],
  ["s", "steps by cost or in execution order", () => stepsPart.switchOrder()],
  ["d", "dark or light", switchTheme],
  ["Escape", "choose nothing", () => choose(null, false)],
  ["?", "these keys", showKeys],
];
function walk(by) {
  const at = steps.findIndex(s => s.id === chosen.id), next = steps[at < 0 ? (by > 0 ? 0 : steps.length - 1) : Math.min(steps.length - 1, Math.max(0, at + by))];
  if (next) choose(next.id);
}
function showKeys() {
  const dialog = byId("keys"), arrows = { ArrowLeft: "arrows" };
  if (dialog.open) return dialog.close();
  dialog.replaceChildren(element("h2", {}, "Keys"), element("dl", {}, keys.filter(([, what]) => what).map(([key, what]) => [element("dt", {}, element("kbd", {}, arrows[key] ?? key)), element("dd", {}, what)])),
    element("p", { class: "note" }, "Drag moves, the wheel zooms, a double click opens or closes. In a table: Tab, then Enter."), element("button", { type: "button", onclick: () => dialog.close() }, "close"));
  dialog.showModal();
}
document.addEventListener("keydown", e => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.target.id === "search") {
    if (e.key === "Enter") { e.preventDefault(); nextHit(e.shiftKey ? -1 : 1); }
    if (e.key === "Escape") { e.target.value = ""; search(""); e.target.blur(); }
    return;
  }
  if (e.target.matches("input, select, textarea") || byId("keys").open) return;
  if (e.key.startsWith("Arrow") && e.target !== canvas && e.target !== document.body) return; // scrolls what has the focus
  const key = keys.find(([k]) => k === e.key || (k === "+" && e.key === "="));
  if (!key) return;
  e.preventDefault();
  key[2]();
});
