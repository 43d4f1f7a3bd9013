view("files", "Files", () => D.files, (box) => {
  add(box, plainTable(["file", "size", "what it is"], D.files.map((file) => [el("span", {class: "name"}, file.name), file.bytes === null ? "" : bytes(file.bytes), file.what || COMPANIONS[file.name] || ""]), "Files"));
  if (D.next && D.next.length) add(box, [el("h3", {}, "Next, with the vendor's tools"), D.next.map((one) => [el("p", {}, one.what), copyLine(one.line)])]);
});

const COMPANIONS = {"plan.json": "which tensors are quantized, how and why: 'onnxq explain' reads it", "qparams.json": "scales and zero points", "config.json": "every setting of the run: 'onnxq quantize -c' repeats it", "report.json": "the figures of this page for programs", "report.html": "this page",
  "training.csv": "the course of the training", "training.svg": "its curves", "scales.csv": "the scales of quantizers over the training", "hold.json": "all configurations that were evaluated, and what each layer costs", "front.json": "all configurations that the search has judged", "front.svg": "the front as a picture"};
