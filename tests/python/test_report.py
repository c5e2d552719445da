"""Records of trainings, and the pages drawn of them."""

import html.parser
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

import pytest

import pith
from pith.report import read

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def stats(call: int, **fields) -> dict:
    """As a compressor of 1,000 elements tells them."""
    return {"calls": call, "count": 1000, "density_target": 0.01, "density": 0.02, "gain": 0.5,
            "residual_norm": 3.0, "bypassed": False, "bytes_sent": 80, "select_seconds": 0.001,
            "exchange_seconds": 0.003, "total_seconds": 0.004 + call * 1e-9,
            "predicted_seconds": 0.0, "algorithm": "topk_direct"} | fields


def record(path: pathlib.Path, steps: int = 20, layers: int = 3) -> pathlib.Path:
    with pith.Recorder(path, size=4, title="digits & <letters>") as recorder:
        for step in range(1, steps + 1):
            given = {f"layer {number}": stats(step, density=1 if step < 3 else 0.02 / number)
                     for number in range(1, layers + 1)}
            recorder.step(5 / step, given, tensors={"weight": 0.1, "bias": 0.2 / step})
            if step % 5 == 0:
                recorder.validation(5.5 / step)
    return path


def test_of_compressors(run, tmp_path):
    """What two ranks record of their own calls."""
    run(2, """
compressors = {"first": pith.Compressor("topk:density=0.1,bypass=never"),
               "second": pith.Compressor("ar-topk:density=0.1,bypass=never")}
with pith.Recorder("run{rank}.jsonl", rank=rank, size=size) as recorder:
    for step in range(4):
        for name, compressor in compressors.items():
            if name == "first" or step % 2:
                comm.all_reduce(np.arange(100, dtype="float32"), compressor=compressor)
        recorder.step(float(step), compressors)
pith.report(recorder.path, f"run{rank}.html")
# Without {rank} only rank 0 writes.
with pith.Recorder("one.jsonl", rank=rank, size=size) as recorder:
    recorder.step(1.0)
""")
    for rank in range(2):
        recording = read(tmp_path / f"run{rank}.jsonl")
        assert (recording.rank, recording.size) == (rank, 2)
        assert recording.layer_names() == ["first", "second"]
        assert [step.loss for step in recording.steps] == [0, 1, 2, 3]
        assert [sorted(step.layers) for step in recording.steps] == [
            ["first"], ["first", "second"]] * 2
        first = recording.steps[0].layers["first"]
        assert (first["count"], first["algorithm"]) == (100, "topk_direct"), first
        for step in recording.steps:
            assert math.isclose(sum(step.split()), step.seconds)
            assert 0 < step.split()[0] < step.seconds
        assert "By layer" in (tmp_path / f"run{rank}.html").read_text(encoding="utf-8")
    assert (read(tmp_path / "one.jsonl").rank, len(read(tmp_path / "one.jsonl").steps)) == (0, 1)


def test_time(tmp_path, monkeypatch):
    """Of a step, without what is not of it."""
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def passes(seconds: float) -> None:
        clock[0] += seconds

    recorder = pith.Recorder(tmp_path / "run.jsonl")
    passes(2)
    recorder.step()
    passes(1)
    with recorder.paused():
        passes(10)
    passes(1)
    recorder.step(layers={"all": stats(1, select_seconds=0.25, exchange_seconds=0.25)}, waited=0.1)
    passes(30)
    recorder.validation(4.0)
    passes(3)
    recorder.step(layers={"all": stats(2, select_seconds=5, exchange_seconds=5)})
    passes(1)
    recorder.step(layers={"all": stats(2)}, waited=0.1)  # no call since then
    recorder.close()
    steps = read(recorder.path).steps
    assert [step.seconds for step in steps] == [2, 2, 3, 1]
    assert steps[1].validation_loss == 4 and steps[2].validation_loss is None
    assert [step.split() for step in steps] == [
        (2, 0, 0), pytest.approx((1.9, 0.05, 0.05)), (0, 1.5, 1.5), (1, 0, 0)]


def test_restart(tmp_path):
    """Steps that are made again count once; a line that a killed process has begun does not."""
    path = record(tmp_path / "run.jsonl", steps=6)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"step":7,"seco')
    assert [step.number for step in read(path).steps] == [1, 2, 3, 4, 5, 6]
    with pith.Recorder(path, size=2, append=True) as recorder:
        recorder.step(100.0, number=5)
        recorder.step(200.0)
        recorder.step(float("nan"))
    recording = read(path)
    assert recording.size == 2
    assert [step.loss for step in recording.steps[4:]] == [100, 200, None]


def test_refusals(tmp_path):
    recorder = pith.Recorder(tmp_path / "run.jsonl")
    with pytest.raises(TypeError, match=r"layers\['all'\] is a int, expected a pith.Compressor"):
        recorder.step(layers={"all": 3})
    recorder.close()
    recorder.close()
    with pytest.raises(ValueError, match="no steps"):
        pith.report(recorder.path, tmp_path / "run.html")
    bad = tmp_path / "bad.jsonl"
    for text, told in (("", "is empty"), ('{"step":1}\n', "no first line"),
                       ('{"pith":"record",\n{}\n', "bad.jsonl:1 is no JSON")):
        bad.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=told):
            pith.report(bad, tmp_path / "run.html")
    command = [sys.executable, "-m", "pith.report", str(bad)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1 and "is no JSON" in done.stderr and "Trace" not in done.stderr


class Page(html.parser.HTMLParser):
    """The elements of a page; fails if one is not closed in order."""

    VOID = ("meta",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict]] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page(tmp_path):
    """It is whole, and needs nothing from elsewhere."""
    path = record(tmp_path / "run.jsonl")
    command = [sys.executable, "-W", "error", "-m", "pith.report", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'run.html'}\n"
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?://|<link|<img|@import|url\(", text)
    figures = [attrs["id"] for tag, attrs in page.seen if tag == "figure"]
    assert figures == ["loss", "time", "density", "gain"]
    for picture in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        xml.etree.ElementTree.fromstring(picture)
    assert "digits &amp; &lt;letters&gt;" in text and "<letters>" not in text
    for wanted in ("time (", "step</text>", "elements sent", "layer 3", "topk_direct", "bias"):
        assert wanted in text, wanted


@pytest.mark.parametrize(("steps", "layers", "has_loss"), [(1, 0, False), (1, 1, True),
                                                           (3, 0, True), (1000, 70, True)])
def test_few_and_many(tmp_path, steps, layers, has_loss):
    with pith.Recorder(tmp_path / "run.jsonl") as recorder:
        for step in range(1, steps + 1):
            given = {f"layer {one}": stats(step, gain=None) for one in range(layers)}
            recorder.step(0.0 if has_loss else None, given)
    pith.report(read(recorder.path), tmp_path / "run.html")
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    Page(text)
    assert ("Loss over time" in text) == has_loss and ("By layer" in text) == (layers > 0)
    assert ("10 quicker ones are not shown" in text) == (layers == 70)
    assert len(text) < 200_000


# --- in a browser ---------------------------------------------------------------------------------

# Looks at each plot as a reader would, with the pointer in its middle, and tells what is there.
LOOK = """
const found = [...document.querySelectorAll('figure.chart')].map((figure) => {
  const svg = figure.querySelector('svg');
  const box = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent('pointermove',
    {clientX: box.left + box.width / 2, clientY: box.top + box.height / 2}));
  const drawn = [...svg.querySelectorAll('.line, .area')].map((one) => {
    const size = one.getBoundingClientRect();
    const style = getComputedStyle(one);
    return {width: size.width / box.width, height: size.height / box.height,
            paint: style.fill === 'none' ? style.stroke : style.fill};
  });
  const texts = [...svg.querySelectorAll('text')].map((one) => one.getBoundingClientRect());
  const inside = texts.every((one) => one.left >= box.left - 1 && one.right <= box.right + 1
    && one.top >= box.top - 1 && one.bottom <= box.bottom + 1);
  return {id: figure.id, ready: figure.dataset.ready, drawn, inside, ticks: texts.length,
          tip: figure.querySelector('.tip').innerText, width: box.width};
});
const page = getComputedStyle(document.body);
document.body.replaceChildren(Object.assign(document.createElement('pre'), {
  id: 'found', textContent: JSON.stringify({found, back: page.backgroundColor, ink: page.color})}));
"""


def find_browser() -> str:
    named = [os.environ.get("PITH_BROWSER", ""), *BROWSERS]
    for path in filter(None, map(shutil.which, filter(None, named))):
        return str(path)
    pytest.skip(f"none of {', '.join(BROWSERS)} is installed, and PITH_BROWSER names none")


def look_at(page: pathlib.Path, scheme: int, folder: pathlib.Path) -> dict:
    """scheme 0 is dark, 1 light."""
    seen = folder / f"seen{scheme}.html"
    text = page.read_text(encoding="utf-8")
    seen.write_text(text.replace("</body>", f"<script>{LOOK}</script></body>"), encoding="utf-8")
    command = [find_browser(), "--headless", "--no-sandbox", "--disable-gpu",
               f"--user-data-dir={folder / 'profile'}", "--window-size=1200,900",
               f"--blink-settings=preferredColorScheme={scheme}", "--dump-dom", seen.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    told = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert told, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(told[1])


def brightness(colour: str) -> float:
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3


def test_in_a_browser(tmp_path):
    """Its plots are drawn, fill their frames, are legible in light and dark, and tell numbers."""
    pith.report(record(tmp_path / "run.jsonl"), tmp_path / "run.html")
    for scheme in (0, 1):
        seen = look_at(tmp_path / "run.html", scheme, tmp_path)
        is_dark = scheme == 0
        assert (brightness(seen["back"]) < 60, brightness(seen["ink"]) > 200) == (is_dark, is_dark)
        plots = {one["id"]: one for one in seen["found"]}
        assert list(plots) == ["loss", "time", "density", "gain"]
        for name, lines in (("loss", 2), ("time", 3), ("density", 2), ("gain", 1)):
            plot = plots[name]
            assert plot["ready"] == "yes" and plot["inside"] and plot["ticks"] > 8, plot
            assert plot["width"] > 400 and len(plot["drawn"]) == lines, plot
            assert all(0.5 < one["width"] < 1 for one in plot["drawn"]), plot
            assert len({one["paint"] for one in plot["drawn"]}) == lines
        assert max(one["height"] for one in plots["loss"]["drawn"]) > 0.4
        assert "training" in plots["loss"]["tip"] and "step\n" in plots["time"]["tip"]
        assert re.search(r"exchange\s+[\d.]+ ms|exchange\s+[\d.]+ .s", plots["time"]["tip"])
