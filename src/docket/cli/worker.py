"""`docket worker`"""

from __future__ import annotations

import logging
import os
from typing import Annotated

import typer

from docket.cli.support.connect import has_uvloop
from docket.cli.support.failures import WrongUsage
from docket.cli.support.logs import default_format, logging_to_stdout
from docket.cli.support.run_worker import check_can_be_shared, run_worker, warn_of_tasks
from docket.cli.support.supervisor import Supervisor
from docket.cli.support.task_modules import ignore_current_folder
from docket.cli.support.worker_options import WorkerOptions, with_worker_options
from docket.model.options import DEVELOPING, Option

logger: logging.Logger = logging.getLogger("docket.supervisor")

app: typer.Typer = typer.Typer(add_completion=False)


@app.command()
@with_worker_options
def worker(
    options: WorkerOptions,
    processes: Annotated[int, Option("Start this many worker processes, and restart any that die.", least=1)] = 1,
    reload: Annotated[
        bool, Option("Restart when a .py file below the current folder changes.", panel=DEVELOPING)
    ] = False,
    health_pipe: Annotated[int | None, Option("The pipe to the supervisor.", least=0, is_hidden=True)] = None,
) -> int:
    """Run a worker.

    The worker runs tasks of the docket until a signal stops it. After SIGTERM or Ctrl-C it takes no
    new tasks, finishes those that run, and exits. A second signal requeues the running tasks for
    other workers. Each option can also be set by its environment variable.
    """
    if not options.cwd:
        ignore_current_folder()
    name_in_log = options.name if options.all_processes > 1 else None
    format = options.logging_format or default_format()
    options = options.changed(all_processes=max(processes, options.all_processes), logging_format=format)
    _check(options, processes, reload)
    with logging_to_stdout(options.logging_level, format, name_in_log):
        # A process that has a supervisor has a pipe to it.
        is_alone = processes == 1 and not reload and not options.recycles
        if is_alone or health_pipe is not None:
            return run_worker(options, health_pipe)
        return Supervisor(options, processes, reload=reload, on_started=lambda: warn_of_tasks(options, logger)).run()


def _check(options: WorkerOptions, processes: int, reload: bool) -> None:
    """Finds mistakes in the options, without a server and without loading a task."""
    if options.uvloop and not has_uvloop():
        raise WrongUsage("--uvloop: uvloop is not installed; pip install 'docket[uvloop]', or omit the option")
    if os.name == "nt" and (processes > 1 or reload or options.recycles):
        raise WrongUsage(
            "--processes, --reload, --max-tasks and --max-memory do not work on Windows: start several workers instead"
        )
    url = options.docket.settings.get("url")
    if options.docket.app is None and url is not None:
        # While a process is replaced, there are two.
        check_can_be_shared(url, max(processes, 2) if options.recycles else processes)
