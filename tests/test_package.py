"""What a user gets from the installed package itself."""

from importlib.resources import files

import docket


def test_the_package_tells_its_version_and_ships_its_types() -> None:
    assert isinstance(docket.__version__, str)
    assert files("docket").joinpath("py.typed").is_file()
