view("data", "Data", () => D.measured && D.measured.inputs, (box) => {
  const seen = D.measured.inputs;
  add(box, el("p", {}, count(D.report.calibration_samples) + " samples calibrated; the first " + seen.looked_at + " are shown. Pictures are stretched over their own range."));
  for (const [name, input] of Object.entries(seen.inputs)) {
    const rows = input.samples.map((one, i) => [i, one]).filter(([, one]) => one && one.low !== undefined);
    add(box, [el("h3", {class: "name"}, name), el("p", {}, input.dtype + ", " + input.shapes.slice(0, 6).map((shape) => shape.join(" × ")).join("; ") + (input.shapes.length > 6 ? " ..." : "")),
      input.pictures.length ? el("div", {class: "pictures"}, input.pictures.map((source, i) => el("img", {src: source, alt: "sample " + i}))) : null,
      rows.length ? plainTable(["sample", "lowest", "highest", "mean", "standard deviation"], rows.map(([i, one]) => [i, sig(one.low), sig(one.high), sig(one.mean), sig(one.std)]).concat(together(input, rows)), "Samples of " + name) : null]);
  }
});

// One row for all samples that were looked at, where they count alike.
function together(input, rows) {
  const all = rows.map(([, one]) => one), mean = (of) => all.reduce((sum, one) => sum + of(one), 0) / all.length;
  if (all.length < 2 || input.shapes.length > 1 || all.some((one) => one.nonfinite)) return [];
  const middle = mean((one) => num(one.mean)), square = mean((one) => num(one.std) ** 2 + num(one.mean) ** 2);
  return [["all", sig(Math.min(...all.map((one) => num(one.low)))), sig(Math.max(...all.map((one) => num(one.high)))), sig(middle), sig(Math.sqrt(Math.max(0, square - middle * middle)))]];
}
