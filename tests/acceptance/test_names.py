"""Every name that a user imports is there."""

import importlib
import importlib.util

import pytest
import uncalled_for

import docket
import docket.dependencies
import docket.execution

TOP = """Agenda CallArgument ConcurrencyLimit Cooldown Cron CurrentDocket CurrentExecution
CurrentWorker CycleError Debounce Depends Disposition Docket Execution ExecutionCancelled
ExecutionState ExponentialRetry Logged Perpetual Progress RateLimit Retry Shared
StrikeList TaskArgument TaskCall TaskKey TaskLogger Timeout Worker testing __version__"""

DEPENDENCIES = """CallArgument ConcurrencyLimit Cooldown Cron CurrentDocket CurrentExecution CurrentWorker
CycleError Debounce Depends ExponentialRetry Perpetual Progress RateLimit Retry Shared
TaskArgument TaskKey TaskLogger Timeout AdmissionBlocked CompletionHandler
ConcurrencyBlocked Dependency DependencyFunction FailedDependency FailureHandler
ForcedRetry Runtime SharedContext TaskOutcome current_docket current_execution
current_worker format_duration get_annotation_dependencies get_dependency_parameters
get_single_dependency_of_type get_single_dependency_parameter_of_type
resolved_dependencies validate_dependencies _Depends _parameter_cache"""

EXECUTION = """Execution ExecutionState ExecutionProgress Disposition ExecutionCancelled TaskCall
TaskFunction StateEvent ProgressEvent compact_signature get_signature _signature_cache"""

INSTRUMENTATION = """TASKS_ADDED TASKS_REPLACED TASKS_SCHEDULED TASKS_CANCELLED TASKS_STARTED TASKS_REDELIVERED
TASKS_STRICKEN TASKS_SUPERSEDED TASKS_COMPLETED TASKS_FAILED TASKS_SUCCEEDED TASKS_RETRIED
TASKS_PERPETUATED TASK_DURATION TASK_PUNCTUALITY TASKS_RUNNING STRIKES_IN_EFFECT
REDIS_DISRUPTIONS QUEUE_DEPTH SCHEDULE_DEPTH CACHE_SIZE healthcheck_server metrics_server
message_getter message_setter"""

PUBLIC = {
    "docket": TOP,
    "docket.dependencies": DEPENDENCIES,
    "docket.docket": "Docket DocketSnapshot RunningExecution WorkerInfo TaskCollection",
    "docket.execution": EXECUTION,
    "docket.strikelist": "StrikeList Strike Restore StrikeInstruction Operator LiteralOperator",
    "docket.annotations": "Annotation Logged",
    "docket.agenda": "Agenda",
    "docket.tasks": "trace fail sleep standard_tasks",
    "docket.testing": "assert_task_scheduled assert_task_not_scheduled assert_task_count assert_no_tasks",
    "docket.worker": "Worker",
    "docket.instrumentation": INSTRUMENTATION,
    "docket.cli": "app",
}


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in PUBLIC.items() for name in names.split()]
)
def test_a_public_name_is_importable(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    "name", ["Dependency", "Shared", "SharedContext", "FailedDependency", "CallArgument", "CycleError"]
)
def test_the_injection_types_are_those_of_the_shared_library(name: str) -> None:
    assert getattr(docket.dependencies, name) is getattr(uncalled_for, name)


def test_depends_makes_a_dependency_of_the_shared_library() -> None:
    assert isinstance(docket.Depends(lambda: 1), uncalled_for.Dependency)


@pytest.mark.parametrize("name", ["execution", "docket", "worker"])
def test_a_client_reads_the_current_objects_from_the_dependency_class(name: str) -> None:
    with pytest.raises(LookupError):
        getattr(docket.dependencies.Dependency, name).get()


async def test_a_client_pops_a_function_out_of_the_signature_caches() -> None:
    async def task(a: int, d: int = docket.Depends(lambda: 1)) -> None: ...

    docket.execution.get_signature(task)
    docket.dependencies.get_dependency_parameters(task)
    docket.execution._signature_cache.pop(task, None)
    docket.dependencies._parameter_cache.pop(task, None)

    assert list(docket.execution.get_signature(task).parameters) == ["a", "d"]
    assert list(docket.dependencies.get_dependency_parameters(task)) == ["d"]


def test_the_package_is_a_program() -> None:
    assert importlib.util.find_spec("docket.__main__") is not None


def test_the_version_is_text() -> None:
    assert docket.__version__[0].isdigit()


@pytest.mark.parametrize("name", ["Runtime", "FailureHandler", "CompletionHandler", "Dependency"])
def test_the_building_blocks_say_in_brackets_what_they_give(name: str) -> None:
    kind = getattr(importlib.import_module("docket.dependencies"), name)

    assert kind["Mine"].__origin__ is kind
