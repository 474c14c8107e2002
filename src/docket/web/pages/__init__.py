"""The pages about a docket, in the order of the navigation. The first one is the start page."""

from jinja2 import Environment
from starlette.routing import BaseRoute

from docket.web.page import Page

from . import now

PAGES: tuple[Page, ...] = (now.PAGE,)
# Routes from the root of the dashboard, outside of any docket.
ROOT_ROUTES: tuple[BaseRoute, ...] = ()


def extend(environment: Environment) -> None:
    """Adds what the templates of the pages use."""
