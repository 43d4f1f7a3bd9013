view("training", "Training", () => D.training && D.training.step, (box) => {
  const t = D.training, training = (D.report || {}).training || {}, best = training.best_step || null;
  add(box, pairs([["steps", training.steps], ["epochs", training.epochs], ["batch", training.batch_size], ["metric", training.metric], ["best", training.best_epoch === undefined ? null : "epoch " + training.best_epoch + (best ? ", step " + count(best) : "")]]));
  add(box, [el("h3", {}, "loss"), curve(t.step, [["loss", t.loss, "accent"], ["labels", t.label, "f2"], ["float model as teacher", t.distill, "f1"]].filter((one) => one[1] && one[1].some((v) => v !== null)), "loss", best)]);
  if (t.metric && t.metric.some((v) => v !== null)) add(box, [el("h3", {}, training.metric || "metric"), curve(t.step, [[training.metric || "metric", t.metric, "float"]], training.metric || "metric", best)]);
  if (t.lr && t.lr.some((v) => v !== null)) add(box, [el("h3", {}, "learning rate"), curve(t.step, [["learning rate", t.lr, "muted"]], "learning rate", best)]);
  if (D.scales && D.scales.count) scales(box, best);
});

// Scales in multiples of those before training: the six that moved most, and the one that a row of the table names.
function scales(box, best) {
  const s = D.scales, rows = Object.entries(s.tensors).map(([name, values]) => {
    const known = values.filter((v) => v !== null && v > 0), first = known[0], last = known[known.length - 1];
    return {name, first, last, factor: last / first, moved: Math.max(...known) / Math.min(...known), course: values.map((v) => v === null || !(v > 0) ? null : v / first)};
  }), tints = ["f0", "float", "f1", "f3", "f4", "f2"], still = rows.filter((row) => !(row.moved > 1 + 1e-5)).length, drawn = el("div");
  const most = rows.filter((row) => row.moved > 1 + 1e-5).slice(0, tints.length);
  const draw = (chosen, name) => drawn.replaceChildren(curve(s.step, chosen.map((row, i) => [row.name, row.course, tints[i]]), name, best));
  add(box, [el("h3", {}, "scales, in multiples of those before training"),
    el("p", {}, count(s.count) + " quantizers with scales of their own" + (rows.length < s.count ? ", the " + count(rows.length) + " that moved most are listed" : "") + "; " + (!most.length ? "none of their scales moved. " : (still ? count(still) + " of " + count(rows.length) + " kept their scale. " : "every one moved. ") + "The lines are those that moved most; a row of the table draws its own. ") + "Of several scales of a tensor their geometric mean.")]);
  if (most.length) draw(most, "scales");
  add(box, [drawn, most.length ? el("p", {}, el("button", {onclick: () => draw(most, "scales")}, "Those that moved most")) : null,
    table([{title: "tensor", value: (row) => row.name, width: "38%"}, {title: "before", number: true, value: (row) => row.first, text: (row) => sig(row.first)}, {title: "at the end", number: true, value: (row) => row.last, text: (row) => sig(row.last)}, {title: "factor", number: true, value: (row) => row.factor, text: (row) => sig(row.factor)}, {title: "largest / smallest", number: true, value: (row) => row.moved, text: (row) => sig(row.moved), width: "9rem"}], rows,
      {label: "Scales over time", open: (row) => { draw([row], "scale of " + row.name); drawn.scrollIntoView({block: "center"}); say("The scale of " + row.name + " is drawn"); }})]);
}

// Lines over the same steps.
function curve(steps, lines, name, mark) {
  const all = lines.flatMap(([, values]) => values.filter((v) => v !== null));
  if (!all.length) return el("p", {class: "muted"}, "no values");
  let across = null;
  const chart = plot({height: 220, label: name + " over " + count(steps[steps.length - 1]) + " steps: from " + sig(all[0]) + " to " + sig(all[all.length - 1]),
    draw(ctx, w, h) {
      const low = bounds(all, Math.min)[0], high = bounds(all, Math.max)[0], room = 0.05 * (high - low) || Math.abs(high) * 0.05 || 1;
      across = new Axis(0, bounds(steps, Math.max)[0] || 1, 60, w - 8);
      const up = new Axis(low - room, high + room, h - 22, 8);
      gridY(ctx, up, 60, w - 8); gridX(ctx, across, h - 22, count);
      if (mark) { ctx.strokeStyle = color("muted"); ctx.lineWidth = 1; ctx.setLineDash([4, 3]); ctx.beginPath(); ctx.moveTo(across.at(mark), 8); ctx.lineTo(across.at(mark), h - 22); ctx.stroke(); ctx.setLineDash([]); }
      for (const [, values, tint] of lines) {
        ctx.strokeStyle = ctx.fillStyle = color(tint); ctx.lineWidth = 1.6; ctx.beginPath();
        const points = values.map((v, i) => v === null ? null : [across.at(steps[i]), up.at(v)]).filter(Boolean);
        points.forEach(([x, y], i) => i ? ctx.lineTo(x, y) : ctx.moveTo(x, y)); ctx.stroke();
        if (points.length < 60) for (const [x, y] of points) { ctx.beginPath(); ctx.arc(x, y, 2.6, 0, 7); ctx.fill(); }
      }
    },
    at(x) { if (!across) return null; const at = across.back(x); const text = lines.map(([label, values]) => { let near = null; values.forEach((v, i) => { if (v !== null && (near === null || Math.abs(steps[i] - at) < Math.abs(steps[near] - at))) near = i; }); return near === null ? null : label + " " + sig(values[near], 5) + " at step " + count(steps[near]); }).filter(Boolean).join("\n"); return {text}; }});
  return el("div", {}, chart, lines.length > 1 || lines[0][0] !== name ? lines.map(([label, , tint]) => key("var(--" + tint + ")", label)) : null, mark ? key("var(--muted)", "best step") : null);
}
