// The form for the right value: a combobox that completes a vocabulary, and chips where several values are asked for.

import { byId, element, shown } from "./shown.js";

const SHOWN = 30;
const fold = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().trim();

export class Editor {
  constructor(save, cancel) {
    this.form = byId("editor");
    this.input = byId("typed");
    this.list = byId("choices");
    this.save = save;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    byId("cancel").addEventListener("click", cancel);
    this.input.addEventListener("input", () => this.complete());
    this.input.addEventListener("keydown", (event) => this.press(event, cancel));
    this.list.addEventListener("mousedown", (event) => {
      const option = event.target.closest("li");
      if (!option) return;
      event.preventDefault(); // the input keeps the focus
      this.take(this.found[Number(option.dataset.index)].label);
    });
  }

  get isOpen() {
    return !this.form.hidden;
  }

  open(attribute, items, members) {
    this.multiple = attribute.multiple;
    this.members = members.map((member) => ({ ...member, keys: [member.label, ...(member.synonyms ?? [])].map(fold) }));
    this.items = this.multiple ? [...items] : [];
    this.input.value = this.multiple || this.members.length ? "" : (items[0] ?? "");
    byId("typed-label").textContent = this.multiple ? "Right values" : "Right value";
    byId("how").textContent = this.multiple
      ? "Enter adds a value; Enter on an empty line saves the list."
      : attribute.unit ? `A bare number is in ${attribute.unit}.` : "";
    this.form.hidden = false;
    this.showChips();
    this.complete();
    this.input.focus();
    this.input.select();
  }

  close() {
    this.form.hidden = true;
    this.list.hidden = true;
  }

  complete() {
    const typed = fold(this.input.value);
    const rank = (member) => {
      const at = Math.min(
        ...member.keys.map((key) => (key === typed ? 0 : key.startsWith(typed) ? 1 : key.includes(typed) ? 2 : 3)),
      );
      return this.items.includes(member.label) ? 3 : at;
    };
    const ranked = this.members.map((member) => [rank(member), member]).filter(([at]) => at < 3);
    // Stable: members keep the schema's order within a rank.
    ranked.sort(([first], [second]) => first - second);
    this.found = ranked.map(([, member]) => member).slice(0, SHOWN);
    // Enter takes what begins as it was typed; what only has it somewhere is chosen by hand.
    this.mark(typed && ranked.length && ranked[0][0] < 2 ? 0 : -1);
  }

  mark(index) {
    this.marked = index;
    this.list.replaceChildren(
      ...this.found.map((member, place) => {
        const made = element("li", "", shown(member.label));
        made.id = `choice-${place}`;
        made.dataset.index = place;
        made.setAttribute("role", "option");
        made.setAttribute("aria-selected", String(place === index));
        if (member.description) made.append(element("span", "soft", " · ", shown(member.description)));
        return made;
      }),
    );
    this.list.hidden = !this.found.length;
    this.input.setAttribute("aria-expanded", String(!this.list.hidden));
    if (index < 0) this.input.removeAttribute("aria-activedescendant");
    else {
      this.input.setAttribute("aria-activedescendant", `choice-${index}`);
      this.list.children[index].scrollIntoView({ block: "nearest" });
    }
  }

  press(event, cancel) {
    if (event.isComposing || event.keyCode === 229) return; // the key is the input method's; in Safari the last one, too
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") cancel();
    else if (event.key === "Enter") {
      if (!event.repeat) this.enter();
    }
    else if (step && this.found.length) this.mark((this.marked + step + this.found.length) % this.found.length);
    else if (event.key === "Backspace" && !this.input.value && this.items.length) {
      this.items.pop();
      this.showChips();
      this.complete();
    } else return;
    event.preventDefault();
  }

  get typed() {
    return this.marked >= 0 ? this.found[this.marked].label : this.input.value.trim();
  }

  enter() {
    const { typed } = this;
    if (typed) this.take(typed);
    else this.save(this.items);
  }

  // The button saves a list together with what is typed and not added to it yet.
  submit() {
    const { typed } = this;
    if (this.multiple && typed) this.take(typed);
    this.save(this.multiple ? this.items : [typed].filter(Boolean));
  }

  take(item) {
    if (!this.multiple) {
      this.save([item]);
      return;
    }
    if (!this.items.includes(item)) this.items.push(item);
    this.input.value = "";
    this.showChips();
    this.complete();
    this.input.focus();
  }

  showChips() {
    byId("chips").replaceChildren(
      ...this.items.map((item, place) => {
        const remove = element("button", "", shown(item), " ×");
        remove.type = "button";
        remove.setAttribute("aria-label", `remove ${item}`);
        remove.addEventListener("click", () => {
          this.items.splice(place, 1);
          this.showChips();
          this.complete();
          this.input.focus();
        });
        return element("li", "", remove);
      }),
    );
  }
}
