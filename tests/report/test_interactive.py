"""The interactive figure: its numbers, its sample, and the page in a browser."""

import html
import json
import pathlib
import re
import shutil
import subprocess
import types

import numpy as np
import pytest

from calib_jax import metrics, report
from calib_jax.report._interactive import take_sample

_SCRIPT = pathlib.Path(report.__file__).parent / "interactive.js"
_EVIL = '</script><b onclick="x">&'


def _predictions(n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    logits = 2 * rng.normal(size=(n, k)) + 4 * np.eye(k)[labels]
    return logits.astype(np.float32), labels.astype(np.int32)


def _expected(
    logits: np.ndarray, labels: np.ndarray, temperature: float, bins: int
) -> tuple[float, float]:
    confidence, correct = metrics.top_label(logits / temperature, labels)
    ece = float(metrics.ece(confidence, correct, num_bins=bins))
    return ece, float(metrics.nll(logits / temperature, labels))


def _measure(sample: dict, settings: list[dict]) -> list[dict]:
    """Run `measure` of interactive.js in Node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node, which is not installed")
    code = _SCRIPT.read_text(encoding="utf-8")
    code += "const [sample, settings] = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
    code += "const unpacked = unpack(sample);"
    code += "console.log(JSON.stringify(settings.map((s) => measure(unpacked, s))));"
    done = subprocess.run(
        [node, "-e", code], input=json.dumps([sample, settings]), capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_ece_and_nll_are_those_of_metrics() -> None:
    logits, labels = _predictions(600, 7)
    settings = [(1.0, 15), (1.7, 15), (0.4, 4), (5.0, 50)]
    sample = take_sample("x", logits, labels).to_json()
    measured = _measure(sample, [{"temperature": t, "numBins": b} for t, b in settings])
    for found, (temperature, bins) in zip(measured, settings, strict=True):
        ece, nll = _expected(logits, labels, temperature, bins)
        assert found["rows"] == 600
        assert found["ece"] == pytest.approx(ece, abs=2e-6)
        assert found["nll"] == pytest.approx(nll, abs=2e-6)
        assert sum(b["count"] for b in found["bins"]) == 600


def test_a_class_is_the_rows_that_are_predicted_as_it() -> None:
    logits, labels = _predictions(600, 7)
    (found,) = _measure(take_sample("x", logits, labels).to_json(), [{"predicted": 3}])
    rows = logits.argmax(1) == 3
    ece, nll = _expected(logits[rows], labels[rows], 1.0, 15)
    assert found["rows"] == rows.sum()
    assert (found["ece"], found["nll"]) == pytest.approx((ece, nll), abs=2e-6)
    confidence, correct = map(np.asarray, metrics.top_label(logits[rows], labels[rows]))
    assert found["gap"] == pytest.approx(float(confidence.mean() - correct.mean()), abs=2e-6)


def test_many_classes_are_exact_at_three_temperatures_and_close_elsewhere() -> None:
    logits, labels = _predictions(500, 120)
    sample = take_sample("x", logits, labels)
    assert sample.logits.shape == (500, 10)
    temperatures = (0.5, 1.0, 2.0, 0.3, 0.7, 1.5, 4.0)
    measured = _measure(sample.to_json(), [{"temperature": t} for t in temperatures])
    for i, (found, temperature) in enumerate(zip(measured, temperatures, strict=True)):
        ece, nll = _expected(logits, labels, temperature, 15)
        # Between the embedded temperatures: half a percent of the NLL, half a point of the ECE.
        nll_tolerance, ece_tolerance = (5e-6, 5e-6) if i < 3 else (5e-3 * nll, 5e-3)
        assert found["nll"] == pytest.approx(nll, abs=nll_tolerance), temperature
        assert found["ece"] == pytest.approx(ece, abs=ece_tolerance), temperature


def test_intervals_are_wilsons() -> None:
    # 8 of 10, by the formula: 0.4902 to 0.9433.
    logits = np.tile([[1.0, 0.0]], (10, 1))
    labels = np.array([0] * 8 + [1] * 2)
    (found,) = _measure(take_sample("x", logits, labels).to_json(), [{}])
    (only,) = found["bins"]
    assert (only["count"], only["accuracy"]) == (10, 0.8)
    assert only["confidence"] == pytest.approx(1 / (1 + np.exp(-1)))
    assert only["interval"] == pytest.approx([0.4902, 0.9433], abs=1e-4)


def test_sample_is_seeded_limited_and_small() -> None:
    logits, labels = _predictions(6000, 300)
    sample = take_sample("x", logits, labels)
    assert len(sample.labels) == 5000
    assert sample.num_rows == 6000
    again = take_sample("x", logits, labels)
    np.testing.assert_array_equal(sample.logits, again.logits)
    assert len(json.dumps(sample.to_json())) < 800_000
    other = take_sample("x", logits, labels, seed=1)
    assert not np.array_equal(sample.labels, other.labels)


def _evaluation(name: str, logits: np.ndarray, labels: np.ndarray) -> types.SimpleNamespace:
    confidence, correct = map(np.asarray, metrics.top_label(logits, labels))
    values = {k: float(v) for k, v in metrics.summary(logits, labels).items()}
    intervals = {k: (values[k] - 0.01, values[k] + 0.01) for k in ("nll", "brier", "ece")}
    return types.SimpleNamespace(
        name=name, metrics=values, intervals=intervals, parameters={}, confidence=confidence,
        correct=correct,
    )  # fmt: skip


@pytest.fixture(scope="module")
def predictions() -> types.SimpleNamespace:
    logits, labels = _predictions(400, 4)
    groups = np.where(np.arange(400) < 7, "few", "many")
    names = [_EVIL, "b", "c", "d"]
    return types.SimpleNamespace(
        logits=logits, labels=labels, notes=("400 predictions",), label_names=names, groups=groups
    )


@pytest.fixture(scope="module")
def pages(
    predictions: types.SimpleNamespace, tmp_path_factory: pytest.TempPathFactory
) -> dict[bool, str]:
    folder = tmp_path_factory.mktemp("pages")
    before = _evaluation("uncalibrated", predictions.logits, predictions.labels)
    after = _evaluation("temperature", predictions.logits / 1.5, predictions.labels)
    after.parameters["temperature"] = [1.5]
    texts = {}
    for interactive in (True, False):
        path = folder / f"{interactive}.html"
        report.write_evaluation_page(
            path, predictions, [before, after], interactive=interactive, title="A & B"
        )
        texts[interactive] = path.read_text(encoding="utf-8")
    return texts


def test_page_without_the_figure_has_no_script_and_no_rows(pages: dict[bool, str]) -> None:
    assert "<script" not in pages[False]
    assert "Explore the calibration" not in pages[False]
    assert "<script>" in pages[True]
    assert len(pages[True].encode()) < 2_000_000


def test_page_escapes_names_and_fetches_nothing(pages: dict[bool, str]) -> None:
    for text in pages.values():
        assert _EVIL not in text
        assert html.escape(_EVIL, quote=True).replace("&#x27;", "&#39;")[:20] in text
        assert not re.search(r"https?://|url\((?!#)|@import", text)
    (data,) = re.findall(r'id="samples">(.*?)</script>', pages[True], re.S)
    (sample,) = json.loads(data)
    assert sample["names"]["0"] == _EVIL
    assert sample["temperatures"] == {"temperature": 1.5}


def test_page_has_verdict_tables_and_marks_small_groups(pages: dict[bool, str]) -> None:
    text = pages[True]
    assert re.search(r'class="verdict">(Over|Under|Neither)', text)
    assert "A &amp; B" in text
    for heading in ("Reliability", "Selective prediction", "By group", "By class"):
        assert f"<h2>{heading}</h2>" in text
    row = re.search(r'<th scope="row">few</th>(.*?)</tr>', text)
    assert row
    assert row[1].startswith('<td class="few">7<small>(few)</small>')


# A frame is as narrow as it is told to be; a window of Chromium is 500 pixels wide at least.
_FRAME = """<!DOCTYPE html><html><body>
<iframe width="{width}" height="900" style="border: 0" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const frame = document.querySelector("iframe"), page = frame.contentDocument;
  const get = (id) => page.getElementById(id), out = {{}};
  const read = () => ({{...get("readout").dataset}});
  const set = (id, value) => {{ get(id).value = value; get(id).dispatchEvent(new Event("input")); }};
  out.start = read();
  set("pick-bins", "8");
  set("pick-temperature", String(Math.log10(2)));
  out.moved = read();
  out.shown = [get("show-bins").textContent, get("show-temperature").textContent];
  set("pick-class", "0");
  out.one = read();
  out.options = [...get("pick-class").options].map((option) => option.textContent);
  set("pick-class", "");
  page.querySelectorAll("#temperatures button")[1].click();
  out.fitted = read();
  set("pick-temperature", "0");
  set("pick-bins", "15");
  const bars = [...page.querySelectorAll(".bin")];
  out.labels = bars.map((bar) => bar.getAttribute("aria-label"));
  out.stops = bars.filter((bar) => bar.getAttribute("tabindex") === "0").length;
  out.rows = page.querySelectorAll("#bins tbody tr").length;
  bars[0].focus();
  page.querySelector("#chart svg").dispatchEvent(
    new frame.contentWindow.KeyboardEvent("keydown", {{key: "End", bubbles: true}}));
  out.focused = bars.indexOf(page.activeElement);
  out.tip = page.querySelector(".tip").textContent;
  out.live = get("readout").getAttribute("aria-live");
  out.unlabeled = [...page.querySelectorAll("input, select")].filter((x) => !x.labels.length).length;
  out.wide = page.documentElement.scrollWidth - page.documentElement.clientWidth;
  out.bold = page.querySelectorAll("b").length;
  out.background = frame.contentWindow.getComputedStyle(page.body).backgroundColor;
  document.documentElement.dataset.measured = JSON.stringify(out);
}});
</script></body></html>"""


@pytest.mark.parametrize(
    ("width", "scheme", "background"),
    [(1280, 1, "rgb(255, 255, 255)"), (390, 0, "rgb(20, 24, 29)")],
)
def test_browser_computes_and_can_be_used_by_keyboard(
    pages: dict[bool, str],
    predictions: types.SimpleNamespace,
    tmp_path: pathlib.Path,
    width: int,
    scheme: int,
    background: str,
) -> None:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip(f"needs a browser: none of {', '.join(names)} is installed")
    frame = tmp_path / "frame.html"
    text = _FRAME.format(width=width, page=html.escape(pages[True]))
    frame.write_text(text, encoding="utf-8")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,1000"]
    command += [f"--blink-settings=preferredColorScheme={scheme}", "--dump-dom", frame.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found = re.search(r'data-measured="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    measured = json.loads(html.unescape(found[1]))
    logits, labels = predictions.logits, predictions.labels
    one = logits.argmax(1) == 0
    cases = {
        "start": _expected(logits, labels, 1.0, 15),
        "moved": _expected(logits, labels, 10**0.3, 8),  # the slider's step next to 2
        "fitted": _expected(logits, labels, 1.5, 8),
    }
    for name, (ece, nll) in cases.items():
        assert float(measured[name]["ece"]) == pytest.approx(ece, abs=3e-6), name
        assert float(measured[name]["nll"]) == pytest.approx(nll, abs=3e-6), name
    assert measured["shown"] == ["8", "2.00"]
    assert int(measured["one"]["rows"]) == one.sum()
    assert measured["options"][1] == f"{_EVIL} ({one.sum()} rows)"
    assert measured["rows"] == len(measured["labels"]) > 3
    assert measured["stops"] == 1, "the diagram is one tab stop"
    assert measured["focused"] == len(measured["labels"]) - 1
    assert measured["tip"].replace("\n", ", ") in measured["labels"][-1]
    assert re.match(
        r"confidence 0.93 to 1.00: \d+ rows, mean confidence [\d.]+ %, accuracy [\d.]+ %, "
        r"95 % interval [\d.]+ to [\d.]+ %, gap [+-][\d.]+ points",
        measured["labels"][-1],
    )
    assert measured["live"] == "polite"
    assert measured["unlabeled"] == measured["wide"] == measured["bold"] == 0
    assert measured["background"] == background
