"""Fixtures shared by every test, and the choice of the servers that tests run on (`--servers`)."""

import gc
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from docket import Docket, Worker
from docket.testing.servers import Cluster, Sentinels, ServerGroup, ServerNotFound, ServerProcess, find_binary

from .order import for_processes
from .running import worker_for

# A script's background jobs ignore SIGINT, and what they
# start inherits that: no test could be interrupted by Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Without kept bytecode, each of the hundreds of processes compiles docket and the tests again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


GROUPS: dict[str, type[ServerGroup]] = {"cluster": Cluster, "sentinel": Sentinels}
_databases = itertools.count(1)

# `make check` leaves these tests out. Most of them start programs: a process of docket costs as
# much as a hundred other tests.
FOLDER = f"{Path(__file__).parent}/"
SLOW_FIXTURES = {"start", "chromium"}
SLOW_FILES = {
    "acceptance/test_types.py",
    "cli/test_demo.py",
    "cli/test_lazy_package.py",
    "cli/test_log_writer.py",
    "cli/test_no_cwd.py",
    "cli/test_wrong_clocks.py",
    "engine/test_engine_races.py",
    "examples/test_examples.py",
    "examples/test_pages.py",
    "examples/test_wsgi_services.py",
    "ledger/test_model.py",
    "security/test_damaged_keys.py",
    "security/test_fuzz.py",
    "sync/test_sync_forks.py",
    "sync/test_sync_types.py",
    "worker/test_child_forks.py",
    "worker/test_child_shortages.py",
    "worker/test_processes.py",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--servers",
        default="",
        help="the servers of the tests: a program (redis-6.2, redis-7, valkey-9), or cluster or sentinel, "
        "which a program may follow (cluster:redis-7). Default: docket's own engine",
    )


def pytest_configure(config: pytest.Config) -> None:
    """A program becomes docket's own engine, so that every test runs on it."""
    config.addinivalue_line("markers", "slow: tests that start programs or take many seconds; see SLOW_FILES")
    _, program = chosen_servers(config)
    if program:
        try:
            os.environ["DOCKET_SERVER"] = str(find_binary(program).path)
        except ServerNotFound as error:
            raise pytest.UsageError(f"--servers: {error}") from error


def chosen_servers(config: pytest.Config) -> tuple[str, str]:
    """The kind of group, if the tests run on one, and the program."""
    kind, _, program = str(config.getoption("--servers")).partition(":")
    return (kind, program) if kind in GROUPS else ("", kind)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _is_slow(item):
            item.add_marker(pytest.mark.slow)
    if chosen_servers(config)[0]:
        skipped = pytest.mark.skip(reason="about one server, not about a group")
        for item in items:
            if item.get_closest_marker("one_server"):
                item.add_marker(skipped)


@pytest.hookimpl(trylast=True, specname="pytest_collection_modifyitems")
def pytest_order_for_processes(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After all marks are set."""
    processes: int = getattr(config, "workerinput", {}).get("workercount", 1)
    if processes > 1:
        items[:] = for_processes(items, processes)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Thousands of tests stay until the end. Without this, each
    search for garbage goes through them, a quarter of a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _is_slow(item: pytest.Item) -> bool:
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return not SLOW_FIXTURES.isdisjoint(fixtures) or str(item.path).removeprefix(FOLDER) in SLOW_FILES


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from without_clock(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from without_clock(item))


def without_clock(item: pytest.Item) -> Generator[None, Any, Any]:
    """Skips tests that set the clock, which is possible on memory:// only."""
    try:
        return (yield)
    except ValueError as error:
        if chosen_servers(item.config)[0] and "a Clock needs a docket on memory://" in str(error):
            pytest.skip("a Clock needs a docket on memory://")
        raise


@pytest.fixture(scope="session")
def server_group(pytestconfig: pytest.Config) -> Iterator[ServerGroup | None]:
    """The cluster or the sentinels of this test process, if the tests run on them."""
    kind = chosen_servers(pytestconfig)[0]
    if not kind:
        yield None
        return
    # With a file, so that workers need not warn.
    with GROUPS[kind]("--appendonly", "yes") as group:
        yield group


@pytest.fixture(scope="session")
def redis_server() -> Iterator[ServerProcess]:
    """The `redis-server` of this machine, one for each test process."""
    try:
        server = ServerProcess("--databases", "10000", binary="redis", tcp=True)
    except ServerNotFound:
        pytest.skip("no redis-server on this machine")
    with server:
        yield server


class ForWhoeverListens(SpanProcessor):
    """A provider's processors cannot be taken off again;
    this one stays, and passes on while a test listens."""

    def __init__(self) -> None:
        self.listener: SpanProcessor | None = None

    def on_end(self, span: ReadableSpan) -> None:
        if self.listener is not None:
            self.listener.on_end(span)


PROCESSOR = ForWhoeverListens()


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Every span that ends during the test. A process has one
    tracer provider for ever, so all its tests share it."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(PROCESSOR)
        trace.set_tracer_provider(provider)
    exporter = InMemorySpanExporter()
    PROCESSOR.listener = SimpleSpanProcessor(exporter)
    yield exporter
    PROCESSOR.listener = None


@pytest.fixture
def name() -> str:
    """A name that no other docket has."""
    return f"docket-{uuid4().hex}"


@pytest.fixture
def url(name: str, server_group: ServerGroup | None) -> str:
    """A database of its own: on the embedded server, or on the servers that were chosen."""
    return f"memory://{name}" if server_group is None else server_group.database_url(next(_databases))


@pytest.fixture
def docket_url(url: str) -> str:
    """The fixture of docket's pytest plugin, with the URL of the test's docket."""
    return url


@pytest.fixture
async def docket(name: str, url: str) -> AsyncIterator[Docket]:
    """An open docket with nothing on it."""
    async with Docket(name=name, url=url) as docket:
        yield docket


@pytest.fixture
async def worker(docket: Docket) -> AsyncIterator[Worker]:
    """An open worker on that docket, which looks at the
    schedule often. It does nothing before it is told to run."""
    async with worker_for(docket) as worker:
        yield worker
