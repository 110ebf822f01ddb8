"""A worker process: runs come in as JSON lines on stdin, news goes out as JSON lines on stdout.

The end of stdin means that the parent is gone, however it went: the run saves itself and the worker ends.
"""

import json
import os
import queue
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

GRACE_SECONDS = 60.0  # for a last step and its checkpoint once the parent is gone


def main() -> None:
    news = _keep_stdout_for_news()
    from corestream.studies.stopping import Interrupted, StopRequest

    _tell_warnings(news)
    stop = StopRequest()
    with stop:
        for order in _orders(stop):
            try:
                _tell(news, "result", result=_carry_out(order, stop, news))
            except Interrupted as interruption:
                sys.exit(interruption.exit_status)
            except Exception as error:
                from corestream.studies.execute import described

                _tell(news, "failed", error=described(error), type=type(error).__name__)
            if stop.signum is not None:
                sys.exit(128 + stop.signum)


def _carry_out(order: dict[str, Any], stop: Any, news: TextIO) -> dict[str, Any]:
    from corestream.plugins import import_plugins
    from corestream.studies.config import RunConfig
    from corestream.studies.drive import Options
    from corestream.studies.execute import execute

    import_plugins()
    options = {**order["options"], "threads": 1, "loggers": tuple(order["options"]["loggers"])}
    if options["data_dir"] is not None:
        options["data_dir"] = Path(options["data_dir"])
    return execute(
        RunConfig.from_dict(order["config"]),
        Path(order["out"]),
        Options(**options),
        report=lambda progress: _tell(news, "progress", progress=asdict(progress)),
        stop=stop,
    )


def _orders(stop: Any) -> Iterator[dict[str, Any]]:
    """A thread reads stdin, so that its end is seen while a run is at work."""
    waiting: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            waiting.put(line)
        stop.request()
        waiting.put("")
        time.sleep(GRACE_SECONDS)
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    while line := waiting.get():
        yield json.loads(line)


def _keep_stdout_for_news() -> TextIO:
    """Whatever a library prints goes to stderr; only news goes to the parent."""
    news = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return news


def _tell_warnings(news: TextIO) -> None:
    """Corestream's own are news; others go to stderr."""
    from corestream.studies.warned import is_own

    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], filename: str, *more: Any) -> None:
        if is_own(category, filename):
            _tell(news, "warning", text=str(message))
        else:
            usual(message, category, filename, *more)

    warnings.showwarning = show  # type: ignore[assignment]


def _tell(news: TextIO, what: str, **facts: Any) -> None:
    try:
        news.write(json.dumps({"news": what, **facts}) + "\n")
        news.flush()
    except OSError:  # the parent is gone; stdin's end says the same
        return


if __name__ == "__main__":
    main()
