// Opens a document that shows a page in a frame, as a notebook does, and clicks through the views of the page.
// Usage: node browse_frame.mjs NODE_MODULES CHROMIUM FILE

import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const [folder, chromium, file] = process.argv.slice(2);
const playwright = createRequire(folder + "/")("playwright-core");
const browser = await playwright.chromium.launch({executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"]});
const page = await browser.newPage();
const found = {errors: [], requests: [], views: {}};
page.on("console", (message) => { if (["error", "warning"].includes(message.type())) found.errors.push(message.text()); });
page.on("pageerror", (error) => found.errors.push(String(error)));
page.on("request", (request) => { if (!request.url().startsWith("data:")) found.requests.push(request.url()); });
await page.goto(pathToFileURL(file).href);
const frame = page.frames()[1];
await frame.waitForSelector("html[data-ready]", {timeout: 60000});
for (const link of await frame.$$("nav a")) {
  const name = (await link.getAttribute("href")).slice(1);
  await link.click();
  await frame.waitForSelector(`nav a[href="#${name}"][aria-current]`, {timeout: 10000});
  found.views[name] = (await frame.innerText("main")).length;
}
found.top = page.url();
await browser.close();
console.log(JSON.stringify(found));
