// Puts the page together: first the head and the graph, then, after it is drawn, the tables.
function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").textContent = dark ? "light" : "dark";
  readStyle();
  draw();
}
function switchTheme() { setTheme(document.documentElement.dataset.theme !== "dark"); }
function setColour() { view.colour = byId("colour").value; legend(); draw(); }

function heading() {
  const t = report.totals ?? {}, name = shown(report.model).split("/").at(-1);
  byId("model").textContent = name;
  byId("model").title = shown(report.model);
  document.title = `${name}: fusion report`;
  const types = l => list(l).map(v => `${v.name} ${v.type}`).join(", ");
  byId("about").textContent = shown([
    `${report.format ?? ""}${report.producer ? ` (${report.producer})` : ""}`, `${report.target} (figures of ${report.figures}), ${report.variant} variant`,
    Object.keys(report.sizes ?? {}).length ? `numbers for ${Object.entries(report.sizes).map(([k, v]) => `${k}=${v}`).join(" ")}` : "", `inputs ${types(report.inputs)}`, `outputs ${types(report.outputs)}`,
    report.absent_weights?.count ? `${report.absent_weights.count} weights of ${bytes(report.absent_weights.bytes)} are absent and planned as constants` : "", `Tessera ${report.tessera ?? ""}`].filter(Boolean).join("; "), 4000);
  const before = sized(t.bytes_unfused), now = sized(t.bytes);
  const cards = [[count(t.operators), "operators"], [count(t.kernels), "kernels"], [count(t.library_calls), "library calls"], [count(t.launches), "launches"],
    t.host_operators ? [count(t.host_operators), "CPU fallbacks", true] : null, [amount(t.bytes), known(before) && known(now) && before > 0 ? `moved, ${percent(now / before)} of unfused` : "moved"],
    [time(t.predicted_us), "predicted"], [time(t.predicted_unfused_us), "unfused"], known(t.measured_us) ? [time(t.measured_us), "measured"] : null];
  byId("cards").replaceChildren(...cards.filter(Boolean).map(([value, what, bad]) => element("div", { class: bad ? "card bad" : "card" }, element("b", {}, value), element("span", {}, what))));
}
// A part of a damaged report must not hide the others.
function guarded(what, make) {
  try { return make(); } catch (e) { return element("p", { class: "bad" }, `The report's ${what} cannot be shown: ${e.message}`); }
}

let stepsPart = { switchOrder() {} };
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
setTheme(prefersDark.matches);
prefersDark.addEventListener("change", e => setTheme(e.matches));
// Paper is light and shows the whole graph.
addEventListener("beforeprint", () => {
  const theme = document.documentElement.dataset.theme, { scale, x, y } = view;
  setTheme(false);
  fit(true);
  paint();
  addEventListener("afterprint", () => { Object.assign(view, { scale, x, y }); setTheme(theme === "dark"); }, { once: true });
});
guarded("head", heading);
const broken = guarded("graph", () => {
  layOut();
  fit();
  const costly = stepRows().sort((a, b) => timeOfRow(b) - timeOfRow(a))[0];
  if (view.scene.h * view.scale > canvas.clientHeight && costly) reveal(costly.id);
  legend();
  showDetails(null);
});
if (broken) byId("view").append(broken);
new ResizeObserver(() => draw()).observe(canvas);
byId("theme").addEventListener("click", switchTheme);
byId("help").addEventListener("click", showKeys);
byId("colour").addEventListener("change", setColour);
byId("search").addEventListener("input", e => search(e.target.value));
byId("open-all").addEventListener("click", openAll);
byId("close-all").addEventListener("click", closeAll);
byId("fit").addEventListener("click", () => fit(true));
byId("zoom-in").addEventListener("click", () => zoom(1.25));
byId("zoom-out").addEventListener("click", () => zoom(0.8));
// In the page of two reports: what is chosen here is chosen in the other one, too.
let fromOutside = false;
if (parent !== window) {
  addEventListener("message", e => {
    if (e.source !== parent || typeof e.data?.choose !== "string" || e.data.choose === chosen.id) return;
    fromOutside = true;
    choose(e.data.choose);
    fromOutside = false;
  });
  chosen.listeners.push(id => { if (!fromOutside) parent.postMessage({ chosen: id }, "*"); });
}
requestAnimationFrame(() => requestAnimationFrame(() => {
  performance.mark("graph drawn");
  const add = part => { if (part) byId("sections").append(...[part].flat(Infinity)); };
  add(guarded("steps", () => (stepsPart = stepTable()).node));
  add(guarded("edges", missedTable));
  add(guarded("memory", memorySection));
  add(guarded("times", timelineSection));
  add(guarded("other parts", smallTables));
  performance.mark("page done");
}));
