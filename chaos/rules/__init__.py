"""The rules. A new one is a function in a file of this folder, a line in `RULES`, and a good and a
bad history in tests/chaos."""

from __future__ import annotations

from .base import Rule, Violation
from .chains import a_cron_time_runs_once, chains_do_not_fork, chains_do_not_stop
from .due_times import nothing_starts_before_its_time
from .endings import (
    an_innocent_task_is_never_buried,
    every_task_ends_as_it_should,
    no_stale_write_is_accepted,
    nothing_acknowledged_is_lost,
    nothing_is_recorded_as_done_that_did_not_run,
)
from .finished_runs import the_history_equals_the_records
from .letters import every_final_failure_has_one_letter, every_retried_letter_runs
from .limits import concurrency_limits_hold, debounces_hold, rate_limits_hold
from .pauses import paused_work_does_not_start, paused_work_goes_on_in_order
from .processes import (
    no_process_exits_that_was_not_killed,
    no_worker_is_healthy_and_idle_while_work_waits,
    the_backstop_finds_nothing,
    the_metrics_balance,
)
from .residue import nothing_is_left_after_the_drain
from .runtimes import (
    a_time_out_stops_the_child,
    abandoned_threads_are_counted,
    no_child_outlives_its_worker,
    no_run_that_was_given_up_is_recorded_as_done,
)
from .starts import (
    every_duplicate_start_is_explained,
    nothing_runs_that_was_never_enqueued,
    runs_of_one_task_do_not_overlap,
)
from .states import states_are_monotone
from .statistics import the_statistics_equal_the_records
from .withdrawals import cancelled_work_does_not_run, replaced_work_does_not_run, struck_work_does_not_run

RULES: tuple[Rule, ...] = (
    nothing_acknowledged_is_lost,
    every_task_ends_as_it_should,
    nothing_runs_that_was_never_enqueued,
    every_duplicate_start_is_explained,
    runs_of_one_task_do_not_overlap,
    no_stale_write_is_accepted,
    nothing_is_recorded_as_done_that_did_not_run,
    no_run_that_was_given_up_is_recorded_as_done,
    an_innocent_task_is_never_buried,
    every_final_failure_has_one_letter,
    every_retried_letter_runs,
    concurrency_limits_hold,
    rate_limits_hold,
    debounces_hold,
    nothing_starts_before_its_time,
    a_cron_time_runs_once,
    chains_do_not_fork,
    chains_do_not_stop,
    states_are_monotone,
    cancelled_work_does_not_run,
    replaced_work_does_not_run,
    struck_work_does_not_run,
    paused_work_does_not_start,
    paused_work_goes_on_in_order,
    nothing_is_left_after_the_drain,
    the_statistics_equal_the_records,
    the_history_equals_the_records,
    the_metrics_balance,
    no_process_exits_that_was_not_killed,
    no_worker_is_healthy_and_idle_while_work_waits,
    no_child_outlives_its_worker,
    a_time_out_stops_the_child,
    abandoned_threads_are_counted,
    the_backstop_finds_nothing,
)

__all__ = ["RULES", "Rule", "Violation"]
