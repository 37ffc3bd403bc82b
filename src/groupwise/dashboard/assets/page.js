"use strict";
// Everything that a model or a user wrote is shown by textContent; marks that could hide or reorder
// text are written out.
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
const visible = text => String(text).replace(hidden, c => "⟨" + c.codePointAt(0).toString(16).padStart(4, "0") + "⟩");

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null) element.append(child instanceof Node ? child : visible(child));
  }
  return element;
}

const state = { view: "overview", run: 0, group: 0, colour: "loss_weights", search: "", outcome: "",
                step: "", wanted: [], smoothing: 0, overlay: [], band: false };
let runs = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
const current = () => runs[state.run];

function show(view) {
  state.view = view;
  for (const button of document.querySelectorAll("nav button")) {
    button.setAttribute("aria-pressed", String(button.dataset.view === view));
  }
  document.getElementById("title").textContent = visible(current().name);
  main.replaceChildren(...views[view]().filter(each => each !== null));
  if (view === "curves") draw();
}

// --- overview -------------------------------------------------------------------------------------

function overview() {
  const run = current();
  const answers = make("dl", { class: "answers" });
  for (const each of run.answers) {
    const word = { good: "good: ", bad: "look: ", unknown: "" }[each.state];
    const links = each.metrics.map(name => make("button", { onclick: () => openCurves([name]) }, name));
    answers.append(make("dt", {}, each.question),
      make("dd", {}, make("span", { class: each.state }, word + each.text), " ", links));
  }
  const findings = run.doctor.findings.map(finding => make("section", { class: "finding" },
    make("strong", { class: finding.level === "info" ? "dim" : "bad" }, finding.kind), ` (${finding.level}, ${finding.confidence}) `,
    finding.message, make("div", {}, "What to do: " + finding.advice),
    finding.flags ? make("div", {}, make("code", {}, finding.flags)) : null,
    make("div", { class: "facts" }, Object.entries(finding.evidence).map(([k, v]) => `${k} ${typeof v === "number" ? +v.toPrecision(4) : v}`).join(", ")),
    finding.samples.length ? make("div", {}, finding.samples.map(s =>
      make("button", { onclick: () => openGroup(s) }, `step ${s.step}, ${s.prompt_id} [${s.group_index}]`))) : null));
  const waiting = run.doctor.waiting.map(each => each.kind).join(", ");
  const shown = run.groups.reduce((sum, group) => sum + group.rows.length, 0);
  return [make("h2", {}, "Questions"), answers, make("h2", {}, "The doctor"),
    ...(findings.length ? findings : [make("p", {}, "Nothing to say.")]),
    waiting ? make("p", { class: "dim" }, "Tuning advice that waits for the above: " + waiting) : null,
    make("p", { class: "dim" }, `${run.summary.status}, ${run.summary.steps} steps. This page holds ${shown} of ${run.rollouts} rollouts: ` +
      `those that the doctor names, then groups evenly over the steps.`),
    make("button", { onclick: () => { state.search = ""; state.outcome = ""; state.step = ""; state.group = 0; show("rollouts"); } }, "Read ten samples")];
}

function openCurves(names) { state.wanted = names; show("curves"); }

function openGroup(sample) {
  Object.assign(state, { search: "", outcome: "", step: "" });
  const at = current().groups.findIndex(g => g.step === sample.step && g.prompt_id === sample.prompt_id);
  state.group = Math.max(0, at);
  show("rollouts");
}

// --- rollouts -------------------------------------------------------------------------------------

const colours = {
  loss_weights: "loss weight after all masks", advantage: "advantage", ratio: "ratio to the old policy",
  gap: "sampler and learner differ by", entropies: "entropy", none: "no colour",
};

function tokenValue(row, at, kind) {
  const old = row.old_logprobs ?? row.learner_logprobs;
  if (kind === "loss_weights" || kind === "entropies") return row[kind]?.[at] ?? null;
  if (kind === "advantage") return row.token_advantages?.[at] ?? row.advantage;
  if (!row.learner_logprobs) return null;
  if (kind === "ratio") return Math.exp(row.learner_logprobs[at] - old[at]) - 1;
  if (kind === "gap") return Math.abs(old[at] - row.sampler_logprobs[at]);
  return null;
}

function colour(value, largest, kind) {
  if (value === null || !largest) return "transparent";
  const strength = Math.round(Math.min(1, Math.abs(value) / largest) * 55);
  const shade = kind === "entropies" || kind === "gap" ? "#8250df" : value > 0 ? "#1a7f37" : "#cf222e";
  return `color-mix(in srgb, ${shade} ${strength}%, transparent)`;
}

function tokens(row, group, largest) {
  const box = make("div", { class: "text" });
  if (!row.tokens.length) { box.textContent = visible(row.text); return box; }
  row.tokens.forEach((text, at) => {
    const value = row.mask[at] ? tokenValue(row, at, state.colour) : null;
    const span = make("span", { class: "token" + (row.mask[at] ? "" : " context") + (at === group.parts_at ? " parts" : "") }, text);
    span.style.background = colour(value, largest, state.colour);
    span.title = Object.keys(colours).slice(0, 5).map(kind => {
      const v = tokenValue(row, at, kind);
      return `${colours[kind]}: ${v === null ? "-" : v.toPrecision(4)}`;
    }).join("\n");
    box.append(span);
  });
  if (row.cut) box.append(make("span", { class: "dim" }, ` … ${row.cut} more tokens`));
  return box;
}

const seenKey = (group, row) => `${current().name}|${group.step}|${group.prompt_id}|${row.group_index}`;
const memory = new Set();
try { for (const key of JSON.parse(localStorage.getItem("groupwise-seen") || "[]")) memory.add(key); } catch { /* a file page may have no storage */ }
function markSeen(group) {
  for (const row of group.rows) memory.add(seenKey(group, row));
  try { localStorage.setItem("groupwise-seen", JSON.stringify([...memory].slice(-5000))); } catch { /* kept in memory alone */ }
}

function chat(prompt) {
  if (!prompt.startsWith("[")) return prompt;
  try { return JSON.parse(prompt).map(message => `${message.role}: ${message.content ?? ""}`).join("\n"); } catch { return prompt; }
}

function matching() {
  const words = state.search.toLowerCase();
  return current().groups.filter(group =>
    (state.step === "" || group.step === Number(state.step)) &&
    (!state.outcome || group.rows.some(row => row.outcome === state.outcome)) &&
    (!words || (group.prompt + group.prompt_id).toLowerCase().includes(words) || group.rows.some(row => row.text.toLowerCase().includes(words))));
}

function rollouts() {
  const groups = matching();
  state.group = Math.min(state.group, Math.max(0, groups.length - 1));
  const outcomes = [...new Set(current().groups.flatMap(g => g.rows.map(r => r.outcome)))];
  const steps = [...new Set(current().groups.map(g => g.step))].sort((a, b) => a - b);
  const select = (label, value, options, set) => make("label", {}, label + " ",
    make("select", { onchange: event => { set(event.target.value); show("rollouts"); } },
      options.map(([key, text]) => make("option", { value: key, selected: String(key) === String(value) }, text))));
  const search = make("input", { id: "search", type: "search", value: state.search, "aria-label": "Search texts",
    placeholder: "search prompts and completions", onchange: event => { state.search = event.target.value; state.group = 0; show("rollouts"); } });
  const filters = make("div", { class: "filters" }, search,
    select("step", state.step, [["", "all"], ...steps.map(s => [s, s])], v => { state.step = v; state.group = 0; }),
    select("outcome", state.outcome, [["", "all"], ...outcomes.map(o => [o, o])], v => { state.outcome = v; state.group = 0; }),
    select("colour", state.colour, Object.entries(colours), v => { state.colour = v; }),
    make("button", { onclick: () => move(-1) }, "previous (k)"), make("button", { onclick: () => move(1) }, "next (j)"));
  if (!groups.length) return [filters, make("p", {}, "No group matches.")];
  const group = groups[state.group];
  const values = group.rows.flatMap(row => row.tokens.map((_, at) => Math.abs(tokenValue(row, at, state.colour) ?? 0)));
  const largest = Math.max(...values, 0);
  const members = group.rows.map(row => make("article", { class: "member" + (memory.has(seenKey(group, row)) ? " seen" : "") },
    make("div", {}, make("strong", { class: row.outcome === "correct" ? "good" : row.reward === null ? "unknown" : "bad" }, `${row.reward === null ? "-" : +row.reward.toPrecision(4)} ${row.outcome}`),
      row.advantage === null ? "" : `  advantage ${row.advantage.toPrecision(3)}`, memory.has(seenKey(group, row)) ? "  (seen)" : ""),
    make("div", { class: "facts" }, row.reason || "no reason given"),
    make("div", { class: "facts" }, Object.entries(row.rewards || {}).map(([k, v]) => `${k} ${v === null ? "-" : +v.toPrecision(4)}`).join(", ")),
    tokens(row, group, largest),
    make("div", { class: "facts" }, `${row.finish_reason}, ${row.tokens.length + row.cut} tokens, repeats ${Math.round(100 * row.repetition)} %` + (row.checks_itself ? ", checks itself" : "")),
    row.messages ? make("details", {}, make("summary", {}, "turns and tool calls"), make("pre", {}, row.messages)) : null));
  const same = current().groups.filter(other => other.prompt_id === group.prompt_id && other !== group);
  return [filters,
    make("h2", {}, `Group ${state.group + 1} of ${groups.length}: step ${group.step}, prompt ${group.prompt_id}` + (group.named ? ", named by the doctor" : "")),
    make("pre", {}, chat(group.prompt)), group.answer === null ? null : make("p", {}, "Answer: " + group.answer),
    make("p", { class: "dim" }, group.parts_at === null ? "" : `The members part at token ${group.parts_at}. `, `Largest ${colours[state.colour]}: ${largest.toPrecision(3)}.`),
    same.length ? make("p", {}, "The same prompt at step ", same.slice(0, 8).map(other => make("button", { onclick: () => openGroup(other) }, other.step))) : null,
    make("div", { class: "members" }, members)];
}

function move(by) {
  const groups = matching();
  if (!groups.length) return;
  markSeen(groups[state.group]);
  state.group = (state.group + by + groups.length) % groups.length;
  show("rollouts");
}

// --- curves ---------------------------------------------------------------------------------------

function curves() {
  const names = Object.keys(current().curves);
  const first = ["reward", "eval/heldout", "eval/accuracy", "groups/no_signal", "entropy", "kl/token", "completions/tokens_mean",
    "completions/truncated", "grad_norm", "clip/low", "clip/high", "sampler_gap/mean", "seconds/step", "memory/peak_bytes"];
  const wanted = state.wanted.length ? state.wanted : first.filter(name => names.includes(name));
  const picker = make("select", { "aria-label": "Add a metric", onchange: event => { state.wanted = [...new Set([...wanted, event.target.value])]; show("curves"); } },
    make("option", { value: "" }, "add a metric"), names.map(name => make("option", { value: name }, name)));
  const smooth = make("input", { type: "range", min: 0, max: 0.95, step: 0.05, value: state.smoothing, "aria-label": "Smoothing",
    onchange: event => { state.smoothing = Number(event.target.value); show("curves"); } });
  const others = runs.length < 2 ? null : make("fieldset", {}, make("legend", {}, "runs in the charts"),
    runs.map((run, at) => make("label", {}, make("input", { type: "checkbox", checked: at === state.run || state.overlay.includes(at),
      onchange: event => { state.overlay = event.target.checked ? [...state.overlay, at] : state.overlay.filter(n => n !== at); show("curves"); } }), run.name)),
    make("label", {}, make("input", { type: "checkbox", checked: state.band, onchange: event => { state.band = event.target.checked; show("curves"); } }), "band over them (mean, smallest, largest)"));
  const charts = wanted.map(name => make("section", { class: "chart" }, make("h3", {}, name), make("div", { "data-metric": name, role: "img", "aria-label": `curve of ${name}` })));
  return [make("div", { class: "filters" }, picker, make("label", {}, "smoothing ", smooth),
    state.wanted.length ? make("button", { onclick: () => openCurves([]) }, "the usual metrics") : null), others, make("div", { class: "charts" }, charts)];
}

function smoothed(values) {
  let last = null;
  return values.map(value => {
    if (value === null) return null;
    last = last === null ? value : state.smoothing * last + (1 - state.smoothing) * value;
    return last;
  });
}

function draw() {
  const style = getComputedStyle(document.body);
  const palette = ["#0969da", "#bc4c00", "#8250df", "#1a7f37", "#cf222e", "#9a6700"];
  const shown = [...new Set([state.run, ...state.overlay])];
  for (const box of main.querySelectorAll("[data-metric]")) {
    const name = box.dataset.metric;
    const lines = shown.map(at => [at, runs[at].curves[name]]).filter(([, line]) => line);
    const steps = [...new Set(lines.flatMap(([, [x]]) => x))].sort((a, b) => a - b);
    let series = lines.map(([at, [x, y]]) => {
      const of = new Map(x.map((step, n) => [step, y[n]]));
      return { label: lines.length > 1 ? runs[at].name : name, values: smoothed(steps.map(step => of.get(step) ?? null)) };
    });
    if (state.band && series.length > 1) {
      const at = n => series.map(s => s.values[n]).filter(v => v !== null);
      const over = (label, f) => ({ label, values: steps.map((_, n) => at(n).length ? f(at(n)) : null) });
      series = [over("mean", v => v.reduce((a, b) => a + b) / v.length), over("smallest", v => Math.min(...v)), over("largest", v => Math.max(...v))];
    }
    const axis = { stroke: style.color, grid: { stroke: "rgba(128,128,128,.2)" }, ticks: { stroke: "rgba(128,128,128,.4)" } };
    new uPlot({ width: Math.max(260, box.clientWidth), height: 200, scales: { x: { time: false } }, axes: [axis, { ...axis, size: 60 }],
      cursor: { sync: { key: "steps" } },
      series: [{ label: "step" }, ...series.map((s, n) => ({ label: visible(s.label), stroke: palette[n % palette.length], width: 2, spanGaps: true,
        points: { show: steps.length < 30 }, value: (_, v) => v === null ? "-" : +v.toPrecision(5) }))] }, [steps, ...series.map(s => s.values)], box);
  }
}

function recipe() {
  return [make("h2", {}, "Recipe"), make("pre", {}, current().recipe), make("h2", {}, "Events"),
    make("table", {}, current().events.map(e => make("tr", {}, make("td", { class: "dim" }, e.time), make("td", {}, e.kind), make("td", {}, e.message ?? e.version ?? e.step ?? ""))))];
}

const views = { overview, rollouts, curves, recipe };

document.addEventListener("keydown", event => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const names = Object.keys(views);
  if (names[Number(event.key) - 1]) show(names[Number(event.key) - 1]);
  else if (state.view === "rollouts" && event.key === "j") move(1);
  else if (state.view === "rollouts" && event.key === "k") move(-1);
  else if (state.view === "rollouts" && event.key === "s") { const g = matching()[state.group]; if (g) { markSeen(g); show("rollouts"); } }
  else if (event.key === "/") { show("rollouts"); document.getElementById("search").focus(); event.preventDefault(); }
});
for (const button of document.querySelectorAll("nav button")) button.addEventListener("click", () => show(button.dataset.view));
const chooser = document.getElementById("run");
chooser.addEventListener("change", () => { state.run = Number(chooser.value); state.group = 0; show(state.view); });

function fill() {
  chooser.replaceChildren(...runs.map((run, at) => make("option", { value: at, selected: at === state.run }, run.name)));
  show(state.view);
}
if (views[location.hash.slice(1)]) state.view = location.hash.slice(1);
fill();

// A served page asks for what is new; a file has no server to ask.
if (location.protocol.startsWith("http")) {
  setInterval(async () => {
    if (document.hidden || document.activeElement?.matches("input, select")) return;
    try {
      const answer = await fetch("data" + location.search);
      if (!answer.ok) return;
      const fresh = await answer.json();
      if (JSON.stringify(fresh.map(r => r.rollouts)) === JSON.stringify(runs.map(r => r.rollouts))) return;
      runs = fresh; fill();
    } catch { /* the server has ended; what is shown stays */ }
  }, 3000);
}
