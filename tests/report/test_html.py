"""report.html and the files beside it, of a small workdir: complete, self-contained, fit for a phone."""

import base64
import html
import html.parser
import io
import json
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from calib_jax import report
from calib_jax.report._table import Cell, Table

_KEYS = ("nll", "brier", "ece", "ece_mass", "smooth_ece", "classwise_ece", "aurc")
_VOID = {"meta", "img", "br", "input"}


def _evaluation(name: str, accuracy: float, error: float, parameters: dict) -> dict:
    metrics = {"accuracy": accuracy, **dict.fromkeys(_KEYS, error)}
    return {"name": name, "metrics": metrics, "intervals": {}, "parameters": parameters}


def _write_run(workdir: pathlib.Path, method: str, seed: int, temperature: float) -> pathlib.Path:
    folder = workdir / method / f"seed_{seed}"
    (folder / "logits").mkdir(parents=True)
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 80)
    logits = 3 * (rng.normal(size=(80, 3)) + np.eye(3)[labels])
    np.savez(folder / "logits" / "test.npz", logits=logits, labels=labels, ids=np.arange(80))
    accuracy = float((logits.argmax(1) == labels).mean())
    after = 0.05 + 0.02 * seed + 0.001 * (method == "cross_entropy")
    splits = {
        split: [
            _evaluation("uncalibrated", accuracy, 0.1 * temperature, {}),
            _evaluation("temperature", accuracy, after, {"temperature": [temperature]}),
            _evaluation("spline", accuracy, 0.04, {}),
        ]
        for split in ("test", "shifted")
    }
    results = {"method": method, "seed": seed, "num_parameters": 9, "train_seconds": 1.0}
    (folder / "results.json").write_text(json.dumps({**results, "splits": splits}))
    rows = []
    for epoch in (1.0, 2.0, 3.0):
        row = {"epoch": epoch, "train/loss": 1 / epoch, "val/accuracy": 0.8, "val/ece_mass": 0.1}
        if method == "adafocal":
            row |= {"method/gamma": [0.5, epoch], "method/edges": [0.6], "method/gap": [-0.1, 0.1]}
        rows.append(json.dumps(row) + "\n")
    (folder / "metrics.jsonl").write_text("".join(rows))
    return folder


def _write_workdir(workdir: pathlib.Path) -> pathlib.Path:
    for seed in (0, 1):
        _write_run(workdir, "adafocal", seed, 1.2 + 0.1 * seed)
        _write_run(workdir, "cross_entropy", seed, 2.0 + 0.1 * seed)
    config = {"data": {"name": "digits"}, "model": {"name": "mlp"}, "note": "a < b & c"}
    (workdir / "config.json").write_text(json.dumps({"config": config, "devices": ["cpu", "cpu"]}))
    return workdir


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, str]:
    workdir = _write_workdir(tmp_path_factory.mktemp("work") / "quick")
    (workdir / "adafocal" / "seed_2").mkdir()
    return workdir, report.write_report(workdir)


@pytest.mark.parametrize("names", [(), (*"abcdefg", "joy")])
def test_training_dynamics_are_shown_where_a_phase_recorded_them(
    tmp_path: pathlib.Path, names: tuple[str, ...]
) -> None:
    workdir = _write_workdir(tmp_path)
    path = workdir / "adafocal" / "seed_0" / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"label_names": names}))
    folder = workdir / "phases" / "records" / "seed_0"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    records = {k: rng.random(30) for k in ("confidence", "variability", "correctness")}
    aum = rng.permutation(30) - 3.0
    np.savez(
        folder / "artifacts.npz",
        aum=aum, ids=np.arange(100, 130), labels=np.full(30, 7), logits=np.zeros((30, 8)), **records,
    )  # fmt: skip
    report.write_report(workdir)
    page = (workdir / "report.html").read_text()
    assert "Training dynamics of the examples" in page
    label = names[7] if names else "7"
    listed = re.findall(rf"^\| (\d{{3}}) +\| +{label} \| +(-?\d+\.\d\d) \|", page, re.M)
    assert len(listed) == 20
    order = np.argsort(aum)[:20]
    assert [int(number) for number, _ in listed] == (100 + order).tolist()
    assert [float(value) for _, value in listed] == aum[order].tolist()
    assert (workdir / "plots" / "dynamics.png").stat().st_size > 10_000


class _Page(html.parser.HTMLParser):
    """Collects tags, images and text, and fails on a tag that is not closed in its turn."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == [], "tags left open"

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)
            self.text.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.text[tag][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def page(written: tuple[pathlib.Path, str]) -> _Page:
    return _Page((written[0] / "report.html").read_text(encoding="utf-8"))


def test_headline_says_what_was_compared(page: _Page) -> None:
    (headline,) = (text for text in page.text["p"] if "cross_entropy" in text)
    assert headline.startswith("cross_entropy and adafocal on digits with mlp; seeds 0, 1; ")
    assert re.search(r"; trained on 2 × cpu; last run finished on \d{4}-\d\d-\d\d\.", headline)
    assert headline.endswith("Not finished, hence not counted: adafocal seed_2.")


def test_page_shows_everything_in_order(page: _Page) -> None:
    assert page.text["h1"] == ["Calibration report: quick"]
    assert page.text["h2"] == [
        "Explore the calibration",
        "Accuracy, F1 and ECE by set",
        "Reliability of cross_entropy on test",
        "Reliability of adafocal on test",
        "γ of adafocal, bin by bin",
        "Training",
        "Which number is which",
        "Details",
    ]
    calibrators = ("uncalibrated", "temperature", "spline")
    expected = [f"{split}: {c}" for split in ("test", "shifted") for c in calibrators]
    assert page.text["summary"] == ["The bins as a table", *expected, "Configuration"]
    assert page.text["caption"] == ["test", "shifted", "Accuracy, F1 and ECE by set", *expected]
    assert json.loads(page.text["pre"][0])["config"]["note"] == "a < b & c"
    captions = page.text["figcaption"]
    assert [c.split(":")[0] for c in captions[:4]] == [
        "Before temperature scaling", "After temperature 2.00",
        "Before temperature scaling", "After temperature 1.20",
    ]  # fmt: skip
    assert all("Seed 0." in caption for caption in captions[:5])


def test_main_table_has_means_marks_and_temperatures(page: _Page) -> None:
    assert page.text["tr"][2].startswith("cross_entropy2")  # its name, its number of seeds
    assert page.text["tr"][3].startswith("adafocal2")
    assert {"20.50±0.71", "6.10†±1.41(2.05)", "6.00±1.41(1.25)"} <= set(page.text["td"])
    best = [attributes for attributes in page.all("td") if attributes.get("class") == "best"]
    assert best
    assert len(page.text["strong"]) == len(best)


def test_images_are_embedded_described_and_of_the_size_they_claim(page: _Page) -> None:
    images = page.all("img")
    assert len(images) == 6  # twice before and after, γ, curves
    for image in images:
        head, data = (image["src"] or "").split(",", 1)
        assert head == "data:image/png;base64"
        picture = Image.open(io.BytesIO(base64.b64decode(data, validate=True)))
        assert picture.format == "PNG"
        claimed = int(image["width"] or 0), int(image["height"] or 0)
        np.testing.assert_allclose(np.array(picture.size) / claimed, 1.5, rtol=0.01)
        assert len(picture.convert("L").getcolors(maxcolors=1000) or []) > 20, "not blank"
        assert len(image["alt"] or "") > 20
    assert len({image["alt"] for image in images}) == len(images)


def test_page_needs_nothing_from_elsewhere(page: _Page, written: tuple[pathlib.Path, str]) -> None:
    assert not {"link", "iframe", "object"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        for name in ("href", "src", "srcset", "data"):
            assert (attributes.get(name) or "data:").startswith("data:")
    text = (written[0] / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|url\((?!#)|@import", text)


def test_everything_is_escaped(tmp_path: pathlib.Path) -> None:
    evil = '<b onclick="x">&amp;</b>'
    figure = report.plot_curves({"a": [[{"epoch": 1.0, "train/loss": 1.0}]]})
    picture = report.Picture(figure, alt=evil, caption=evil)
    table = Table.from_rows(evil, [evil], [(evil, [Cell(evil, evil, evil)])], evil)
    report.write_html(
        tmp_path / "report.html",
        title=evil,
        verdicts=[evil],
        headline=evil,
        tables=[table],
        legend=evil,
        sections=[
            report.Section(evil, text=evil, tables=[table], pictures=[picture], code=evil),
            report.Section(evil, code=evil, folded=True),
        ],
    )
    page = _Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "b" not in {tag for tag, _ in page.tags}
    assert page.all("img")[0]["alt"] == evil
    assert "script" not in {tag for tag, _ in page.tags}
    for tag in ("title", "h1", "h2", "figcaption", "pre", "caption"):
        assert page.text[tag][0] == evil, tag


@pytest.mark.parametrize(
    ("asked", "order"),
    [
        ("zeta, cross_entropy,adafocal", ["zeta", "cross_entropy", "adafocal", "brier", "mmce"]),
        ("mmce", ["cross_entropy", "mmce", "adafocal", "brier", "zeta"]),
    ],
)
def test_methods_stand_in_the_order_in_which_they_were_asked_for(
    tmp_path: pathlib.Path, asked: str, order: list[str]
) -> None:
    for method in ("adafocal", "brier", "cross_entropy", "mmce", "zeta"):
        for seed in (10, 2) if method == "zeta" else (2,):
            _write_run(tmp_path, method, seed, 1.5)
    config = {"method": {"name": asked}, "interactive": False}
    (tmp_path / "config.json").write_text(json.dumps({"config": config}))
    text = report.write_report(tmp_path)
    assert [line.split()[0] for line in text.splitlines()[2:7]] == order
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert list(summary["methods"]) == order
    assert summary["methods"]["zeta"]["seeds"] == [2, 10]
    markdown = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (\w+) +\|", markdown, re.M)[1:6] == order
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.findall(r'<th scope="row">(\w+)<', page)[:5] == order
    assert f"Curves over the epochs of {', '.join(order)}" in page
    assert "<script" not in page, "not interactive"


def test_files_beside_it_are_written(written: tuple[pathlib.Path, str]) -> None:
    workdir, text = written
    summary = json.loads((workdir / "summary.json").read_text())
    assert list(summary["methods"]) == ["cross_entropy", "adafocal"]
    temperature = summary["splits"]["test"]["adafocal"]["temperature"]["parameters"]["temperature"]
    assert temperature["mean"] == pytest.approx([1.25])
    assert (workdir / "summary.md").read_text(encoding="utf-8").startswith("# Results\n")
    with Image.open(workdir / "plots" / "curves.png") as picture:
        assert picture.width > 900
    assert text.startswith("test, 2 seeds\nmethod ")
    assert text.endswith(f"report: {workdir / 'report.html'}")


def test_report_can_be_written_again(written: tuple[pathlib.Path, str]) -> None:
    workdir, text = written
    before = (workdir / "report.html").read_bytes()
    assert report.write_report(workdir) == text
    assert (workdir / "report.html").read_bytes() == before


def test_missing_logits_are_said_not_hidden(tmp_path: pathlib.Path) -> None:
    folder = _write_run(tmp_path, "brier", 0, 1.5)
    (tmp_path / "config.json").write_text("{}")
    (folder / "logits" / "test.npz").unlink()
    report.write_report(tmp_path)
    page = _Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "No diagram: test.npz is not among the logits." in page.text["p"]
    assert page.text["p"][0].startswith("brier; seed 0; last run finished on ")


def _add_detection(folder: pathlib.Path) -> None:
    """Another set: its logits, and what was found of them."""
    with np.load(folder / "logits" / "test.npz") as test:
        logits = 0.5 * test["logits"][:50]
    np.savez(folder / "logits" / "svhn.npz", logits=logits, labels=np.zeros(50), ids=range(50))
    results = json.loads((folder / "results.json").read_text())
    found = {"before": {"auroc": 0.8, "fpr95": 0.4}, "after": {"auroc": 0.7, "fpr95": 0.5}}
    results["out_of_distribution"] = {"svhn": {"entropy": found, "confidence": found}}
    (folder / "results.json").write_text(json.dumps(results))


def test_page_shows_detection_and_what_the_bins_did(tmp_path: pathlib.Path) -> None:
    folders = [_write_run(tmp_path, method, 0, 1.5) for method in ("brier", "calfocal")]
    for folder in folders:
        _add_detection(folder)
    bins = {f"method/{k}_confidence": [0.5, 0.9] for k in ("train", "val")}
    bins |= {"method/val_accuracy": [0.4, 0.9], "method/gap": [0.1, 0.0], "method/edges": [0.7]}
    rows = [{"epoch": e, "train/loss": 1 / e, **bins} for e in (1.0, 2.0)]
    (folders[1] / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folders[0] / "logits" / "svhn.npz").unlink()
    (tmp_path / "config.json").write_text(json.dumps({"data": {"name": "cifar10"}}))
    report.write_report(tmp_path)
    page = _Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.text["h2"][:7] == [
        "Explore the calibration",
        "Accuracy, F1 and ECE by set",
        "Out of distribution: svhn",
        "Reliability of brier on test",
        "Reliability of calfocal on test",
        "Calibration gap of calfocal, bin by bin",
        "Training and validation confidence of calfocal",
    ]
    assert "svhn told from test" in page.text["caption"]
    assert page.text["td"].count("80.00") == 4  # two methods, two scores
    assert any(
        text.endswith("No curve of brier: svhn.npz is not among its logits.")
        for text in page.text["p"]
    )
    alts = [image["alt"] or "" for image in page.all("img")]
    assert alts[0] == "ROC curves of telling svhn from test by entropy, of calfocal"
    assert len(alts) == 1 + 4 + 2 + 1
    pictures = {path.stem for path in (tmp_path / "plots").iterdir()}
    assert pictures == {"curves", "roc_svhn", "bins_calfocal", "correspondence_calfocal"}
    with Image.open(tmp_path / "plots" / "roc_svhn.png") as picture:
        assert picture.width > 700
    markdown = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "| cifar10  |" in markdown
    assert "## svhn told from test\n" in markdown


def _no_results(workdir: pathlib.Path) -> None:
    (workdir / "brier" / "seed_0" / "results.json").unlink()


def _torn_row(workdir: pathlib.Path) -> None:
    with (workdir / "brier" / "seed_0" / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 4.0, "tr')


def _no_rows(workdir: pathlib.Path) -> None:
    (workdir / "brier" / "seed_0" / "metrics.jsonl").unlink()


def _no_config(workdir: pathlib.Path) -> None:
    (workdir / "config.json").unlink()


def _torn_logits(workdir: pathlib.Path) -> None:
    path = workdir / "brier" / "seed_0" / "logits" / "test.npz"
    path.write_bytes(path.read_bytes()[:200])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_no_results, r"no finished run, expected <method>/seed_<n>/results.json; train first"),
        (_torn_row, r"metrics.jsonl, line 4: not valid JSON \(.+\); remove or fix it"),
        (_no_rows, r"metrics.jsonl: no such file, though the run has results; run it again"),
        (_no_config, r"config.json: no such file; is this a workdir of calib_jax.main\?"),
        (_torn_logits, r"test.npz: expected an npz archive, this is none; run the method again"),
    ],
)
def test_errors_name_the_file(tmp_path: pathlib.Path, damage, message: str) -> None:
    _write_run(tmp_path, "brier", 0, 1.5)
    (tmp_path / "config.json").write_text("{}")
    damage(tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        report.write_report(tmp_path)
    assert str(tmp_path) in str(caught.value)


# A frame is as narrow as it is told to be; a window of Chromium is 500 pixels wide at least.
_FRAME = """<!DOCTYPE html><html><body>
<iframe width="{width}" height="900" style="border: 0" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const page = document.querySelector("iframe").contentDocument;
  page.querySelectorAll("details").forEach(d => d.open = true);
  const images = [...page.images], boxes = [...page.querySelectorAll(".scroll")];
  document.documentElement.dataset.measured = JSON.stringify({{
    visible: page.documentElement.clientWidth, page: page.documentElement.scrollWidth,
    scrolled: boxes.filter(b => b.scrollWidth > b.clientWidth).length,
    images: images.length, loaded: images.filter(i => i.complete && i.naturalWidth > 0).length,
  }});
}});
</script></body></html>"""


@pytest.mark.parametrize("width", [390, 1280])
def test_browser_shows_all_and_scrolls_only_boxes(
    width: int, written: tuple[pathlib.Path, str], tmp_path: pathlib.Path
) -> None:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip(f"needs a browser: none of {', '.join(names)} is installed")
    text = (written[0] / "report.html").read_text(encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(_FRAME.format(width=width, page=html.escape(text)), encoding="utf-8")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,1000"]
    done = subprocess.run(
        [*command, "--dump-dom", frame.as_uri()], capture_output=True, text=True, timeout=300
    )
    found = re.search(r'data-measured="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    measured = json.loads(html.unescape(found[1]))
    assert measured["visible"] == width
    assert measured["page"] == width, "the page itself scrolls sideways"
    assert measured["loaded"] == measured["images"] == 6
    assert (measured["scrolled"] >= 2) == (width == 390), "wide tables scroll in their own boxes"
