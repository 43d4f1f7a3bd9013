view("tensors", "Histograms", () => D.model && M.tensors.some((t) => t.q && !t.constant), (box) => {
  const rows = M.tensors.filter((tensor) => tensor.q && !tensor.constant), drawn = rows.filter(histogramOf);
  add(box, el("p", {}, "Quantized activations. Bars are counts on a logarithmic scale, dashed lines the ends of the format, the small mark under zero one step." + (drawn.length ? "" : " This run kept ranges and no histograms: 'onnxq report' with data (-d) counts them.")));
  const column = (name, key) => ({title: name, number: true, value: (t) => { const range = rangeOf(t); return range ? range[key] : null; }, text: (t) => { const range = rangeOf(t); return range ? sig(range[key]) : ""; }});
  add(box, table([{title: "tensor", value: (t) => t.name, width: "30%"}, {title: "format", value: (t) => t.q.format.split(",")[0]}, column("lowest", 0), column("highest", 1),
    {title: "step", number: true, value: (t) => t.q.step, text: (t) => t.q.step ? sig(t.q.step) : ""}, {title: "clipped", number: true, value: (t) => t.layer ? t.layer.clipped : null, text: (t) => t.layer && t.layer.clipped !== undefined ? percent(num(t.layer.clipped)) : ""},
    {title: "own noise", number: true, value: (t) => t.layer ? t.layer.own_db : null, text: (t) => t.layer && t.layer.own_db !== undefined ? db(t.layer.own_db) : ""},
    {title: "set by sample", number: true, width: "8.6rem", value: (t) => t.observed && t.observed.peaks.length ? t.observed.peaks[0][1] : null, text: (t) => t.observed && t.observed.peaks.length ? String(t.observed.peaks[0][1]) : ""}], rows, {open: showTensor, label: "Quantized activations"}));
  grow(box, drawn, (tensor) => [el("h3", {class: "name"}, tensorLink(tensor)), histogramChart(tensor, 130)]);
});

// Cards for a long list, some at a time.
function grow(box, rows, draw) {
  const cards = el("div", {class: "cards"}), more = el("button", {onclick: () => next()}, "Show more");
  let done = 0;
  function next() { for (const row of rows.slice(done, done + 24)) cards.append(add(el("div", {class: "card"}), draw(row))); done = Math.min(rows.length, done + 24); more.hidden = done >= rows.length; }
  next();
  add(box, [cards, more]);
}
