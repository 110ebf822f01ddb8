"""The report: one self-contained HTML page about a set of runs."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from corestream.messages import counted
from corestream.studies import report_data
from corestream.studies.config import RunConfig
from corestream.studies.files import write_text
from corestream.studies.grouping import place_of, table_of
from corestream.studies.layout import grids
from corestream.studies.results import Result
from corestream.studies.tables import Table


def write_report(
    results: Sequence[Result],
    path: Path,
    *,
    title: str = "Comparison",
    expected: int | None = None,
    unfinished: Iterable[RunConfig] = (),
    data_dir: Path | None = None,
) -> Path:
    """The page at `path`; whatever the results hold, failed and missing runs included. `unfinished` ones were begun and have no result."""
    table = table_of(results, title=title, expected=expected)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, render(table, unfinished, data_dir=data_dir))
    return path


def render(table: Table, unfinished: Iterable[RunConfig] = (), *, data_dir: Path | None = None) -> str:
    """The page's HTML; every text is escaped by the template."""
    environment = Environment(
        loader=PackageLoader("corestream.studies", "templates"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["slug"] = lambda text: "".join(c if c.isalnum() else "-" for c in str(text))
    unended = sorted(unfinished, key=lambda config: place_of(config.to_dict()))
    results = [result for cell in table.cells.values() for result in cell.results]
    colours = report_data.colours_of(table)
    return environment.get_template("report.html").render(
        counted=counted,
        title=table.title,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("corestream"),
        grids=grids(table),
        has_paper=table.has_paper_numbers,
        colours=colours,
        sections=[
            report_data.section(table, condition, colours, data_dir=data_dir)
            for condition in table.conditions
        ],
        failures=report_data.failures(table),
        unfinished=[report_data.name_of(config) for config in unended],
        again=report_data.again(table),
        runs=sum(result.status == "done" for result in results),
        seconds=sum(result.seconds or 0.0 for result in results),
        devices=sorted({result.device for result in results if result.device}),
        notes=sorted({result.files_note for result in results if result.files_note}),
    )
