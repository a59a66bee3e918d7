// The interactive reliability diagram of a report. First what is computed, which tests run in Node,
// then what is drawn. Text of users is only ever set as textContent or as an attribute.
"use strict";

const FEW = 10; // rows; the accuracy of a smaller bin says little

function decode(text, Type) {
  return new Type(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
}

/** Turn the base64 texts of a sample into arrays. */
function unpack(sample) {
  const types = { logits: Float32Array, classes: Int32Array, labels: Int32Array, label_logits: Float32Array,
    rest: Float32Array };
  const arrays = Object.entries(types).map(([key, Type]) => [key, decode(sample[key], Type)]);
  return { ...sample, ...Object.fromEntries(arrays) };
}

/**
 * Return the logsumexp of a row's classes that are not embedded, at inverse temperature `beta`: the cubic
 * through their number at 0 and the embedded values at 1/2, 1 and 2; a straight line beyond 2, where these
 * classes hardly matter.
 */
function logsumexpOfRest(sample, row, beta) {
  const number = sample.num_classes - sample.num_top;
  if (number === 0) return -Infinity;
  const [half, one, two] = sample.rest.subarray(3 * row, 3 * row + 3);
  if (beta > 2) return two + (beta - 2) * (two - one);
  const knots = [0, 0.5, 1, 2], values = [Math.log(number), half, one, two];
  return values.reduce((sum, value, i) => {
    const others = knots.filter((_, j) => j !== i);
    return sum + others.reduce((term, knot) => term * (beta - knot) / (knots[i] - knot), value);
  }, 0);
}

/** Return confidence, negative log likelihood and correctness of a row at a temperature. */
function predict(sample, row, temperature) {
  const beta = 1 / temperature, offset = row * sample.num_top, top = sample.logits[offset];
  let sum = Math.exp(logsumexpOfRest(sample, row, beta) - beta * top);
  for (let i = 0; i < sample.num_top; i++) sum += Math.exp(beta * (sample.logits[offset + i] - top));
  return {
    confidence: 1 / sum,
    nll: Math.log(sum) + beta * (top - sample.label_logits[row]),
    isCorrect: sample.classes[offset] === sample.labels[row],
  };
}

/** Return Wilson's 95 % interval of a share. */
function wilson(successes, number) {
  const z2 = 1.96 ** 2, p = successes / number, scale = 1 / (1 + z2 / number);
  const middle = scale * (p + z2 / (2 * number));
  const half = scale * Math.sqrt(z2 * (p * (1 - p) / number + z2 / (4 * number * number)));
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}

/** Return ECE, NLL, gap and the bins of the rows that are predicted as a class, or of all if it is null. */
function measure(sample, { temperature = 1, numBins = 15, predicted = null } = {}) {
  const bins = Array.from({ length: numBins }, (_, b) => (
    { low: b / numBins, high: (b + 1) / numBins, count: 0, confidence: 0, correct: 0 }));
  let rows = 0, nll = 0;
  for (let row = 0; row < sample.labels.length; row++) {
    if (predicted !== null && sample.classes[row * sample.num_top] !== predicted) continue;
    const outcome = predict(sample, row, temperature);
    const index = Math.ceil(outcome.confidence * numBins) - 1; // bins are closed on the right
    const bin = bins[Math.min(Math.max(index, 0), numBins - 1)];
    bin.count += 1;
    bin.confidence += outcome.confidence;
    bin.correct += outcome.isCorrect ? 1 : 0;
    rows += 1;
    nll += outcome.nll;
  }
  const gaps = bins.map((bin) => bin.confidence - bin.correct);
  const total = Math.max(rows, 1);
  return {
    rows,
    nll: nll / total,
    ece: gaps.reduce((sum, gap) => sum + Math.abs(gap), 0) / total,
    gap: gaps.reduce((sum, gap) => sum + gap, 0) / total,
    bins: bins.filter((bin) => bin.count > 0).map((bin) => ({
      low: bin.low, high: bin.high, count: bin.count, confidence: bin.confidence / bin.count,
      accuracy: bin.correct / bin.count, interval: wilson(bin.correct, bin.count),
    })),
  };
}

const percent = (x, digits = 1) => (100 * x).toFixed(digits);
const signed = (x) => (x < 0 ? "" : "+") + percent(x);
const range = (bin) => `${bin.low.toFixed(2)} to ${bin.high.toFixed(2)}`;

function describe(bin) {
  return [`confidence ${range(bin)}: ${bin.count} row${bin.count === 1 ? "" : "s"}`,
    `mean confidence ${percent(bin.confidence)} %`, `accuracy ${percent(bin.accuracy)} %`,
    `95 % interval ${bin.interval.map((x) => percent(x)).join(" to ")} %`,
    `gap ${signed(bin.confidence - bin.accuracy)} points`];
}

// What follows needs a page.

class Explorer {
  constructor(samples) {
    this.samples = samples;
    const ids = ["sample", "class", "bins", "temperature"];
    this.pick = Object.fromEntries(ids.map((id) => [id, document.getElementById(`pick-${id}`)]));
    this.chart = document.getElementById("chart");
    this.chart.innerHTML = '<svg role="group" aria-label="Reliability diagram: a bar per bin"></svg>';
    this.svg = this.chart.firstChild;
    this.tip = this.chart.appendChild(document.createElement("div"));
    this.tip.className = "tip";
    this.tip.hidden = true;
    samples.forEach((sample, i) => this.pick.sample.add(new Option(sample.title, i)));
    this.pick.sample.addEventListener("change", () => this.choose());
    for (const id of ids.slice(1)) this.pick[id].addEventListener("input", () => this.update());
    this.svg.addEventListener("keydown", (event) => this.move(event));
    this.choose();
    new ResizeObserver(() => this.draw()).observe(this.chart);
  }

  /** Show another set of predictions, with its classes and fitted temperatures. */
  choose() {
    this.sample = this.samples[this.pick.sample.value];
    const counts = new Map(Object.keys(this.sample.names).map((c) => [Number(c), 0]));
    for (let row = 0; row < this.sample.labels.length; row++) {
      const c = this.sample.classes[row * this.sample.num_top];
      counts.set(c, counts.get(c) + 1);
    }
    this.pick.class.replaceChildren(new Option("all", ""));
    for (const [c, count] of counts) {
      this.pick.class.add(new Option(`${this.sample.names[c]} (${count} row${count === 1 ? "" : "s"})`, c));
    }
    const buttons = { "no scaling": 1, ...this.sample.temperatures };
    document.getElementById("temperatures").replaceChildren(...Object.entries(buttons).map(([name, t]) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `${name}: ${t.toFixed(2)}`;
      button.addEventListener("click", () => {
        this.pick.temperature.value = Math.log10(t);
        this.update(t);
      });
      return button;
    }));
    document.getElementById("sample-note").textContent = this.note();
    this.update();
  }

  note() {
    const { num_rows: total, num_top: top, num_classes: classes } = this.sample;
    const rows = this.sample.labels.length;
    let text = rows < total
      ? `The figure is computed from a random sample of ${rows} of ${total} rows; the numbers elsewhere on this page are of all rows.`
      : `The figure is computed from all ${total} rows.`;
    text += " Confidence is that of the predicted class; bins have equal width.";
    if (top < classes) {
      text += ` Each row has its ${top} most probable classes and the sum of the other ${classes - top}, `
        + "so that numbers at a temperature other than 0.5, 1 and 2 are approximate.";
    }
    return text;
  }

  /** Compute and show everything anew; `temperature` is that of the slider unless it is given. */
  update(temperature = 10 ** Number(this.pick.temperature.value)) {
    const numBins = Number(this.pick.bins.value);
    const predicted = this.pick.class.value === "" ? null : Number(this.pick.class.value);
    this.result = measure(this.sample, { temperature, numBins, predicted });
    const { ece, nll, gap, rows } = this.result;
    document.getElementById("show-bins").textContent = numBins;
    document.getElementById("show-temperature").textContent = temperature.toFixed(2);
    this.pick.temperature.setAttribute("aria-valuetext", temperature.toFixed(2));
    const parts = [["ECE ", `${percent(ece, 2)} %`], [", NLL ", `${nll.toFixed(4)}`],
      [", gap ", `${signed(gap)} points`]];
    const direction = Math.abs(gap) < 0.0005 ? "" : gap > 0 ? " (overconfident)" : " (underconfident)";
    const readout = document.getElementById("readout");
    readout.replaceChildren(...parts.flatMap(([name, value]) => {
      const strong = document.createElement("strong");
      strong.textContent = value;
      return [name, strong];
    }), `${direction}; ${rows} rows`);
    Object.assign(readout.dataset, { ece, nll, gap, rows });
    this.fillTable();
    this.draw();
  }

  fillTable() {
    document.querySelector("#bins tbody").replaceChildren(...this.result.bins.map((bin) => {
      const row = document.createElement("tr");
      const name = document.createElement("th");
      name.scope = "row";
      name.textContent = range(bin);
      row.append(name);
      const interval = bin.interval.map((x) => percent(x)).join(" to ");
      for (const text of [bin.count, percent(bin.confidence), percent(bin.accuracy), interval,
        signed(bin.confidence - bin.accuracy)]) row.insertCell().textContent = text;
      return row;
    }));
  }

  add(parent, tag, attributes, text = "") {
    const element = parent.appendChild(document.createElementNS(this.svg.namespaceURI, tag));
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text) element.textContent = text;
    return element;
  }

  /** Draw the bins at the size that the chart has now. */
  draw() {
    const focused = [...this.svg.querySelectorAll(".bin")].indexOf(document.activeElement);
    const width = Math.max(280, this.chart.clientWidth), height = Math.round(Math.min(0.85 * width, 520));
    const left = 44, right = width - 10, top = 8, foot = height - 42, share = 0.2 * height;
    const base = foot - share - 14;
    const x = (p) => left + p * (right - left), y = (p) => base - p * (base - top);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren();
    this.hideTip();
    const definitions = this.add(this.svg, "defs", {});
    for (const [id, path] of [["over", "M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2"], ["under", "M-1,5 l2,2 M0,0 l6,6 M5,-1 l2,2"]]) {
      const pattern = this.add(definitions, "pattern", { id, class: `${id}-lines`, width: 6, height: 6,
        patternUnits: "userSpaceOnUse" });
      this.add(pattern, "path", { d: path });
    }
    for (const p of [0, 0.2, 0.4, 0.6, 0.8, 1]) {
      this.add(this.svg, "line", { class: "axis", x1: left, x2: right, y1: y(p), y2: y(p) });
      this.add(this.svg, "text", { x: left - 6, y: y(p) + 4, "text-anchor": "end" }, p.toFixed(1));
      this.add(this.svg, "text", { x: x(p), y: foot + 16, "text-anchor": "middle" }, p.toFixed(1));
    }
    this.add(this.svg, "line", { class: "axis", x1: left, x2: right, y1: foot, y2: foot });
    this.add(this.svg, "line", { class: "diagonal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) });
    this.add(this.svg, "text", { x: (left + right) / 2, y: height - 8, "text-anchor": "middle" }, "confidence");
    const middle = (top + base) / 2;
    this.add(this.svg, "text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, "accuracy");
    const most = Math.max(1, ...this.result.bins.map((bin) => bin.count));
    this.result.bins.forEach((bin, i) => {
      const x0 = x(bin.low), w = x(bin.high) - x0, center = x0 + w / 2;
      const few = bin.count < FEW ? " few" : "";
      const group = this.add(this.svg, "g", { class: `bin${few}`, role: "img", tabindex: i === 0 ? 0 : -1,
        "aria-label": describe(bin).join(", ") + (few ? ", few rows" : "") });
      const rect = (name, from, to) => this.add(group, "rect",
        { class: name, x: x0, width: w, y: Math.min(from, to), height: Math.abs(from - to) });
      rect("accuracy", y(bin.accuracy), y(0));
      rect(bin.confidence > bin.accuracy ? "over" : "under", y(bin.accuracy), y(bin.confidence));
      this.add(group, "line", { class: "interval", x1: center, x2: center, y1: y(bin.interval[0]), y2: y(bin.interval[1]) });
      rect("share", foot - share * bin.count / most, foot);
      rect("hit", top, foot);
      group.addEventListener("focus", () => this.showTip(bin, center, y(Math.max(bin.accuracy, bin.confidence))));
      group.addEventListener("pointerenter", () => this.showTip(bin, center, y(Math.max(bin.accuracy, bin.confidence))));
      group.addEventListener("pointerleave", () => this.hideTip());
      group.addEventListener("blur", () => this.hideTip());
    });
    if (focused >= 0) this.focusBin(focused);
  }

  showTip(bin, x, y) {
    this.tip.textContent = describe(bin).join("\n");
    this.tip.hidden = false;
    const limit = this.chart.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(x + 10, limit))}px`;
    this.tip.style.top = `${Math.max(0, y - this.tip.offsetHeight - 6)}px`;
  }

  hideTip() {
    this.tip.hidden = true;
  }

  /** Move the focus among the bars with the arrow keys, Home and End; the diagram is one tab stop. */
  move(event) {
    const bars = [...this.svg.querySelectorAll(".bin")];
    const current = bars.indexOf(document.activeElement);
    const targets = { ArrowRight: current + 1, ArrowLeft: current - 1, Home: 0, End: bars.length - 1 };
    if (!(event.key in targets)) return;
    event.preventDefault();
    this.focusBin(targets[event.key]);
  }

  focusBin(index) {
    const bars = [...this.svg.querySelectorAll(".bin")];
    const target = bars[Math.min(Math.max(index, 0), bars.length - 1)];
    if (!target) return;
    for (const bar of bars) bar.setAttribute("tabindex", bar === target ? 0 : -1);
    target.focus();
  }
}

if (typeof document !== "undefined") {
  new Explorer(JSON.parse(document.getElementById("samples").textContent).map(unpack));
}
