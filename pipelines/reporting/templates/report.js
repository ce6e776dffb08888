"use strict";
// Filters and keys for the sampled products. Without it the page shows all of them.
(() => {
  const list = document.getElementById("sample-list");
  if (!list) return;
  const byId = (id) => document.getElementById(id);
  const products = [...list.children];
  const category = byId("sample-category"), kind = byId("sample-kind"), search = byId("sample-search");
  const places = new Map();

  function apply() {
    const words = search.value.trim().toLocaleLowerCase();
    let shown = 0;
    for (const product of products) {
      const fits =
        (category.value === "" || product.dataset.c === category.value) &&
        (kind.value === "" || product.dataset.f.split(" ").includes(kind.value)) &&
        (words === "" || product.textContent.toLocaleLowerCase().includes(words));
      product.hidden = !fits;
      shown += fits;
    }
    byId("sample-count").textContent = `${shown} of ${products.length}`;
    byId("sample-none").hidden = shown > 0;
  }

  function move(step) {
    const open = products.filter((product) => !product.hidden);
    if (!open.length) return;
    const here = open.indexOf(document.activeElement.closest("article"));
    const next = here < 0 ? 0 : Math.min(open.length - 1, Math.max(0, here + step));
    open[next].focus({ preventScroll: true });
    open[next].scrollIntoView({ block: "start" });
  }

  // Marks and rows of one value light up together.
  function light(target, on) {
    const owner = target.closest && target.closest("[data-v]");
    if (!owner) return;
    const product = owner.closest("article");
    for (const value of owner.dataset.v.split(" ")) {
      for (const each of product.querySelectorAll(`[data-v~="${Number(value)}"]`)) each.classList.toggle("on", on);
    }
  }

  // Each press goes on to the value's next place.
  function visit(button) {
    const marks = button.closest("article").querySelectorAll(`mark[data-v~="${Number(button.dataset.v)}"]`);
    if (!marks.length) return;
    const next = (places.get(button) ?? -1) + 1;
    places.set(button, next % marks.length);
    marks[next % marks.length].scrollIntoView({ block: "nearest" });
  }

  byId("sample-controls").hidden = false;
  for (const control of [category, kind, search]) control.addEventListener("input", apply);
  for (const [event, on] of [["mouseover", true], ["mouseout", false], ["focusin", true], ["focusout", false]]) {
    list.addEventListener(event, (happened) => light(happened.target, on));
  }
  list.addEventListener("click", (happened) => {
    const button = happened.target.closest("button[data-v]");
    if (button) visit(button);
  });
  document.addEventListener("keydown", (pressed) => {
    if (pressed.ctrlKey || pressed.metaKey || pressed.altKey) return;
    if (pressed.target.matches("input, select, textarea")) {
      if (pressed.key === "Escape") pressed.target.blur();
      return;
    }
    if (pressed.key === "j") move(1);
    else if (pressed.key === "k") move(-1);
    else if (pressed.key === "/") search.focus();
    else return;
    pressed.preventDefault();
  });
  apply();
})();
