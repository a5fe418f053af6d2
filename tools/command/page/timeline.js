// Measured steps one after the other, with the predicted time beneath. Only where steps were measured.
function timelineSection() {
  const timed = steps.filter(s => known(s.measured_us) && !s.inside);
  if (!timed.length) return null;
  const total = timed.reduce((sum, s) => sum + s.measured_us, 0) || 1, w = 1200;
  const line = element("p", { class: "note", "aria-live": "polite" }, "\u00a0");
  let now = 0;
  const shapes = timed.flatMap(s => {
    const at = (now / total) * w, width = Math.max(0.5, (s.measured_us / total) * w - 0.4), p = predicted(s);
    now += s.measured_us;
    const act = { onpointerenter: () => { line.textContent = shown(`${s.id}: measured ${time(s.measured_us)}, predicted ${time(p)}`); }, onclick: () => choose(s.id) };
    return [element("svg:rect", { x: at.toFixed(2), y: "6", width: width.toFixed(2), height: "34", fill: colourOf(s, "kind"), ...act }, element("svg:title", {}, s.id)),
      known(p) ? element("svg:rect", { x: at.toFixed(2), y: "44", width: Math.min(width, Math.max(0.5, (p / total) * w)).toFixed(2), height: "10", fill: colourOf(s, "kind"), "fill-opacity": p > s.measured_us ? "1" : "0.5", ...act }) : null];
  });
  return section("timeline", "Timeline", element("p", { class: "note" }, `Measured: ${time(total)} in ${timed.length} steps. The thin bar is the predicted time, at most as long as the measured one.`),
    element("svg:svg", { viewBox: `0 0 ${w} 60`, role: "img", "aria-label": "timeline", preserveAspectRatio: "none", height: "80" }, shapes), line);
}
