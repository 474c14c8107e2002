# ruff: noqa: F401, F821, RUF100
"""A sync docket blocks its caller, so the snippets run in a thread beside the worker."""

IN_A_THREAD = True
NAME = "shop"


async def prepare(docket):
    docket.register(send_mail)
