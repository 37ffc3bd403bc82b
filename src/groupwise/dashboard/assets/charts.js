// --- curves: seven sections over one drawing function (uPlot) ------------------------------------

const usual = ["reward", "eval/heldout", "eval/accuracy", "groups/no_signal", "entropy", "kl/token", "completions/tokens_mean",
  "completions/truncated", "completions/repetition", "fit/eval_loss", "grad_norm", "sampler_gap/mean", "seconds/step", "memory/peak_bytes"];
const palette = ["#0969da", "#bc4c00", "#8250df", "#1a7f37", "#cf222e", "#9a6700", "#6e7781"];
const phases = ["rollout", "score", "logprobs", "learn", "load", "evaluate", "record"];

let pending = [];
// A chart of `series` [{label, values, faint, fill}] over x. `bands`: pairs of series with what lies
// between them filled. `mark`: an x with a vertical line. `heat`: a distribution drawn beneath.
function chart(title, x, series, options = {}) {
  const said = series.filter(s => !s.faint).map(s => {
    const known = s.values.map((value, n) => [x[n], value]).filter(([, value]) => value !== null);
    return known.length ? `${s.label} from ${short(known[0][1])} at ${known[0][0]} to ${short(known.at(-1)[1])} at ${known.at(-1)[0]}` : `${s.label} without values`;
  });
  const box = make("div", { role: "img", "aria-label": `chart of ${title}: ${said.join("; ")}` });
  pending.push([box, x, series, options]);
  return make("section", { class: "chart" }, make("h3", {}, title), box);
}

function drawCharts() {
  const style = getComputedStyle(document.body);
  const axis = { stroke: style.color, values: (_, ticks) => ticks.map(short), grid: { stroke: "rgba(128,128,128,.2)" }, ticks: { stroke: "rgba(128,128,128,.4)" } };
  for (const [box, x, series, options] of pending.splice(0)) {
    if (!box.isConnected) continue;
    const colour = n => palette[(series[n].colour ?? n) % palette.length];
    const under = u => {
      if (options.heat) drawHeat(u, options.heat);
      if (options.mark === undefined || options.mark === null) return;
      const at = u.valToPos(options.mark, "x", true);
      u.ctx.fillStyle = style.color;
      u.ctx.fillRect(at - 1, u.bbox.top, 2, u.bbox.height);
    };
    new uPlot({ width: Math.max(260, box.clientWidth), height: 200, axes: [{ ...axis, label: options.across }, { ...axis, size: 60 }],
      scales: { x: { time: false }, y: options.heat ? { range: [options.heat.edges[0], options.heat.edges.at(-1)] } : {} },
      cursor: { sync: { key: options.across || "step" } }, hooks: { drawClear: [under] },
      bands: (options.bands || []).map(([high, low]) => ({ series: [high + 1, low + 1], fill: colour(high) + "33" })),
      series: [{ label: options.across || "step" }, ...series.map((s, n) => ({ label: visible(s.label), stroke: colour(n), width: s.faint ? 0.5 : 2, spanGaps: true, class: s.faint ? "faint" : "line",
        fill: s.fill ? colour(n) : undefined, points: { show: !s.faint && x.length < 30 }, value: (_, v) => v === null || v === undefined ? "-" : short(v) }))] },
    [x, ...series.map(s => s.values)], box);
  }
}

function drawHeat(u, { steps, edges, shares }) {
  const width = steps.length > 1 ? Math.abs(u.valToPos(steps[1], "x", true) - u.valToPos(steps[0], "x", true)) : 40;
  u.ctx.save();
  u.ctx.beginPath();
  u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  u.ctx.clip();
  shares.forEach((row, n) => row.forEach((share, bin) => {
    const top = u.valToPos(edges[bin + 1], "y", true), bottom = u.valToPos(edges[bin], "y", true);
    u.ctx.fillStyle = `rgba(9,105,218,${0.75 * Math.sqrt(share)})`;
    if (share) u.ctx.fillRect(u.valToPos(steps[n], "x", true) - width / 2, top, width + 1, bottom - top + 1);
  }));
  u.ctx.restore();
}

// --- lines of one or several runs ----------------------------------------------------------------

function smoothed(values) {
  let last = null;
  return values.map(value => {
    if (value === null) return null;
    last = last === null ? value : state.smoothing * last + (1 - state.smoothing) * value;
    return last;
  });
}

const stepsOf = curves => [...new Set(curves.flatMap(([steps]) => steps))].sort((a, b) => a - b);
function valuesAt(x, [steps, values]) {
  const known = new Map(steps.map((step, n) => [step, values[n]]));
  return smoothed(x.map(step => known.get(step) ?? null));
}

// A metric of some runs over the steps of all: {x, series, bands}. With `band`, runs that differ in
// their seed alone are one line (the mean) with a band from the smallest to the largest.
function lines(name, shownRuns, band) {
  const having = shownRuns.filter(run => run.curves[name]);
  const x = stepsOf(having.map(run => run.curves[name]));
  const of = (run, metric) => valuesAt(x, run.curves[metric]);
  const series = [], bands = [];
  const banded = (label, colour, middle, low, high) => {
    series.push({ label, values: middle, colour }, { label: label + " low", values: low, faint: true, colour }, { label: label + " high", values: high, faint: true, colour });
    bands.push([series.length - 1, series.length - 2]);
  };
  const families = new Map();
  for (const run of having) families.set(run.family, [...(families.get(run.family) || []), run]);
  if (band) {
    let colour = 0;
    for (const members of families.values()) {
      const rows = members.map(run => of(run, name));
      const over = f => x.map((_, n) => { const kept = rows.map(row => row[n]).filter(v => v !== null); return kept.length ? f(kept) : null; });
      if (members.length > 1) banded(`${members[0].name} and ${counted(members.length - 1, "more seed")}`, colour, over(mean), over(v => Math.min(...v)), over(v => Math.max(...v)));
      else series.push({ label: members[0].name, values: rows[0], colour });
      colour += 1;
    }
  } else if (having.length === 1 && having[0].curves[name + "_low"]) {
    banded(name, 0, of(having[0], name), of(having[0], name + "_low"), of(having[0], name + "_high"));
  } else for (const run of having) series.push({ label: having.length > 1 ? run.name : name, values: of(run, name) });
  return { x, series, bands };
}

function lineChart(name, shownRuns, options = {}) {
  const { x, series, bands } = lines(name, shownRuns, options.band);
  return chart(name, x, series, { ...options, bands });
}

// --- the sections --------------------------------------------------------------------------------

function metricsSection() {
  const names = Object.keys(current().curves);
  const wanted = state.metrics.length ? state.metrics : usual.filter(name => names.includes(name));
  const others = runs.length < 2 ? null : make("fieldset", {}, make("legend", {}, "runs in the charts"),
    runs.map((run, at) => make("label", {}, make("input", { id: "r" + at, type: "checkbox", checked: at === state.run || state.overlay.includes(at), disabled: at === state.run,
      onchange: event => set({ overlay: event.target.checked ? [...state.overlay, at] : state.overlay.filter(n => n !== at) }) }), run.name)),
    make("label", {}, make("input", { id: "band", type: "checkbox", checked: state.band, onchange: event => set({ band: event.target.checked }) }), "bands over seeds (mean, smallest, largest)"));
  const chosen = [...new Set([state.run, ...state.overlay])].map(at => runs[at]);
  const shownRuns = state.band ? runs.filter(run => chosen.some(other => other.family === run.family)) : chosen;
  return [make("div", { class: "filters" },
    select("add", "add", "", [["", "a metric"], ...names.map(name => [name, name])], name => set({ metrics: [...new Set([...wanted, name])] })),
    make("label", {}, "smoothing ", make("input", { id: "smooth", type: "range", min: 0, max: 0.95, step: 0.05, value: state.smoothing, onchange: event => set({ smoothing: Number(event.target.value) }) })),
    state.metrics.length ? button("the usual metrics", () => openCurves([])) : null), others,
    charts(wanted.map(name => lineChart(name, shownRuns, { band: state.band })))];
}

const charts = list => make("div", { class: "charts" }, list);
const note = text => make("p", { class: "dim" }, text);

async function distributionCharts(names) {
  const all = await fetched("distributions");
  return (names ?? Object.keys(all)).filter(name => all[name]).map(name => {
    const { steps, edges, shares, quantiles } = all[name];
    const labels = ["10th percentile", "median", "90th percentile"];
    return chart(name, steps, labels.map((label, n) => ({ label, values: quantiles[n], faint: n !== 1, colour: 1 })), { heat: { steps, edges, shares } });
  });
}

const sampled = "From at most 256 rollouts of each of at most 40 steps; the outermost bins hold what lies beyond the 1st and the 99th percentile. Darker: more of them.";
async function distributionsSection() {
  const made = await distributionCharts();
  return made.length ? [note(sampled), charts(made)] : [note("No rollouts are recorded.")];
}

async function clipSection() {
  const together = (title, names) => {
    const known = names.filter(name => current().curves[name]);
    if (!known.length) return null;
    const x = stepsOf(known.map(name => current().curves[name]));
    return chart(title, x, known.map(name => ({ label: name, values: valuesAt(x, current().curves[name]) })));
  };
  return [note("Shares of tokens whose gradient the clip cut, the ratio that it clips, and the advantages. " + sampled),
    charts([together("clip", ["clip/low", "clip/high", "clip/dual"]), together("ratio", ["ratio/min", "ratio/mean", "ratio/max"]),
      together("groups without signal, reward spread", ["groups/no_signal", "reward_std"]),
      ...await distributionCharts(["advantage", "ratio", "sampler gap"])])];
}

async function passesSection() {
  const made = await fetched("passes");
  if (!made.length) return [note("No completions are recorded to take pass@k from.")];
  const x = made.reduce((most, each) => each.k.length > most.length ? each.k : most, []);
  const padded = values => x.map((_, n) => values[n] ?? null);
  const series = made.flatMap((each, colour) => [{ label: `${each.label}, ${counted(each.prompts, "prompt")}`, values: padded(each.mean), colour },
    { label: "low", values: padded(each.low), faint: true, colour }, { label: "high", values: padded(each.high), faint: true, colour }]);
  return [note("The probability that one of k completions is correct, with 95 % intervals over prompts. Curves that meet at the last k: sharpened, not more solved."),
    charts([chart("pass@k", x, series, { bands: made.map((_, n) => [3 * n + 2, 3 * n + 1]), across: "k" })])];
}

function timeSection() {
  const known = phases.filter(name => current().curves["seconds/" + name]);
  if (!known.length) return [note("No times are recorded.")];
  const x = stepsOf(known.map(name => current().curves["seconds/" + name]));
  const at = (name, step) => { const [steps, values] = current().curves["seconds/" + name]; return values[steps.indexOf(step)] ?? 0; };
  let below = x.map(() => 0);
  const stacked = known.map((name, colour) => { below = below.map((sum, n) => sum + at(name, x[n])); return { label: name, values: below, fill: true, colour }; });
  const step = x.includes(state.step) ? state.step : x.at(-1);
  const whole = known.reduce((sum, name) => sum + at(name, step), 0) || 1;
  let begun = 0;
  const bars = known.map((name, n) => {
    const seconds = at(name, step), left = begun;
    begun += seconds;
    const bar = make("div", { class: "bar" });
    Object.assign(bar.style, { marginLeft: `${100 * left / whole}%`, width: `${100 * seconds / whole}%`, background: palette[n % palette.length] });
    return make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, `${seconds.toPrecision(3)} s`), make("td", {}, `${Math.round(100 * seconds / whole)} %`), make("td", { class: "wide" }, bar));
  });
  return [make("label", {}, "step ", make("input", { id: "step", type: "number", min: x[0], max: x.at(-1), value: step, onchange: event => set({ step: Number(event.target.value) }) })),
    make("table", { class: "timeline" }, bars), note("Phases in their order; scoring that runs while completions are still sampled counts as rollout."),
    charts([chart("seconds a step, stacked", x, stacked.reverse())])];
}

function planSection() {
  const rows = current().plan || [];
  if (!rows.length) return [note("This record holds no plan: it was made before plans were recorded, or imported.")];
  const shown = (value, unit) => value === null ? "-" : unit === "bytes" ? `${(value / 1e9).toPrecision(3)} GB` : `${short(value)} ${unit}`;
  return [note("What was computed before the run, and what the run took."),
    make("table", {}, make("tr", {}, ["quantity", "planned", "measured", "measured / planned"].map(name => make("th", { scope: "col" }, name))),
      rows.map(({ name, unit, planned, measured }) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, shown(planned, unit)), make("td", {}, shown(measured, unit)),
        make("td", {}, planned && measured !== null ? (measured / planned).toPrecision(3) : "-"))))];
}

async function pairSection() {
  const others = runs.map((run, at) => [at, run.name]).filter(([at]) => at !== state.run && (live || pairOf(at)));
  if (!others.length) return [note("Give two runs: groupwise report RUN OTHER.")];
  const other = others.some(([at]) => at === state.other) ? state.other : others[0][0];
  const found = live ? await part("pair", { other }) : pairOf(other);
  const first = found.first_step, both = [current(), runs[other]];
  const aligned = first === null ? both : both.map(run => ({ ...run, curves: Object.fromEntries(Object.entries(run.curves).map(([name, [x, y]]) => [name, [x.map(step => step - first), y]])) }));
  const read = at => { Object.assign(state, { run: at, wanted: { step: String(first) }, offset: 0, reading: "groups" }); fill(runs); show("rollouts"); };
  return [select("other", "compared with", other, others, at => set({ other: Number(at) })),
    make("p", {}, first === null ? "No common step differs." : `They first differ at step ${first}, which is 0 in these charts. `,
      first === null ? null : [button("read it in the first", () => read(state.run)), button("read it in the second", () => read(other))]),
    make("ul", {}, found.causes.map(cause => make("li", {}, cause))),
    found.recipe.length ? make("details", {}, make("summary", {}, `${found.recipe.length} fields of the recipe differ`), make("ul", {}, found.recipe.map(each => make("li", {}, each)))) : null,
    charts(usual.filter(name => both.every(run => run.curves[name])).map(name => lineChart(name, aligned, { mark: first === null ? null : 0, across: first === null ? "step" : "steps from there" })))];
}
const pairOf = at => current().pairs?.[at] ?? runs[at].pairs?.[state.run];

const sections = { metrics: metricsSection, distributions: distributionsSection, "clip and advantage": clipSection, "pass@k": passesSection,
  time: timeSection, plan: planSection, "two runs": pairSection };

async function curves() {
  pending = [];
  const names = Object.keys(sections);
  const bar = make("div", { class: "filters", role: "group", "aria-label": "Sections" }, names.map(name => button(name, () => set({ section: name }), name === state.section)));
  return [bar, make("h2", {}, state.section), ...await sections[state.section]()];
}

function turnSection(by) {
  const names = Object.keys(sections);
  set({ section: names[(names.indexOf(state.section) + by + names.length) % names.length] });
}
