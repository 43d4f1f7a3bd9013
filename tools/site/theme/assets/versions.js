// The menu of versions in the header. `siteVersions` comes from versions.js in the folder above this version.
document.addEventListener("DOMContentLoaded", function () {
  const own = document.querySelector("meta[name=site-version]");
  const title = document.querySelector(".md-header__title");
  if (!own || !title) return;
  const versions = window.siteVersions || [];
  const root = new URL(own.dataset.root, location.href);
  const menu = document.createElement("select");
  menu.className = "site-version";
  menu.setAttribute("aria-label", "Version");
  for (const version of versions.includes(own.content) ? versions : [own.content, ...versions]) {
    menu.append(new Option(version, version, false, version === own.content));
  }
  menu.addEventListener("change", function () {
    // The same page may not exist there: the start of that version always does.
    location.href = new URL("../" + encodeURIComponent(menu.value) + "/index.html", root);
  });
  title.after(menu);
});
