// What both pages share. Everything that comes from a table is set as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined));
  return made;
}

export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

export const byId = id => document.getElementById(id);

export const number = value => value.toLocaleString("en");

export function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (bytes >= 999.5 && unit < units.length - 1) { bytes /= 1000; unit += 1; }
  return `${unit ? Number(bytes.toPrecision(3)) : bytes} ${units[unit]}`;
}

export function moment(text) {
  return String(text).replace("T", " ").replace(/(\+00:00|Z)$/, "").replace(/:00$/, "");
}

export function plural(count, what) {
  return `${number(count)} ${what}${count === 1 ? "" : "s"}`;
}

export class Failure extends Error {
  constructor(error) {
    super(error.message);
    this.details = error;
  }
}

export async function ask(path, options = {}) {
  const answer = await fetch(path, { credentials: "same-origin", ...options });
  let found;
  try {
    found = await answer.json();
  } catch {
    throw new Failure({ message: `The server answered ${answer.status}. Is it still running?` });
  }
  if (found.error) throw new Failure(found.error);
  return found;
}

export function shown(value) {
  if (value === null || value === undefined) return el("span", { class: "null" }, "null");
  return document.createTextNode(String(value));
}

// The kind of a column is a class: `num` for numbers, `short` for what is not broken into lines.
export function dataTable(columns, rows, { caption = "", kinds = {} } = {}) {
  const head = columns.map(c => el("th", { scope: "col", class: kinds[c] }, c));
  const body = rows.map(row => el("tr", {}, row.map((value, at) =>
    el("td", { class: kinds[columns[at]] }, value instanceof Node ? value : shown(value)))));
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    el("table", { class: "grid-view" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

export async function chooseTable(select, current) {
  const { tables } = await ask("/api/tables");
  select.replaceChildren(...tables.map(one =>
    el("option", { value: one.name, selected: one.name === current }, one.name)));
  return tables;
}
