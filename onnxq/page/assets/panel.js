// Details beside the views, on a phone below them.

let opener = null;

function openPanel(title, ...content) {
  const panel = document.getElementById("panel");
  if (panel.hidden) opener = document.activeElement;
  const head = el("h2", {tabindex: "-1", class: "name"}, title);
  panel.replaceChildren(el("button", {class: "close", onclick: closePanel, "aria-label": "Close the details"}, "✕"), head);
  add(panel, content);
  panel.hidden = false;
  panel.scrollTop = 0;
  head.focus({preventScroll: true});
}

function closePanel() {
  const panel = document.getElementById("panel");
  if (panel.hidden) return;
  panel.hidden = true;
  panel.replaceChildren();
  if (opener && opener.isConnected) opener.focus({preventScroll: true});
}

document.addEventListener("keydown", (event) => { if (event.key === "Escape") closePanel(); });
