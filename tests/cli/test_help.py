"""What the command says of itself."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import docket
from docket.cli import app
from docket.cli.app import COMMANDS
from docket.cli.support.worker_options import WorkerOptions
from docket.inspection.reasons import BlockingLimit, Reason
from docket.inspection.task import TaskDetails
from docket.model.amounts import write_duration
from docket.model.options import declared_options

from .conftest import Command

# The options of the public contract, command by command.
CONTRACT = {
    "worker": (
        "--tasks --docket --url --name --logging-level --logging-format --concurrency --redelivery-timeout "
        "--reconnection-delay --minimum-check-interval --scheduling-resolution --schedule-automatic-tasks "
        "--no-schedule-automatic-tasks --until-finished --healthcheck-port --metrics-port --fallback-task "
        "--enable-internal-instrumentation --dependencies --processes --reload --uvloop --no-uvloop --app "
        "--execution-ttl --heartbeat-interval --missed-heartbeats --max-payload --max-losses --add-patience "
        "--result-storage --credential-provider"
    ),
    "strike": "--docket --url --dry-run",
    "pause": "--docket --url --json --dry-run",
    "resume": "--docket --url --json --id --all",
    "held": "--docket --url --json",
    "restore": "--docket --url",
    "clear": "--docket --url --function --key --state --yes --json",
    "acl": "--docket --url --role",
    "snapshot": "--docket --url --stats",
    "add": "--docket --url --key --in --at --tasks --json",
    "show": "--docket --url --json",
    "stats": "--docket --url --json --since --by-time",
    "history": "--docket --url --json --key --failures --ending --since --before --limit",
    "audit": "--docket --url --json --who --action --after --limit",
    "why": "--docket --url --json",
    "cancel": "--docket --url --function --yes --json",
    "dead ls": "--docket --url --json --kinds --limit --function --error --text --key-prefix --kind --since --argument",
    "dead show": "--docket --url --json",
    "dead retry": "--docket --url --json --over --most --mark --everything --dry-run",
    "dead edit": "--docket --url --json --tasks",
    "dead discard": "--docket --url --json --most --mark --everything --dry-run --yes",
    "watch": "--docket --url -d -u",
    "workers ls": "--docket --url",
    "workers for-task": "--docket --url",
    "tasks ls": "--app --tasks --json",
    "tasks trace": "--docket --url --delay",
    "tasks fail": "--docket --url --delay",
    "tasks sleep": "--docket --url --delay",
    "top": "--docket --url",
    "web": "--docket --url --host --port --read-only --users-file --no-guard --also --allow-host --root-path --trace-url",
    "bench": "--url",
    "demo": "",
    "version": "",
}


def find(path: str) -> Any:
    name, *rest = path.split()
    command: Any = COMMANDS[name].load(name)
    for part in rest:
        command = command.commands[part]
    return command


def all_flags(command: Any) -> set[str]:
    return {flag for parameter in command.params for flag in [*parameter.opts, *parameter.secondary_opts]}


@pytest.mark.parametrize("path", CONTRACT)
def test_every_command_has_the_options_of_the_contract(path: str) -> None:
    assert set(CONTRACT[path].split()) <= all_flags(find(path))


@pytest.mark.parametrize("path", [path for path in CONTRACT if path not in ("demo", "version")])
def test_every_command_on_a_docket_takes_it_from_an_application(path: str) -> None:
    flags = {"--app", "--docket", "--url", "--execution-ttl", "--credential-provider"}
    # The bench has a docket of its own.
    assert flags - ({"--docket"} if path == "bench" else set()) <= all_flags(find(path))


SAFETY = ("accept", "signing", "encrypt")


def test_every_setting_of_a_docket_is_an_option_with_the_same_default() -> None:
    options = {option.name: option for option in find("worker").params}
    shown = {"keep_failures": "7d"}
    for name, parameter in inspect.signature(docket.Docket.__init__).parameters.items():
        # A command never raises the exception of a task, so none has the list of exceptions.
        if name in ("self", "exceptions"):
            continue
        option = options[{"name": "docket", "signing": "signing_keys_file"}.get(name, name)]
        if name in ("result_storage", "credential_provider", "enable_internal_instrumentation", *SAFETY):
            assert not option.default
        else:
            default = parameter.default
            text = write_duration(default) if isinstance(default, timedelta) else str(default)
            assert option.show_default == shown.get(name, text), name


@pytest.mark.parametrize("path", CONTRACT)
def test_every_option_can_be_given_by_an_environment_variable(path: str) -> None:
    options = [p for p in find(path).params if p.param_type_name == "option" and p.name != "help"]
    for option in options:
        names = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or [])
        assert names, f"{path} {option.opts}"
        assert all(name.startswith("DOCKET_") for name in names), f"{path} {option.opts}: {names}"


def leaves(command: Any, path: str) -> list[tuple[str, Any]]:
    """The commands of a group, or the command itself."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return [(path, command)]
    return [leaf for name, part in inner.items() for leaf in leaves(part, f"{path} {name}")]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("worker", "web", "demo")])
def test_every_command_writes_json_and_the_page_says_what(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    table = page[page.index("## JSON") :]
    for path, command in leaves(find(name), name):
        assert "--json" in all_flags(command), path
        assert f"`{name}" in table, path


@pytest.mark.parametrize(("command", "type"), [("show", TaskDetails), ("why", Reason), ("why", BlockingLimit)])
def test_the_page_names_all_fields_of_the_json(command: str, type: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith(f"| `{command}` |"))
    assert not [field.name for field in fields(type) if f"`{field.name}`" not in row]


@pytest.mark.parametrize("path", CONTRACT)
def test_every_command_explains_itself(path: str, docket_command: Command) -> None:
    result = docket_command(*path.split(), "--help")
    assert result.exit_code == 0
    assert "Usage: docket" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_itself(name: str, docket_command: Command) -> None:
    assert COMMANDS[name].summary in docket_command("--help").output
    assert find(name).help.startswith(COMMANDS[name].summary)


def test_a_worker_program_has_the_defaults_of_the_command_line_and_of_a_worker() -> None:
    of_the_docket, of_a_worker = (inspect.signature(owner).parameters for owner in (docket.Docket, docket.Worker))
    expected = {name: parameter.default for name, parameter in of_a_worker.items()}
    expected |= {"docket_name": of_the_docket["name"].default, "url": of_the_docket["url"].default}
    for name, parameter in inspect.signature(docket.Worker.run).parameters.items():
        assert parameter.default == (expected[name] if name in expected else getattr(WorkerOptions(), name)), name


def test_every_parameter_of_a_worker_is_an_option_and_a_parameter_of_its_program() -> None:
    given = set(inspect.signature(docket.Worker).parameters) - {"docket"}
    assert given == set(declared_options(docket.Worker))
    assert given <= set(inspect.signature(docket.Worker.run).parameters)
    assert given <= {option.name for option in find("worker").params}


def test_options_given_by_the_environment_reach_a_process_as_they_were() -> None:
    worker = {"grace_period": timedelta(milliseconds=1500), "schedule_automatic_tasks": False}
    options = WorkerOptions(tasks=("a:b", "c:d"), uvloop=False, metrics_port=0, worker=worker)
    environment = options.environment()
    assert environment["DOCKET_TASKS"] == "a:b c:d"
    command = COMMANDS["worker"].load("worker")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        context = command.make_context("worker", [])
    for name in ("uvloop", "metrics_port", "logging_level"):
        assert context.params[name] == getattr(options, name), name
    assert {name: context.params[name] for name in worker} == worker
    assert tuple(context.params["tasks"]) == options.tasks


def test_help_loads_neither_the_server_library_nor_any_command() -> None:
    code = (
        "import sys\n"
        "from docket.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'redis', 'asyncio', 'opentelemetry', 'docket.docket', 'docket.cli.worker'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_without_a_command_the_help_is_shown(docket_command: Command) -> None:
    assert "docket demo" in docket_command().output


def test_a_command_that_does_not_exist_is_one_line_with_a_suggestion(docket_command: Command) -> None:
    result = docket_command("snapshoot")
    assert result.exit_code == 2
    assert result.stderr == "docket: no such command 'snapshoot'. Did you mean 'snapshot'? (see docket --help)\n"


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_the_version_is_that_of_the_package(arguments: list[str], docket_command: Command) -> None:
    result = docket_command(*arguments)
    assert (result.exit_code, result.output) == (0, f"{docket.__version__}\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_completion_script_that_calls_the_command(shell: str) -> None:
    script = subprocess.run(
        [sys.executable, "-m", "docket"],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), "_DOCKET_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
    )
    assert "_DOCKET_COMPLETE" in script.stdout


@pytest.mark.parametrize(("typed", "expected"), [("docket sna", "snapshot"), ("docket worker --conc", "--concurrency")])
def test_the_shell_completes_commands_and_options(typed: str, expected: str) -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "docket"],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(sys.path),
            "_DOCKET_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split()) - 1),
        },
        capture_output=True,
        text=True,
    )
    assert expected in completed.stdout.split()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_breaks_lines_where_the_terminal_does(name: str) -> None:
    for paragraph in find(name).help.split("\n\n"):
        assert "\n" not in paragraph


def test_the_app_is_what_the_installed_command_runs() -> None:
    assert get_command(app).name == "docket"
