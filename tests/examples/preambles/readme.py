# ruff: noqa: F401, F821, RUF100
"""The README imports things of the reader's own shop."""


class Database: ...


class Receipt: ...


async def connect() -> Database:
    return Database()


make_module("shop", Database=Database, Receipt=Receipt, connect=connect)
