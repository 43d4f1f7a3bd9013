// The columns of the data as nodes and tensors that know each other.

const M = {nodes: [], tensors: [], byNode: new Map(), byTensor: new Map(), groups: []};
const STATES = ["quantized", "fused", "float"];

function readModel() {
  const model = D.model;
  if (!model) return;
  const texts = model.texts, measured = D.measured || {}, layers = (measured.layers || {}).tensors || {}, macs = measured.macs || null, timed = readLatency(measured.latency), constant = new Set(model.tensors.constant);
  const facts = (list) => { const found = []; for (let i = 0; i < list.length; i += 2) found.push([texts[list[i]], texts[list[i + 1]]]); return found; };
  M.tensors = model.tensors.name.map((name, i) => {
    const q = model.tensors.quantizer[i];
    const tensor = {i, name, constant: constant.has(i), maker: null, readers: [], q: q && {role: texts[q[0]], format: texts[q[1]], why: texts[q[2]], low: q[3], high: q[4], step: q[5], scales: q[6], tie: q[7], from: texts[q[8]], bits: q[9]},
      observed: (measured.observed || {})[name] || null, layer: layers[name] || null, weight: model.weights[name] || null, facts: () => facts(model.tensors.facts[i])};
    M.byTensor.set(name, tensor);
    return tensor;
  });
  const n = model.nodes;
  M.nodes = n.name.map((name, i) => {
    const node = {i, name, op: texts[n.op[i]], state: n.state[i], reason: texts[n.reason[i]], in: n.in[i].map((t) => M.tensors[t]), out: n.out[i].map((t) => M.tensors[t]), params: n.params[i], macs: macs ? macs[name] || 0 : null, times: timed.get(name) || null, facts: () => facts(n.facts[i])};
    for (const tensor of node.out) tensor.maker = node;
    for (const tensor of node.in) tensor.readers.push(node);
    M.byNode.set(name, node);
    return node;
  });
  for (const node of M.nodes) {
    const made = node.out.find((tensor) => tensor.layer && tensor.layer.sqnr_db !== undefined);
    node.sqnr = made ? num(made.layer.sqnr_db) : null;
    node.tensor = made || node.out[0] || null;
    node.own = ownNoise(node);
    node.format = formatOf(node);
  }
  const leaders = new Map();
  for (const tensor of M.tensors) if (tensor.q && tensor.q.tie) {
    if (!leaders.has(tensor.q.tie)) leaders.set(tensor.q.tie, []);
    leaders.get(tensor.q.tie).push(tensor);
  }
  M.groups = [...leaders].map(([name, members]) => ({leader: M.byTensor.get(name), members: [M.byTensor.get(name), ...members].filter(Boolean)})).filter((group) => group.leader);
}

// Node -> [ms of the float model, ms of the file, kernels], in the first engine that was measured.
function readLatency(latency) {
  const found = new Map();
  for (const [node, before, after, kernels, inserted] of latency ? latency.engines[0].layers : []) if (!inserted) found.set(node, [before, after, kernels]);
  return found;
}

// What the quantizers of a layer add by themselves: of its weight and of its result, as a part of the signal. A float
// node makes what others read quantized.
function ownNoise(node) {
  const parts = [];
  for (const tensor of node.in) if (tensor.constant && tensor.weight && tensor.weight.own_db !== null && tensor.weight.own_db !== undefined) parts.push(power(tensor.weight.own_db));
  for (const tensor of node.out) if (tensor.layer && tensor.layer.own_db !== undefined) parts.push(power(tensor.layer.own_db));
  return parts.length ? fromPower(parts.reduce((a, b) => a + b, 0)) : null;
}

function formatOf(node) {
  if (node.state === 2) return "float";
  const weight = node.in.find((tensor) => tensor.constant && tensor.q && tensor.q.role === "weight"), data = node.in.find((tensor) => !tensor.constant && tensor.q) || node.out.find((tensor) => tensor.q);
  const said = [weight, data].filter(Boolean).map((tensor) => tensor.q.format.split(",")[0]);
  return said.length ? [...new Set(said)].join(" × ") : STATES[node.state];
}

// Lowest and highest value that were seen of a tensor.
function rangeOf(tensor) {
  if (tensor.observed) return [num(tensor.observed.low), num(tensor.observed.high)];
  const histogram = histogramOf(tensor);
  return histogram ? [num(histogram.low), num(histogram.high)] : null;
}

function histogramOf(tensor) {
  return (tensor.observed && tensor.observed.histogram) || (tensor.layer && tensor.layer.histogram) || (tensor.weight && tensor.weight.histogram) || null;
}

const LOST_STEPS = 4;
// Members of a tie that the shared step leaves hardly any numbers.
function lostMembers(group) {
  const step = group.leader.q.step;
  if (!step) return [];
  return group.members.filter((member) => { const range = rangeOf(member); return range && range[1] > range[0] && (range[1] - range[0]) / step < LOST_STEPS; });
}

// What the quantizer of a tensor itself holds: runs of early versions have not kept what was seen.
function heldRange(tensor) { return tensor.q && tensor.q.scales === 1 && num(tensor.q.low) !== null ? [num(tensor.q.low), num(tensor.q.high)] : null; }

// What a Concat joins into a tensor whose step leaves one of the parts hardly any numbers.
function lostInJoins() {
  const found = [];
  for (const node of M.nodes) {
    const made = node.out[0], step = made && made.q ? num(made.q.step) : null;
    if (node.op !== "Concat" || !step) continue;
    for (const tensor of node.in) { const range = rangeOf(tensor) || heldRange(tensor); if (range && range[1] > range[0] && (range[1] - range[0]) / step < LOST_STEPS) found.push({node, tensor, range, step}); }
  }
  return found.sort((a, b) => (a.range[1] - a.range[0]) / a.step - (b.range[1] - b.range[0]) / b.step);
}

// The node that makes a group share its scale.
function joinOf(group) {
  const set = new Set(group.members);
  return M.nodes.find((node) => node.in.filter((tensor) => set.has(tensor)).length > 1) || M.nodes.find((node) => node.in.some((tensor) => set.has(tensor)) && node.out.some((tensor) => set.has(tensor))) || null;
}
