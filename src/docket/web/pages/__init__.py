"""The pages about a docket, in the order of the navigation. The first one is the start page."""

from typing import Any, cast

from jinja2 import Environment
from starlette.routing import BaseRoute

from docket.web.charts import hue
from docket.web.page_request import WebPage

from . import audit, dead, functions, limits, look, now, rules, schedule, task, tasks, workers
from .formats import FILTERS
from .look import look_of

PAGES: tuple[WebPage, ...] = (
    now.PAGE,
    tasks.PAGE,
    dead.PAGE,
    functions.PAGE,
    schedule.PAGE,
    workers.PAGE,
    limits.PAGE,
    rules.PAGE,
    audit.PAGE,
    task.PAGE,
    dead.LETTER_PAGE,
    look.PAGE,
)
# Routes from the root of the dashboard, outside of any docket.
ROOT_ROUTES: tuple[BaseRoute, ...] = ()


def extend(environment: Environment) -> None:
    """Adds what the templates of the pages use."""
    environment.filters.update(FILTERS)
    cast("dict[str, Any]", environment.globals).update(hue=hue, look_of=look_of)
