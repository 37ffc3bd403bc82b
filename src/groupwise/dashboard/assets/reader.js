// --- the rollout reader: groups side by side, or ten samples -------------------------------------

const colours = {
  loss_weights: "loss weight after all masks", advantage: "advantage", ratio: "ratio to the old policy, minus 1",
  gap: "sampler and learner differ by", entropies: "entropy", none: "no colour",
};

function tokenValue(row, at, kind) {
  const old = row.old_logprobs ?? row.learner_logprobs;
  if (kind === "loss_weights" || kind === "entropies") return row[kind]?.[at] ?? null;
  if (kind === "advantage") return row.token_advantages?.[at] ?? row.advantage;
  if (!row.learner_logprobs) return null;
  if (kind === "ratio") return Math.exp(row.learner_logprobs[at] - old[at]) - 1;
  if (kind === "gap") return row.sampler_logprobs?.length ? Math.abs(old[at] - row.sampler_logprobs[at]) : null;
  return null;
}

function shade(value, largest, kind) {
  if (value === null || !largest) return "transparent";
  const strength = Math.round(Math.min(1, Math.abs(value) / largest) * 55);
  const hue = kind === "entropies" || kind === "gap" ? "#8250df" : value > 0 ? "#1a7f37" : "#cf222e";
  return `color-mix(in srgb, ${hue} ${strength}%, transparent)`;
}

const tokenFacts = (row, at) => Object.keys(colours).slice(0, 5).map(kind => `${colours[kind]}: ${tokenValue(row, at, kind)?.toPrecision(4) ?? "-"}`);

function tokens(row, partsAt, largest) {
  const box = make("div", { class: "text" });
  if (!row.tokens.length) { box.textContent = visible(row.text); return box; }
  row.tokens.forEach((text, at) => {
    const mine = row.mask[at];
    const span = make("span", { class: "token" + (mine ? "" : " context") + (at === partsAt ? " parts" : "") }, text);
    span.style.background = shade(mine ? tokenValue(row, at, state.colour) : null, largest, state.colour);
    box.append(span);
  });
  const of = span => tokenFacts(row, [...box.children].indexOf(span));
  box.addEventListener("mouseover", event => { if (event.target.matches(".token")) event.target.title = of(event.target).join("\n"); });
  box.addEventListener("click", event => { if (event.target.matches(".token")) pickToken(event.target); });
  box.addEventListener("picked", event => {
    const at = [...box.children].indexOf(event.target);
    box.closest(".member").querySelector(".picked-facts").textContent = `token ${at}, ${JSON.stringify(event.target.textContent)}: ` + tokenFacts(row, at).join("; ");
  });
  if (row.cut) box.append(make("span", { class: "dim" }, ` … ${row.cut} more tokens`));
  return box;
}

function pickToken(span) {
  span.closest(".member").querySelector(".token.picked")?.classList.remove("picked");
  span.classList.add("picked");
  span.dispatchEvent(new Event("picked", { bubbles: true }));
}

function walkTokens(event) {
  const member = document.activeElement?.closest(".member");
  const spans = member ? [...member.querySelectorAll(".token")] : [];
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!spans.length || !by) return;
  event.preventDefault();
  const at = spans.findIndex(span => span.classList.contains("picked"));
  pickToken(spans[Math.min(spans.length - 1, Math.max(0, at + by))]);
}

// --- what was read -------------------------------------------------------------------------------

const groupKey = group => `${group.step}|${group.prompt_id}|${group.visit}|${group.kind}`;
const rowKey = (group, row) => `${groupKey(group)}|${row.group_index}`;
const storeName = () => `groupwise-seen ${current().name} ${current().family}`;
function seen() {
  const run = current();
  if (!(run.seen instanceof Set)) {
    run.seen = new Set(run.seen);
    try { for (const key of JSON.parse(localStorage.getItem(storeName()) || "[]")) run.seen.add(key); } catch { /* a file's page may have no storage */ }
  }
  return run.seen;
}
function markSeen(pairs) {
  const keys = pairs.map(([group, row]) => rowKey(group, row)).filter(key => !seen().has(key));
  if (!keys.length) return;
  for (const key of keys) seen().add(key);
  if (live) ask("seen", { run: state.run }, keys).catch(() => { /* a folder that cannot be written: kept in this page */ });
  try { localStorage.setItem(storeName(), JSON.stringify([...seen()].slice(-5000))); } catch { /* kept in this page */ }
}
let onScreen = [];  // [group, row] pairs
function markShown() {
  const at = state.reading === "ten" ? onScreen.findIndex(([group, row]) => !seen().has(rowKey(group, row))) : -1;
  markSeen(at < 0 ? onScreen : [onScreen[at]]);
  return show().then(() => { if (at >= 0) document.querySelectorAll(".member")[at + 1]?.focus(); });
}

// --- a rollout -----------------------------------------------------------------------------------

function chat(prompt) {
  if (!prompt.startsWith("[")) return prompt;
  try { return JSON.parse(prompt).map(message => `${message.role}: ${message.content ?? ""}`).join("\n"); } catch { return prompt; }
}

function turns(text) {
  let messages;
  try { messages = JSON.parse(text); } catch { return make("details", {}, make("summary", {}, "turns and tool calls"), make("pre", {}, text)); }
  const calls = messages.flatMap(message => message.tool_calls ?? []).length;
  const one = message => {
    const content = typeof message.content === "string" ? message.content : JSON.stringify(message.content ?? "");
    const called = (message.tool_calls ?? []).map(call => make("pre", {}, JSON.stringify(call.function ?? call, null, 1)));
    return make("details", {}, make("summary", {}, `${message.role}: ${content.slice(0, 60)}` + (called.length ? ` (${counted(called.length, "tool call")})` : "")), make("pre", {}, content), called);
  };
  return make("details", {}, make("summary", {}, `${counted(messages.length, "message")}, ${counted(calls, "tool call")}`), messages.map(one));
}

function member(group, row, largest, withPrompt = false) {
  const read = seen().has(rowKey(group, row));
  const verdict = row.outcome === "correct" ? "good" : row.reward === null || row.outcome === "no_verdict" ? "unknown" : "bad";
  const parts = Object.entries(row.rewards || {}).map(([name, value]) => `${name} ${short(value)}`).join(", ");
  return make("article", { class: "member" + (read ? " seen" : ""), tabindex: 0, "aria-label": `completion ${row.group_index}, ${row.outcome}` },
    make("div", {}, make("strong", { class: verdict }, `${short(row.reward)} ${row.outcome}`),
      row.advantage === null ? "" : `  advantage ${row.advantage.toPrecision(3)}`, read ? "  (seen)" : ""),
    withPrompt ? make("div", {}, `step ${group.step}, `, button(group.prompt_id, () => openGroup(group.step, group.prompt_id)), group.named ? " named by the doctor" : "") : null,
    withPrompt ? make("pre", {}, chat(group.prompt) + (group.answer === null ? "" : "\nanswer: " + group.answer)) : null,
    row.output ? make("pre", {}, "answered: " + row.output) : null,
    make("div", { class: "facts" }, row.reason || "no reason given"), make("div", { class: "facts" }, parts),
    tokens(row, withPrompt ? null : group.parts_at, largest), make("div", { class: "facts picked-facts", "aria-live": "polite" }),
    make("div", { class: "facts" }, `${row.finish_reason === "not recorded" ? "end " : ""}${row.finish_reason}, ${row.tokens.length || !row.text ? row.tokens.length + row.cut + " tokens" : "tokens not recorded"}, repeats ${Math.round(100 * row.repetition)} %` + (row.checks_itself ? ", checks itself" : "") + (row.limit ? `, ended by ${row.limit}` : "")),
    row.messages ? turns(row.messages) : null);
}

const largestOf = pairs => {
  const values = pairs.flatMap(([, row]) => row.tokens.map((_, at) => row.mask[at] ? tokenValue(row, at, state.colour) ?? null : null)).filter(value => value !== null);
  return values.length ? Math.max(...values.map(Math.abs)) : null;
};
const scale = largest => `Colour: ${colours[state.colour]}` + (state.colour === "none" ? "." : largest === null ? ", not recorded." : `, the strongest ${largest.toPrecision(3)}.`);

// --- the two ways to read ------------------------------------------------------------------------

async function filters() {
  const offers = await facets(), wanted = state.wanted;
  const change = name => value => set({ wanted: { ...state.wanted, [name]: value }, offset: 0 });
  const options = (name, words = x => x) => [["", "all"], ...offers[name].map(value => [value, words(value)])];
  const search = make("input", { id: "search", type: "search", value: wanted.text || "", "aria-label": "Search texts",
    placeholder: "search prompts and completions", onchange: event => change("text")(event.target.value) });
  return make("div", { class: "filters", role: "search" }, search,
    select("f-step", "step", wanted.step, options("step"), change("step")),
    select("f-outcome", "outcome", wanted.outcome, options("outcome"), change("outcome")),
    select("f-finish", "ended by", wanted.finish, options("finish"), change("finish")),
    select("f-kind", "kind", wanted.kind, options("kind"), change("kind")),
    select("f-signal", "signal", wanted.signal, [["", "all"], ["yes", "yes"], ["no", "no"]], change("signal")),
    wanted.prompt_id ? button(`prompt ${wanted.prompt_id} ✕`, () => change("prompt_id")("")) : null);
}

const colourPicker = () => select("f-colour", "colour", state.colour, Object.entries(colours), colour => set({ colour }));
const modes = () => make("div", { class: "filters" }, button("Groups", () => set({ reading: "groups" }), state.reading === "groups"),
  button("Ten samples (t)", () => set({ reading: "ten" }), state.reading === "ten"), colourPicker());

async function rollouts() {
  return state.reading === "ten" ? tenSamples() : groupPage();
}

async function groupPage() {
  const asked = await findGroups(clean(state.wanted), state.offset, 1);
  state.total = asked.total;
  const [group] = asked.groups;
  if (!group) return [modes(), await filters(), make("p", {}, "No group matches.")];
  onScreen = group.rows.map(row => [group, row]);
  const largest = largestOf(onScreen);
  const visits = live ? await part("visits", { prompt_id: group.prompt_id })
    : current().groups.filter(other => other.prompt_id === group.prompt_id).map(other => [other.step, mean(other.rows.map(row => row.reward))]);
  const others = visits.filter(([step]) => step !== group.step).sort((a, b) => a[0] - b[0]);
  return [modes(), await filters(),
    make("h2", {}, `Group ${state.offset + 1} of ${asked.total}: step ${group.step}, prompt ${group.prompt_id}` + (group.named ? ", named by the doctor" : "")),
    make("div", { class: "filters" }, button("previous (k)", () => move(-1)), button("next (j)", () => move(1)), button("seen (s)", markShown)),
    make("pre", {}, chat(group.prompt)), group.answer === null ? null : make("p", {}, "Answer: " + group.answer),
    make("p", { class: "dim" }, group.parts_at === null ? "" : `The members part at token ${group.parts_at}. `, scale(largest)),
    others.length ? make("p", {}, "The same prompt at step (mean reward): ", others.slice(0, 40).map(([step, reward]) => button(`${step} (${short(reward)})`, () => openGroup(step, group.prompt_id))),
      button("all of them", () => set({ wanted: { prompt_id: group.prompt_id }, offset: 0 }))) : null,
    make("div", { class: "members" }, onScreen.map(([, row]) => member(group, row, largest)))];
}

const clean = wanted => Object.fromEntries(Object.entries(wanted).filter(([, value]) => value));
const mean = values => { const kept = values.filter(value => value !== null); return kept.length ? kept.reduce((a, b) => a + b) / kept.length : null; };

function move(by) {
  if (state.reading === "ten" || !state.total) return;
  markSeen(onScreen);
  set({ offset: (state.offset + by + state.total) % state.total });
}

// Ten rollouts that were not read yet: those that the doctor names, then one of each group at random.
async function tenUnseen() {
  const named = new Set(current().doctor.findings.flatMap(f => f.samples.map(s => `${s.step}|${s.prompt_id}|${s.group_index}`)));
  const chosen = [];
  for (let offset = 0; chosen.length < 10; offset += 10) {
    const { total, groups } = await findGroups({ order: "random" }, offset, 10);
    for (const group of groups) {
      const marked = group.rows.filter(row => named.has(`${group.step}|${group.prompt_id}|${row.group_index}`));
      const rows = marked.length ? marked : [group.rows[scramble(groupKey(group)) % group.rows.length]];
      chosen.push(...rows.filter(row => !seen().has(rowKey(group, row))).map(row => [group, row]));
    }
    if (offset + 10 >= total) break;
  }
  return chosen.slice(0, 10);
}

let ten = null;  // kept until ten more are asked for
async function tenSamples() {
  if (!ten || ten.run !== current().name) ten = { run: current().name, pairs: await tenUnseen() };
  onScreen = ten.pairs;
  const left = onScreen.filter(([group, row]) => !seen().has(rowKey(group, row))).length;
  const largest = largestOf(onScreen);
  if (!onScreen.length && !seen().size) return [modes(), make("p", {}, "No rollouts are recorded.")];
  return [modes(), make("h2", {}, "Ten samples"),
    make("p", {}, onScreen.length ? `${onScreen.length - left} of these ${onScreen.length} seen, ${seen().size} of the run. ` : "Every sample here has been seen. ",
      button("mark the next as seen (s)", markShown), button("ten more", () => { ten = null; show(); })),
    make("p", { class: "dim" }, scale(largest)),
    make("div", { class: "members" }, onScreen.map(([group, row]) => member(group, row, largest, true)))];
}
