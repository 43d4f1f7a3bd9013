// node check.mjs ENVIRONMENT FOLDER TEXTS.txt DTYPES: see check.py.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, resolve } from "node:path";

const [environment, folder, texts, dtypes] = process.argv.slice(2);
const require = createRequire(resolve(environment, "package.json"));
const { env, pipeline } = require("@huggingface/transformers");

env.allowRemoteModels = false;
env.localModelPath = dirname(resolve(folder));

const lines = readFileSync(texts, "utf-8").split("\n").filter((line) => line.trim());

async function embeddings(dtype) {
  const embed = await pipeline("feature-extraction", basename(resolve(folder)), { dtype });
  const found = await embed(lines, { pooling: "mean", normalize: true });
  return found.tolist();
}

const expected = await embeddings("fp32");
const cosines = {};
for (const dtype of dtypes.split(",")) {
  const found = await embeddings(dtype);
  const products = found.map((row, number) => row.reduce((sum, value, i) => sum + value * expected[number][i], 0));
  cosines[dtype] = Math.min(...products);
}
console.log(JSON.stringify({ version: env.version, cosines }));
