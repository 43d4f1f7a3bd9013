view("weights", "Weights", () => D.model && Object.keys(D.model.weights).length, (box) => {
  const rows = M.tensors.filter((tensor) => tensor.weight);
  const gone = (t) => t.weight.zero.length + t.weight.vanishing.length;
  // How unlike the channels are: largest to middle magnitude.
  const spread = (t) => { if (t.spread === undefined) { const [lows, highs] = channelsOf(t), sizes = lows.map((low, i) => Math.max(-low, highs[i])).sort((a, b) => a - b); t.spread = sizes[sizes.length >> 1] > 0 ? sizes[sizes.length - 1] / sizes[sizes.length >> 1] : null; } return t.spread; };
  const dead = rows.reduce((sum, t) => sum + gone(t), 0);
  add(box, el("p", {}, "The range of every channel. " + (dead ? count(dead) + " channels in all are dead: zero, or less than half a step, so that they round to zero." : "No channel is dead.")));
  add(box, table([{title: "weight", value: (t) => t.name, width: "29%"}, {title: "shape", value: (t) => t.weight.shape.join(" × "), width: "16%"}, {title: "format", value: (t) => t.q.format.split(",")[0] + (t.q.scales > 1 ? ", " + count(t.q.scales) + " scales" : "")}, {title: "own noise", number: true, value: (t) => t.weight.own_db, text: (t) => t.weight.own_db === null ? "" : db(t.weight.own_db)},
    {title: "largest / middle", number: true, width: "9rem", value: spread, text: (t) => spread(t) === null ? "" : sig(spread(t), 3)}, {title: "dead", number: true, width: "4.5rem", value: gone, text: (t) => gone(t) ? count(gone(t)) : ""}], rows, {open: showTensor, label: "Weights"}));
  grow(box, rows, (tensor) => [el("h3", {class: "name"}, tensorLink(tensor)), channelChart(tensor, 120)]);
});
