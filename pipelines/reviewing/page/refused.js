// What was said to an earlier server and this one does not take: which, and why.

import { byId, element, said, shown } from "./shown.js";

// `look` is told the key of an answer, `drop` what is not to be kept any longer.
export function showRefused(refused, look, drop) {
  const lines = refused.map((each) => {
    const { question, problem } = each;
    const line = element("li", "", ...about(question), ` (${question.reviewer}): `, shown(problem), " ");
    if (question.key) line.append(button("Look", () => look(question.key)));
    line.append(button("Drop", () => drop([each])));
    return line;
  });
  byId("refused").hidden = !lines.length;
  byId("refused-list").replaceChildren(...lines);
}

function about({ key, verdict, items }) {
  if (!key) return ["undo"];
  const row = `${key.source_file.split("/").pop()}:${key.source_row}`;
  return [shown(`${key.attribute} of ${row}, "${said({ verdict, items })}"`)];
}

function button(text, press) {
  const made = element("button", "", text);
  made.type = "button";
  made.addEventListener("click", press);
  return made;
}
