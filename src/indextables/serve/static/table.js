// The page of a table: its report, live, at any version, and what changed between two.

import { ask, byId, chooseTable, dataTable, el, moment, number, plural } from "./parts.js";

const name = decodeURIComponent(location.pathname.split("/")[2]);
const place = `/api/tables/${encodeURIComponent(name)}`;
let versions = [];

function chosen() {
  return versions[Number(byId("version").value)];
}

function describe() {
  const one = chosen();
  byId("which").textContent = `${number(one.version)} · ${one.operation ?? "unknown"} · ` +
    String(one.timestamp).replace("T", " ").slice(0, 19);
  byId("since").max = one.version;
}

function show() {
  const one = chosen(), newest = one.version === versions.at(-1).version;
  const version = newest ? "" : `?version=${one.version}`;
  byId("report").src = `/tables/${encodeURIComponent(name)}/report${version}`;
  const table = encodeURIComponent(name);
  byId("then").href = newest ? `/?table=${table}` : `/?table=${table}&v=${one.version}`;
  history.replaceState(null, "", `/tables/${table}${version}`);
}

function fit() {
  const frame = byId("report"), inside = frame.contentDocument?.documentElement;
  if (inside) frame.style.height = `${inside.scrollHeight + 8}px`;
}

async function compare(event) {
  event.preventDefault();
  const given = new URLSearchParams({ since: byId("since").value, version: chosen().version });
  if (byId("query").value.trim()) given.set("query", byId("query").value.trim());
  try {
    const found = await ask(`${place}/changes?${given}`);
    byId("problem").hidden = true;
    const before = found.total_since === null ? "" : ` (${number(found.total_since)} before)`;
    const names = found.rows.length ? Object.keys(found.rows[0]) : [];
    const first = ["_change_type", "_commit_version"], rest = names.filter(n => !n.startsWith("_c"));
    const rows = found.rows.map(row => [...first, ...rest].map(n => {
      const value = typeof row[n] === "object" && row[n] !== null ? JSON.stringify(row[n]) : row[n];
      if (/^\d{4}-\d\d-\d\dT/.test(value)) return moment(value);
      return typeof value === "string" && value.length > 120 ? `${value.slice(0, 120)}…` : value;
    }));
    const named = ["change", "version", ...rest];
    const kinds = Object.fromEntries(named.map((n, at) =>
      [n, rows.every(row => String(row[at]).length < 28) ? "short" : undefined]));
    byId("changes").replaceChildren(
      el("p", {}, `Version ${number(found.version)} has ${plural(found.total, "row")}${before}; ` +
        `${plural(found.changes, "change")} since version ${number(found.since)}` +
        `${found.changes > rows.length ? `, the first ${number(rows.length)} shown` : ""}.`),
      rows.length ? dataTable(named, rows, { caption: "Changes", kinds }) : "");
  } catch (error) {
    byId("changes").replaceChildren();
    byId("problem").hidden = false;
    byId("problem").textContent = error.message;
  }
}

async function begin() {
  document.title = `${name}: table`;
  byId("search").href = `/?table=${encodeURIComponent(name)}`;
  try {
    await chooseTable(byId("tables"), name);
    versions = (await ask(`${place}/history`)).versions.reverse();
    const asked = new URLSearchParams(location.search).get("version");
    const at = versions.findIndex(v => String(v.version) === asked);
    byId("version").max = versions.length - 1;
    byId("version").value = at < 0 ? versions.length - 1 : at;
    byId("since").value = versions[Math.max(0, versions.length - 2)].version;
    describe();
    show();
  } catch (error) {
    byId("problem").hidden = false;
    byId("problem").textContent = error.message;
  }
}

byId("version").addEventListener("input", describe);
byId("version").addEventListener("change", show);
byId("report").addEventListener("load", fit);
addEventListener("resize", fit);
byId("diff").addEventListener("submit", compare);
byId("tables").addEventListener("change", event => {
  location.assign(`/tables/${encodeURIComponent(event.target.value)}`);
});
begin();
