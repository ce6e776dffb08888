// Questions to the server. What a reviewer says is kept in the browser until the server has it on its disk.

import { byId } from "./shown.js";

const UNSENT = "hpd-review-unsent-";
const RETRY_MS = 1500;
const SAYING = ["say", "undo"];

export class GoneError extends Error {}

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The server's answer; asked again for as long as it does not come.
export async function ask(path, question) {
  for (;;) {
    let problem;
    try {
      const reply = await fetch(path, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(question),
      });
      const data = await reply.json();
      if (reply.status === 404 && !data.problem) throw new GoneError();
      if (reply.status < 500) {
        warn("");
        return data;
      }
      problem = data.problem ?? `the server has failed (${reply.status})`;
    } catch (error) {
      if (error instanceof GoneError) {
        warn("The server was started anew: open the address that it has printed. What is not saved is kept here.");
        throw error;
      }
      problem = "the server does not answer";
    }
    warn(
      SAYING.includes(path)
        ? `Not saved yet: ${problem}. Trying again; this page keeps what you said.`
        : `Nothing can be shown: ${problem}. Trying again; nothing that you said is lost.`,
    );
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

export async function tell(path, folder, question) {
  const name = `${UNSENT}${question.id}`;
  localStorage.setItem(name, JSON.stringify({ path, folder, question, at: Date.now() }));
  const reply = await ask(path, question);
  localStorage.removeItem(name);
  return reply;
}

// What an earlier page of this run said and nobody acknowledged: said again, in its order, as the last word counts.
// What is refused stays, until it is dropped.
export async function tellUnsent(folder) {
  let numSaved = 0;
  const refused = [];
  for (const { path, question } of unsent(folder)) {
    const { problem } = await ask(path, question);
    if (problem) refused.push({ question, problem });
    else localStorage.removeItem(`${UNSENT}${question.id}`);
    numSaved += !problem;
  }
  return { numSaved, refused };
}

export function drop(question) {
  localStorage.removeItem(`${UNSENT}${question.id}`);
}

function unsent(folder) {
  return Object.keys(localStorage)
    .filter((name) => name.startsWith(UNSENT))
    .map((name) => JSON.parse(localStorage.getItem(name)))
    .filter((each) => each.folder === folder)
    .sort((first, second) => (first.at ?? 0) - (second.at ?? 0));
}

function warn(text) {
  const banner = byId("banner");
  banner.hidden = !text;
  if (banner.textContent !== text) banner.textContent = text;
}
