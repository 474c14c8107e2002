"""`docket worker`"""

from __future__ import annotations

import logging
import os
from datetime import timedelta

import typer

from docket.cli import worker_options as o
from docket.cli.docket_options import DocketOptions, with_docket_options
from docket.cli.failures import WrongUsage
from docket.cli.logs import Level, default_format, logging_to_stdout
from docket.cli.loops import has_uvloop
from docket.cli.supervising import Supervisor
from docket.cli.worker_options import WorkerOptions
from docket.cli.working import check_can_be_shared, run_worker, warn_of_tasks

logger: logging.Logger = logging.getLogger("docket.supervisor")

app: typer.Typer = typer.Typer(add_completion=False)
DEFAULT = WorkerOptions()


@app.command()
@with_docket_options
def worker(
    docket: DocketOptions,
    tasks: o.Tasks = [o.STANDARD_TASKS],  # noqa: B006 - typer wants a list, and nobody changes it
    name: o.Name = None,
    concurrency: o.Concurrency = DEFAULT.concurrency,
    processes: o.Processes = 1,
    until_finished: o.UntilFinished = False,
    reload: o.Reload = False,
    logging_level: o.LoggingLevel = Level.INFO,
    logging_format: o.LoggingFormat = None,
    healthcheck_port: o.HealthcheckPort = None,
    metrics_port: o.MetricsPort = None,
    enable_internal_instrumentation: o.EnableInternalInstrumentation = False,
    banner: o.Banner = True,
    redelivery_timeout: o.RedeliveryTimeout = DEFAULT.redelivery_timeout,
    reconnection_delay: o.ReconnectionDelay = DEFAULT.reconnection_delay,
    grace_period: o.GracePeriod = DEFAULT.grace_period,
    wait: o.Wait = DEFAULT.wait,
    schedule_automatic_tasks: o.ScheduleAutomaticTasks = True,
    fallback_task: o.FallbackTask = None,
    dependencies: o.Dependencies = None,
    uvloop: o.Uvloop = None,
    minimum_check_interval: o.MinimumCheckInterval = DEFAULT.minimum_check_interval,
    scheduling_resolution: o.SchedulingResolution = DEFAULT.scheduling_resolution,
    message_batch: o.MessageBatch = 1,
    processes_beside: o.ProcessesBeside = 1,
    report_to: o.ReportTo = None,
) -> int:
    """Run a worker.

    The worker takes tasks from the docket until a signal stops it. After SIGTERM or Ctrl-C it finishes its running tasks;
    after a second signal it gives them back. Each option can also be set by its environment variable.
    """
    # Before any other name is local here. The options of the docket come in an object of their own.
    given = {**locals(), **vars(docket)}
    options = WorkerOptions.of(
        given,
        tasks=tuple(tasks),
        logging_format=logging_format or default_format(),
        processes_beside=max(processes, processes_beside),
    )
    _check(options, processes, reload)
    with logging_to_stdout(options.logging_level, options.logging_format, name if processes_beside > 1 else None):
        if processes == 1 and not reload:
            return run_worker(options, report_to)
        return Supervisor(options, processes, reload=reload, when_up=lambda: warn_of_tasks(options, logger)).run()


def _check(options: WorkerOptions, processes: int, reload: bool) -> None:
    """What can be seen to be wrong without asking a server or loading a task."""
    if options.redelivery_timeout <= timedelta(0):
        raise typer.BadParameter("it must be longer than nothing", param_hint="'--redelivery-timeout'")
    if options.uvloop and not has_uvloop():
        raise WrongUsage("--uvloop: uvloop is not installed; pip install 'docket[uvloop]', or omit the option")
    if os.name == "nt" and (processes > 1 or reload):
        raise WrongUsage("--processes and --reload do not work on Windows: start several workers instead")
    if options.app is None and options.url is not None:
        check_can_be_shared(options.url, processes)
