"""The dashboard: pages and a REST API as one ASGI application (docs/web.md). It needs the packages
of `docket[web]`."""

from docket.errors import MissingPackage

try:
    from .application import app
    from .guards import Answer, Guard, Role, Visitor
    from .users import UsersFile
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("starlette", "jinja2", "markupsafe", "anyio"):
        raise
    raise MissingPackage(f"docket.web needs the package {error.name}: pip install 'docket[web]'") from error

__all__ = ["Answer", "Guard", "Role", "UsersFile", "Visitor", "app"]
