view("graph", "Graph", () => D.model && M.nodes.length, (box, wanted) => {
  const nodes = M.nodes.filter((node) => node.in.length || node.out.length);
  if (!M.layout) M.layout = layoutGraph(nodes);
  const map = M.layout, formats = [...new Set(nodes.map((node) => node.format))].sort((a, b) => (a === "float") - (b === "float") || a.localeCompare(b));
  const colors = new Map(formats.map((format, i) => [format, format === "float" ? "float" : "f" + (i % 6)]));
  const noisy = nodes.some((node) => node.sqnr !== null);
  let by = "format", scale = 1, dx = 0, dy = 0, chosen = null, fitted = false;
  const fill = (node) => by === "format" ? color(colors.get(node.format)) : node.sqnr === null ? color("none") : node.sqnr < 10 ? color("bad") : node.sqnr < 20 ? color("float") : node.sqnr < 30 ? color("look") : color("good");
  const canvas = plot({height: Math.max(360, Math.min(680, innerHeight - 250)), class: "map", label: "The graph: " + nodes.length + " nodes. Arrow keys move, plus and minus zoom; the view Layers has the same nodes as a table.",
    draw(ctx, w, h) {
      if (!fitted) { fitted = true; scale = Math.min(1, Math.max(w < 600 ? 0.6 : 0.4, (w - 40) / map.width)); dx = (w - map.width * scale) / 2; dy = 16; const box = wanted && map.of.get(M.byNode.get(wanted)); if (box) center(box, w, h); }
      const top = (-dy - RANK) / scale - RANK, bottom = (h - dy) / scale + RANK;
      ctx.lineWidth = 1.2; ctx.strokeStyle = color("muted"); ctx.globalAlpha = 0.6; ctx.beginPath();
      for (const edge of map.edges) {
        if (edge.to.y < top || edge.from.y > bottom) continue;
        const x0 = dx + (edge.from.x + WIDE / 2) * scale, y0 = dy + (edge.from.y + TALL) * scale, x1 = dx + (edge.to.x + WIDE / 2) * scale, y1 = dy + edge.to.y * scale;
        const side = edge.to.y - edge.from.y > RANK * 1.5 && Math.abs(x1 - x0) < LANE * scale * 0.6 ? LANE * scale * 0.75 : 0, bend = Math.min(60 * scale, (y1 - y0) / 2);
        ctx.moveTo(x0, y0);
        if (side) ctx.bezierCurveTo(x0 + 1.33 * side, y0 + bend, x1 + 1.33 * side, y1 - bend, x1, y1); else ctx.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
      }
      ctx.stroke(); ctx.globalAlpha = 1;
      const bg = color("bg"), fg = color("fg"), muted = color("muted");
      for (const {node, x, y} of map.boxes) {
        if (y < top) continue;
        if (y > bottom) break;
        const px = dx + x * scale, py = dy + y * scale, wide = WIDE * scale, tall = TALL * scale;
        if (px > w || px + wide < 0) continue;
        const tint = fill(node);
        if (scale < 0.3) { ctx.fillStyle = tint; ctx.fillRect(px, py, wide, Math.max(1, tall)); continue; }
        ctx.fillStyle = bg; ctx.fillRect(px, py, wide, tall);
        ctx.fillStyle = tint; ctx.globalAlpha = 0.16; ctx.fillRect(px, py, wide, tall); ctx.globalAlpha = 1; ctx.fillRect(px, py, 5 * scale, tall);
        ctx.strokeStyle = node === chosen ? fg : tint; ctx.lineWidth = node === chosen ? 3 : 1; ctx.strokeRect(px, py, wide, tall);
        ctx.textAlign = "left"; ctx.textBaseline = "top"; ctx.fillStyle = fg; ctx.font = "600 " + 13 * scale + "px system-ui, sans-serif";
        ctx.fillText(titleOf(ctx, node, wide - 18 * scale), px + 11 * scale, py + 7 * scale);
        ctx.fillStyle = muted; ctx.font = 11 * scale + "px system-ui, sans-serif";
        ctx.fillText(cut(ctx, node.name, wide - 18 * scale), px + 11 * scale, py + 27 * scale);
      }
    },
    keys(event) {
      const moves = {ArrowUp: [0, 60], ArrowDown: [0, -60], ArrowLeft: [60, 0], ArrowRight: [-60, 0]}[event.key];
      if (moves) { dx += moves[0]; dy += moves[1]; return true; }
      if (event.key === "+" || event.key === "=") { zoom(1.25); return true; }
      if (event.key === "-") { zoom(0.8); return true; }
      return false;
    }});
  function center(target, w, h) { chosen = target.node; scale = Math.max(scale, 0.9); dx = w / 2 - (target.x + WIDE / 2) * scale; dy = h / 2 - (target.y + TALL / 2) * scale; }
  function zoom(factor, x, y) { const w = canvas.clientWidth / 2, h = canvas.clientHeight / 2, next = Math.max(0.02, Math.min(4, scale * factor)); x = x === undefined ? w : x; y = y === undefined ? h : y; dx = x - (x - dx) * next / scale; dy = y - (y - dy) * next / scale; scale = next; canvas.redraw(); }
  function hit(event) { const box = canvas.getBoundingClientRect(), x = (event.clientX - box.left - dx) / scale, y = (event.clientY - box.top - dy) / scale; return map.boxes.find((one) => x >= one.x && x <= one.x + WIDE && y >= one.y && y <= one.y + TALL); }
  const held = new Map();
  let moved = 0, apart = 0;
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); held.set(event.pointerId, [event.clientX, event.clientY]); moved = 0; apart = 0; });
  canvas.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) { const found = hit(event); tip(found ? found.node.name + "\n" + found.node.op + ", " + found.node.format + (found.node.sqnr === null ? "" : "\nso far " + db(found.node.sqnr)) + (found.node.state === 2 && found.node.reason ? "\n" + found.node.reason : "") : null, event); canvas.style.cursor = found ? "pointer" : "grab"; return; }
    const [x, y] = held.get(event.pointerId);
    held.set(event.pointerId, [event.clientX, event.clientY]);
    if (held.size === 2) { const [a, b] = [...held.values()], now = Math.hypot(a[0] - b[0], a[1] - b[1]), box = canvas.getBoundingClientRect(); if (apart) zoom(now / apart, (a[0] + b[0]) / 2 - box.left, (a[1] + b[1]) / 2 - box.top); apart = now; moved = 99; return; }
    dx += event.clientX - x; dy += event.clientY - y; moved += Math.abs(event.clientX - x) + Math.abs(event.clientY - y);
    requestAnimationFrame(() => canvas.redraw());
  });
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (event) => { held.delete(event.pointerId); if (kind === "pointerup" && moved < 5) { const found = hit(event); if (found) { chosen = found.node; canvas.redraw(); showNode(found.node); } } });
  canvas.addEventListener("pointerleave", () => tip(null));
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); const box = canvas.getBoundingClientRect(); if (event.ctrlKey || !event.shiftKey) zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - box.left, event.clientY - box.top); else { dx -= event.deltaX + event.deltaY; canvas.redraw(); } }, {passive: false});
  const legend = el("div");
  const label = () => legend.replaceChildren(...(by === "format" ? formats.map((format) => key("var(--" + colors.get(format) + ")", format)) : [key("var(--good)", "30 dB or more"), key("var(--look)", "20 to 30 dB"), key("var(--float)", "10 to 20 dB"), key("var(--bad)", "below 10 dB"), key("var(--none)", "not measured")]));
  const names = el("datalist", {id: "names"}, nodes.slice(0, 2000).map((node) => el("option", {value: node.name})));
  const search = el("input", {type: "search", list: "names", placeholder: "find a node", "aria-label": "Find a node", onchange: () => { const words = search.value.trim(), node = M.byNode.get(words) || nodes.find((one) => one.name.includes(words)), found = words && map.of.get(node); if (found) { center(found, canvas.clientWidth, canvas.clientHeight); canvas.redraw(); showNode(found.node); } else if (words) say("No node is called that"); }});
  add(box, [el("div", {class: "bar"}, el("button", {onclick: () => zoom(1.25), "aria-label": "Zoom in"}, "+"), el("button", {onclick: () => zoom(0.8), "aria-label": "Zoom out"}, "−"), el("button", {onclick: () => { fitted = false; wanted = null; canvas.redraw(); }}, "Fit"),
    noisy ? el("select", {"aria-label": "Colour", onchange: (event) => { by = event.target.value; label(); canvas.redraw(); }}, el("option", {value: "format"}, "colour by format"), el("option", {value: "noise"}, "colour by noise so far")) : null, search, names), legend, canvas]);
  label();
});

// The operator with the noise so far, as far as both fit.
function titleOf(ctx, node, room) {
  const noise = node.sqnr === null ? "" : "  " + db(node.sqnr);
  return ctx.measureText(node.op + noise).width <= room ? node.op + noise : cut(ctx, node.op, room);
}
