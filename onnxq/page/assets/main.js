// Unpack, list the views, draw the one that the address names.

async function unpack() {
  const text = document.getElementById("data").textContent.trim(), binary = atob(text), packed = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) packed[i] = binary.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function route() {
  const [id, ...rest] = location.hash.slice(1).split("/"), open = views.filter((one) => one.shown), chosen = open.find((one) => one.id === id) || open[0], main = document.getElementById("main");
  for (const link of document.querySelectorAll("nav a")) if (link.hash === "#" + chosen.id) { link.setAttribute("aria-current", "page"); link.scrollIntoView({block: "nearest", inline: "nearest"}); } else link.removeAttribute("aria-current");
  tip(null);
  main.replaceChildren(el("h2", {}, chosen.title));
  try { chosen.draw(main, decodeURIComponent(rest.join("/"))); } catch (error) { add(main, el("p", {class: "warn"}, "This view could not be drawn: " + error)); console.error(error); }
  scrollTo(0, 0);
}

function setTheme(dark) { document.documentElement.dataset.theme = dark ? "dark" : "light"; redrawAll(); }

async function start() {
  const prefers = matchMedia("(prefers-color-scheme: dark)");
  setTheme(prefers.matches);
  prefers.addEventListener("change", (event) => setTheme(event.matches));
  document.getElementById("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
  document.getElementById("skip").addEventListener("click", () => document.getElementById("main").focus());
  try { D = await unpack(); } catch (error) { document.getElementById("wait").textContent = "The data of this page cannot be unpacked here: " + error + ". report.json has the same facts."; return; }
  readModel();
  for (const one of views) one.shown = !!one.has();
  const order = ["verdict", "front", "held", "layers", "tensors", "weights", "ties", "coverage", "sizes", "methods", "training", "graph", "data", "files", "settings"];
  views.sort((a, b) => order.indexOf(a.id) - order.indexOf(b.id));
  document.getElementById("nav").replaceChildren(...views.filter((one) => one.shown).map((one) => el("a", {href: "#" + one.id}, one.title)));
  if (D.verdict) { const c = D.report.coverage; const work = D.report.work; add(document.getElementById("summary"), [light(D.verdict.light), " " + (work && work.macs ? percent(work.quantized_macs / work.macs) + " of the work, " : "") + count(c.quantized + c.fused) + " of " + count(c.nodes) + " nodes quantized"]); }
  addEventListener("hashchange", route);
  route();
  document.documentElement.dataset.ready = "yes";
}

start();
