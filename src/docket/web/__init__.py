"""The dashboard: pages and a REST API as one ASGI application (docs/web.md). It needs the packages
of `docket[web]`."""

from docket.errors import MissingPackage

try:
    from .application import app
    from .guards import Answer, Guard, Role, UsersFile, Visitor
except ModuleNotFoundError as _error:
    if (_error.name or "").partition(".")[0] not in ("starlette", "jinja2", "markupsafe", "anyio"):
        raise
    raise MissingPackage(f"docket.web needs the package {_error.name}: pip install 'docket[web]'") from _error

__all__ = ["Answer", "Guard", "Role", "UsersFile", "Visitor", "app"]
