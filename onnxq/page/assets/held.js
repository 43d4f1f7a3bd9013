view("held", "Restored layers", () => D.held, (box) => {
  const h = D.held, steps = h.steps, said = (value) => metricText(h.metric, value), restored = h.chosen.restored;
  add(box, el("p", {}, h.demand + ". " + h.metric + " of the float model: " + said(h.float) + "; with everything quantized: " + said(h.quantized) + "; chosen: " + said(h.chosen.value) + " with " + count(restored.length) + " of " + count(h.layers) + " layers in " + (h.fallback === "float" ? "float" : h.fallback + " bits") + (h.chosen.holds ? "." : ", which does not hold.")));
  const points = steps.map((step) => ({step, x: step.restored.length, y: num(step.value)})).filter((one) => Number.isFinite(one.y)), levels = [num(h.float)].filter(Number.isFinite);
  let places = [];
  if (points.length) add(box, [plot({height: 280, label: h.metric + " over the number of restored layers: " + points.map((one) => one.x + ": " + said(one.y)).join("; "),
    draw(ctx, w, hgt) {
      const ys = points.map((one) => one.y).concat(levels), xs = points.map((one) => one.x), room = 0.08 * (Math.max(...ys) - Math.min(...ys)) || 1;
      const across = new Axis(0, Math.max(...xs, 1) * 1.05, 62, w - 10), up = new Axis(Math.min(...ys) - room, Math.max(...ys) + room, hgt - 40, 10);
      gridY(ctx, up, 62, w - 10); gridX(ctx, across, hgt - 40, count);
      ctx.fillStyle = color("muted"); ctx.textAlign = "center"; ctx.fillText("restored layers", (w + 50) / 2, hgt - 14);
      for (const level of levels) { ctx.strokeStyle = color("muted"); ctx.setLineDash([4, 3]); ctx.beginPath(); ctx.moveTo(62, up.at(level)); ctx.lineTo(w - 10, up.at(level)); ctx.stroke(); ctx.setLineDash([]); ctx.textAlign = "right"; ctx.fillText("float", w - 12, up.at(level) + 12); }
      places = points.map((one) => [across.at(one.x), up.at(one.y), one.step]);
      for (const [x, y, step] of places) { ctx.fillStyle = color(step.holds ? "good" : "none"); ctx.beginPath(); ctx.arc(x, y, 5, 0, 7); ctx.fill(); }
    },
    at(x, y) { const near = places.find(([px, py]) => Math.hypot(px - x, py - y) < 12); return near ? {text: said(near[2].value) + (near[2].holds ? " (held)" : "") + "\n" + near[2].restored.length + " layers: " + near[2].restored.slice(0, 6).join(", ") + (near[2].restored.length > 6 ? " ..." : "")} : null; }}), key("var(--good)", "holds"), key("var(--none)", "does not hold")]);
  if (restored.length) add(box, [el("h3", {}, "Restored, the most harmful first"), el("ul", {}, restored.map((name) => el("li", {class: "name"}, name)))]);
  if (h.order.length) add(box, [el("h3", {}, "What each layer costs"), table([{title: "layer", value: (one) => one.name, width: "40%"}, {title: "operator", value: (one) => one.kind}, {title: "SQNR alone", number: true, value: (one) => one.sqnr_db, text: (one) => db(one.sqnr_db)}, {title: h.metric, number: true, value: (one) => one.value, text: (one) => said(one.value)}, {title: "restored", value: (one) => restored.includes(one.name) ? "yes" : ""}], h.order, {label: "What each layer costs"})]);
  add(box, [el("h3", {}, "Evaluated"), plainTable(["restored layers", h.metric, "SQNR", "holds"], steps.map((step) => [count(step.restored.length), said(step.value), db(step.sqnr_db), step.holds ? "yes" : ""]), "Evaluated")]);
});
