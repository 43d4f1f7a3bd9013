view("training", "Training", () => D.training && D.training.step, (box) => {
  const t = D.training, training = (D.report || {}).training || {};
  add(box, pairs([["steps", training.steps], ["epochs", training.epochs], ["batch", training.batch_size], ["metric", training.metric], ["best", training.best_epoch === undefined ? null : "epoch " + training.best_epoch]]));
  add(box, [el("h3", {}, "loss"), curve(t.step, [["loss", t.loss, "accent"], ["labels", t.label, "f2"], ["float model as teacher", t.distill, "f1"]].filter((one) => one[1] && one[1].some((v) => v !== null)), "loss")]);
  if (t.metric && t.metric.some((v) => v !== null)) add(box, [el("h3", {}, training.metric || "metric"), curve(t.step, [[training.metric || "metric", t.metric, "float"]], training.metric || "metric")]);
  if (t.lr && t.lr.some((v) => v !== null)) add(box, [el("h3", {}, "learning rate"), curve(t.step, [["learning rate", t.lr, "muted"]], "learning rate")]);
});

// Lines over the same steps.
function curve(steps, lines, name) {
  const all = lines.flatMap(([, values]) => values.filter((v) => v !== null));
  if (!all.length) return el("p", {class: "muted"}, "no values");
  let across = null;
  const chart = plot({height: 220, label: name + " over " + count(steps[steps.length - 1]) + " steps: from " + sig(all[0]) + " to " + sig(all[all.length - 1]),
    draw(ctx, w, h) {
      const low = bounds(all, Math.min)[0], high = bounds(all, Math.max)[0], room = 0.05 * (high - low) || Math.abs(high) * 0.05 || 1;
      across = new Axis(0, bounds(steps, Math.max)[0] || 1, 60, w - 8);
      const up = new Axis(low - room, high + room, h - 22, 8);
      gridY(ctx, up, 60, w - 8); gridX(ctx, across, h - 22, count);
      for (const [, values, tint] of lines) {
        ctx.strokeStyle = ctx.fillStyle = color(tint); ctx.lineWidth = 1.6; ctx.beginPath();
        const points = values.map((v, i) => v === null ? null : [across.at(steps[i]), up.at(v)]).filter(Boolean);
        points.forEach(([x, y], i) => i ? ctx.lineTo(x, y) : ctx.moveTo(x, y)); ctx.stroke();
        if (points.length < 60) for (const [x, y] of points) { ctx.beginPath(); ctx.arc(x, y, 2.6, 0, 7); ctx.fill(); }
      }
    },
    at(x) { if (!across) return null; const at = across.back(x); const text = lines.map(([label, values]) => { let near = null; values.forEach((v, i) => { if (v !== null && (near === null || Math.abs(steps[i] - at) < Math.abs(steps[near] - at))) near = i; }); return near === null ? null : label + " " + sig(values[near], 5) + " at step " + count(steps[near]); }).filter(Boolean).join("\n"); return {text}; }});
  return el("div", {}, chart, lines.length > 1 ? lines.map(([label, , tint]) => key("var(--" + tint + ")", label)) : null);
}
