// Numbers as people read them; JSON has infinities as text.

function num(value) { return value === null || value === undefined ? null : Number(value === "inf" ? Infinity : value === "-inf" ? -Infinity : value); }

// Numbers of a chart: the upper halves of float32, in base64.
function unpackNumbers(text) {
  const binary = atob(text), bits = new Uint32Array(binary.length / 2);
  for (let i = 0; i < bits.length; i++) bits[i] = (binary.charCodeAt(2 * i) | binary.charCodeAt(2 * i + 1) << 8) << 16;
  return [...new Float32Array(bits.buffer)];
}

function db(value) {
  const v = num(value);
  if (v === null || Number.isNaN(v)) return "–";
  return v === Infinity ? "exact" : v === -Infinity ? "−∞ dB" : v.toFixed(1) + " dB";
}

function sig(value, digits) {
  const v = num(value);
  if (v === null) return "–";
  if (!Number.isFinite(v)) return String(v);
  if (v !== 0 && (Math.abs(v) < 1e-3 || Math.abs(v) >= 1e7)) return v.toExponential((digits || 4) - 1).replace(/\.?0+e/, "e");
  return String(Number(v.toPrecision(digits || 4)));
}

function count(value) { return value === null || value === undefined ? "–" : Number(value).toLocaleString("en-US"); }

function ms(value) { return value === null || value === undefined ? "–" : sig(value, 3); }

function big(value) {
  if (value === null || value === undefined) return "–";
  for (const [limit, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (value >= limit) return (value / limit).toFixed(value >= 100 * limit ? 0 : 1) + " " + unit;
  return String(value);
}

function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [limit, unit] of [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"]]) if (value >= limit) return (value / limit).toFixed(1) + " " + unit;
  return value + " B";
}

function percent(value, digits) {
  if (value === null || value === undefined) return "–";
  const v = 100 * value;
  return (v > 0 && v < 0.01 ? v.toExponential(1) : v.toFixed(digits === undefined ? (v === 100 || v === 0 ? 0 : v > 99 || v < 1 ? 2 : 1) : digits)) + " %";
}

// Noise as a part of the signal from SQNR, and back.
function power(sqnr) { const v = num(sqnr); return v === null || Number.isNaN(v) ? null : Math.pow(10, -v / 10); }
function fromPower(p) { return p === null ? null : p === 0 ? Infinity : -10 * Math.log10(p); }
