// A table of any length: only the rows that are seen are in the document.

const ROW = 32;

// columns: {title, value(row), text(row), number, width, node(row)}; options: {open(row), label, sort, filter}
function table(columns, rows, options) {
  options = options || {};
  let order = rows.slice(), sorted = null, down = false;
  const body = el("tbody"), before = el("tbody", {"aria-hidden": "true"}), after = el("tbody", {"aria-hidden": "true"});
  const heads = columns.map((column) => el("th", {class: column.number ? "n" : null, style: "width:" + (column.width || (column.number ? "6rem" : "auto")), scope: "col"},
    el("button", {onclick: () => { down = sorted === column ? !down : !!column.number; sorted = column; arrange(); }}, column.title)));
  const grid = el("table", {class: "fixed", "aria-label": options.label, "aria-rowcount": rows.length + 1}, el("thead", {}, el("tr", {}, heads)), before, body, after);
  const scroll = el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": options.label}, grid);
  let from = -1, to = -1;

  function arrange() {
    const words = filter ? filter.value.trim().toLowerCase() : "";
    order = words ? rows.filter((row) => columns.some((column) => String(column.text ? column.text(row) : column.value(row)).toLowerCase().includes(words))) : rows.slice();
    if (sorted) {
      const of = (row) => { const value = sorted.value(row); return sorted.number ? (value === null || value === undefined || Number.isNaN(num(value)) ? -Infinity : num(value)) : String(value); };
      order = order.map((row, place) => [of(row), place, row]).sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] - b[1]) * (down && a[0] !== b[0] ? -1 : 1)).map((one) => one[2]);
    }
    heads.forEach((head, i) => head.setAttribute("aria-sort", columns[i] !== sorted ? "none" : down ? "descending" : "ascending"));
    said.textContent = order.length === rows.length ? count(rows.length) + " rows" : count(order.length) + " of " + count(rows.length) + " rows";
    scroll.scrollTop = 0; from = -1; fill();
  }

  function fill() {
    const height = scroll.clientHeight || 600, first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - 8), last = Math.min(order.length, first + Math.ceil(height / ROW) + 16);
    if (first === from && last === to) return;
    from = first; to = last;
    space(before, first * ROW); space(after, (order.length - last) * ROW);
    body.replaceChildren(...order.slice(first, last).map((row, i) => el("tr", {class: options.open ? "pick" : null, "aria-rowindex": first + i + 2, onclick: options.open ? () => options.open(row) : null},
      columns.map((column, at) => cell(column, row, at)))));
  }

  function cell(column, row, at) {
    const text = String(column.text ? column.text(row) : column.value(row));
    const inside = column.node ? column.node(row) : at === 0 && options.open ? el("button", {class: "link name", onclick: (event) => { event.stopPropagation(); options.open(row); }}, text) : text;
    return el("td", {class: column.number ? "n" : null, title: text.length > 24 ? text : null}, inside);
  }

  function space(part, height) { part.replaceChildren(...(height > 0 ? [el("tr", {}, el("td", {colspan: columns.length, style: "border:0;padding:0;height:" + height + "px"}))] : [])); }

  const filter = rows.length > 8 ? el("input", {type: "search", placeholder: "filter", "aria-label": "Filter " + (options.label || "rows"), oninput: () => arrange()}) : null;
  const said = el("span", {class: "muted", role: "status"});
  scroll.addEventListener("scroll", fill, {passive: true});
  new ResizeObserver(fill).observe(scroll);
  if (options.sort) { sorted = columns[options.sort.column]; down = !!options.sort.down; }
  arrange();
  return el("div", {}, el("div", {class: "bar"}, filter, said), scroll);
}

// A short table that is simply there. Columns are as wide as short values are, so that no word is cut in two; a narrow
// window scrolls it.
function plainTable(heads, rows, label) {
  const cells = rows.map((row) => row.map((one) => el("td", {}, one)));
  const wide = heads.map((head, i) => Math.min(20, Math.max(head.length, ...cells.map((row) => Math.min(400, row[i].textContent.length)))));
  return el("div", {class: "scroll", style: "max-height:none", tabindex: "0", role: "region", "aria-label": label || heads.join(", ")},
    el("table", {}, el("thead", {}, el("tr", {}, heads.map((head, i) => el("th", {scope: "col", style: "min-width:calc(" + (0.9 * wide[i]).toFixed(1) + "ch + 1.4rem)"}, head)))), el("tbody", {}, cells.map((row) => el("tr", {}, row)))));
}
