"use strict";
// Elements made of text alone: nothing that comes out of a model is ever read as markup.

let D = null; // the data of the page
const views = []; // {id, title, has(), draw(box, argument)}

function view(id, title, has, draw) { views.push({id, title, has, draw}); }

function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "class") node.className = value;
    else if (key === "style") node.style.cssText = value;
    else node.setAttribute(key, value === true ? "" : key === "title" || key === "aria-label" ? shown(String(value)) : value);
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(shown(String(child))));
  }
  return node;
}

// Control and format characters as escapes: a name cannot change how the text around it is read.
function shown(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (letter) => {
    if (letter === "\n") return letter;
    const code = letter.codePointAt(0);
    return code < 256 ? "\\x" + code.toString(16).padStart(2, "0") : "\\u" + code.toString(16).padStart(4, "0");
  });
}

function say(text) { document.getElementById("said").textContent = shown(text); }

// A line to copy, with its button.
function copyLine(line) {
  const button = el("button", {onclick: async () => {
    try { await navigator.clipboard.writeText(line); } catch { select(pre); document.execCommand("copy"); }
    button.textContent = "Copied"; say("Copied");
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }}, "Copy");
  const pre = el("pre", {}, line);
  return el("div", {class: "copy"}, pre, button);
}

function select(node) {
  const range = document.createRange();
  range.selectNodeContents(node);
  getSelection().removeAllRanges();
  getSelection().addRange(range);
}

function pairs(rows) {
  const list = el("dl");
  for (const [label, value] of rows) if (value !== null && value !== undefined && value !== "")
    list.append(el("dt", {}, label), el("dd", {}, value));
  return list;
}

const LIGHTS = {good: "● good", look: "▲ look", bad: "■ bad", none: "○ not judged"};
function light(kind) { return el("span", {class: "light " + kind}, LIGHTS[kind]); }

function key(color, text) { return el("span", {class: "key"}, el("i", {style: "background:" + color, "aria-hidden": "true"}), text); }
