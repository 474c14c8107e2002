"""Changes from the forms of pages: `POST /{docket}/actions/{action}`. They work without JavaScript:
the answer leads back to the page, which shows what became of the change."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .actions import ACTIONS, carry_out, check_role
from .bodies import read_form_body
from .dashboard import Dashboard
from .failures import explain
from .inputs import read_form
from .visit import Visit

RETURN_TO = "return_to"
_UNSURE = "It is not known whether the change was made: look before you repeat it."


def form_route(dashboard: Dashboard) -> Route:
    async def answer(request: Request) -> Response:
        visit = dashboard.visit(request)
        action = ACTIONS.get(request.path_params["action"])
        if action is None:
            raise HTTPException(404)
        check_role(action, visit.visitor)
        fields = await read_form_body(request)
        back = _page(visit, next((value for name, value in fields if name == RETURN_TO), None))
        try:
            given = read_form(action.inputs, [field for field in fields if field[0] != RETURN_TO])
            with dashboard.jobs(visit.docket).job(action.summary, visit.visitor.name) as job:
                done = await carry_out(action, visit.docket, visit.visitor, "web", given, job)
        except Exception as error:
            failure = explain(error)
            if failure.status in (403, 500):
                raise
            words = f"{failure.title}: {failure.detail}"
            return visit.redirect(back, words if failure.status < 500 else f"{words} {_UNSURE}", is_error=True)
        return visit.redirect(back, done.sentence)

    return Route("/{docket}/actions/{action:path}", answer, methods=["POST"])


def _page(visit: Visit, path: str | None) -> str:
    """The page to return to: only one of this docket, so that no form leads elsewhere."""
    beginning = visit.url("")
    if path is None or not path.startswith(beginning) or "\\" in path or not path.isprintable():
        return visit.url(visit.dashboard.pages[0].path)
    return path
