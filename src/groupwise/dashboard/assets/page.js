// Everything that a model or a user wrote is shown by textContent; marks that could hide or reorder
// text are written out.
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
const visible = text => String(text).replace(hidden, c => "⟨" + c.codePointAt(0).toString(16).padStart(4, "0") + "⟩");
const short = value => typeof value === "number" ? +value.toPrecision(4) : value ?? "-";

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(2)) {
    if (child !== null && child !== undefined) element.append(child instanceof Node ? child : visible(child));
  }
  return element;
}

const counted = (number, one) => `${number} ${one}${number === 1 ? "" : "s"}`;
const button = (text, onclick, pressed) => make("button", { onclick, "aria-pressed": pressed === undefined ? null : String(pressed) }, text);
const select = (id, label, value, options, set) => make("label", {}, label + " ",
  make("select", { id, onchange: event => set(event.target.value) },
    options.map(([key, text]) => make("option", { value: key, selected: String(key) === String(value) }, text))));

// --- the data: all of it in a file, asked for from a server --------------------------------------

const live = location.protocol.startsWith("http");
const state = { view: "overview", run: 0, wanted: {}, offset: 0, reading: "groups", colour: "loss_weights",
                section: "metrics", metrics: [], smoothing: 0, overlay: [], band: false, step: null, other: null };
let runs = [];
const current = () => runs[state.run];

async function ask(path, values = {}, body = undefined) {
  const query = new URLSearchParams(values);
  query.set("token", new URLSearchParams(location.search).get("token"));
  const answer = await fetch(`${path}?${query}`, body === undefined ? {} : { method: "POST", body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}
const part = (name, values = {}) => ask("part", { run: state.run, name, ...values });

function hasSignal(group) {
  const rewards = group.rows.map(row => row.reward).filter(reward => reward !== null);
  const high = Math.max(...rewards), low = Math.min(...rewards);
  return rewards.length > 1 && high - low > 1e-6 * Math.max(Math.abs(high), Math.abs(low)) + 1e-7;
}

function matches(group, wanted) {
  const words = (wanted.text || "").toLowerCase();
  return (!wanted.step || group.step === Number(wanted.step)) && (!wanted.prompt_id || group.prompt_id === wanted.prompt_id) &&
    (!wanted.kind || group.kind === wanted.kind) && (!wanted.signal || hasSignal(group) === (wanted.signal === "yes")) &&
    (!wanted.outcome || group.rows.some(row => row.outcome === wanted.outcome)) &&
    (!wanted.finish || group.rows.some(row => row.finish_reason === wanted.finish)) &&
    (!words || group.prompt.toLowerCase().includes(words) || group.rows.some(row => row.text.toLowerCase().includes(words)));
}

const scramble = text => [...text].reduce((sum, c) => Math.imul(sum ^ c.codePointAt(0), 0x01000193) >>> 0, 0x811c9dc5);

// {total, groups}: how many groups are wanted in all, and `limit` of them from `offset` on.
async function findGroups(wanted, offset, limit) {
  if (live) return part("groups", { ...wanted, offset, limit });
  const found = current().groups.filter(group => matches(group, wanted));
  const place = group => scramble(groupKey(group));
  if (wanted.order === "random") found.sort((a, b) => b.named - a.named || place(a) - place(b));
  return { total: found.length, groups: found.slice(offset, offset + limit) };
}

async function fetched(name) {
  const run = current();
  if (live && run["of " + name] !== run.rollouts) { run[name] = await part(name); run["of " + name] = run.rollouts; }
  return run[name];
}

async function facets() {
  if (live) return fetched("facets");
  const all = of => [...new Set(current().groups.flatMap(of))].sort((a, b) => a < b ? -1 : 1);
  return { step: all(g => g.step), kind: all(g => g.kind ?? []), outcome: all(g => g.rows.map(r => r.outcome)), finish: all(g => g.rows.map(r => r.finish_reason)) };
}

// --- showing -------------------------------------------------------------------------------------

let shown = 0;
async function show(view = state.view) {
  state.view = view;
  const number = ++shown;
  let content;
  try { content = await views[view](); } catch (error) { content = [make("p", { class: "bad", role: "alert" }, error.message)]; }
  if (number !== shown) return;  // another view was asked for meanwhile
  const before = document.activeElement, focused = before?.id;
  for (const each of document.querySelectorAll("nav button")) each.setAttribute("aria-pressed", String(each.dataset.view === view));
  document.getElementById("title").textContent = visible(current().name);
  document.getElementById("main").replaceChildren(...content.filter(each => each !== null));
  history.replaceState(null, "", "#" + view);
  const after = focused && document.getElementById(focused);
  if (after) after.focus();
  if (after && after.type === "search" && after !== before) after.value = before.value;  // what is being typed
  drawCharts();
}
const set = changes => { Object.assign(state, changes); return show(); };

function overview() {
  const run = current();
  const answers = make("dl", { class: "answers" });
  for (const each of run.answers) {
    const word = { good: "good: ", bad: "look: ", unknown: "" }[each.state];
    const links = each.metrics.map(name => button(name, () => openCurves([name])));
    answers.append(make("dt", {}, each.question), make("dd", {}, make("span", { class: each.state }, word + each.text), " ", links));
  }
  const findings = run.doctor.findings.map(finding => make("section", { class: "finding" },
    make("strong", { class: finding.level === "info" ? "dim" : "bad" }, finding.kind), ` (${finding.level}, ${finding.confidence}) `,
    finding.message, make("div", {}, "What to do: " + finding.advice),
    finding.flags ? make("div", {}, make("code", {}, finding.flags)) : null,
    make("div", { class: "facts" }, Object.entries(finding.evidence).map(([name, value]) => `${name} ${short(value)}`).join(", ")),
    finding.samples.length ? make("div", {}, finding.samples.map(s =>
      button(`step ${s.step}, ${s.prompt_id} [${s.group_index}]`, () => openGroup(s.step, s.prompt_id)))) : null));
  const waiting = run.doctor.waiting.map(each => each.kind).join(", ");
  const held = live ? 0 : run.groups.reduce((sum, group) => sum + group.rows.length, 0);
  return [make("h2", {}, "Questions"), answers, make("h2", {}, "The doctor"),
    ...(findings.length ? findings : [make("p", {}, "Nothing to say.")]),
    waiting ? make("p", { class: "dim" }, "Tuning advice that waits for the above: " + waiting) : null,
    make("p", { class: "dim" }, `${run.summary.status}, ${counted(run.summary.steps, "step")}. ` + (live
      ? `All ${run.rollouts} rollouts can be read here.`
      : `This page holds ${held} of ${run.rollouts} rollouts: those that the doctor names, three prompts over the steps, then groups evenly over the steps.`)),
    button("Read ten samples (t)", () => { state.reading = "ten"; show("rollouts"); })];
}

function openCurves(metrics) { Object.assign(state, { metrics, section: "metrics" }); show("curves"); }

function openGroup(step, prompt_id) {
  Object.assign(state, { wanted: { step: String(step), prompt_id }, offset: 0, reading: "groups" });
  show("rollouts");
}

function recipe() {
  return [make("h2", {}, "Recipe"), make("pre", { tabindex: 0 }, current().recipe), make("h2", {}, "Events"),
    make("table", {}, make("tr", {}, ["time", "event", "what"].map(name => make("th", { scope: "col" }, name))),
      current().events.map(e => make("tr", {}, make("td", { class: "dim" }, e.time), make("td", {}, e.kind), make("td", {}, e.message ?? e.error ?? e.version ?? e.step ?? ""))))];
}

// --- keys, the choice of the run, and what is new ------------------------------------------------

function pressed(event) {
  if (event.key === "Escape") document.activeElement?.blur();
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const view = Object.keys(views)[Number(event.key) - 1];
  const reads = state.view === "rollouts";
  if (view) show(view);
  else if (reads && event.key === "j") move(1);
  else if (reads && event.key === "k") move(-1);
  else if (reads && event.key === "s") markShown();
  else if (reads && event.key.startsWith("Arrow")) walkTokens(event);
  else if (event.key === "t") { state.reading = "ten"; show("rollouts"); }
  else if (event.key === "/") {
    event.preventDefault();
    const focus = () => document.getElementById("search")?.focus();
    if (document.getElementById("search")) focus(); else { state.reading = "groups"; show("rollouts").then(focus); }
  }
  else if (state.view === "curves" && "[]".includes(event.key)) turnSection(event.key === "]" ? 1 : -1);
}

function fill(fresh) {
  runs = fresh;
  document.getElementById("run").replaceChildren(...runs.map((run, at) => make("option", { value: at, selected: at === state.run }, run.name)));
}

function start() {
  fill(JSON.parse(document.getElementById("data").textContent));
  if (views[location.hash.slice(1)]) state.view = location.hash.slice(1);
  document.addEventListener("keydown", pressed);
  for (const each of document.querySelectorAll("nav button")) each.addEventListener("click", () => show(each.dataset.view));
  document.getElementById("run").addEventListener("change", event => set({ run: Number(event.target.value), wanted: {}, offset: 0, other: null }));
  show();
  if (!live) return;
  setInterval(async () => {
    if (document.hidden) return;
    try {
      const fresh = await ask("data");
      const same = JSON.stringify(fresh.map(run => [run.rollouts, run.events.length])) === JSON.stringify(runs.map(run => [run.rollouts, run.events.length]));
      if (same) return;
      fill(fresh);
      if (state.view !== "rollouts" && !document.activeElement?.matches("input, select")) show();
    } catch { /* the server has ended; what is shown stays */ }
  }, 3000);
}

const views = { overview, rollouts: () => rollouts(), curves: () => curves(), recipe };
