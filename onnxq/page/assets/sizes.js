view("sizes", "Size and time", () => D.model, (box) => {
  const written = D.files.find((file) => file.name.endsWith(".onnx") && file.bytes), sizes = D.model.bytes;
  const rows = [["float model, its file", (D.measured.float_file || null)], ["float constants", sizes.float], ["written model" + (written ? " (" + written.name + ")" : ""), written ? written.bytes : null], ["constants on the chip, estimated", sizes.chip]].filter((row) => row[1]);
  const most = Math.max(...rows.map((row) => row[1]), 1);
  add(box, rows.map(([name, value]) => [el("p", {style: "margin:.5rem 0 0"}, name + ": ", el("strong", {}, bytes(value)), value < most ? " (" + (value / most).toFixed(2) + "×)" : ""), plot({height: 16, label: name + " " + bytes(value), draw(ctx, w, h) { ctx.fillStyle = color("bar"); ctx.fillRect(0, 2, w * value / most, h - 4); }})]));
  add(box, el("p", {class: "muted"}, "The estimate counts the numbers of quantized constants in their formats with scales and zero points, float ones as they are; a vendor's compiler may pack them otherwise."));
  if (D.report.speed) add(box, speedHere(D.report.speed));
  if (D.measured.latency) for (const engine of D.measured.latency.engines) add(box, latencyOf(engine));
  if (D.report.kernels) add(box, [el("h3", {}, "Kernels of onnxruntime here"), pairs(Object.entries(D.report.kernels).map(([kind, counts]) => [kind === "converted" ? "float between integers" : kind, kind === "converted" ? convertedNodes(counts) : Object.entries(counts).map(([name, n]) => n + " " + name).join(", ") || "none"]))]);
  add(box, [el("h3", {}, "Seconds of the run"), pairs(Object.entries(D.report.seconds || {}).map(([stage, value]) => [stage, Number(value).toFixed(2)]))]);
});

// The file beside the float model, as the run has timed both.
function speedHere(speed) {
  return [el("h3", {}, "Time in onnxruntime here"), pairs([["float model", ms(speed.float_ms) + " ms"], ["written model", ms(speed.file_ms) + " ms"], ["times as fast", sig(speed.times_as_fast, 3) + (speed.quartiles ? " (" + speed.quartiles.map((one) => sig(one, 3)).join(" .. ") + " in half of " + count(speed.rounds) + " rounds)" : "")]]),
    D.measured.latency ? null : [el("p", {}, "For the time of each layer, on this page too:"), copyLine(D.commands.latency)]];
}

// Times of the float model and of the file in one engine, layer by layer.
function latencyOf(engine) {
  const between = (one) => ms(one.low) + " .. " + ms(one.high), ratio = engine.times_as_fast, rows = engine.layers.map(([node, before, after, kernels, inserted]) => ({node, before, after, kernels, inserted, own: inserted ? null : M.byNode.get(node) || null}));
  const parts = [el("h3", {}, "Latency in " + engine.engine), el("p", {class: "muted"}, engine.title), pairs([["float model", ms(engine.float.median) + " ms (" + between(engine.float) + ")"], ["written model", ms(engine.file.median) + " ms (" + between(engine.file) + ")"], ["times as fast", ratio && sig(ratio.median, 3) + " (" + sig(ratio.low, 3) + " .. " + sig(ratio.high, 3) + ")"]])];
  if (rows.length) parts.push(latencyChart(rows, engine), el("div", {}, key("var(--own)", "float model"), key("var(--accent)", "written model")), table([{title: "layer", value: (one) => (one.inserted ? "(by " + engine.engine + ") " : "") + one.node, width: "34%", node: (one) => one.own ? nodeLink(one.own) : (one.inserted ? "(by " + engine.engine + ") " : "") + one.node},
    {title: "operator", value: (one) => one.own ? one.own.op : ""}, {title: "float ms", number: true, value: (one) => one.before, text: (one) => one.before === null ? "" : ms(one.before)}, {title: "ms", number: true, value: (one) => one.after, text: (one) => one.after === null ? "" : ms(one.after)},
    {title: "times as fast", number: true, value: (one) => one.before && one.after ? one.before / one.after : null, text: (one) => one.before && one.after ? sig(one.before / one.after, 3) : ""}, {title: "kernels", value: (one) => one.kernels || ""}], rows, {label: "Latency of layers in " + engine.engine, sort: {column: 3, down: true}}));
  if (engine.stayed_float.length) parts.push(el("h3", {}, "Kernels that stayed float"), plainTable(["ms", "layer", "kernel", "why"], engine.stayed_float.map((one) => [ms(one.ms), M.byNode.get(one.node) ? nodeLink(M.byNode.get(one.node)) : el("span", {class: "name"}, one.node), one.kernels.join(", "), one.why]), "Kernels that stayed float"));
  return parts;
}

// Two bars for each of the slowest layers.
function latencyChart(rows, engine) {
  const slowest = rows.slice().sort((a, b) => Math.max(b.before || 0, b.after || 0) - Math.max(a.before || 0, a.after || 0)).slice(0, 16), most = Math.max(...slowest.map((one) => Math.max(one.before || 0, one.after || 0)), 1e-9);
  return plot({height: 12 + 34 * slowest.length, label: "The slowest layers: " + slowest.map((one) => one.node + " " + ms(one.before) + " ms in float, " + ms(one.after) + " ms in the file").join("; "),
    draw(ctx, w, h) {
      slowest.forEach((one, i) => {
        const y = 4 + 34 * i;
        ctx.fillStyle = color("fg"); ctx.textAlign = "left"; ctx.textBaseline = "top"; ctx.fillText(cut(ctx, (one.inserted ? "(by " + engine.engine + ") " : "") + one.node, w - 16), 2, y);
        [[one.before, "own"], [one.after, "accent"]].forEach(([value, tint], bar) => { ctx.fillStyle = color(tint); ctx.fillRect(2, y + 15 + 7 * bar, Math.max(value ? 1 : 0, (w - 6) * (value || 0) / most), 6); });
      });
    },
    at(x, y) { const one = slowest[Math.floor((y - 4) / 34)]; return one ? {text: one.node + "\nfloat " + ms(one.before) + " ms\nfile " + ms(one.after) + " ms" + (one.kernels ? "\n" + one.kernels : ""), open: one.own ? () => showNode(one.own) : null} : null; }});
}

// Nodes that compute in float between integer kernels: by operator, each with its reason on request.
function convertedNodes(found) {
  const nodes = Object.entries(found), by = new Map();
  for (const [, one] of nodes) by.set(one.op, (by.get(one.op) || 0) + 1);
  if (!nodes.length) return "none";
  const row = ([name, one]) => [M.byNode.get(name) ? nodeLink(M.byNode.get(name)) : el("span", {class: "name"}, name), one.op, one.why];
  return el("details", {ontoggle: (event) => { const box = event.target; if (box.open && !box.querySelector("table")) box.append(plainTable(["node", "operator", "why"], nodes.map(row), "Nodes in float between integers")); }},
    el("summary", {}, [...by].map(([op, n]) => n + " " + op).join(", ")));
}
