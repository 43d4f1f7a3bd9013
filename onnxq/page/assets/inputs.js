view("data", "Data", () => D.measured && D.measured.inputs, (box) => {
  const seen = D.measured.inputs;
  add(box, el("p", {}, count(D.report.calibration_samples) + " samples calibrated; the first " + seen.looked_at + " are shown. Pictures are stretched over their own range."));
  for (const [name, input] of Object.entries(seen.inputs)) {
    const rows = input.samples.map((one, i) => [i, one]).filter(([, one]) => one && one.low !== undefined);
    add(box, [el("h3", {class: "name"}, name), el("p", {}, input.dtype + ", " + input.shapes.slice(0, 6).map((shape) => shape.join(" × ")).join("; ") + (input.shapes.length > 6 ? " ..." : "")),
      input.pictures.length ? el("div", {class: "pictures"}, input.pictures.map((source, i) => el("img", {src: source, alt: "sample " + i}))) : null,
      rows.length ? plainTable(["sample", "lowest", "highest", "mean", "standard deviation"], rows.map(([i, one]) => [i, sig(one.low), sig(one.high), sig(one.mean), sig(one.std)]), "Samples of " + name) : null]);
  }
});
