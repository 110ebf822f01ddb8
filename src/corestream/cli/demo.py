"""`corestream demo`: three methods on three streams of embedded digits, a table and a page, without any download."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from corestream.cli import options as opt
from corestream.cli.making import make_missing, show
from corestream.studies.catalogue import DEMO
from corestream.studies.drive import Options
from corestream.studies.formats import write_table
from corestream.studies.grouping import condition_of
from corestream.studies.plan import Plan, make_plan
from corestream.studies.report import write_report
from corestream.studies.stopping import Interrupted
from corestream.studies.study import RunSet
from corestream.studies.tables import Table

TITLE = "Finetune, uniform and OCS on Rotated Digits"


def demo(
    seeds: Annotated[int, typer.Option(help="How many: 0, 1, …", min=1)] = 3,
    tasks: opt.Tasks = None,
    jobs: opt.Jobs = None,
    out: opt.Out = Path("runs/demo"),
    as_json: opt.Json = False,
) -> None:
    """Compare finetune, uniform and OCS on Rotated Digits: balanced, imbalanced, and 60 % noise. Needs no download."""
    plan = make_plan(DEMO, range(seeds), tasks=tasks)
    configs = plan.all_configs()
    interruption: Interrupted | None = None
    try:
        results = make_missing(configs, out, jobs=jobs, options=Options(offline=True))
    except Interrupted as stopped:  # what there is shall still be seen
        results, interruption = RunSet(configs, out).results(), stopped
    table = _named_as_on_the_page(plan.table(results), plan)
    page = write_report(results, out / "report.html", title=TITLE, expected=seeds)
    show(table, [*write_table(table, out), page], as_json=as_json)
    if interruption is not None:
        raise interruption
    if not table.whole:
        raise typer.Exit(1)


def _named_as_on_the_page(table: Table, plan: Plan) -> Table:
    """With --tasks in the streams' names, where they are cut."""
    names = {key: condition_of(configs[0].to_dict()) for (_, key), configs in plan.configs.items()}
    cells = {(row, names[key]): cell for (row, key), cell in table.cells.items()}
    return replace(table, conditions=tuple(names[key] for key in table.conditions), cells=cells)
