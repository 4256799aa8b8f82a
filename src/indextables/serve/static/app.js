// The search page. Its whole state is in the address, so a link is a search.

import { ask, byId, chooseTable, dataTable, el, Failure, moment, number, plural, shown, size, svg } from "./parts.js";

const PAGE = 20;
const LAST_ROW = 10000;
let state = read();
let info = null;      // what the table is
let opened = null;    // which table and version that is
let answer = null;    // of the last search
let running = null;   // the search under way
let language = "sql";

// --- state and address -------------------------------------------------------------------------

function read() {
  const given = new URLSearchParams(location.search);
  const filters = given.getAll("f").flatMap(text => {
    try { return [JSON.parse(text)]; } catch { return []; }
  });
  return {
    table: given.get("table"), query: given.get("q") ?? "", where: given.get("w") ?? "",
    filters: filters.filter(f => f && typeof f.column === "string"),
    columns: given.has("c") ? given.getAll("c") : null,
    view: given.get("view") === "table" ? "table" : "cards",
    page: Math.max(0, Number.parseInt(given.get("page") ?? "1", 10) - 1 || 0),
    version: given.get("v"),
  };
}

function address() {
  const made = new URLSearchParams();
  made.set("table", state.table);
  if (state.query) made.set("q", state.query);
  if (state.where) made.set("w", state.where);
  for (const one of state.filters) made.append("f", JSON.stringify(one));
  for (const one of state.columns ?? []) made.append("c", one);
  if (state.view === "table") made.set("view", "table");
  if (state.page) made.set("page", state.page + 1);
  if (state.version) made.set("v", state.version);
  return `/?${made}`;
}

function go(changes) {
  state = { ...state, page: 0, ...changes };
  history.pushState(null, "", address());
  return search();
}

// --- asking ------------------------------------------------------------------------------------

async function openTable() {
  const version = state.version ? `?version=${encodeURIComponent(state.version)}` : "";
  info = await ask(`/api/tables/${encodeURIComponent(state.table)}${version}`);
  opened = `${state.version ?? ""} ${state.table}`;
  document.title = `${info.name}: search`;
  byId("facts").textContent =
    `${plural(info.rows, "row")}${info.deleted_rows ? ` (and ${number(info.deleted_rows)} marked as deleted)` : ""} · ${plural(info.splits, "split")} · ${size(info.bytes)} · version ${info.version}`;
  byId("about").href = `/tables/${encodeURIComponent(state.table)}`;
  byId("tables").value = state.table;
}

async function search() {
  running?.abort();
  const mine = running = new AbortController();
  const slow = setTimeout(() => { byId("stop").hidden = false; }, 400);
  byId("query").value = state.query;
  byId("where").value = state.where;
  byId("condition").open ||= Boolean(state.where);
  drawChips();
  byId("results").setAttribute("aria-busy", "true");
  try {
    if (opened !== `${state.version ?? ""} ${state.table}`) await openTable();
    const body = {
      query: state.query, where: state.where, filters: state.filters, columns: state.columns ?? [],
      limit: PAGE, offset: state.page * PAGE, facets: info.facets, display: true,
    };
    if (info.time) body.histogram = info.time;
    if (state.version) body.version = Number(state.version);
    answer = await ask(`/api/tables/${encodeURIComponent(state.table)}/search`, {
      method: "POST", body: JSON.stringify(body), signal: mine.signal,
      headers: { "content-type": "application/json" },
    });
    if (answer.version !== info.version) await openTable();  // somebody wrote meanwhile
    complain(null);
    draw();
    if (!answer.total && state.query) await correct(mine);
  } catch (error) {
    if (error.name === "AbortError") {
      if (running === mine) byId("summary").textContent = "Stopped.";
      return;
    }
    complain(error);
  } finally {
    clearTimeout(slow);
    if (running === mine) {
      byId("stop").hidden = true;
      byId("results").removeAttribute("aria-busy");
    }
  }
}

// Nothing was found: are there words that may have been meant?
async function correct(mine) {
  const given = new URLSearchParams({ query: state.query, where: state.where });
  if (state.version) given.set("version", state.version);
  for (const one of state.filters) given.append("filters", JSON.stringify(one));
  const path = `/api/tables/${encodeURIComponent(state.table)}/instead?${given}`;
  const { instead } = await ask(path, { signal: mine.signal }).catch(() => ({}));
  if (!instead || running !== mine) return;
  byId("summary").append(" Did you mean ",
    el("button", { type: "button", class: "instead", onclick: () => go({ query: instead }) }, instead), "?");
}

function complain(error) {
  const place = byId("problem"), mirror = byId("mirror"), input = byId("query");
  place.hidden = error === null;
  mirror.replaceChildren();
  input.removeAttribute("aria-invalid");
  if (error === null) return;
  place.textContent = error.message;
  byId("summary").textContent = "No results: the search has an error.";
  byId("results").replaceChildren();
  for (const id of ["histogram", "paging", "how", "elsewhere"]) byId(id).hidden = true;
  answer = null;
  const details = error instanceof Failure ? error.details : {};
  if (Number.isInteger(details.position) && details.query === state.query) {
    // Positions count characters; JavaScript counts halves of some.
    const letters = [...state.query];
    const at = Math.min(details.position, Math.max(0, letters.length - 1));
    const end = details.field ? at + [...details.field].length : at + 1;
    mirror.append(letters.slice(0, at).join(""),
      el("span", { class: "wrong" }, letters.slice(at, end).join("") || " "),
      letters.slice(end).join(""));
    mirror.scrollLeft = input.scrollLeft;
    input.setAttribute("aria-invalid", "true");
  }
}

// --- drawing -----------------------------------------------------------------------------------

function draw() {
  const first = answer.offset + 1, last = answer.offset + answer.rows.length;
  const which = answer.rows.length && answer.total > PAGE ? `, ${number(first)} to ${number(last)} shown` : "";
  byId("summary").textContent = answer.total
    ? `${plural(answer.total, "row")} in ${number(Math.round(answer.milliseconds))} ms${which}`
    : "Nothing found.";
  drawHistogram();
  drawFacets();
  drawColumns();
  drawRows();
  drawPaging();
  drawPlan();
  drawElsewhere();
}

function drawChips() {
  const chips = state.filters.map((one, at) => chip(describe(one),
    () => go({ filters: state.filters.filter((_, i) => i !== at) })));
  if (state.where) chips.push(chip(state.where, () => go({ where: "" })));
  if (state.version) chips.push(chip(`version ${state.version}`, () => go({ version: null })));
  if (chips.length > 1) {
    chips.push(el("button", { type: "button", class: "link", onclick: () => go({ filters: [], where: "" }) }, "Clear all"));
  }
  byId("chips").replaceChildren(...chips);
}

function chip(text, remove) {
  return el("span", { class: "chip" }, el("span", { class: "clip" }, text),
    el("button", { type: "button", "aria-label": `Remove the filter ${text}`, onclick: remove }, "×"));
}

function describe(one) {
  if (one.values) {
    const values = one.values.map(v => v === null ? "null" : String(v)).join(", ");
    return `${one.column} ${one.not ? "is not" : "is"} ${values}`;
  }
  if (one.to === undefined) return `${one.column} from ${moment(one.from)}`;
  return `${one.column}: ${moment(one.from)} to ${moment(one.to)}`;
}

function addFilter(column, value, not) {
  const others = state.filters.filter(f => !(f.column === column && f.values && Boolean(f.not) === not));
  const mine = state.filters.find(f => f.column === column && f.values && Boolean(f.not) === not);
  const values = [...new Set([...(mine?.values ?? []), value])];
  return go({ filters: [...others, not ? { column, values, not } : { column, values }] });
}

function drawFacets() {
  const facets = Object.entries(answer.facets ?? {}).filter(([, values]) => values.length);
  byId("facets").replaceChildren(...facets.map(([column, values], at) => {
    const most = Math.max(1, ...values.map(v => v.count));
    return el("section", { class: "facet", "aria-labelledby": `facet-${at}` },
      el("h2", { id: `facet-${at}` }, column),
      el("ul", {}, values.map(({ value, count }) => {
        const name = value === null ? "null" : String(value) || "(empty)";
        return el("li", {},
          el("button", { type: "button", class: "value", onclick: () => addFilter(column, value, false),
            "aria-label": `${column} is ${name}: ${plural(count, "row")}` },
          el("span", { class: "clip" }, name), el("span", { class: "count" }, number(count)),
          meter(count / most)),
          el("button", { type: "button", class: "hide", title: `Hide rows where ${column} is ${name}`,
            "aria-label": `Hide rows where ${column} is ${name}`,
            onclick: () => addFilter(column, value, true) }, "−"));
      })));
  }));
}

function meter(share) {
  return svg("svg", { class: "meter", viewBox: "0 0 100 2", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { width: Math.max(1, share * 100), height: 2, class: "c1" }));
}

function drawColumns() {
  const chosen = new Set(answer.columns);
  byId("choose").replaceChildren(...info.columns.map(column => el("label", { class: "check" },
    el("input", { type: "checkbox", value: column.name, checked: chosen.has(column.name), onchange: choose }),
    el("span", { class: "clip" }, column.name), el("span", { class: "quiet" }, column.type))));
}

function choose() {
  const chosen = [...byId("choose").querySelectorAll("input:checked")].map(box => box.value);
  if (!chosen.length) return drawColumns();
  return go({ columns: chosen.length === info.columns.length ? null : chosen, page: state.page });
}

const texts = () => new Set(info.columns.filter(c => c.text).map(c => c.name));

function marked(parts) {
  return parts.map(part => part.found ? el("mark", {}, part.text) : part.text);
}

function behind(row) {
  const score = row.score === undefined ? [] : [["score", String(row.score)]];
  const parts = el("div", { class: "why" });
  return el("details", { class: "behind", ontoggle: () => explain(row, parts) },
    el("summary", {}, row.score === undefined ? "Where it is" : "Why and where"), parts,
    el("dl", {}, [...score, ["split", row.split], ["row", String(row.row)]].map(([name, value]) =>
      [el("dt", {}, name), el("dd", {}, el("code", {}, value))])));
}

async function explain(row, place) {
  if (row.score === undefined || place.childNodes.length) return;
  const given = new URLSearchParams({ query: state.query, split: row.split, row: row.row });
  given.set("version", answer.version);
  place.textContent = "…";
  try {
    const { parts } = await ask(`/api/tables/${encodeURIComponent(state.table)}/why?${given}`);
    const most = Math.max(1e-9, ...parts.map(p => p.score));
    place.replaceChildren(el("ul", { "aria-label": "What adds to the score" }, parts.map(p => el("li", {},
      el("span", { class: "clip" }, p.column === null ? p.clause : `${p.column}: ${p.clause}`),
      el("span", { class: "count" }, `+${p.score.toFixed(2)}`), meter(p.score / most)))));
  } catch (error) {
    place.textContent = error.message;
  }
}

function drawRows() {
  const table = state.view === "table";
  byId("cards").setAttribute("aria-pressed", String(!table));
  byId("grid").setAttribute("aria-pressed", String(table));
  if (!answer.rows.length) {
    byId("results").replaceChildren();
  } else if (table) {
    const scored = answer.rows[0].score !== undefined;
    const columns = [...(scored ? ["score"] : []), ...answer.columns];
    const kinds = { score: "num" };
    for (const { name, type, text } of info.columns) {
      if (/^(byte|short|int|long|float|double|decimal)/.test(type)) kinds[name] = "num";
      else if (!text && !/[<]/.test(type)) kinds[name] = "short";
    }
    const rows = answer.rows.map(row => [...(scored ? [row.score.toFixed(3)] : []),
      ...answer.columns.map(c => row.snippets?.[c] ? el("span", {}, marked(row.snippets[c])) : clipped(row.values[c]))]);
    byId("results").replaceChildren(dataTable(columns, rows, { caption: "Results", kinds }));
  } else {
    const best = Math.max(...answer.rows.map(r => r.score ?? 0), 1e-9);
    byId("results").replaceChildren(el("ol", { class: "cards", start: answer.offset + 1 },
      answer.rows.map((row, at) => card(row, at, best))));
  }
}

function clipped(value) {
  return typeof value === "string" && value.length > 160 ? `${value.slice(0, 160)}…` : value;
}

function card(row, at, best) {
  const words = texts(), snippets = row.snippets ?? {};
  const long = answer.columns.filter(c => words.has(c) && typeof row.values[c] === "string");
  const title = long.find(c => /^(title|name|subject|headline)$/i.test(c))
    ?? long.find(c => !info.facets.includes(c) && row.values[c].length <= 90 && !/\n/.test(row.values[c]));
  const body = long.filter(c => c !== title && (snippets[c] || row.values[c].length > 40));
  const facts = answer.columns.filter(c => c !== title && !body.includes(c));
  const heading = title ? (snippets[title] && row.values[title].length < 140 ? marked(snippets[title]) : clipped(row.values[title]))
    : `Row ${number(answer.offset + at + 1)}`;
  return el("li", { class: "card" },
    el("div", { class: "line" }, el("h3", {}, heading), row.score === undefined ? null
      : el("span", { class: "score", title: "BM25 score" }, row.score.toFixed(2), meter(row.score / best))),
    body.map(c => el("p", { class: "text" }, long.length > 1 && body.length > 1 ? el("span", { class: "name" }, c) : null,
      snippets[c] ? marked(snippets[c]) : clipped(row.values[c]))),
    el("dl", { class: "facts" }, facts.map(c => el("div", {}, el("dt", {}, c),
      el("dd", {}, snippets[c] ? marked(snippets[c]) : shown(clipped(row.values[c])))))),
    behind(row));
}

function drawPaging() {
  const pages = Math.ceil(Math.min(answer.total, LAST_ROW) / PAGE);
  byId("paging").hidden = pages < 2;
  const to = (page, text, label) => el("button", { type: "button", "aria-label": label,
    disabled: page < 0 || page >= pages, onclick: () => go({ page }).then(() => {
      byId("results").focus({ preventScroll: true });
      scrollTo({ top: 0 });
    }) }, text);
  byId("paging").replaceChildren(to(state.page - 1, "← Back", "The page before"),
    el("span", { class: "quiet" }, `Page ${number(state.page + 1)} of ${number(pages)}`),
    to(state.page + 1, "Next →", "The next page"));
}

// --- the histogram -----------------------------------------------------------------------------

const HEIGHT = 120, BASE = 92;
const width = () => Math.max(260, Math.min(1000, document.querySelector("main").clientWidth - 48));

function drawHistogram() {
  const place = byId("histogram"), found = answer.histogram;
  place.hidden = !found?.parts.length;
  if (place.hidden) return place.replaceChildren();
  const WIDTH = width();
  const parts = found.parts, most = Math.max(1, ...parts.map(p => p.count));
  const step = WIDTH / parts.length, gap = step > 6 ? 1.5 : .3;
  const days = /[dwy]|month|quarter/.test(found.interval);
  const label = p => days ? moment(p.start).slice(0, 10) : moment(p.start);
  const bars = parts.map((part, at) => svg("rect", {
    class: "bar c1", role: "button", tabindex: at ? "-1" : "0", "data-at": at,
    x: at * step + gap / 2, width: Math.max(.5, step - gap),
    y: BASE - Math.max(part.count ? 2 : 0, part.count / most * (BASE - 14)),
    height: Math.max(part.count ? 2 : 0, part.count / most * (BASE - 14)),
    "aria-label": `${label(part)}, ${found.interval}: ${plural(part.count, "row")}. Enter narrows to it.`,
  }, svg("title", {}, `${label(part)}: ${plural(part.count, "row")}`)));
  const brush = svg("rect", { class: "brush", y: 4, height: BASE - 4, x: 0, width: 0 });
  const wanted = Math.min(parts.length, Math.floor(WIDTH / 150) || 1);
  const ticks = Array.from({ length: wanted }, (_, i) =>
    wanted > 1 ? Math.round(i * (parts.length - 1) / (wanted - 1)) : 0);
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group",
    "aria-label": `Rows over ${found.column}, by ${found.interval}. Arrow keys move, Shift selects, Enter narrows.` },
  svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: BASE, y2: BASE }),
  svg("rect", { class: "pad", x: 0, y: 0, width: WIDTH, height: BASE }),
  brush, bars,
  [...new Set(ticks)].map((at, i, all) => svg("text", { class: `tick ${i === 0 ? "" : i === all.length - 1 ? "end" : "mid"}`,
    x: i === 0 ? 0 : i === all.length - 1 ? WIDTH : (at + .5) * step, y: HEIGHT - 8 }, label(parts[at]))));
  brushing(drawing, brush, bars, step, WIDTH);
  place.replaceChildren(el("div", { class: "drawn" }, drawing), el("figcaption", {},
    `Rows over ${found.column}, by ${found.interval}, at most ${number(most)}. Drag over a stretch to narrow the search to it.`));
}

function narrow(from, to) {
  const { column, parts } = answer.histogram;
  const filter = { column, from: parts[Math.min(from, to)].start };
  const next = parts[Math.max(from, to) + 1];
  if (next) filter.to = next.start;
  return go({ filters: [...state.filters.filter(f => f.column !== column || f.values), filter] });
}

function brushing(drawing, brush, bars, step, WIDTH) {
  let begun = null, focused = 0, anchor = null;
  const part = event => {
    const frame = drawing.getBoundingClientRect();
    return Math.max(0, Math.min(bars.length - 1, Math.floor((event.clientX - frame.left) / frame.width * WIDTH / step)));
  };
  const show = (a, b) => {
    brush.setAttribute("x", Math.min(a, b) * step);
    brush.setAttribute("width", (Math.abs(a - b) + 1) * step);
  };
  drawing.addEventListener("pointerdown", event => {
    if (event.button) return;
    begun = part(event);
    drawing.setPointerCapture(event.pointerId);
    show(begun, begun);
    event.preventDefault();
  });
  drawing.addEventListener("pointermove", event => { if (begun !== null) show(begun, part(event)); });
  drawing.addEventListener("pointerup", event => {
    if (begun === null) return;
    const from = begun;
    begun = null;
    narrow(from, part(event));
  });
  drawing.addEventListener("pointercancel", () => { begun = null; brush.setAttribute("width", 0); });
  drawing.addEventListener("focusin", event => { focused = Number(event.target.dataset.at ?? focused); });
  drawing.addEventListener("keydown", event => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (move) {
      anchor = event.shiftKey ? anchor ?? focused : null;
      bars[focused].setAttribute("tabindex", "-1");
      focused = Math.max(0, Math.min(bars.length - 1, focused + move));
      bars[focused].setAttribute("tabindex", "0");
      bars[focused].focus();
      show(anchor ?? focused, focused);
      event.preventDefault();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      narrow(anchor ?? focused, focused);
    }
  });
}

// --- the plan ----------------------------------------------------------------------------------

const WHY = {
  table: "all splits of the version", partitions: "after partition values",
  statistics: "after minimum and maximum", xrefs: "after cross-references", read: "read for this search",
};

function drawPlan() {
  const { stages, routing, read } = answer.plan, all = stages[0];
  byId("how").hidden = !all.splits;
  const steps = [...stages, { name: "read", splits: read, bytes: stages.at(-1).bytes }];
  const WIDTH = width(), height = 40, middle = WIDTH * .52;
  const words = steps.map(s => `${s.name}: ${plural(s.splits, "split")}, ${size(s.bytes)}`).join("; ");
  const half = s => Math.max(s.splits ? 3 : .5, s.splits / Math.max(1, all.splits) * WIDTH * .2);
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${steps.length * height}`, role: "img",
    "aria-label": `How the plan narrowed: ${words}` },
  steps.map((step, at) => {
    const top = at * height, y = top + 22, wide = half(step);
    const below = steps[at + 1] ? half(steps[at + 1]) : wide;
    return [
      svg("path", { class: step.name === "read" ? "funnel c3" : "funnel c1",
        d: `M${middle - wide} ${top + 4}H${middle + wide}L${middle + below} ${top + height}H${middle - below}Z` }),
      svg("text", { class: "strong", x: 0, y }, step.name === "xrefs" ? "XRefs" : step.name),
      svg("text", { class: "tick", x: 0, y: y + 14 }, WHY[step.name]),
      svg("text", { class: "end", x: WIDTH, y }, plural(step.splits, "split")),
      svg("text", { class: "tick end", x: WIDTH, y: y + 14 }, size(step.bytes)),
    ];
  }));
  const times = Object.entries(answer.timings).map(([name, ms]) => `${name} ${ms.toFixed(ms < 10 ? 1 : 0)}`).join(" · ");
  const notes = [`Milliseconds: ${times}.`];
  if (routing) notes.push(`Cross-references: ${routing}.`);
  if (state.query) notes.push("Scores count the words of all splits, so ranking looks into the index of each.");
  byId("plan").replaceChildren(el("div", { class: "wide" }, drawing), el("figcaption", {}, notes.join(" ")));
}

function drawElsewhere() {
  byId("elsewhere").hidden = false;
  const given = new URLSearchParams();
  if (state.query) given.set("query", state.query);
  if (state.where) given.set("where", state.where);
  for (const one of state.filters) given.append("filters", JSON.stringify(one));
  for (const one of state.columns ?? []) given.append("columns", one);
  if (state.version) given.set("version", state.version);
  for (const kind of ["parquet", "csv", "json"]) {
    given.set("format", kind);
    byId(`export-${kind}`).href = `/api/tables/${encodeURIComponent(state.table)}/export?${given}`;
  }
  byId("same").textContent = answer.same[language];
  for (const button of document.querySelectorAll("[data-same]")) {
    button.setAttribute("aria-pressed", String(button.dataset.same === language));
  }
}

// --- type-ahead --------------------------------------------------------------------------------

let chosen = -1, wanted = 0;

function tokenAtCursor() {
  const input = byId("query"), before = input.value.slice(0, input.selectionStart);
  const [, field, word] = /(?:([\p{L}\p{N}_.]+):)?([\p{L}\p{N}_.]*)$/u.exec(before);
  return { field, word, start: before.length - word.length, end: input.selectionStart };
}

async function suggest() {
  const { field, word } = tokenAtCursor(), mine = ++wanted;
  if (!word || !info) return propose([]);
  const lower = word.toLowerCase();
  const fields = field ? [] : info.columns.filter(c => c.searched_as && c.name.toLowerCase().startsWith(lower))
    .map(c => ({ text: `${c.field}:`, hint: `field, ${c.type}` }));
  propose(fields);
  if (word.length < 2) return;
  await new Promise(done => setTimeout(done, 180));
  if (mine !== wanted) return;
  const given = new URLSearchParams({ prefix: word, ...(field ? { field } : {}) });
  try {
    const { words } = await ask(`/api/tables/${encodeURIComponent(state.table)}/words?${given}`);
    if (mine === wanted) {
      propose([...fields, ...words.filter(w => w !== lower).map(text => ({ text, hint: "word" }))].slice(0, 8));
    }
  } catch { /* suggestions are a comfort */ }
}

function propose(options) {
  const list = byId("suggestions"), input = byId("query");
  chosen = -1;
  list.hidden = !options.length || document.activeElement !== input;
  input.setAttribute("aria-expanded", String(!list.hidden));
  input.removeAttribute("aria-activedescendant");
  list.replaceChildren(...options.map(({ text, hint }, at) => el("li", { role: "option", id: `option-${at}`,
    "data-text": text, "aria-selected": "false", onmousedown: event => { event.preventDefault(); accept(text); } },
  el("span", { class: "clip" }, text), el("span", { class: "quiet" }, hint))));
}

function accept(text) {
  const input = byId("query"), { start, end } = tokenAtCursor();
  const spaced = text.endsWith(":") ? text : `${text} `;
  input.setRangeText(spaced, start, end, "end");
  wanted += 1;
  propose([]);
}

function keys(event) {
  const options = [...byId("suggestions").children];
  if (byId("suggestions").hidden || !options.length) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const move = event.key === "ArrowDown" ? 1 : -1;
    chosen = (chosen + move + options.length + (chosen < 0 && move < 0 ? 1 : 0)) % options.length;
    options.forEach((one, at) => one.setAttribute("aria-selected", String(at === chosen)));
    byId("query").setAttribute("aria-activedescendant", `option-${chosen}`);
    event.preventDefault();
  } else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) {
    accept(options[chosen].dataset.text);
    event.preventDefault();
  } else if (event.key === "Escape") {
    propose([]);
  }
}

// --- beginning ---------------------------------------------------------------------------------

byId("form").addEventListener("submit", event => {
  event.preventDefault();
  wanted += 1;
  propose([]);
  go({ query: byId("query").value.trim() });
});
byId("query").addEventListener("input", () => { byId("mirror").replaceChildren(); suggest(); });
byId("query").addEventListener("keydown", keys);
byId("query").addEventListener("blur", () => propose([]));
byId("query").addEventListener("scroll", () => { byId("mirror").scrollLeft = byId("query").scrollLeft; });
byId("apply").addEventListener("click", () => go({ where: byId("where").value.trim() }));
byId("stop").addEventListener("click", () => running?.abort());
byId("tables").addEventListener("change", event => {
  go({ table: event.target.value, filters: [], where: "", columns: null, version: null });
});
for (const [id, view] of [["cards", "cards"], ["grid", "table"]]) {
  byId(id).addEventListener("click", () => {
    state.view = view;
    history.replaceState(null, "", address());
    if (answer) drawRows();
  });
}
for (const button of document.querySelectorAll("[data-same]")) {
  button.addEventListener("click", () => { language = button.dataset.same; drawElsewhere(); });
}
byId("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(byId("same").textContent);
  byId("copy").textContent = "Copied";
  setTimeout(() => { byId("copy").textContent = "Copy"; }, 1500);
});
let resized = 0;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => { if (answer) { drawHistogram(); drawPlan(); } }, 150);
});
addEventListener("popstate", () => { state = read(); begin(); });
addEventListener("keydown", event => {
  if (event.key === "/" && !event.target.closest("input, textarea, select")) {
    event.preventDefault();
    byId("query").focus();
  }
});

async function begin() {
  try {
    const tables = await chooseTable(byId("tables"), state.table);
    if (!state.table && tables.length) {
      state.table = tables[0].name;
      history.replaceState(null, "", address());
    }
    byId("tables").value = state.table;
    await search();
  } catch (error) {
    complain(error);
  }
}

// On a narrow screen the results come first.
byId("narrow").open = matchMedia("(min-width: 52rem)").matches;
begin();
