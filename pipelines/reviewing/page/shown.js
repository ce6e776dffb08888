// From data to the page. Every text of a catalog becomes a text node, never HTML.

// What would steer the page (controls, bidirectional overrides, invisible tags) becomes a small label.
const STEERING = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

export const byId = (id) => document.getElementById(id);

export function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

export function shown(text) {
  const made = document.createDocumentFragment();
  let end = 0;
  for (const match of text.matchAll(STEERING)) {
    made.append(text.slice(end, match.index));
    const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    made.append(element("span", "ctl", `U+${code}`));
    end = match.index + match[0].length;
  }
  made.append(text.slice(end));
  return made;
}

const isolated = (text) => element("bdi", "", shown(text));
const percent = (share) => `${Math.round(share * 100)}%`;
const count = (number) => number.toLocaleString("en");

export function showAnswer(answer) {
  byId("place").replaceChildren(isolated(answer.category), " · ", isolated(answer.product_id ?? "no id"));
  byId("asked").replaceChildren(isolated(answer.attribute.name));
  byId("about").replaceChildren(...about(answer.attribute));
  byId("value").replaceChildren(...value(answer.answer));
  const mine = byId("mine");
  mine.hidden = !answer.mine;
  mine.replaceChildren("You said: ", isolated(answer.mine ? said(answer.mine) : ""));
  showText(answer.fields);
}

export function said(mine) {
  const verdicts = { accept: "right", absent: "not stated", skip: "skipped" };
  return verdicts[mine.verdict] ?? mine.items.join("; ");
}

function about(attribute) {
  const kinds = { string: "text", boolean: "yes or no", enum: `one of ${attribute.members}` };
  const parts = [`${attribute.multiple ? "several: " : ""}${kinds[attribute.type] ?? attribute.type}`];
  if (attribute.unit) parts.push(" in ", isolated(attribute.unit));
  if (attribute.description) parts.push(" · ", isolated(attribute.description));
  return parts;
}

function value(answer) {
  const lines = answer.items.flatMap((item) => {
    const made = element("p", "item", isolated(item.text ?? ""));
    if (item.norm) made.append(element("span", "soft", " → ", isolated(item.norm)));
    if (item.is_unclear) made.append(element("span", "soft", " → its unit, or how it is read, is not clear"));
    return item.places === 0 ? [made, element("p", "soft", "stands nowhere in the text")] : [made];
  });
  const kinds = { absent: "not stated in the text", truncated: "cut off", invalid: "no valid value", error: "failed" };
  if (kinds[answer.status]) lines.push(element("p", answer.status === "absent" ? "item" : "soft", kinds[answer.status]));
  if (answer.confidence !== null) lines.push(element("p", "soft", `confidence that it is right: ${percent(answer.confidence)}`));
  else if (answer.probability !== null)
    lines.push(element("p", "soft", `the model's own probability: ${percent(answer.probability)}`));
  return lines;
}

function showText(fields) {
  const box = byId("text");
  if (!fields) {
    box.replaceChildren(element("p", "soft", "The text is not shown: its file has changed, moved or cannot be read."));
    return;
  }
  box.replaceChildren(
    ...fields.flatMap((field) => {
      const text = element("p", "", ...field.segments.map(segment));
      text.dir = "auto";
      return [element("h3", "", isolated(field.name)), text];
    }),
  );
  const first = box.querySelector("mark");
  box.scrollTop = first ? Math.max(0, first.offsetTop - box.clientHeight / 3) : 0;
}

function segment([text, match]) {
  return match === null ? shown(text) : element("mark", match.replace(" ", "-"), shown(text));
}

export function showProgress(state) {
  byId("run").replaceChildren("Review of ", isolated(state.run));
  document.title = byId("run").textContent;
  const parts = [`${count(state.reviewed)} reviewed (${count(state.mine)} by you), ${count(state.waiting)} to go`];
  const { pairs, share, kappa } = state.agreement;
  if (pairs) parts.push(`${percent(share)} agreement on ${count(pairs)}${kappa === null ? "" : `, kappa ${kappa.toFixed(2)}`}`);
  byId("progress").textContent = parts.join(" · ");
}

export function showFilters(state) {
  const category = byId("category"), attribute = byId("attribute");
  const chosen = [category.value, attribute.value];
  const pairs = state.pairs.filter(([name]) => !chosen[0] || name === chosen[0]);
  fill(category, [...new Set(state.pairs.map(([name]) => name))], chosen[0]);
  fill(attribute, [...new Set(pairs.map(([, name]) => name))].sort(), chosen[1]);
  byId("chosen").replaceChildren(isolated(chosen.filter(Boolean).join(" · ") || "All answers"));
}

function fill(select, names, chosen) {
  const all = new Option("all", "");
  select.replaceChildren(all, ...names.map((name) => new Option(name, name, false, name === chosen)));
}
