"""Refuses changes that another site makes a browser send.

A browser sends the visitor's credentials with every request, whichever site caused it. It also says
which site that was, in headers that no script can set.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers


def is_same_origin(headers: Headers) -> bool:
    """Whether a page of this dashboard caused the request. Programs send `Sec-Fetch-Site:
    same-origin` themselves; a request that says nothing counts as foreign."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin, host = headers.get("origin"), headers.get("host")
    if not origin or not host:
        return False
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    # A proxy may end TLS, so the scheme says nothing. Both leave out the port of their scheme.
    return found.scheme in ("http", "https") and found.netloc.lower() == host.lower()
