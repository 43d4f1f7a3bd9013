view("settings", "Settings", () => D.config, (box) => {
  add(box, pairs([["onnxq", ((D.report || {}).versions || {}).onnxq || D.onnxq], ["target", D.backend], ["model", D.report && D.report.model], ["run", D.run], ...Object.entries((D.report || {}).versions || {}).filter(([name]) => name !== "onnxq")]));
  const rows = [];
  const walk = (table, path) => { for (const [name, value] of Object.entries(table)) if (value && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length) walk(value, [...path, name]); else rows.push([[...path, name].join("."), Array.isArray(value) ? value.map((one) => typeof one === "object" ? JSON.stringify(one) : one).join(", ") || "none" : value === null ? "unset" : typeof value === "object" ? "none" : String(value)]); };
  walk(D.config, []);
  add(box, [el("h3", {}, "config.json"), plainTable(["key", "value"], rows.map(([name, value]) => [el("code", {}, name), value]), "Settings")]);
  if (!D.report) return;
  const passes = (D.report.passes || []).filter((one) => one.changed || one.declined);
  if (passes.length) add(box, [el("h3", {}, "Passes that changed the graph"), plainTable(["pass", "changes", "declined"], passes.map((one) => [one.name, count(one.changed), one.declined ? count(one.declined) : ""]), "Passes")]);
  if (D.report.translated) add(box, [el("h3", {}, "Translated from " + D.report.translated.from), plainTable(["key", "value", "became"], D.report.translated.keys.map((one) => [one.key, String(one.value), one.became]), "Translated keys")]);
  if (D.report.notes.length) add(box, [el("h3", {}, "Notes"), el("ul", {}, D.report.notes.map((note) => el("li", {}, note)))]);
});
