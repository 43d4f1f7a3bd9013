view("layers", "Layers", () => D.model, (box) => {
  const nodes = M.nodes.filter((node) => node.sqnr !== null || node.own !== null || node.state !== 2 || node.in.length);
  const measured = D.measured.layers;
  add(box, el("p", {}, measured ? "In the order of the graph, on sample" + (measured.samples.length > 1 ? "s " : " ") + measured.samples.join(", ") + ", against " + measured.against + "." :
    "The noise of layers was not measured in this run; bars are what the rounding of weights costs. To measure it:"));
  if (!measured) add(box, copyLine(D.commands.noise));
  add(box, [layerChart(nodes), el("div", {}, key("var(--accent)", "noise of everything so far (line)"), key("var(--own)", "noise of the layer's own quantizers (bars)"), key("var(--float)", "float"))]);
  add(box, table([
    {title: "layer", value: (n) => n.name, width: measuredTimes() ? "27%" : "34%"}, {title: "op", value: (n) => n.op, width: "11%"}, {title: "format", value: (n) => n.format}, {title: "so far", number: true, value: (n) => n.sqnr, text: (n) => n.sqnr === null ? "" : db(n.sqnr)},
    {title: "own", number: true, value: (n) => n.own, text: (n) => n.own === null ? "" : db(n.own)}, {title: "clipped", number: true, value: (n) => n.tensor && n.tensor.layer ? n.tensor.layer.clipped : null, text: (n) => n.tensor && n.tensor.layer && n.tensor.layer.clipped ? percent(num(n.tensor.layer.clipped)) : ""},
    ...(measuredTimes() ? [{title: "float ms", number: true, value: (n) => n.times && n.times[0], text: (n) => n.times && n.times[0] !== null ? ms(n.times[0]) : ""}, {title: "ms", number: true, value: (n) => n.times && n.times[1], text: (n) => n.times && n.times[1] !== null ? ms(n.times[1]) : ""}] : []),
    {title: "MACs", number: true, value: (n) => n.macs, text: (n) => n.macs ? big(n.macs) : ""}], nodes, {open: showNode, label: "Layers"}));
});

// Noise in dB below the signal, upwards is worse.
function layerChart(nodes) {
  const floor = 70, value = (sqnr) => sqnr === null || sqnr === undefined ? null : -Math.max(-10, Math.min(floor, sqnr));
  const all = nodes.flatMap((node) => [value(node.sqnr), value(node.own)]).filter((one) => one !== null);
  if (!all.length) return el("p", {class: "muted"}, "Nothing was measured that a chart could show.");
  const low = Math.min(-30, ...bounds(all, Math.min)), high = Math.max(0, ...bounds(all, Math.max));
  let across = null, mark = -1;
  const text = (node) => node.name + "\n" + node.op + (node.sqnr === null ? "" : "\nso far " + db(node.sqnr)) + (node.own === null ? "" : "\nown " + db(node.own)) + (node.state === 2 ? "\nfloat: " + node.reason : "");
  return plot({height: 260, label: "Noise of " + nodes.length + " layers in the order of the graph; arrow keys move, Enter opens",
    draw(ctx, w, h) {
      across = new Axis(0, nodes.length, 52, w - 6);
      const up = new Axis(low, high, h - 20, 8), wide = across.at(1) - across.at(0);
      gridY(ctx, up, 52, w - 6, (v) => v + " dB");
      gridX(ctx, across, h - 20, count);
      nodes.forEach((node, i) => {
        const x = across.at(i), own = value(node.own);
        if (node.state === 2) { ctx.fillStyle = color("float"); ctx.globalAlpha = 0.22; ctx.fillRect(x, 8, Math.max(1, wide), h - 28); ctx.globalAlpha = 1; }
        if (own !== null) { ctx.fillStyle = color("own"); ctx.fillRect(x + 0.1 * wide, up.at(own), Math.max(1, 0.8 * wide), Math.max(1, h - 20 - up.at(own))); }
      });
      ctx.strokeStyle = color("accent"); ctx.lineWidth = 1.8; ctx.beginPath();
      let begun = false;
      nodes.forEach((node, i) => { const v = value(node.sqnr); if (v === null || node.sqnr === Infinity) return; const x = across.at(i + 0.5), y = up.at(v); if (begun) ctx.lineTo(x, y); else ctx.moveTo(x, y); begun = true; });
      ctx.stroke();
      if (mark >= 0) { ctx.strokeStyle = color("fg"); ctx.lineWidth = 1; ctx.strokeRect(across.at(mark), 8, Math.max(2, wide), h - 28); }
    },
    at(x) { if (!across) return null; const i = Math.floor(across.back(x)); return nodes[i] ? {text: text(nodes[i]), open: () => showNode(nodes[i])} : null; },
    keys(event) {
      if (event.key === "ArrowRight") mark = Math.min(nodes.length - 1, mark + 1); else if (event.key === "ArrowLeft") mark = Math.max(0, mark - 1); else if (event.key === "Enter" && nodes[mark]) { showNode(nodes[mark]); return true; } else return false;
      say(text(nodes[mark])); return true;
    }});
}

function bounds(values, of) { let found = values[0]; for (const one of values) found = of(found, one); return [found]; }

function measuredTimes() { return D.measured && D.measured.latency && D.measured.latency.engines.some((one) => one.layers.length); }
