view("front", "Front", () => D.front, (box) => {
  const f = D.front, measures = {bytes: ["bytes of weights", (p) => p.bytes, bytes], bits: ["mean bits of weights", (p) => p.mean_bits, (v) => sig(v, 4)], bit_operations: ["bit operations", (p) => p.bit_operations, big]};
  const [unit, cost, said] = measures[f.measure] || measures.bytes, value = (p) => num(p.value), points = f.points.filter((p) => Number.isFinite(value(p))), front = f.front.filter((p) => Number.isFinite(value(p)));
  const same = (a, b) => a.bytes === b.bytes && a.value === b.value && a.origin === b.origin;
  add(box, el("p", {}, f.goal + ". " + (f.against_float ? "Chosen: " : f.metric + " of the float model: " + metricText(f.metric, f.float) + "; chosen: ") + metricText(f.metric, f.chosen.value) + " at " + said(cost(f.chosen)) + "."));
  let places = [];
  const chart = plot({height: 340, label: f.metric + " over " + unit + ": " + front.map((p) => said(cost(p)) + " " + sig(p.value)).join("; "),
    draw(ctx, w, h) {
      const xs = points.map(cost), ys = points.map(value), roomX = 0.06 * (bounds(xs, Math.max)[0] - bounds(xs, Math.min)[0]), roomY = 0.08 * (bounds(ys, Math.max)[0] - bounds(ys, Math.min)[0]);
      const across = new Axis(bounds(xs, Math.min)[0] - roomX, bounds(xs, Math.max)[0] + roomX, 62, w - 26), up = new Axis(bounds(ys, Math.min)[0] - roomY, bounds(ys, Math.max)[0] + roomY, h - 40, 10);
      gridY(ctx, up, 62, w - 10); gridX(ctx, across, h - 40, said);
      ctx.fillStyle = color("muted"); ctx.textAlign = "center"; ctx.fillText(unit, (w + 50) / 2, h - 14);
      ctx.strokeStyle = color("accent"); ctx.lineWidth = 1.6; ctx.beginPath();
      front.forEach((p, i) => i ? ctx.lineTo(across.at(cost(p)), up.at(value(p))) : ctx.moveTo(across.at(cost(p)), up.at(value(p)))); ctx.stroke();
      places = [];
      for (const p of [...points.filter((one) => !same(one, f.chosen)), ...points.filter((one) => same(one, f.chosen))]) { const on = front.some((q) => same(p, q)), chosen = same(p, f.chosen), x = across.at(cost(p)), y = up.at(value(p)); ctx.fillStyle = chosen ? color("float") : on ? color("accent") : color("none"); ctx.globalAlpha = on || chosen ? 1 : 0.5; ctx.beginPath(); ctx.arc(x, y, chosen ? 6 : on ? 4.5 : 3, 0, 7); ctx.fill(); ctx.globalAlpha = 1; places.push([x, y, p, on]); }
      const label = (p) => (same(p, f.chosen) ? "chosen, " : "") + sig(p.mean_bits, 3) + " bits";
      labelPoints(ctx, places.filter((one) => one[3]).sort((a, b) => same(b[2], f.chosen) - same(a[2], f.chosen) || a[0] - b[0]).map(([x, y, p]) => [x, y, label(p)]), {left: 62, right: w, top: 0, bottom: h - 40});
    },
    at(x, y) { let best = null, near = 14; for (const [px, py, p] of places) { const d = Math.hypot(px - x, py - y); if (d < near) { near = d; best = p; } } return best ? {text: sig(best.value, 5) + "\n" + bytes(best.bytes) + ", " + sig(best.mean_bits, 4) + " mean bits, " + big(best.bit_operations) + " bit operations\n" + best.origin} : null; }});
  add(box, [chart, key("var(--float)", "chosen"), key("var(--accent)", "front"), key("var(--none)", "others that were judged")]);
  add(box, [el("h3", {}, "The front"), plainTable(["choice", f.metric, "bytes of weights", "mean bits", "bit operations", "found as"], front.map((p) => [same(p, f.chosen) ? "chosen" : "", sig(p.value, 5), count(p.bytes), sig(p.mean_bits, 4), big(p.bit_operations), p.origin]), "The front")]);
  const bits = f.chosen.bits || {};
  add(box, [el("h3", {}, "Bits of each layer"), table([{title: "tensor", value: (v) => v.name, width: "34%"}, {title: "kind", value: (v) => v.kind}, {title: "chosen bits", number: true, value: (v) => bits[v.name]}, {title: "loss alone", value: (v) => Object.entries(v.loss_alone).map(([n, loss]) => n + " bits: " + sig(loss, 3)).join(", "), width: "34%"}], f.variables, {label: "Bits of each layer"})]);
});

// Texts beside points, the first ones first: where they hide no other text and no point, else not at all. A front
// rises, so that above and to the left, and below and to the right, there is no line.
function labelPoints(ctx, points, frame) {
  const taken = points.map(([x, y]) => [x - 5, y - 5, x + 5, y + 5]), high = 13;
  ctx.textAlign = "left"; ctx.textBaseline = "top"; ctx.fillStyle = color("fg");
  for (const [x, y, text] of points) {
    const wide = ctx.measureText(text).width;
    for (const [left, top] of [[x - wide - 6, y - high - 6], [x + 7, y + 5], [x - wide / 2, y - high - 9], [x - wide / 2, y + 9]]) {
      const box = [left, top, left + wide, top + high];
      if (box[0] < frame.left || box[2] > frame.right || box[1] < frame.top || box[3] > frame.bottom) continue;
      if (taken.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1])) continue;
      ctx.fillText(text, left, top); taken.push(box); break;
    }
  }
}
