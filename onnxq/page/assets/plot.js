// Charts on a canvas, drawn when they are seen, again when the width or the colours change.

const plots = new Set();

function color(name) { return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim(); }

// draw(ctx, width, height); at(x, y) -> {text, open()} for what lies there; keys moves a mark with the arrow keys.
function plot(options) {
  const canvas = el("canvas", {role: "img", "aria-label": options.label, tabindex: options.keys ? "0" : null, class: options.class});
  canvas.style.height = (options.height || 220) + "px";
  const state = {canvas, seen: false, redraw() {
    if (!canvas.isConnected) { plots.delete(state); return; }
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) { canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio); }
    const ctx = canvas.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    ctx.font = "12px system-ui, sans-serif";
    options.draw(ctx, width, height);
  }};
  plots.add(state);
  new ResizeObserver(() => { if (state.seen) state.redraw(); }).observe(canvas);
  const watch = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) { state.seen = true; state.redraw(); watch.disconnect(); }
  }, {rootMargin: "200px"});
  watch.observe(canvas);
  if (options.at) {
    const find = (event) => { const box = canvas.getBoundingClientRect(); return options.at(event.clientX - box.left, event.clientY - box.top, canvas.clientWidth, canvas.clientHeight); };
    canvas.addEventListener("pointermove", (event) => { const hit = find(event); tip(hit && hit.text, event); canvas.style.cursor = hit && hit.open ? "pointer" : ""; });
    canvas.addEventListener("pointerleave", () => tip(null));
    canvas.addEventListener("click", (event) => { const hit = find(event); if (hit && hit.open) hit.open(); });
  }
  if (options.keys) canvas.addEventListener("keydown", (event) => { if (options.keys(event)) { event.preventDefault(); state.redraw(); } });
  canvas.redraw = () => state.redraw();
  return canvas;
}

function redrawAll() { for (const state of [...plots]) if (state.seen) state.redraw(); }

function tip(text, event) {
  const box = document.getElementById("tip");
  box.hidden = !text;
  if (!text) return;
  box.textContent = shown(text);
  box.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8)) + "px";
  box.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8)) + "px";
}

// Numbers from low to high on the pixels from start to end; ticks at 1, 2 or 5 times a power of ten.
class Axis {
  constructor(low, high, start, end) {
    if (!(high > low)) { const room = Math.abs(low) * 0.05 || 1; low -= room; high += room; }
    Object.assign(this, {low, high, start, end});
  }
  at(value) { return this.start + (this.end - this.start) * (value - this.low) / (this.high - this.low); }
  back(pixel) { return this.low + (this.high - this.low) * (pixel - this.start) / (this.end - this.start); }
  ticks(most) {
    const rough = (this.high - this.low) / (most || 6), unit = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].map((factor) => factor * unit).find((one) => one >= rough * 0.999);
    const found = [];
    for (let k = Math.ceil(this.low / step - 1e-9); k * step <= this.high + step * 1e-9; k++) found.push(Number((k * step).toPrecision(12)));
    return found;
  }
}

function gridY(ctx, axis, left, right, text) {
  ctx.strokeStyle = color("line"); ctx.fillStyle = color("muted"); ctx.lineWidth = 1; ctx.textAlign = "right"; ctx.textBaseline = "middle";
  for (const value of axis.ticks(5)) {
    const y = Math.round(axis.at(value)) + 0.5;
    ctx.beginPath(); ctx.moveTo(left, y); ctx.lineTo(right, y); ctx.stroke();
    ctx.fillText(text ? text(value) : sig(value), left - 6, y);
  }
}

function gridX(ctx, axis, bottom, text, top) {
  ctx.fillStyle = color("muted"); ctx.strokeStyle = color("line"); ctx.textAlign = "center"; ctx.textBaseline = "top";
  for (const value of axis.ticks(Math.max(2, Math.round(Math.abs(axis.end - axis.start) / 90)))) {
    const x = axis.at(value);
    ctx.beginPath(); ctx.moveTo(x, top === undefined ? bottom : top); ctx.lineTo(x, bottom + 4); ctx.stroke();
    ctx.fillText(text ? text(value) : sig(value), x, bottom + 6);
  }
}

// The beginning of a text that is too long; of names of tensors the end tells more (cut).
function begun(ctx, text, width) {
  const said = shown(text);
  let length = said.length;
  while (length > 1 && ctx.measureText(said.slice(0, length) + (length < said.length ? "…" : "")).width > width) length--;
  return length < said.length ? said.slice(0, length) + "…" : said;
}

function cut(ctx, text, width) {
  let said = shown(text);
  if (ctx.measureText(said).width <= width) return said;
  let low = 0, high = said.length;
  while (low < high) { const middle = (low + high + 1) >> 1; if (ctx.measureText("…" + said.slice(-middle)).width <= width) low = middle; else high = middle - 1; }
  return "…" + said.slice(said.length - low);
}
