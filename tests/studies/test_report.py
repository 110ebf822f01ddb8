import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from corestream.studies.config import make_config
from corestream.studies.report import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page(HTMLParser):
    """The tags of a page with their attributes, and that every tag is closed."""

    VOID = ("meta", "img")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_folder_whose_name_is_not_valid_in_the_locale_has_a_page(make_result: Any, tmp_path: Path) -> None:
    path = write_report([make_result()], tmp_path / "report.html", title="Runs in \udcff")
    assert "Runs in ?" in path.read_text(encoding="utf-8")


@pytest.fixture
def page(make_result: Any, tmp_path: Path) -> Path:
    results = [make_result(method, seed, noise=0.6) for method in ("finetune", "ocs") for seed in (0, 1)]
    results += [
        make_result("ocs", 0),
        make_result("uniform", 0, status="diverged", note="loss is NaN at task 2"),
    ]
    return write_report(results, tmp_path / "out" / "report.html", title="A study", expected=2)


def test_the_page_needs_nothing_but_itself(page: Path) -> None:
    for tag, attributes in Page(page.read_text()).tags:
        assert tag not in ("script", "link", "iframe", "object")
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/png;base64,"))
    assert "url(" not in page.read_text()


def test_every_tag_is_closed(page: Path) -> None:
    assert Page(page.read_text()).open == []


def test_the_page_holds_table_curves_forgetting_noise_classes_pictures_and_commands(page: Path) -> None:
    html = page.read_text()
    tags = [tag for tag, _ in Page(html).tags]
    assert html.count('class="line c') == 2 * 3  # average and first task: two methods with noise, one without
    assert "0.06" in html
    assert html.count('aria-label="task by task, ocs"') == 2
    assert "40 of 400 (10 %)" in html  # trained on noise
    assert "5 of 20 (25 %)" in html  # kept
    assert "keeps nothing" in html
    assert tags.count("img") == 2
    assert html.count('aria-label="classes kept by ocs"') == 2
    assert "corestream run rotated-digits --method ocs --seed 1 --noise 0.6" in html


def test_the_commands_have_the_threads_of_their_runs(make_result: Any, tmp_path: Path) -> None:
    results = [replace(make_result("ocs", 0), threads=3), make_result("ocs", 1)]
    html = write_report(results, tmp_path / "r.html").read_text()
    assert "--seed 0 --device cpu --threads 3\n" in html
    assert html.count("--threads") == 1


def test_runs_that_have_not_ended_are_named_and_cells_tell_how_many_they_have(
    make_result: Any, tmp_path: Path
) -> None:
    results = [make_result("finetune", 0), make_result("ocs", 0), make_result("ocs", 1)]
    begun = [
        make_config("rotated-digits", "uniform", seed=seed, noise=0.4, overrides={"capacity": 300})
        for seed in (10, 2)
    ]
    html = write_report(results, tmp_path / "r.html", unfinished=begun).read_text()
    assert "3 finished runs, 2 begun and not ended" in html
    seeds = re.findall(r"<li>uniform \(capacity 300\), rotated-digits --noise 0.4, seed (\d+)</li>", html)
    assert seeds == ["2", "10"]
    assert "F 0.06 (1 run)" in html
    assert "F 0.06 (2 runs)" in html
    even = write_report(results[:2], tmp_path / "r.html").read_text()
    assert "begun" not in even
    assert "(1 run)" not in even


def test_a_legend_names_the_rows_of_its_section_alone(page: Path) -> None:
    legends = re.findall(r'<ul class="legend">(.*?)</ul>', page.read_text())
    assert [re.findall(r"</span>([^<]+)</li>", legend) for legend in legends] == [
        ["uniform", "ocs"],
        ["finetune", "ocs"],
    ]


def test_diverged_and_missing_runs_are_told(page: Path) -> None:
    html = page.read_text()
    assert "loss is NaN at task 2" in html
    assert "1 diverged, 1 missing" in html
    assert "1 run is not in these means" in html


def test_text_from_outside_is_escaped(make_result: Any, tmp_path: Path) -> None:
    evil = "<script>alert('x')</script>"
    results = [make_result(evil, status="failed", note=evil), make_result("ocs")]
    html = write_report(results, tmp_path / "r.html", title=evil).read_text()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 3
    assert all(tag != "script" for tag, _ in Page(html).tags)


def test_a_page_without_any_run_says_so(tmp_path: Path) -> None:
    assert "0 finished runs" in write_report([], tmp_path / "r.html").read_text()


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")
@pytest.mark.parametrize("width", [1200, 390])
def test_chromium_shows_the_page_with_its_pictures_and_nothing_too_wide(
    page: Path, tmp_path: Path, width: int
) -> None:
    seen = seen_by_chromium(page, tmp_path, width)
    assert seen["pictures"] == 2
    assert seen["broken"] == 0
    assert seen["charts"] == 9  # in each condition two curves, classes of OCS, and a matrix a method
    assert seen["flat"] == 0
    assert seen["wide"] <= 0
    assert seen["tables"] >= 4


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")
def test_a_long_name_leaves_room_for_the_last_column(make_result: Any, tmp_path: Path) -> None:
    settings = {"lr": 0.07, "sweeps": 17, "batch_size": 33, "tau": 123.0, "lam": 0.3, "k": 7, "momentum": 0.5}
    streams: list[dict[str, Any]] = [{}, {"noise": 0.6}, {"imbalanced": True}, {"label_noise": 0.2}]
    results = [make_result("ocs", settings=settings, **stream) for stream in streams]
    page = write_report(results, tmp_path / "report.html")
    assert seen_by_chromium(page, tmp_path, width=1200)["cut"] <= 0


def seen_by_chromium(page: Path, tmp_path: Path, width: int) -> dict[str, int]:
    """A probe appended to a copy writes what the browser made of the page into its title."""
    probe = """<script>addEventListener("load", () => {
      const pictures = [...document.images];
      const charts = [...document.querySelectorAll("svg")];
      const scrolled = [...document.querySelectorAll(".scroll")];
      document.title = JSON.stringify({
        pictures: pictures.length, broken: pictures.filter(i => !i.complete || !i.naturalWidth).length,
        charts: charts.length, flat: charts.filter(c => c.getBoundingClientRect().height < 20).length,
        wide: document.documentElement.scrollWidth - innerWidth,
        cut: Math.max(...scrolled.map(s => s.scrollWidth - s.clientWidth)),
        tables: document.querySelectorAll("table").length});
    })</script>"""
    probed = tmp_path / "probed.html"
    probed.write_text(page.read_text().replace("</body>", probe + "</body>"))
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    command += [f"--window-size={width},900", "--virtual-time-budget=3000", "--dump-dom", probed.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r"<title>(\{.*?\})</title>", done.stdout)
    assert found, done.stderr[-2000:]
    return dict(json.loads(found.group(1).replace("&quot;", '"')))


def test_the_streams_shares_are_told_where_it_can_be_made_and_left_out_where_not(
    make_result: Any, tmp_path: Path
) -> None:
    html = write_report([make_result("ocs")], tmp_path / "known.html").read_text()
    assert html.count('class="mark') == 10
    assert "Strokes across them: its share in the stream." in html
    html = write_report([make_result("uniform", benchmark="mine")], tmp_path / "unknown.html").read_text()
    assert 'class="mark' not in html
    assert "Strokes" not in html
    assert "Its share in the stream is not shown" in html


def test_charts_of_classes_in_one_section_have_one_scale(make_result: Any, tmp_path: Path) -> None:
    even, uneven = make_result("uniform"), make_result("ocs")
    kept = {"samples": 20, "classes": {"0": 20}, "noise": None}
    uneven = replace(uneven, accuracy={**uneven.accuracy, "memory": [kept]})
    html = write_report([even, uneven], tmp_path / "r.html").read_text()
    heights = [float(found) for found in re.findall(r'class="bar c\d+".*? height="([\d.]+)"', html)]
    assert heights[0] == pytest.approx(max(heights) / 10)  # one of ten classes, beside a memory of one class


def test_lines_of_one_colour_are_told_apart_by_their_dashes(make_result: Any, tmp_path: Path) -> None:
    taus = [float(number) for number in range(1, 11)]
    results = [make_result("ocs", settings={"tau": tau}) for tau in taus]
    html = write_report(results, tmp_path / "r.html").read_text()
    drawn = re.findall(r'class="line c(\d+)"', html)
    assert len(set(drawn)) == 10
    assert all(f".c{colour} {{ --k: var(--k{int(colour) % 8});" in html for colour in drawn)
    assert ".c8 { --k: var(--k0); --dash: 7 4;" in html
