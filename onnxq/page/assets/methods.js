view("methods", "Methods", () => D.report && D.report.improvements, (box) => {
  const tried = D.report.improvements, steps = tried.steps;
  add(box, el("p", {}, tried.before === null ? "There was no data to judge by." : (tried.metric || "score") + ": " + db(tried.before) + " → " + db(tried.after) + ", judged on " + (tried.evaluated_on || tried.judged_on) + " samples that nothing was fitted to (" + tried.fitted_to + " were fitted to)."));
  if (steps.length) add(box, waterfall(tried));
  else add(box, el("p", {}, "Nothing was tried."));
  if (steps.length) add(box, plainTable(["method", "result", "before", "after", "seconds", "why", "paper"], steps.map((step) => [step.name, step.applied ? "kept" : "dropped", step.before === null ? "" : db(step.before), step.after === null ? "" : db(step.after), Number(step.seconds).toFixed(1), step.why, step.paper]), "Methods that were tried"));
  if (tried.levels && tried.levels.length > 1) add(box, [el("h3", {}, "Reached by each effort"), plainTable(["effort", "score", "seconds"], tried.levels.map((one) => [one.effort, db(one.after), Number(one.seconds).toFixed(1)]), "Efforts")]);
});

// method:option=yes as method:option, method:option=value as method:value.
function brief(name) { return name.replace(/(\w+)=yes\b/g, "$1").replace(/\w+=/g, ""); }

// A bar from before to after for each step: kept ones move the level.
function waterfall(tried) {
  const steps = tried.steps.filter((step) => step.before !== null && step.after !== null);
  if (!steps.length) return null;
  const values = steps.flatMap((step) => [num(step.before), num(step.after)]).concat([num(tried.before), num(tried.after)]).filter(Number.isFinite);
  let across = null;
  const text = (step) => step.name + (step.applied ? " (kept)" : " (dropped)") + "\n" + db(step.before) + " → " + db(step.after) + ", " + Number(step.seconds).toFixed(1) + " s\n" + step.why;
  return plot({height: 260, label: "What each method gained: " + steps.map((step) => step.name + " " + (step.applied ? "kept " : "dropped ") + db(step.before) + " to " + db(step.after)).join("; "),
    draw(ctx, w, h) {
      const room = 0.06 * (Math.max(...values) - Math.min(...values)) || 1;
      across = new Axis(0, steps.length, 56, w - 6);
      const up = new Axis(Math.min(...values) - room, Math.max(...values) + room, h - 82, 8), wide = across.at(1) - across.at(0);
      gridY(ctx, up, 56, w - 6, (v) => sig(v, 4) + " dB");
      steps.forEach((step, i) => {
        const x = across.at(i) + 0.12 * wide, a = up.at(num(step.before)), b = up.at(Number.isFinite(num(step.after)) ? num(step.after) : up.low);
        ctx.fillStyle = !step.applied ? color("own") : b <= a ? color("good") : color("look"); ctx.globalAlpha = step.applied ? 1 : 0.55;
        ctx.fillRect(x, Math.min(a, b), 0.76 * wide, Math.max(2, Math.abs(a - b))); ctx.globalAlpha = 1;
        const room = Math.min(150, (across.at(i + 0.5) - 4) / Math.cos(0.5));
        ctx.save(); ctx.translate(across.at(i + 0.5), h - 76); ctx.rotate(-0.5); ctx.fillStyle = color("muted"); ctx.textAlign = "right"; ctx.textBaseline = "middle"; ctx.fillText(begun(ctx, brief(step.name), room), 0, 0); ctx.restore();
      });
    },
    at(x) { if (!across) return null; const step = steps[Math.floor(across.back(x))]; return step ? {text: text(step)} : null; }});
}
