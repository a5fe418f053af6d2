// The graph on a canvas: only what is in view is drawn, small text is left out. Drag or arrows move, wheel and + - zoom, a click
// chooses, a double click opens or closes a cluster.
const canvas = byId("graph"), pen = canvas.getContext("2d"), tip = byId("tip");
const view = { scale: 1, x: 0, y: 0, scene: null, drawn: 0, colour: "time" };
const kMargin = 16;

const style = {};
function readStyle() {
  const s = getComputedStyle(document.documentElement);
  for (const name of ["bg", "fg", "note", "line", "node", "group", "edge", "hit", "accent", "bad"]) style[name] = s.getPropertyValue("--" + name).trim();
  style.font = getComputedStyle(document.body).fontFamily;
}

function layOut(keep) {
  const before = keep && view.scene?.tree.nodes.get(keep);
  const was = before && { x: view.x + before.ax * view.scale, y: view.y + before.ay * view.scale };
  view.scene = makeScene();
  const after = was && view.scene.tree.nodes.get(keep);
  if (after?.ax !== undefined) { view.x = was.x - after.ax * view.scale; view.y = was.y - after.ay * view.scale; }
  draw();
}
// The whole width; of a tall graph the beginning.
function fit(whole = false) {
  const { clientWidth: w, clientHeight: h } = canvas, { w: sw, h: sh } = view.scene;
  const across = (w - 2 * kMargin) / sw, down = (h - 2 * kMargin) / sh;
  view.scale = Math.min(1, whole ? Math.min(across, down) : Math.max(Math.min(across, down), Math.min(across, 0.85)));
  view.x = (w - sw * view.scale) / 2;
  view.y = whole ? (h - sh * view.scale) / 2 : kMargin;
  draw();
}
function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const scale = Math.min(4, Math.max(0.02, view.scale * factor));
  view.x = x - ((x - view.x) * scale) / view.scale;
  view.y = y - ((y - view.y) * scale) / view.scale;
  view.scale = scale;
  draw();
}
function pan(dx, dy) { view.x += dx; view.y += dy; draw(); }

let waiting = false;
function draw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; paint(); });
}

// Names of a model may be long: text is cut to the width, and the cut kept.
const cuts = new Map();
function cut(text, width, font) {
  const key = `${width | 0} ${font} ${text}`;
  if (cuts.has(key)) return cuts.get(key);
  pen.font = font;
  text = shown(text, 200);
  let out = text;
  if (pen.measureText(text).width > width) {
    let low = 0, high = text.length;
    while (low < high) { const mid = (low + high + 1) >> 1; if (pen.measureText(text.slice(0, mid) + "…").width <= width) low = mid; else high = mid - 1; }
    out = text.slice(0, low) + "…";
  }
  cuts.set(key, out);
  return out;
}
function write(text, x, y, width, size, colour, weight = "") {
  const font = `${weight} ${size}px ${style.font}`;
  const out = cut(text, width, font);
  pen.font = font;
  pen.fillStyle = colour;
  pen.fillText(out, x, y);
}

function headOf(n) {
  if (n.kind === "layer") return `${n.layer.id}  ×${n.layer.times}${n.open && !unfolded.has(n.layer.id) ? ", one shown" : ""}`;
  if (n.kind === "instance") return `${n.layer.id}, ${n.instance + 1} of ${n.layer.times}`;
  if (n.kind === "part") return `steps ${indexOf(n.from)} to ${indexOf(n.to, true)}`;
  if (n.kind === "operator") return n.operator.op || n.operator.name;
  if (n.kind === "value") return (n.output ? "output " : "input ") + n.value;
  return stepTitle(n.step);
}
const indexOf = (n, last) => n.step?.index ?? (n.children.length ? indexOf(n.children.at(last ? -1 : 0), last) : "");
const stepsOf = n => (n.step ? [n.step] : n.layer && n.kind === "layer" ? list(n.layer.instances).flat().map(id => stepOf.get(id)).filter(Boolean)
  : n.children.flatMap(stepsOf));
const timeOf = n => stepsOf(n).reduce((sum, s) => sum + (predicted(s) ?? 0), 0);
function underOf(n) {
  if (n.kind === "operator") return n.operator.name;
  if (n.kind === "step") return `${kindName(n.step)} · ${list(n.step.operators).length} op${list(n.step.operators).length === 1 ? "" : "s"} · ${time(predicted(n.step))}`;
  return `${stepsOf(n).length} steps · ${time(timeOf(n))}`;
}

function paint() {
  const ratio = window.devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) { canvas.width = Math.round(w * ratio); canvas.height = Math.round(h * ratio); }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = style.bg;
  pen.fillRect(0, 0, w, h);
  if (!view.scene) return;
  pen.translate(view.x, view.y);
  pen.scale(view.scale, view.scale);
  const seen = { x0: -view.x / view.scale, y0: -view.y / view.scale, x1: (w - view.x) / view.scale, y1: (h - view.y) / view.scale };
  const visible = n => n.ax < seen.x1 && n.ax + n.w > seen.x0 && n.ay < seen.y1 && n.ay + n.h > seen.y0;
  const boxes = view.scene.boxes.filter(visible), target = chosenNode();
  view.drawn = boxes.length;
  for (const n of boxes) if (n.open) paintCluster(n, n === target);
  for (const l of view.scene.lines)
    if (l.box[0] < seen.x1 && l.box[2] > seen.x0 && l.box[1] < seen.y1 && l.box[3] > seen.y0) paintLine(l, target);
  for (const n of boxes) if (!n.open) paintBox(n, n === target);
}
function rounded(n, radius) { pen.beginPath(); pen.roundRect(n.ax, n.ay, n.w, n.h, radius); }
function paintCluster(n, target) {
  rounded(n, 8);
  pen.fillStyle = style.group;
  pen.fill();
  pen.lineWidth = target ? 3 : hits.set.has(n.id) ? 2.5 : 1;
  pen.strokeStyle = target ? style.accent : hits.set.has(n.id) ? style.hit : n.step ? colourOf(n.step, view.colour) : style.edge;
  pen.stroke();
  if (view.scale < 0.25) return;
  write("−", n.ax + 8, n.ay + 18, 20, 14, style.note, "bold");
  write(`${headOf(n)}   ${underOf(n)}`, n.ax + 25, n.ay + 18, n.w - 32, 12, style.fg, "600");
}
function paintBox(n, target) {
  rounded(n, n.kind === "value" ? 12 : 5);
  pen.fillStyle = n.kind === "value" ? style.group : style.node;
  pen.fill();
  const found = hits.set.has(n.id);
  pen.lineWidth = target ? 3 : found ? 2.5 : 1;
  pen.strokeStyle = target ? style.accent : found ? style.hit : style.edge;
  pen.stroke();
  if (n.step && n.kind === "step") {
    pen.fillStyle = colourOf(n.step, view.colour);
    pen.fillRect(n.ax + 1, n.ay + 1, 7, n.h - 2);
  }
  if (view.scale < 0.3) return;
  if (n.kind === "value") return write(headOf(n), n.ax + 10, n.ay + 16, n.w - 20, 11, style.note);
  const holds = n.kind !== "operator", x = n.ax + 14;
  write(headOf(n), x, n.ay + (n.h > 40 ? 19 : 16), n.w - 34, 12, style.fg, "600");
  write(underOf(n), x, n.ay + (n.h > 40 ? 35 : 30), n.w - 22, 11, style.note);
  if (holds) write("+", n.ax + n.w - 16, n.ay + 17, 20, 14, style.note, "bold");
}
// Solid: a value in memory between two steps; thin: inside one step; dashed: a long way, drawn as a curve.
function paintLine(l, target) {
  const touches = target && l.flows.some(f => f.from === target || f.to === target || chain(f.from).includes(target) || chain(f.to).includes(target));
  if (l.curve && !touches && view.scale < 0.3) return;
  pen.beginPath();
  const p = l.points, last = p.at(-1);
  pen.moveTo(p[0].x, p[0].y);
  if (l.curve) pen.bezierCurveTo(p[0].x + 120, p[0].y + 60, last.x + 120, last.y - 60, last.x, last.y);
  else {
    for (let i = 1; i + 1 < p.length; ++i) pen.quadraticCurveTo(p[i].x, p[i].y, (p[i].x + p[i + 1].x) / 2, (p[i].y + p[i + 1].y) / 2);
    pen.lineTo(last.x, last.y);
  }
  const fused = l.flows.every(f => f.edge?.fused);
  pen.globalAlpha = l.curve && !touches ? 0.35 : 1;
  pen.setLineDash(l.curve ? [5, 4] : []);
  pen.lineWidth = touches ? 2.5 : fused ? 1 : 1.4;
  pen.strokeStyle = touches ? style.accent : style.edge;
  pen.stroke();
  pen.setLineDash([]);
  if (view.scale > 0.3) {
    pen.beginPath();
    pen.moveTo(last.x, last.y);
    pen.lineTo(last.x - 3.5, last.y - 7);
    pen.lineTo(last.x + 3.5, last.y - 7);
    pen.fillStyle = pen.strokeStyle;
    pen.fill();
  }
  pen.globalAlpha = 1;
}

// The innermost node at a point of the canvas.
function nodeAt(x, y) {
  const px = (x - view.x) / view.scale, py = (y - view.y) / view.scale;
  for (let i = view.scene.boxes.length - 1; i >= 0; --i) {
    const n = view.scene.boxes[i];
    if (px >= n.ax && px <= n.ax + n.w && py >= n.ay && py <= n.ay + n.h) return n;
  }
  return null;
}
const isCluster = n => n && (n.kind === "layer" || n.kind === "instance" || n.kind === "part" || (n.kind === "step" && list(n.step.operators).length > 0));
function toggle(n) {
  if (!isCluster(n)) return;
  setOpen(n, !n.open);
  layOut(n.id);
}
function unfold(layer) { unfolded.has(layer.id) ? unfolded.delete(layer.id) : unfolded.add(layer.id); flipped.delete("layer:" + layer.id); layOut("layer:" + layer.id); }
function openAll() {
  for (const n of view.scene.tree.nodes.values()) if (isCluster(n)) setOpen(n, true);
  layOut();
  fit();
}
function closeAll() {
  unfolded.clear();
  for (const n of view.scene.tree.nodes.values()) if (isCluster(n)) setOpen(n, false);
  layOut();
  fit();
}

// The node of what is chosen: a step, or an operator in the step chosen with it.
function nodeOf(id) {
  if (!id || !view.scene) return null;
  if (stepOf.has(id)) return shows(view.scene.tree, id);
  if (operatorOf.has(id)) return shows(view.scene.tree, list(operatorOf.get(id).steps)[0], id);
  return view.scene.tree.nodes.get(id) ?? null;
}
const chosenNode = () => nodeOf(chosen.id);
// Moves the graph to a node: opens what hides it.
function reveal(id) {
  const step = stepOf.has(id) ? id : list(operatorOf.get(id)?.steps)[0];
  if (step === undefined) return;
  const nodes = view.scene.tree.nodes, shown = nodes.get("step:" + step) ?? nodes.get("step:" + standsFor(step));
  let closed = false;
  for (let n = stepOf.has(id) ? shown?.parent : nodes.get(`${shown?.id}/${id}`)?.parent ?? shown?.parent; n?.parent; n = n.parent)
    if (!n.open) { setOpen(n, true); closed = true; }
  if (closed) layOut();
  const n = nodeOf(id);
  if (!n) return;
  if (view.scale < 0.45) view.scale = 0.7;
  view.x = canvas.clientWidth / 2 - (n.ax + n.w / 2) * view.scale;
  view.y = canvas.clientHeight / 2 - (n.ay + Math.min(n.h, 200) / 2) * view.scale;
  draw();
}
chosen.listeners.push((id, move) => (move ? reveal(id) : draw()));

// Pointers: one drags, two pinch; a click is one that does not move.
const pointers = new Map();
let moved = 0, pinch = 0;
const at = e => { const r = canvas.getBoundingClientRect(); return { x: e.clientX - r.left, y: e.clientY - r.top }; };
canvas.addEventListener("pointerdown", e => { canvas.setPointerCapture(e.pointerId); pointers.set(e.pointerId, at(e)); moved = 0; pinch = 0; });
canvas.addEventListener("pointermove", e => {
  const p = at(e), was = pointers.get(e.pointerId);
  if (!was) return hover(p);
  pointers.set(e.pointerId, p);
  if (pointers.size === 2) {
    const [a, b] = [...pointers.values()], apart = Math.hypot(a.x - b.x, a.y - b.y);
    if (pinch) zoom(apart / pinch, (a.x + b.x) / 2, (a.y + b.y) / 2);
    pinch = apart;
    moved += 9;
    return;
  }
  moved += Math.abs(p.x - was.x) + Math.abs(p.y - was.y);
  if (moved > 4) { canvas.classList.add("moving"); tip.hidden = true; pan(p.x - was.x, p.y - was.y); }
});
for (const end of ["pointerup", "pointercancel"])
  canvas.addEventListener(end, e => {
    const p = pointers.get(e.pointerId);
    pointers.delete(e.pointerId);
    canvas.classList.remove("moving");
    if (!p || moved > 4 || end !== "pointerup") return;
    const n = nodeAt(p.x, p.y);
    if (!n) return choose(null, false);
    // The sign in the corner opens and closes.
    const x = (p.x - view.x) / view.scale, y = (p.y - view.y) / view.scale;
    if (isCluster(n) && y < n.ay + 26 && (n.open ? x < n.ax + 22 : x > n.ax + n.w - 24)) return toggle(n);
    choose(n.kind === "step" ? n.step.id : n.kind === "operator" ? n.operator.id : n.id, false);
  });
canvas.addEventListener("dblclick", e => { const p = at(e), n = nodeAt(p.x, p.y); if (n) toggle(n.kind === "operator" ? n.parent : n); });
canvas.addEventListener("wheel", e => { e.preventDefault(); const p = at(e); zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), p.x, p.y); }, { passive: false });
canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
function hover(p) {
  const n = nodeAt(p.x, p.y);
  tip.hidden = !n;
  if (!n) return;
  tip.textContent = n.kind === "operator" ? `${shown(n.operator.op)}\n${shown(n.operator.name)}${n.operator.source ? "\n" + shown(n.operator.source) : ""}`
    : n.kind === "value" ? `${shown(headOf(n))}\n${shown(n.type)}` : `${shown(n.step?.id ?? headOf(n))}\n${shown(underOf(n))}`;
  tip.style.left = Math.min(p.x + 14, Math.max(0, canvas.clientWidth - tip.offsetWidth - 4)) + "px";
  tip.style.top = Math.min(p.y + 14, Math.max(0, canvas.clientHeight - tip.offsetHeight - 4)) + "px";
}

function legend() {
  const items = view.colour === "time" ? [[heat(longest / 1000), time(longest / 1000)], [heat(longest / 30), time(longest / 30)], [heat(longest), time(longest)]]
    : (view.colour === "bound" ? bounds : kinds).map((v, i) => [palette[i % palette.length], v]);
  byId("legend").replaceChildren(...items.map(([colour, text]) => { const i = element("i"); i.style.background = colour; return element("span", {}, i, text); }));
}
