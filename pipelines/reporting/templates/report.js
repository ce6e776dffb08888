"use strict";
// Filters and keys for attributes and sampled products. Without it the page shows all products, and each attribute once.
(() => {
  const byId = (id) => document.getElementById(id);
  const chosen = (select) => (select.value === "" ? "" : select.selectedOptions[0].textContent);
  const folded = (text) => text.trim().toLocaleLowerCase();

  function attributes() {
    const table = byId("attribute-table");
    if (!table) return null;
    const rows = [...table.tBodies[0].rows];
    const search = byId("attribute-search"), category = byId("attribute-category"), more = byId("attribute-more");
    let most = 20;

    function apply(limit = most) {
      const words = folded(search.value);
      let found = 0;
      for (const row of rows) {
        const name = folded(row.cells[0].querySelector("bdi").textContent);
        const fits = row.dataset.c === category.value && name.includes(words);
        found += fits;
        row.hidden = !fits || found > limit;
      }
      byId("attribute-count").textContent = [`${found} attribute${found === 1 ? "" : "s"}`, chosen(category)].filter(Boolean).join(" · ");
      byId("attribute-none").hidden = found > 0;
      more.hidden = found <= limit;
      more.textContent = `${found - limit} more`;
    }

    byId("attribute-controls").hidden = false;
    for (const control of [search, category]) control.addEventListener("input", () => apply());
    addEventListener("beforeprint", () => apply(Infinity));
    addEventListener("afterprint", () => apply());
    more.addEventListener("click", () => {
      most = Infinity;
      apply();
    });
    apply();
    return { table, search, category };
  }

  function sample() {
    const list = byId("sample-list");
    if (!list) return null;
    const products = [...list.children];
    const category = byId("sample-category"), kind = byId("sample-kind"), search = byId("sample-search");
    const attribute = byId("sample-attribute"), fold = byId("sample-fold");
    const places = new Map();

    function apply() {
      const words = folded(search.value);
      let shown = 0;
      for (const product of products) {
        const fits =
          (category.value === "" || product.dataset.c === category.value) &&
          (attribute.value === "" || product.dataset.a.split(" ").includes(attribute.value)) &&
          (kind.value === "" || product.dataset.f.split(" ").includes(kind.value)) &&
          (words === "" || folded(product.textContent).includes(words));
        product.hidden = !fits;
        shown += fits;
        for (const answer of product.querySelectorAll("[data-a]")) {
          answer.hidden = attribute.value !== "" && answer.dataset.a !== attribute.value;
        }
      }
      const names = [chosen(category), chosen(attribute)];
      byId("sample-count").textContent = [`${shown} of ${products.length}`, ...names].filter(Boolean).join(" · ");
      byId("sample-none").hidden = shown > 0;
    }

    function move(step) {
      const open = products.filter((product) => !product.hidden);
      if (!open.length) return;
      const here = open.indexOf(document.activeElement.closest(".entry"));
      const next = here < 0 ? 0 : Math.min(open.length - 1, Math.max(0, here + step));
      open[next].firstElementChild.focus({ preventScroll: true });
      open[next].scrollIntoView({ block: "nearest" });
    }

    function openAll(on) {
      for (const product of products) product.open = on && !product.hidden;
      fold.textContent = on ? "close all" : "open all";
    }

    // Marks and rows of one value light up together.
    function light(target, on) {
      const owner = target.closest && target.closest("[data-v]");
      if (!owner) return;
      const product = owner.closest(".entry");
      for (const value of owner.dataset.v.split(" ")) {
        for (const each of product.querySelectorAll(`[data-v~="${Number(value)}"]`)) each.classList.toggle("on", on);
      }
    }

    // Each press goes on to the value's next place.
    function visit(button) {
      const marks = button.closest(".entry").querySelectorAll(`mark[data-v~="${Number(button.dataset.v)}"]`);
      if (!marks.length) return;
      const next = (places.get(button) ?? -1) + 1;
      places.set(button, next % marks.length);
      marks[next % marks.length].scrollIntoView({ block: "nearest" });
    }

    // Of one that is opened at the window's edge nothing would be seen.
    list.addEventListener("toggle", ({ target }) => {
      if (target.open && target.contains(document.activeElement)) target.scrollIntoView({ block: "nearest" });
    }, true);

    byId("sample-controls").hidden = false;
    for (const control of [category, attribute, kind, search]) control.addEventListener("input", apply);
    fold.addEventListener("click", () => openAll(fold.textContent === "open all"));
    for (const [event, on] of [["mouseover", true], ["mouseout", false], ["focusin", true], ["focusout", false]]) {
      list.addEventListener(event, (happened) => light(happened.target, on));
    }
    list.addEventListener("click", (happened) => {
      const button = happened.target.closest("button[data-v]");
      if (button) visit(button);
    });
    // The first of those that fit; what is longer is no paper that anybody reads.
    function forPaper() {
      const fitting = products.filter((product) => !product.hidden);
      for (const [place, product] of fitting.entries()) product.classList.toggle("off-paper", place >= 20);
      return fitting.slice(0, 20);
    }

    apply();
    return { apply, move, forPaper, search, category, attribute };
  }

  const table = attributes(), products = sample();

  // On paper nothing can be opened.
  let opened = [];
  addEventListener("beforeprint", () => {
    const wanted = [...document.querySelectorAll("details:not(.entry)"), ...(products ? products.forPaper() : [])];
    opened = wanted.filter((each) => !each.open);
    for (const each of opened) each.open = true;
  });
  addEventListener("afterprint", () => {
    for (const each of opened) each.open = false;
  });

  // From an attribute to the sampled products that have it.
  if (table && products) {
    const known = new Set([...products.attribute.options].map((option) => option.value));
    for (const button of table.table.querySelectorAll("button[data-a]")) button.hidden = !known.has(button.dataset.a);
    table.table.addEventListener("click", (happened) => {
      const button = happened.target.closest("button[data-a]");
      if (!button) return;
      products.attribute.value = button.dataset.a;
      products.category.value = button.closest("tr").dataset.c;
      products.apply();
      byId("sample").scrollIntoView();
      products.move(0);
    });
  }

  document.addEventListener("keydown", (pressed) => {
    if (pressed.ctrlKey || pressed.metaKey || pressed.altKey) return;
    if (pressed.target.matches("input, select, textarea")) {
      if (pressed.key === "Escape") pressed.target.blur();
      return;
    }
    if (pressed.key === "j" && products) products.move(1);
    else if (pressed.key === "k" && products) products.move(-1);
    else if (pressed.key === "/" && products) products.search.focus();
    else if (pressed.key === "a" && table) table.search.focus();
    else return;
    pressed.preventDefault();
  });
})();
