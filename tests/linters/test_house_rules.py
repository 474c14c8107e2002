"""The house rules that `python -m lint` checks: each finds what breaks it, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lint import imports, names, paths, rooms, sizes, source, texts, words

Package = Callable[..., None]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Writes the files of a package that is checked instead of docket."""
    folder = tmp_path / "docket"
    folder.mkdir()
    monkeypatch.setattr(source, "PACKAGE", folder)
    monkeypatch.setattr(source, "CHAOS", tmp_path / "chaos")
    monkeypatch.setattr(sizes, "EXCEPTIONS", {})
    monkeypatch.setattr(imports, "EXCEPTIONS", {})
    monkeypatch.setattr(rooms, "EXCEPTIONS", {})
    monkeypatch.setattr(names, "EXCEPTIONS", {})

    def write(**files: str) -> None:
        for name, text in files.items():
            stem, _, suffix = name.rpartition("_")
            (folder / f"{stem}.{suffix}").write_text(text)

    return write


def function(lines: int, name: str = "work") -> str:
    return f"def {name}():\n" + "    pass\n" * (lines - 1)


def test_a_module_a_class_and_a_function_of_the_largest_size_pass(package: Package) -> None:
    package(module_py="\n" * 600, class_py="class Task:\n" + "    x = 1\n" * 399, function_py=function(60))
    assert list(sizes.check()) == []


def test_a_line_more_is_too_long(package: Package) -> None:
    package(
        module_py="\n" * 601,
        class_py="class Task:\n" + "    x = 1\n" * 400,
        function_py=function(61),
        script_lua="-- a line\n" * 601,
    )
    assert list(sizes.check()) == [
        "docket/class.py:Task: 401 lines, at most 400",
        "docket/function.py:work: 61 lines, at most 60",
        "docket/module.py: 601 lines, at most 600",
        "docket/script.lua: 601 lines, at most 600",
    ]


def test_a_folder_has_at_most_forty_modules(package: Package) -> None:
    package(**{f"module{number}_py": "" for number in range(40)})
    assert list(rooms.check()) == []
    package(script_lua="")
    assert list(rooms.check()) == ["docket: 41 modules, at most 40: give an idea a sub-package of its own"]


def test_a_name_of_a_class_means_one_thing(package: Package, tmp_path: Path) -> None:
    (tmp_path / "docket" / "sync").mkdir()
    package(a_py="class Run: ...\n", b_py="class Task: ...\n", **{"sync/run_py": "class Run: ...\n"})
    assert list(rooms.check()) == []
    package(c_py="class Task: ...\n")
    assert list(rooms.check()) == ["Task: a class in docket/b.py and in docket/c.py; one name means one thing"]


def test_methods_and_inner_functions_count_too(package: Package) -> None:
    inner = function(61).replace("\n", "\n        ")
    package(method_py=f"class Task:\n    async def run(self):\n        {inner}\n")
    assert [finding.split(":", 2)[1] for finding in sizes.check()] == ["Task.run", "Task.run.work"]


def test_an_exception_lets_a_piece_be_longer_until_it_is_not_needed(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "EXCEPTIONS", {"docket/long.py:work": "a reason"})
    package(long_py=function(61))
    assert list(sizes.check()) == []
    package(long_py=function(60))
    assert list(sizes.check()) == [
        "docket/long.py:work: keeps the rule now; remove it from the exceptions in lint/sizes.py"
    ]


def test_only_imports_of_our_own_modules_have_to_stand_at_the_top(package: Package) -> None:
    package(
        lazy_py="import json\nfrom docket import errors\n\n"
        "def load():\n    import yaml\n    from docket.worker import Worker\n    from . import other\n    import docket.cli\n"
        "    import_module('docket.web'), importlib.import_module(f'docket.{name}'), import_module(name), import_module('yaml')"
    )
    assert [finding.partition("; ")[0] for finding in imports.check()] == [
        "docket/lazy.py:6: load imports docket.worker",
        "docket/lazy.py:7: load imports .",
        "docket/lazy.py:8: load imports docket.cli",
        "docket/lazy.py:9: load imports docket.web",
        "docket/lazy.py:9: load imports docket.",
    ]


@pytest.mark.parametrize(
    "file",
    [
        {"tenure_py": ""},
        {"worker_py": "tenure = 1"},
        {"worker_py": "class TenureEvents: ..."},
        {"worker_py": "self._tenure_of.now()"},
        {"worker_py": "def f(TENURE=None): ..."},
        {"worker_lua": "local function tenure_of(id) end"},
    ],
    ids=str,
)
def test_an_old_word_in_an_identifier_is_found(
    package: Package, file: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ban(tmp_path, monkeypatch, tenure="registration")
    package(**file)
    (finding,) = words.check()
    assert "'tenure' is an old word; write 'registration'" in finding


def test_old_words_in_texts_and_comments_and_parts_of_longer_words_are_not_found(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ban(tmp_path, monkeypatch, seat="worker process", lay_ghosts="release replaced runs")
    package(
        worker_py="# a seat\nseating = unseat = 'seat'\ndef lay(ghosts): ...",
        worker_lua="-- a seat\nlocal x = 'seat' --[[ seat\nseat ]]\nlocal lay, ghosts = 1, 2",
    )
    assert list(words.check()) == []


@pytest.mark.parametrize(
    "text",
    ["hand back", "Tasks are handed\n    # back.", "HANDS_BACK = 1", "test_it_is_handed_back_at_once", "a hand-back"],
)
def test_an_old_word_in_a_text_is_found(text: str) -> None:
    assert list(texts.old_words(f"\n{text}", {"hand back": "requeue"})) == [(2, "hand back")]


@pytest.mark.parametrize("text", ["hand it back", "backhand", "a shorthand, back again", "feedback"])
def test_words_that_only_look_like_an_old_word_are_not_found(text: str) -> None:
    assert not list(texts.old_words(text, {"hand back": "requeue"}))


def test_an_old_word_is_allowed_with_a_reason_until_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "words.toml").write_text('[texts]\nroster = "workers"\n[allowed]\n"docs/a.md: roster" = "a reason"\n')
    monkeypatch.setattr(texts, "LIST", tmp_path / "words.toml")
    monkeypatch.setattr(texts, "ROOT", tmp_path)
    monkeypatch.setattr(texts, "pages", lambda: sorted(tmp_path.rglob("*.md")))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("the roster")
    (tmp_path / "docs" / "b.md").write_text("one\nthe roster")
    assert list(texts.check()) == ["docs/b.md:2: 'roster' is an old word; write 'workers'"]
    (tmp_path / "docs" / "a.md").write_text("the workers")
    (tmp_path / "docs" / "b.md").write_text("the workers")
    assert list(texts.check()) == [
        "docs/a.md: roster: keeps the rule now; remove it from the exceptions in lint/words.toml"
    ]


def test_files_that_a_page_names_exist(tmp_path: Path) -> None:
    (tmp_path / "src" / "worker").mkdir(parents=True)
    (tmp_path / "src" / "worker" / "runner.py").touch()
    (tmp_path / "Makefile").touch()
    page = (
        "`worker/runner.py`, `runner.py`, `worker/running.py`, `orker/runner.py`, `src/<name>.py`\n```\n`no.py`\n```\n"
    )
    assert paths.missing(page, paths.existing(tmp_path)) == ["worker/running.py", "orker/runner.py"]


def _ban(folder: Path, monkeypatch: pytest.MonkeyPatch, **banned: str) -> None:
    entries = "\n".join(f'{old} = "{new}"' for old, new in banned.items())
    (folder / "words.toml").write_text(f"[banned]\n{entries}\n")
    monkeypatch.setattr(words, "LIST", folder / "words.toml")


def test_a_file_whose_name_is_an_activity_is_found(package: Package) -> None:
    package(gathering_py="", late_listing_lua="", rings_py="")
    assert list(names.check()) == [
        f"docket/{name}: the name is an activity; use a noun" for name in ("gathering.py", "late_listing.lua")
    ]


@pytest.mark.parametrize("opening", ["What", "Who", "The same"])
def test_a_docstring_that_begins_with_no_thing_is_found(package: Package, opening: str) -> None:
    package(one_py=f'def work():\n    """{opening} is meant."""\n', two_py='"""Whatever, the samecase."""\n')
    assert list(names.check()) == [f"docket/one.py:2: a docstring begins with {opening!r}; begin with the thing itself"]
