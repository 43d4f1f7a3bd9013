// Everything about one node or one tensor, in the panel.

function nodeLink(node, text) { return el("button", {class: "link name", onclick: () => showNode(node)}, text || node.name); }
function tensorLink(tensor, text) { return el("button", {class: "link name", onclick: () => showTensor(tensor)}, text || tensor.name); }

function showNode(node) {
  const rows = [["operator", node.op], ["state", STATES[node.state]], ["formats", node.format === STATES[node.state] ? null : node.format], ["noise so far", node.sqnr === null ? null : db(node.sqnr)], ["its own quantizers", node.own === null ? null : db(node.own)],
    ["multiplications", node.macs ? big(node.macs) : null], ["parameters", node.params ? count(node.params) : null], ["time", node.times ? ms(node.times[0]) + " ms in float, " + ms(node.times[1]) + " ms in the file" + (node.times[2] ? " (" + node.times[2] + ")" : "") : null], ...node.facts()];
  const part = (title, tensors) => tensors.length ? [el("h3", {}, title), el("ul", {}, tensors.map((tensor) => el("li", {}, tensorLink(tensor), tensor.q ? " " + tensor.q.format.split(",")[0] : " float")))] : [];
  openPanel(node.name || node.op, pairs(rows), part("reads", node.in), part("makes", node.out), node.state === 2 ? null : [el("h3", {}, "to leave it float"), copyLine((D.verdict && !D.verdict.trained ? D.verdict.again + " " : "") + "--skip " + quoted(node.name))],
    el("p", {}, el("a", {href: "#graph/" + encodeURIComponent(node.name)}, "show in the graph")));
}

function quoted(text) { return /^[\w./:@%+=-]+$/.test(text) ? text : "'" + text.replace(/'/g, "'\\''") + "'"; }

function showTensor(tensor) {
  const range = rangeOf(tensor), layer = tensor.layer || {}, observed = tensor.observed || {};
  const rows = [["kind", tensor.constant ? "constant" : "computed"], ["noise so far", layer.sqnr_db === undefined ? null : db(layer.sqnr_db)], ["its own quantizer", layer.own_db !== undefined ? db(layer.own_db) : tensor.weight && tensor.weight.own_db !== null ? db(tensor.weight.own_db) : null],
    ["seen", range ? sig(range[0]) + " .. " + sig(range[1]) : null], ["holds", tensor.q && tensor.q.low !== null ? sig(tensor.q.low) + " .. " + sig(tensor.q.high) : null], ["step", tensor.q && tensor.q.step ? sig(tensor.q.step) : null],
    ["clipped", layer.clipped === undefined ? null : percent(num(layer.clipped))], ["range set by", peakText(observed)], ...tensor.facts()];
  if (!tensor.q) rows.push(["float", "it has no quantizer"]);
  openPanel(tensor.name, pairs(rows), histogramOf(tensor) ? [el("h3", {}, "histogram"), histogramChart(tensor)] : null, tensor.weight ? [el("h3", {}, "range of each channel"), channelChart(tensor)] : null,
    tensor.maker ? el("p", {}, "made by ", nodeLink(tensor.maker)) : null, tensor.readers.length ? el("p", {}, "read by ", tensor.readers.slice(0, 12).map((node, i) => [i ? ", " : "", nodeLink(node)]), tensor.readers.length > 12 ? " and " + (tensor.readers.length - 12) + " more" : "") : null);
}

function peakText(observed) {
  const peaks = observed.peaks || [];
  if (!peaks.length) return null;
  return "sample " + peaks[0][1] + " (" + sig(peaks[0][0]) + ")" + (peaks.length > 1 ? ", then sample " + peaks[1][1] + " (" + sig(peaks[1][0]) + ")" : "");
}

// Counts on a logarithmic scale, with the ends of the format as lines and its step as a mark.
function histogramChart(tensor, height) {
  const h = histogramOf(tensor), q = tensor.q || {}, counts = h.counts, low = num(h.low), high = num(h.high), total = counts.reduce((a, b) => a + b, 0);
  const lines = [q.low, q.high].filter((one) => one !== null && one !== undefined).map(num), seen = rangeOf(tensor);
  const left = Math.min(low, ...lines, seen ? seen[0] : low), right = Math.max(high, ...lines, seen ? seen[1] : high), most = Math.log10(Math.max(...counts, 1) + 1);
  let axis = null;
  const width = (high - low) / counts.length || 1;
  return plot({height: height || 180, label: "Histogram of " + tensor.name + ": from " + sig(low) + " to " + sig(high) + (lines.length ? ", the format holds " + sig(lines[0]) + " to " + sig(lines[lines.length - 1]) : ""),
    draw(ctx, w, hgt) {
      axis = new Axis(left, right, 8, w - 8);
      const base = hgt - 24;
      gridX(ctx, axis, base);
      ctx.fillStyle = color("bar");
      counts.forEach((n, i) => { if (!n) return; const x = axis.at(low + i * width), y = Math.log10(n + 1) / most * (base - 22); ctx.fillRect(x, base - y, Math.max(1, axis.at(low + (i + 1) * width) - x - 0.5), y); });
      ctx.textBaseline = "top";
      lines.forEach((value, i) => { const x = axis.at(value); ctx.strokeStyle = color("bad"); ctx.setLineDash([4, 3]); ctx.beginPath(); ctx.moveTo(x, 4); ctx.lineTo(x, base); ctx.stroke(); ctx.setLineDash([]); ctx.fillStyle = color("bad"); ctx.textAlign = i ? "right" : "left"; ctx.fillText("clip", x + (i ? -4 : 4), 4); });
      if (q.step && q.scales === 1) { const x0 = axis.at(0), x1 = axis.at(num(q.step)), wide = Math.max(1, x1 - x0); ctx.fillStyle = color("float"); ctx.fillRect(Math.max(8, Math.min(x0, w - 8 - wide)), base + 1, wide, 3); }
    },
    at(x) { if (!axis) return null; const i = Math.floor((axis.back(x) - low) / width); if (i < 0 || i >= counts.length) return null; return {text: sig(low + i * width) + " .. " + sig(low + (i + 1) * width) + ": " + percent(counts[i] / total)}; }});
}

function channelsOf(tensor) {
  const w = tensor.weight;
  if (typeof w.low === "string") { w.low = unpackNumbers(w.low); w.high = unpackNumbers(w.high); }
  return [w.low, w.high];
}

// The range of every channel of a weight; dead channels are marked at the foot.
function channelChart(tensor, height) {
  const w = tensor.weight, [lows, highs] = channelsOf(tensor), many = lows.length;
  const dead = new Set([...w.zero, ...w.vanishing].map((channel) => Math.floor(channel / w.together)));
  let across = null;
  const text = (i) => (w.together > 1 ? "channels " + i * w.together + " .. " + Math.min(w.channels - 1, (i + 1) * w.together - 1) : "channel " + i) + ": " + sig(lows[i], 3) + " .. " + sig(highs[i], 3) + (w.step ? ", step " + sig(w.step) : "") + (dead.has(i) ? (w.zero.includes(i) ? "\nall zero" : "\nless than half a step: rounds to zero") : "");
  const chart = plot({height: height || 160, label: "Range of each of " + w.channels + " channels of " + tensor.name + ", " + (w.zero.length + w.vanishing.length) + " of them dead",
    draw(ctx, wide, high) {
      across = new Axis(0, many, 52, wide - 6);
      const up = new Axis(Math.min(...lows, 0), Math.max(...highs, 0), high - 22, 6);
      gridY(ctx, up, 52, wide - 6);
      gridX(ctx, new Axis(0, w.channels, 52, wide - 6), high - 20, count);
      for (let i = 0; i < many; i++) { const x = across.at(i), width = Math.max(1, across.at(i + 1) - x - 0.6), top = up.at(highs[i]); ctx.fillStyle = dead.has(i) ? color("bad") : color("bar"); ctx.fillRect(x, top, width, Math.max(1, up.at(lows[i]) - top)); if (dead.has(i)) ctx.fillRect(x, high - 24, Math.max(2, width), 4); }
    },
    at(x) { if (!across) return null; const i = Math.floor(across.back(x)); return i >= 0 && i < many ? {text: text(i)} : null; }});
  const gone = w.zero.length + w.vanishing.length;
  return el("div", {}, chart, gone ? el("p", {}, light("look"), " " + count(gone) + " of " + count(w.channels) + " channels are dead: " + [...w.zero, ...w.vanishing].slice(0, 20).join(", ") + (gone > 20 ? " ..." : "")) : null);
}
