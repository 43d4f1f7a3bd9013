view("verdict", "Verdict", () => D.verdict, (box) => {
  const verdict = D.verdict, limits = verdict.limits;
  add(box, el("div", {class: "cards"}, verdict.results.map(resultCard)));
  if (!verdict.results.length) add(box, el("p", {}, "Accuracy was not measured: the run had no data."));
  if (D.report.task) add(box, el("div", {class: "cards"}, D.report.task.metrics.map((one) => metricCard(one, D.report.task))));
  if (D.report.training) add(box, el("div", {class: "cards"}, trainedCard(D.report.training)));
  add(box, causes(verdict));
  if (verdict.lines.length) add(box, [el("h3", {}, "What to do next"), verdict.lines.map((one) => [el("p", {}, one.what), copyLine(one.line)])]);
  if (D.report.warnings.length) add(box, [el("h3", {}, "Warnings"), D.report.warnings.map((line) => el("p", {class: "warn"}, line))]);
  add(box, el("p", {class: "muted"}, verdict.trained ? "The network was trained: how far it is from its own weights in float is no judgement, its metric is." :
    "Good: at least " + limits.low_db + " dB and " + percent(limits.good_agreement) + " of the decisions. Bad: below " + limits.bad_db + " dB or " + percent(limits.bad_agreement) + ", or one value for everything. dB is signal to noise against the float model; 20 dB is 1 % of noise power."));
});

function resultCard(result) {
  const decisions = result.decisions, samples = result.per_sample;
  const kinds = {arg_max: "of the highest classes", above_half: "of the scores above half of the highest", binary: "of the yes/no decisions"};
  const rows = [["decisions", decisions ? percent(decisions.agreement) + " " + (kinds[decisions.kind] || decisions.kind) + " agree (" + count(decisions.compared) + ")" : null],
    ["equal values", result.agreement === undefined ? null : percent(result.agreement)], ["on the chip", result.chip_db === undefined ? null : db(result.chip_db) + ", as simulated"],
    ["middle sample", samples ? db(samples.median_db) : null], ["worst sample", samples ? "number " + samples.worst + ": " + db(samples.worst_db) : null], ["cosine", result.cosine === undefined ? null : sig(result.cosine, 6)], ["largest error", result.max_abs_error === undefined ? null : sig(result.max_abs_error)]];
  return el("div", {class: "card " + result.light}, el("h3", {class: "name"}, result.name), el("p", {}, light(result.light), " ", el("span", {class: "big"}, result.sqnr_db === undefined ? (result.agreement === undefined ? "" : percent(result.agreement)) : db(result.sqnr_db)), result.part ? " part of an output" : ""),
    result.silent ? el("p", {}, el("strong", {}, "Silent: it has one value everywhere.")) : null, pairs(rows));
}

function metricText(name, value) { return name === "sqnr_db" ? db(value) : ["accuracy", "agreement"].includes(name) ? percent(num(value), 2) : sig(value, 5); }

// A metric of the user's, of both models.
function metricCard(one, task) {
  return el("div", {class: "card none"}, el("h3", {class: "name"}, one.name), el("p", {}, el("span", {class: "big"}, metricText(one.name, one.quantized))), pairs([["float model", one.against_float ? null : metricText(one.name, one.float)], ["samples", count(task.samples)], ["best", one.lower_is_better ? "where it is smallest" : null], ["held", one === task.metrics[0] ? task.demand : null]]));
}

function trainedCard(training) {
  const said = (value) => value === null || value === undefined ? "–" : training.metric === "sqnr_db" ? db(value) : ["accuracy", "agreement"].includes(training.metric) ? percent(num(value)) : sig(value);
  return el("div", {class: "card none"}, el("h3", {}, training.metric || "training"), pairs([["float", training.float === undefined ? null : said(training.float)], ["quantized, before training", said(training.before)], ["after training", said(training.after) + " (epoch " + training.after_epoch + ")"], ["of the written file", training.written === undefined ? null : said(training.written)]]));
}

function causes(verdict) {
  const found = D.report.diagnosis, parts = [];
  if (found) {
    parts.push(el("h3", {}, "Why"));
    if (!found.causes.length) parts.push(el("p", {}, "No single cause was found: the noise is spread over many quantizers."));
    parts.push(el("ul", {}, found.causes.map((cause) => el("li", {}, cause.text, cause.findings && cause.findings[0] && M.byTensor.get(cause.findings[0].quantizer) ? [" ", tensorLink(M.byTensor.get(cause.findings[0].quantizer), "look at it")] : null))));
    const paying = found.remedies.filter((one) => one.pays || (num(one.after_db) !== null && num(one.after_db) > num(one.before_db) + 0.5));
    if (found.combined || paying.length) parts.push(el("h3", {}, "What mends it"));
    if (found.combined) parts.push(el("p", {}, "Together: " + db(found.combined.before_db) + " → " + db(found.combined.after_db)), settingsLine(found.combined.line));
    for (const remedy of paying.slice(0, 6)) parts.push(el("p", {}, db(remedy.before_db) + " → " + db(remedy.after_db)), settingsLine(remedy.line));
    if (found.quantizers && found.quantizers.length) parts.push(el("h3", {}, "Quantizers that cost most"), plainTable(["quantizer", "format", "alone", "share of the noise"], found.quantizers.slice(0, 12).map((row) => [M.byTensor.get(row.name) ? tensorLink(M.byTensor.get(row.name)) : row.name, row.format, db(row.sqnr_db), percent(num(row.share))]), "Quantizers that cost most"));
    return parts;
  }
  if (D.verdict.light === "good") return null;
  const lost = M.groups.filter((group) => lostMembers(group).length), joins = lostInJoins();
  if (!lost.length && !joins.length) return noisiest();
  parts.push(el("h3", {}, "Why, as far as ranges tell"));
  for (const {node, tensor, range, step} of joins.slice(0, 5)) parts.push(el("p", {}, "One scale for all that ", nodeLink(node), " joins: ", tensorLink(tensor), " (" + sig(range[0]) + " .. " + sig(range[1]) + ") has " + sig((range[1] - range[0]) / step, 2) + " steps of " + sig(step) + ". With scales of their own:"), copyLine(freed(verdict, node)));
  for (const group of lost.slice(0, 5)) {
    const join = joinOf(group), small = lostMembers(group), range = rangeOf(small[0]);
    parts.push(el("p", {}, "One scale", join ? [" by ", nodeLink(join)] : "", " for tensors of unlike ranges: ", tensorLink(small[0]), " (" + sig(range[0]) + " .. " + sig(range[1]) + ") has " + sig((range[1] - range[0]) / group.leader.q.step, 2) + " steps of " + sig(group.leader.q.step) + ". ", el("a", {href: "#ties/" + encodeURIComponent(group.leader.name)}, "its ranges")));
    if (join) parts.push(el("p", {}, "With scales of their own:"), copyLine(freed(verdict, join)));
  }
  return [...parts, noisiest()];
}

// Where the noise is made, as far as it was measured; what of it reaches the outputs is for a diagnosis to find.
function noisiest() {
  const found = M.nodes.filter((node) => node.own !== null && node.own < 40).sort((a, b) => a.own - b.own).slice(0, 6);
  if (!found.length || !D.measured.layers) return null;
  const clipped = (node) => node.tensor && node.tensor.layer && node.tensor.layer.clipped ? percent(num(node.tensor.layer.clipped)) : "";
  return [el("h3", {}, "Layers whose own quantizers make most noise"), plainTable(["layer", "operator", "format", "own", "so far", "clipped"], found.map((node) => [nodeLink(node), node.op, node.format, db(node.own), node.sqnr === null ? "" : db(node.sqnr), clipped(node)]), "Layers whose own quantizers make most noise")];
}

// Settings of a remedy; many of them behind a click, since the file with all of them is named below.
function settingsLine(line) {
  return line.length < 240 ? copyLine(line) : el("details", {}, el("summary", {}, count(line.split("; ").length) + " settings, such as " + line.slice(0, 60) + " …"), copyLine(line));
}

// The run once more with a join left float; one that its settings force can only be left by taking that back.
function freed(verdict, join) {
  const own = (D.config.node || {})[join.name];
  return verdict.again + (own && own.force ? " --set " + quoted("node." + JSON.stringify(join.name) + ".force=false") : " --skip " + quoted(join.name));
}
