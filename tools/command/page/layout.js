// The tree of clusters and where everything stands. The root holds steps, layers (equal runs of steps, one of them shown) and, where
// there are many steps, parts of consecutive ones; a step holds its operators. dagre lays out each open cluster by itself, its open
// clusters being boxes of known size, so that opening one costs its own layout and those around it. A line that leaves a cluster goes
// through the middle of its border.
const kMaxChildren = 48;   // of one cluster; more are divided into parts
const kLongEdge = 8;        // ranks; longer edges are drawn as curves and not routed, except a node's only one
const kLongInput = 4;       // the same of what comes from outside the cluster
const sizes = { step: [214, 44], operator: [180, 38], value: [150, 24], port: [1, 1], closed: [214, 48] };
const unfolded = new Set(); // ids of layers all of whose instances are shown
const flipped = new Set();  // ids of clusters that are not as at first: layers and the first part are open, all else is closed
const openAtFirst = n => n.kind === "layer" || (n.kind === "part" && n.first);
const isOpen = n => openAtFirst(n) !== flipped.has(n.id);
const setOpen = (n, open) => { openAtFirst(n) === open ? flipped.delete(n.id) : flipped.add(n.id); };

function makeTree() {
  const nodes = new Map();
  const make = (id, kind, parent, more = {}) => {
    const n = { id, kind, parent, children: [], lines: [], x: 0, y: 0, w: 0, h: 0, ...more };
    nodes.set(id, n);
    if (parent) parent.children.push(n);
    return n;
  };
  const root = make("root", "root", null, { open: true });
  const addStep = (s, parent) => {
    const n = make("step:" + s.id, "step", parent, { step: s });
    for (const o of list(s.operators)) make(n.id + "/" + o, "operator", n, { step: s, operator: operatorOf.get(o) ?? { id: o, name: o, op: "" } });
    return n;
  };
  list(report.inputs).forEach((v, i) => make("input:" + i, "value", root, { value: v.name, type: v.type }));
  for (const s of steps) {
    const place = placeInLayer.get(s.id), around = placeInLayer.get(s.inside), holder = s.inside && nodes.get("step:" + s.inside);
    if (around && !holder) continue; // a body in an instance that is not shown
    const home = holder || root;
    if (!place || (around && around.layer === place.layer)) { addStep(s, home); continue; }
    const { layer, instance } = place, id = "layer:" + layer.id, all = unfolded.has(layer.id);
    if (instance && !all) continue;
    const l = nodes.get(id) ?? make(id, "layer", home, { layer });
    if (!all) { addStep(s, l); continue; }
    const one = `${id}#${instance}`;
    addStep(s, nodes.get(one) ?? make(one, "instance", l, { layer, instance }));
  }
  list(report.outputs).forEach((v, i) => make("output:" + i, "value", root, { value: v.name, type: v.type, output: true }));
  for (const n of [...nodes.values()]) divide(n, make);
  for (const n of nodes.values()) if (n !== root) n.open = n.children.length > 0 && isOpen(n);
  return { root, nodes };
}

// Too many steps become parts of consecutive ones.
function divide(n, make) {
  const kept = c => c.kind === "value" || c.kind === "operator", inner = n.children.filter(c => !kept(c));
  if (inner.length <= kMaxChildren) return;
  const parts = Math.ceil(inner.length / kMaxChildren), each = Math.ceil(inner.length / parts);
  const after = n.children.filter(c => c.output);
  n.children = n.children.filter(c => kept(c) && !c.output);
  for (let p = 0; p < parts; ++p) {
    const mine = inner.slice(p * each, (p + 1) * each);
    const part = make(`${n.id}/part ${p + 1}`, "part", n, { from: mine[0], to: mine.at(-1), first: !p });
    for (const c of mine) { c.parent = part; part.children.push(c); }
  }
  n.children.push(...after);
}

// Which node shows this step (or its operator): of equal layers the first, of closed clusters the outermost.
function shows(tree, stepId, operatorId) {
  const s = tree.nodes.get("step:" + stepId) ?? tree.nodes.get("step:" + standsFor(stepId));
  let n = s && operatorId !== undefined ? tree.nodes.get(`${s.id}/${operatorId}`) ?? s : s;
  for (let at = n?.parent; at; at = at.parent) if (!at.open) n = at;
  return n;
}

// The flow between steps: by the edges of operators where they give it, by the values that steps read and write where
// they do not.
function* flows(tree) {
  const seen = new Set();
  const folded = (a, b) => { // another instance of a folded layer
    const p = placeInLayer.get(a), q = placeInLayer.get(b);
    return p && q && p.layer === q.layer && p.instance !== q.instance && !unfolded.has(p.layer.id);
  };
  for (const e of edges)
    for (const to of list(e.consumer_steps)) {
      const from = e.fused && list(e.producer_steps).includes(to) ? to : list(e.producer_steps).length === 1 ? e.producer_steps[0] : undefined;
      if (from === undefined) continue;
      if (from !== to) seen.add(from + "\n" + to);
      if (!folded(from, to)) yield { from: shows(tree, from, e.producer), to: shows(tree, to, e.consumer), edge: e };
    }
  const inputs = new Map(list(report.inputs).map((v, i) => [v.name, tree.nodes.get("input:" + i)]));
  for (const s of steps)
    for (const r of list(s.reads)) {
      if (inputs.has(r.name)) yield { from: inputs.get(r.name), to: shows(tree, s.id) };
      for (const from of writerOf.get(r.name) ?? [])
        if (from !== s.id && !seen.has(from + "\n" + s.id) && !folded(from, s.id)) yield { from: shows(tree, from), to: shows(tree, s.id), value: r.name };
    }
  for (const [i, v] of list(report.outputs).entries())
    for (const from of writerOf.get(v.name) ?? []) yield { from: shows(tree, from), to: tree.nodes.get("output:" + i) };
}

const chain = n => { const out = []; for (let at = n; at; at = at.parent) out.unshift(at); return out; };

// Puts each flow into the clusters through which it goes.
function connect(tree) {
  for (const n of tree.nodes.values()) n.links = new Map();
  const link = (group, from, to, flow) => {
    const key = `${from}\n${to}`;
    if (group.links.has(key)) group.links.get(key).flows.push(flow);
    else group.links.set(key, { from, to, flows: [flow] });
  };
  for (const f of flows(tree)) {
    if (!f.from || !f.to || f.from === f.to) continue;
    const a = chain(f.from), b = chain(f.to);
    let common = 0;
    while (a[common + 1] && a[common + 1] === b[common + 1]) ++common;
    if (!a[common + 1] || !b[common + 1]) continue; // a cluster and its own part
    link(a[common], a[common + 1].id, b[common + 1].id, f);
    for (let d = common + 1; d + 1 < a.length; ++d) link(a[d], a[d + 1].id, "out", f);
    for (let d = common + 1; d + 1 < b.length; ++d) link(b[d], "in", b[d + 1].id, f);
  }
}

// The links of a cluster that dagre routes; the others are marked as curves. Ranks by the longest path in order of execution.
function routed(group) {
  const order = new Map([["in", -1], ...group.children.map((c, i) => [c.id, i]), ["out", group.children.length]]);
  const links = [...group.links.values()].filter(l => order.get(l.from) < order.get(l.to)).sort((a, b) => order.get(a.from) - order.get(b.from));
  for (const l of group.links.values()) l.curve = order.get(l.from) >= order.get(l.to); // a loop's way back
  const rank = new Map();
  for (const id of order.keys()) if (!rank.has(id)) rank.set(id, 0);
  for (const l of links) rank.set(l.to, Math.max(rank.get(l.to), rank.get(l.from) + 1));
  const nearest = new Map(), next = new Map();
  const span = l => rank.get(l.to) - rank.get(l.from);
  for (const l of links) {
    if (span(l) < (nearest.has(l.to) ? span(nearest.get(l.to)) : Infinity)) nearest.set(l.to, l);
    if (span(l) < (next.has(l.from) ? span(next.get(l.from)) : Infinity)) next.set(l.from, l);
  }
  for (const l of links) l.curve = span(l) > (l.from === "in" ? kLongInput : kLongEdge) && nearest.get(l.to) !== l && next.get(l.from) !== l;
  return links.filter(l => !l.curve);
}

// dagre's layout of boxes [w, h] and links between their numbers: centres, bend points of each link, and by how much bends leave the
// box around all. Equal clusters are laid out once, which also makes it cheap to open one of many.
const arrangements = new Map();
function arranged(boxes, links) {
  const key = JSON.stringify([boxes, links]);
  if (arrangements.has(key)) return arrangements.get(key);
  const g = new dagre.graphlib.Graph();
  g.setGraph({ rankdir: "TB", nodesep: 22, ranksep: 30, edgesep: 12, ranker: "tight-tree" });
  g.setDefaultEdgeLabel(() => ({}));
  boxes.forEach(([width, height], i) => g.setNode(String(i), { width, height }));
  for (const [from, to] of links) g.setEdge(String(from), String(to), { weight: 1 });
  dagre.layout(g);
  const { width, height } = g.graph(), routes = links.map(([from, to]) => g.edge(String(from), String(to)).points), bends = routes.flat().map(p => p.x);
  const out = { width, height, routes, at: boxes.map((_, i) => g.node(String(i))), beyond: Math.max(0, -Math.min(0, ...bends), Math.max(0, ...bends) - width) };
  arrangements.set(key, out);
  return out;
}

// Sizes and positions, from the innermost open cluster outwards. A cluster's children stand relative to its corner.
function place(n) {
  const [w, h] = sizes[n.kind] ?? sizes.closed;
  if (!n.open) { [n.w, n.h] = [w, h]; return; }
  n.children.forEach(place);
  const links = routed(n), boxes = n.children.map(c => [c.w, c.h]), number = new Map(n.children.map((c, i) => [c.id, i]));
  for (const port of ["in", "out"]) if (links.some(l => l.from === port || l.to === port)) { number.set(port, boxes.length); boxes.push(sizes.port); }
  const size = arranged(boxes, links.map(l => [number.get(l.from), number.get(l.to)]));
  const head = n.kind === "root" ? 0 : 26, pad = (n.kind === "root" ? 20 : 14) + size.beyond;
  n.children.forEach((c, i) => { c.x = size.at[i].x - c.w / 2 + pad; c.y = size.at[i].y - c.h / 2 + pad + head; });
  n.w = Math.max(size.width + 2 * pad, sizes.closed[0]);
  n.h = size.height + 2 * pad + head;
  const extra = (n.w - size.width - 2 * pad) / 2;
  for (const c of n.children) c.x += extra;
  const ends = id => (id === "in" ? { x: n.w / 2, y: head } : id === "out" ? { x: n.w / 2, y: n.h } : undefined);
  const child = new Map(n.children.map(c => [c.id, c]));
  const route = new Map(links.map((l, i) => [l, size.routes[i]]));
  n.lines = [...n.links.values()].map(l => {
    const from = ends(l.from) ?? below(child.get(l.from)), to = ends(l.to) ?? above(child.get(l.to));
    const between = l.curve ? [] : route.get(l).slice(1, -1).map(p => ({ x: p.x + pad + extra, y: p.y + pad + head }));
    return { points: [from, ...between, to], curve: l.curve, flows: l.flows };
  });
}
const above = n => ({ x: n.x + n.w / 2, y: n.y }), below = n => ({ x: n.x + n.w / 2, y: n.y + n.h });

// Positions on the plane, in drawing order: a cluster comes before what it holds.
function makeScene() {
  const tree = makeTree();
  connect(tree);
  place(tree.root);
  const boxes = [], lines = [];
  const walk = (n, dx, dy) => {
    n.ax = dx + n.x;
    n.ay = dy + n.y;
    if (n.kind !== "root") boxes.push(n);
    if (!n.open) return;
    for (const l of n.lines) {
      const points = l.points.map(p => ({ x: p.x + n.ax, y: p.y + n.ay }));
      const xs = points.map(p => p.x), ys = points.map(p => p.y);
      lines.push({ ...l, points, box: [Math.min(...xs) - 40, Math.min(...ys), Math.max(...xs) + 40, Math.max(...ys)] });
    }
    for (const c of n.children) walk(c, n.ax, n.ay);
  };
  walk(tree.root, 0, 0);
  return { tree, boxes, lines, w: tree.root.w, h: tree.root.h };
}
