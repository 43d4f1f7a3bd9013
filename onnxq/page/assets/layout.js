// A layered layout: every node below those that it reads, near the middle of them.

const LANE = 176, RANK = 78, WIDE = 156, TALL = 50;

function layoutGraph(nodes) {
  const rank = new Map(), edges = [];
  for (const node of nodes) {
    let deepest = -1;
    for (const tensor of node.in) if (tensor.maker && rank.has(tensor.maker)) { deepest = Math.max(deepest, rank.get(tensor.maker)); edges.push([tensor.maker, node, tensor]); }
    rank.set(node, deepest + 1);
  }
  // What reads nothing stands right above its first reader.
  for (const node of nodes) if (!node.in.some((tensor) => tensor.maker)) {
    const below = node.out.flatMap((tensor) => tensor.readers).map((reader) => rank.get(reader)).filter((one) => one !== undefined);
    if (below.length) rank.set(node, Math.max(0, below.reduce((a, b) => Math.min(a, b)) - 1));
  }
  const ranks = [];
  for (const node of nodes) (ranks[rank.get(node)] = ranks[rank.get(node)] || []).push(node);
  const x = new Map();
  const wish = (node, near) => { const found = near(node).map((other) => x.get(other)).filter((one) => one !== undefined); return found.length ? found.reduce((a, b) => a + b, 0) / found.length : null; };
  const above = (node) => node.in.map((tensor) => tensor.maker).filter(Boolean), below = (node) => node.out.flatMap((tensor) => tensor.readers);
  const place = (row, near) => {
    if (!row) return;
    const wanted = row.map((node, i) => { const own = wish(node, near); return {node, at: own === null ? (x.has(node) ? x.get(node) : i) : own}; }).sort((a, b) => a.at - b.at);
    let last = -Infinity, shift = 0;
    for (const one of wanted) { one.to = Math.max(one.at, last + 1); last = one.to; shift += one.at - one.to; }
    shift /= wanted.length;
    for (const one of wanted) x.set(one.node, one.to + shift);
  };
  for (const row of ranks) place(row, above);
  for (const row of ranks.slice().reverse()) place(row, below);
  for (const row of ranks) place(row, above);
  let left = Infinity, right = -Infinity;
  for (const value of x.values()) { left = Math.min(left, value); right = Math.max(right, value); }
  const boxes = nodes.map((node) => ({node, x: (x.get(node) - left) * LANE, y: rank.get(node) * RANK})), of = new Map(boxes.map((box) => [box.node, box]));
  boxes.sort((a, b) => a.y - b.y);
  return {boxes, of, edges: edges.map(([from, to, tensor]) => ({from: of.get(from), to: of.get(to), tensor})), width: (right - left) * LANE + WIDE, height: ranks.length * RANK};
}
