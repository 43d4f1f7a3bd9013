view("coverage", "Coverage", () => D.model, (box) => {
  const sum = (of, states) => M.nodes.filter((node) => states.includes(node.state)).reduce((total, node) => total + of(node), 0);
  const known = D.measured.macs !== null && D.measured.macs !== undefined;
  const measures = [["nodes", () => 1], ["parameters", (node) => node.params], ...(known ? [["multiplications", (node) => node.macs || 0]] : [])];
  add(box, el("div", {}, measures.map(([name, of]) => {
    const parts = [sum(of, [0]), sum(of, [1]), sum(of, [2])], total = parts[0] + parts[1] + parts[2];
    return [el("h3", {}, name + ": " + (total ? percent((parts[0] + parts[1]) / total) : "none") + " quantized"), shareBar(parts, total, name), el("p", {class: "muted"}, ["quantized", "fused into them", "float"].map((label, i) => big(parts[i]) + " " + label).join(", "))];
  })));
  if (!known) add(box, el("p", {class: "muted"}, "Multiplications are not known: the model states no shapes, and it was not run for the page. 'onnxq report' with data (-d) counts them."));
  const reasons = new Map();
  for (const node of M.nodes) if (node.state === 2) { const text = node.reason.replace(/'[^']*'/g, "'...'") || "no reason is stored"; if (!reasons.has(text)) reasons.set(text, []); reasons.get(text).push(node); }
  if (reasons.size) add(box, [el("h3", {}, "Why nodes stay float"), plainTable(["nodes", "reason", "such as"], [...reasons].sort((a, b) => b[1].length - a[1].length).map(([text, nodes]) => [count(nodes.length), nodes.length === 1 ? nodes[0].reason || text : text, nodes.slice(0, 3).map((node, i) => [i ? ", " : "", nodeLink(node)])]), "Reasons")]);
  const islands = floatIslands();
  if (islands.length) add(box, [el("h3", {}, "Float islands"), el("p", {}, "Float nodes that hang together; every edge into one and out of one is a conversion."), table([{title: "first node", value: (one) => one.nodes[0].name, width: "34%"}, {title: "nodes", number: true, value: (one) => one.nodes.length, text: (one) => count(one.nodes.length)}, {title: "operators", value: (one) => one.ops}, {title: "MACs", number: true, value: (one) => one.macs, text: (one) => one.macs ? big(one.macs) : ""}, {title: "reason", value: (one) => one.nodes[0].reason}], islands, {open: (one) => showNode(one.nodes[0]), label: "Float islands"})]);
  const ops = new Map();
  for (const node of M.nodes) { if (!ops.has(node.op)) ops.set(node.op, [0, 0, 0]); ops.get(node.op)[node.state]++; }
  add(box, [el("h3", {}, "By operator"), plainTable(["operator", "quantized", "fused", "float"], [...ops].sort((a, b) => b[1][0] + b[1][1] + b[1][2] - a[1][0] - a[1][1] - a[1][2]).map(([op, counts]) => [op || "(merged by passes)", ...counts.map((n) => n || "")]), "By operator")]);
});

function shareBar(parts, total, name) {
  return plot({height: 26, label: name + ": " + ["quantized", "fused", "float"].map((label, i) => label + " " + percent(total ? parts[i] / total : 0)).join(", "),
    draw(ctx, w, h) { let x = 0; [color("f0"), color("bar"), color("float")].forEach((fill, i) => { const wide = total ? w * parts[i] / total : 0; ctx.fillStyle = fill; ctx.fillRect(x, 2, wide, h - 6); x += wide; }); }});
}

function floatIslands() {
  const seen = new Set(), found = [];
  for (const start of M.nodes) {
    if (start.state !== 2 || seen.has(start)) continue;
    const nodes = [], wait = [start];
    seen.add(start);
    while (wait.length) {
      const node = wait.pop();
      nodes.push(node);
      for (const next of [...node.in.map((t) => t.maker), ...node.out.flatMap((t) => t.readers)]) if (next && next.state === 2 && !seen.has(next)) { seen.add(next); wait.push(next); }
    }
    nodes.sort((a, b) => a.i - b.i);
    found.push({nodes, ops: [...new Set(nodes.map((node) => node.op))].join(", "), macs: nodes.reduce((sum, node) => sum + (node.macs || 0), 0)});
  }
  return found.sort((a, b) => b.macs - a.macs || b.nodes.length - a.nodes.length);
}
