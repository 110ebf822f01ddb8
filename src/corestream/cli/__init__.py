"""The front door: `corestream …`. Errors are told without a traceback; the exit status tells the rest."""

import io
import signal
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Annotated, Any

import typer

from corestream import __version__
from corestream.cli import compare, data, demo, listing, paper, report, run, show
from corestream.cli.hyperparameters import with_choices, with_hyperparameters
from corestream.errors import ConfigError, CorestreamError
from corestream.plugins import import_plugins
from corestream.studies.stopping import Interrupted
from corestream.studies.warned import is_own

app = typer.Typer(
    name="corestream",
    help="Choose, while data streams in, which samples to learn from and which to remember.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _complain(error: Exception) -> None:
    typer.echo(f"corestream: {error}", err=True)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"corestream {__version__}")
        raise typer.Exit


@app.callback()
def _front_door(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


try:
    import_plugins()  # first: their settings are options of the commands
except ConfigError as error:
    _complain(error)
    sys.exit(2)
app.command("demo")(demo.demo)
app.command("run")(with_hyperparameters(run.run))
app.command("compare")(with_hyperparameters(compare.compare))
app.command("paper")(paper.paper)
app.command("report")(report.report)
app.command("show")(with_choices(show.show))
app.add_typer(data.app, name="data")
app.add_typer(listing.app, name="list")


def main() -> None:
    """0 done, 1 failed, 2 wrong name or option, 130 and 143 after SIGINT and SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an encoding without ✓ and ± shows ? for them
            stream.reconfigure(errors="replace")
    warnings.formatwarning = _warning_format()
    try:
        app()
    except Interrupted as interruption:
        _complain(interruption)
        sys.exit(interruption.exit_status)
    except CorestreamError as error:
        _complain(error)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except OSError as error:  # a folder that cannot be read, a disk that is full
        _complain(error)
        sys.exit(1)


def _leave(signum: int, frame: FrameType | None) -> None:
    """Where no run has its own handler, end at once, through every `finally`."""
    sys.exit(128 + signum)


def _warning_format(usual: Callable[..., str] = warnings.formatwarning) -> Callable[..., str]:
    told: set[str] = set()

    def text_of(message: Warning | str, category: type[Warning], filename: str, *more: Any) -> str:
        if not is_own(category, filename):
            return usual(message, category, filename, *more)
        words = "" if str(message) in told else f"corestream: {message}\n"
        told.add(str(message))  # Python's own list of them is cleared whenever a library sets a filter
        return words

    return text_of
