view("sizes", "Size and time", () => D.model, (box) => {
  const written = D.files.find((file) => file.name.endsWith(".onnx") && file.bytes), sizes = D.model.bytes;
  const rows = [["float model, its file", (D.measured.float_file || null)], ["float constants", sizes.float], ["written model" + (written ? " (" + written.name + ")" : ""), written ? written.bytes : null], ["constants on the chip, estimated", sizes.chip]].filter((row) => row[1]);
  const most = Math.max(...rows.map((row) => row[1]), 1);
  add(box, rows.map(([name, value]) => [el("p", {style: "margin:.5rem 0 0"}, name + ": ", el("strong", {}, bytes(value)), value < most ? " (" + (value / most).toFixed(2) + "×)" : ""), plot({height: 16, label: name + " " + bytes(value), draw(ctx, w, h) { ctx.fillStyle = color("bar"); ctx.fillRect(0, 2, w * value / most, h - 4); }})]));
  add(box, el("p", {class: "muted"}, "The estimate counts the numbers of quantized constants in their formats with scales and zero points, float ones as they are; a vendor's compiler may pack them otherwise."));
  if (D.report.kernels) add(box, [el("h3", {}, "Kernels of onnxruntime here"), pairs(Object.entries(D.report.kernels).map(([kind, counts]) => [kind, Object.entries(counts).map(([name, n]) => (n.op || n) + " " + name).join(", ") || "none"]))]);
  add(box, [el("h3", {}, "Seconds of the run"), pairs(Object.entries(D.report.seconds || {}).map(([stage, value]) => [stage, Number(value).toFixed(2)]))]);
});
