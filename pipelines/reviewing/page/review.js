// The flow of a review: what is asked, what is said, and the keys for it.

import { Editor } from "./editor.js";
import { showRefused } from "./refused.js";
import { ask, drop, GoneError, newId, tell, tellUnsent } from "./server.js";
import { byId, shown, showAnswer, showFilters, showProgress } from "./shown.js";

const NAME = "hpd-review-name";
const KEYS = {
  a: "accept", Enter: "accept", c: "correct", n: "absent", s: "skip", u: "undo",
  ArrowRight: "next", j: "next", ArrowLeft: "previous", k: "previous",
};

let reviewer = "";
let folder = "";
let answer = null; // what is shown
let seen = []; // keys of what was shown, in order
let at = -1;
let refused = []; // what an earlier page said and the server does not take
let isBusy = false;
const vocabularies = new Map();
const editor = new Editor(correctTo, closeEditor);

const DO = {
  accept: () => say("accept"),
  correct: openEditor,
  absent: () => say("absent"),
  skip: () => say("skip"),
  undo,
  next: () => move(1),
  previous: () => move(-1),
};

async function start() {
  byId("who").hidden = true;
  byId("rename").replaceChildren("Reviewer: ", shown(reviewer));
  await refresh();
  const told = await tellUnsent(folder);
  if (told.numSaved) await refresh();
  refuse(told.refused);
  byId("filters").hidden = false;
  await showNext();
}

async function refresh() {
  const state = await ask("state", { reviewer });
  folder = state.folder;
  showProgress(state);
  showFilters(state);
}

async function showNext() {
  const wish = { category: byId("category").value || null, attribute: byId("attribute").value || null };
  const { answer: found } = await ask("next", { reviewer, ...wish });
  if (!found) {
    show(null);
    return;
  }
  seen.push(found.key);
  at = seen.length - 1;
  show(found);
}

async function showSeen(place, before = "") {
  const { answer: found, problem } = await ask("answer", { reviewer, key: seen[place] });
  if (found) {
    at = place;
    show(found);
    return;
  }
  seen.splice(place, 1);
  if (place < at) at -= 1;
  if (!answer) show(null);
  closeEditor();
  byId(answer ? "problem" : "done").textContent = `${before}${problem}`;
}

function isOf(key, other) {
  return Object.keys(key).every((name) => other?.[name] === key[name]);
}

async function showKey(key, before) {
  const same = seen.findIndex((each) => isOf(key, each));
  if (same < 0) seen.splice(Math.max(0, at), 0, key);
  await showSeen(same < 0 ? Math.max(0, at) : same, before);
}

function refuse(left) {
  refused = left;
  showRefused(refused, (key) => run(() => showKey(key)), forget);
}

function forget(gone) {
  for (const { question } of gone) drop(question);
  refuse(refused.filter((each) => !gone.includes(each)));
}

function show(found) {
  answer = found;
  closeEditor();
  byId("desk").hidden = !found;
  byId("done").hidden = Boolean(found);
  if (!found) {
    byId("done").textContent = "Nothing is left to review here. Choose other answers above, or end the server.";
    return;
  }
  document.querySelector("[data-do=accept]").disabled = !["value", "absent"].includes(found.answer.status);
  document.querySelector("[data-do=previous]").disabled = at <= 0;
  showAnswer(found);
  byId("card").scrollTop = 0;
  byId("card").focus({ preventScroll: true });
}

async function move(step) {
  closeEditor();
  if (step > 0 && at + 1 >= seen.length) await showNext();
  else if (at + step >= 0) await showSeen(at + step);
}

async function say(verdict, items = []) {
  if (!answer || (verdict === "accept" && document.querySelector("[data-do=accept]").disabled)) return;
  const { key, input_hash } = answer;
  const reply = await tell("say", folder, { id: newId(), reviewer, key, input_hash, verdict, items });
  if (reply.problem) {
    byId("problem").textContent = reply.problem;
    return;
  }
  forget(refused.filter(({ question }) => isOf(key, question.key) && question.reviewer === reviewer));
  await refresh();
  await move(1);
}

async function undo() {
  const { key, problem } = await tell("undo", folder, { id: newId(), reviewer });
  if (!key) {
    byId("problem").textContent = problem ?? "There is nothing to undo.";
    return;
  }
  await refresh();
  await showKey(key, "What you said is taken back. To be shown again: ");
}

async function openEditor() {
  if (!answer) return;
  const { attribute, category } = answer;
  const name = JSON.stringify([category, attribute.name]);
  if (!vocabularies.has(name)) {
    const listed = attribute.members || attribute.type === "boolean";
    const { members } = listed ? await ask("vocabulary", { category, attribute: attribute.name }) : { members: [] };
    vocabularies.set(name, members);
  }
  const values = answer.mine?.verdict === "correct" ? answer.mine.items : answer.answer.items.map((item) => item.typed ?? "");
  byId("problem").textContent = "";
  editor.open(attribute, answer.answer.status === "value" ? values : (answer.mine?.items ?? []), vocabularies.get(name));
}

function correctTo(items) {
  run(() => say("correct", items));
}

function closeEditor() {
  byId("problem").textContent = "";
  if (!editor.isOpen) return;
  editor.close();
  byId("card").focus({ preventScroll: true });
}

// One thing at a time: a key that is held down, or pressed while an answer is on its way, says nothing.
async function run(action) {
  if (isBusy) return;
  isBusy = true;
  document.body.setAttribute("aria-busy", "true");
  try {
    await action();
  } catch (error) {
    if (!(error instanceof GoneError)) throw error; // the page has said so
  } finally {
    isBusy = false;
    document.body.setAttribute("aria-busy", "false");
  }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || byId("desk").hidden) return;
  if (event.target.closest("input, select")) return;
  if (event.key === "Enter" && event.target.closest("button, summary")) return;
  const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action) return;
  event.preventDefault();
  run(DO[action]);
});

byId("actions").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) run(DO[button.dataset.do]);
});

for (const name of ["category", "attribute"])
  byId(name).addEventListener("change", () => {
    if (name === "category") byId("attribute").value = "";
    run(async () => {
      await refresh();
      await showNext();
    });
  });

byId("rename").addEventListener("click", () => {
  byId("desk").hidden = true;
  byId("who").hidden = false;
  byId("name").focus();
});

byId("who").addEventListener("submit", (event) => {
  event.preventDefault();
  reviewer = byId("name").value.trim();
  if (!reviewer) return;
  localStorage.setItem(NAME, reviewer);
  [seen, at] = [[], -1];
  run(start);
});

reviewer = localStorage.getItem(NAME) ?? "";
if (reviewer) run(start);
else {
  byId("who").hidden = false;
  byId("name").focus();
}
