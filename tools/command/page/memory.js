// The memory plan: a rectangle for each buffer, from its first to its last step, at its offset in the arena. Colour by size.
function memorySection() {
  const m = report.memory ?? {}, buffers = list(m.buffers).filter(b => known(b.offset) && known(b.bytes) && b.bytes > 0);
  const about = element("p", { class: "note" }, ["arena", "constant", "input", "output"].map(k => `${k}${k === "arena" ? "" : "s"} ${bytes(m[k + "_bytes"])}`).join(", ") + ". Steps to the right, offsets upwards; blue buffers are small, orange ones large.");
  if (!buffers.length) return section("memory", "Memory", about, element("p", {}, "No temporary buffer."));
  const w = 1200, h = 320, last = Math.max(...buffers.map(b => b.last_step)) + 1, top = Math.max(...buffers.map(b => b.offset + b.bytes)), largest = Math.max(...buffers.map(b => b.bytes));
  const x = step => (step / last) * w, y = offset => h - (offset / top) * h;
  const line = element("p", { class: "note", "aria-live": "polite" }, "\u00a0");
  const say = b => { line.textContent = shown(`${b.name}: ${bytes(b.bytes)} at ${bytes(b.offset)}, steps ${b.first_step} to ${b.last_step}`); };
  const shapes = buffers.map(b => {
    const t = largest > 1 ? Math.max(0, 1 + Math.log10(b.bytes / largest) / 4) : 1;
    const r = element("svg:rect", { x: x(b.first_step).toFixed(2), y: y(b.offset + b.bytes).toFixed(2), width: Math.max(1, x(b.last_step + 1) - x(b.first_step) - 0.5).toFixed(2), height: Math.max(1, y(b.offset) - y(b.offset + b.bytes)).toFixed(2),
      fill: `hsl(${220 - 180 * t} 55% 55%)`, "fill-opacity": "0.85", onpointerenter: () => say(b) }, element("svg:title", {}, b.name));
    return r;
  });
  return section("memory", "Memory", about, element("svg:svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": "memory plan", preserveAspectRatio: "none", height: String(h) }, shapes), line);
}
