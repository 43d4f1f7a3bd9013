// Opens pages in a real browser, walks through every view and prints what was found as one line of JSON.
// Usage: node browse.mjs NODE_MODULES CHROMIUM '{"page": ..., "shots": ..., "width": ..., "dark": ..., "clicks": [...]}'

import {createRequire} from "node:module";
import {readFileSync} from "node:fs";
import {pathToFileURL} from "node:url";

const [folder, chromium, text] = process.argv.slice(2), asked = JSON.parse(text);
const need = createRequire(folder + "/");
const playwright = need("playwright-core");
const axe = readFileSync(need.resolve("axe-core/axe.min.js"), "utf8");

const browser = await playwright.chromium.launch({executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"]});
const context = await browser.newContext({viewport: {width: asked.width || 1200, height: asked.height || 850}, colorScheme: asked.dark ? "dark" : "light", bypassCSP: true});
const page = await context.newPage();
const found = {errors: [], requests: [], dialogs: 0, views: {}, axe: [], seconds: {}};
page.on("console", (message) => { if (["error", "warning"].includes(message.type())) found.errors.push(message.text()); });
page.on("pageerror", (error) => found.errors.push(String(error)));
page.on("dialog", (dialog) => { found.dialogs++; dialog.dismiss(); });
page.on("request", (request) => { if (!request.url().startsWith("data:")) found.requests.push(request.url()); });
const address = pathToFileURL(asked.page).href;
let began = Date.now();
await page.goto(address);
if (!asked.plain) await page.waitForSelector("html[data-ready]", {timeout: 60000}); // a page of tables has no program
await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
found.seconds.open = (Date.now() - began) / 1000;
const views = await page.$$eval("nav a", (links) => links.map((link) => link.getAttribute("href").slice(1)));
for (const view of asked.views || (asked.plain ? ["page"] : views)) {
  began = Date.now();
  if (!asked.plain) {
    await page.evaluate((id) => { location.hash = id; }, view);
    await page.waitForFunction((id) => document.querySelector("nav a[aria-current]")?.hash === "#" + id, view);
  }
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  found.seconds[view] = (Date.now() - began) / 1000;
  if (asked.wait) await page.waitForTimeout(asked.wait);
  found.views[view] = await page.evaluate(() => {
    const main = document.querySelector("main");
    const inked = [...main.querySelectorAll("canvas")].filter((canvas) => canvas.width && new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer).some((pixel) => pixel)).length;
    return {text: main.innerText, canvases: main.querySelectorAll("canvas").length, inked, rows: main.querySelectorAll("tbody tr").length, elements: document.querySelectorAll("*").length, overflow: document.documentElement.scrollWidth > innerWidth + 1, scripts: document.querySelectorAll("script").length};
  });
  if (asked.axe) {
    await page.evaluate(axe);
    const result = await page.evaluate(() => axe.run(document, {resultTypes: ["violations"]}));
    found.axe.push(...result.violations.map((one) => ({view, id: one.id, impact: one.impact, help: one.help, targets: one.nodes.slice(0, 3).map((node) => node.target.join(" ") + ": " + node.failureSummary)})));
  }
  if (asked.shots) await page.screenshot({path: `${asked.shots}-${view}.png`});
}
for (const step of asked.steps || []) {
  if (step.go) { await page.evaluate((id) => { location.hash = id; }, step.go); await page.waitForTimeout(100); }
  if (step.click) await page.click(step.click);
  if (step.press) await page.keyboard.press(step.press);
  if (step.focus) await page.focus(step.focus);
  if (step.fill) await page.fill(step.fill[0], step.fill[1]);
  if (step.scroll) { began = Date.now(); await page.evaluate(async ([selector, top]) => { document.querySelector(selector).scrollTop = top; await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); }, step.scroll); found.seconds.scroll = (Date.now() - began) / 1000; }
  if (step.wheel) { const box = await (await page.$("canvas.map")).boundingBox(); await page.mouse.move(box.x + box.width / 2, box.y + 100); began = Date.now(); for (let i = 0; i < step.wheel; i++) { await page.mouse.wheel(0, i % 2 ? 120 : -120); } await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))); found.seconds.wheel = (Date.now() - began) / 1000 / step.wheel; }
  if (step.inked) for (const canvas of await page.$$(step.inked)) { await canvas.scrollIntoViewIfNeeded(); await page.waitForFunction((one) => { if (!one.width) return false; const copy = new OffscreenCanvas(one.width, one.height).getContext("2d", {willReadFrequently: true}); copy.drawImage(one, 0, 0); return new Uint32Array(copy.getImageData(0, 0, one.width, one.height).data.buffer).some((pixel) => pixel); }, canvas); }
  if (step.read) (found.read = found.read || []).push(await page.evaluate((selector) => document.querySelector(selector)?.innerText ?? null, step.read));
  if (step.focused) (found.read = found.read || []).push(await page.evaluate(() => document.activeElement?.tagName + "#" + (document.activeElement?.id || "")));
  if (step.shot) await page.screenshot({path: step.shot});
}
console.log(JSON.stringify(found));
await browser.close();
