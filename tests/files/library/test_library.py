import asyncio
import errno
import os
import pickle
import shutil
import sys
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest

from lazyprompt.errors import PromptFileError, PromptFileMissingError
from lazyprompt.files.library.layers import Trace
from lazyprompt.files.library.library import PromptLibrary
from lazyprompt.files.library.names import key_and_version, language
from lazyprompt.files.prompty import Prompty
from lazyprompt.files.yaml_nodes import MAX_BYTES

LONG_AGO = 1_000_000_000


def write_library(root: Path, *names: str, **texts: str) -> Path:
    """Files of a library with an old time stamp; each has its own name as text, or the text passed as ``text=``."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts.get("text", f"user:\n{root.name}/{name}"), encoding="utf-8")
        for one in (path, *path.relative_to(root).parents):
            os.utime(root / one, (LONG_AGO, LONG_AGO))
    return root


def rendered_text(library: PromptLibrary, key: str, lang: str | None = None, version: str | None = None) -> str:
    return library.get(key, lang, version).render().removeprefix("user:\n")


@pytest.fixture
def lib(tmp_path: Path) -> Path:
    return write_library(
        tmp_path / "lib",
        "refund.prompty",
        "refund@1.0.0.prompty",
        "refund@1.2.0.prompty",
        "refund@2.0.0-rc.1.prompty",
        "refund.zh@1.2.0.prompty",
        "support/bill.zh.prompty",
        "support/bill.zh-CN.prompty",
        "support/bill.prompty",
        "support/deep/er.prompty",
        "refund.v2.prompty",
    )


def test_keys_versions_and_languages_are_read_from_file_names(lib: Path) -> None:
    write_library(lib, ".hidden/a.prompty", "_part.prompty", "shared/tone.md", "__pycache__/x.prompty")
    library = PromptLibrary(lib)
    assert library.keys() == ("refund", "refund.v2", "support/bill", "support/deep/er")
    assert library.versions("refund") == ("1.0.0", "1.2.0", "2.0.0-rc.1")
    assert library.versions("refund", "zh") == ("1.2.0",)
    assert library.versions("support/bill") == ()
    assert library.languages("support/bill") == ("zh", "zh-CN")
    assert repr(library) == f"PromptLibrary({str(lib)!r})"


@pytest.mark.parametrize(
    ("key", "lang", "version", "name"),
    [
        ("refund", None, None, "refund@1.2.0.prompty"),
        ("refund", None, "1.0.0", "refund@1.0.0.prompty"),
        ("refund", None, "1.x", "refund@1.2.0.prompty"),
        ("refund", None, ">=1 <1.2", "refund@1.0.0.prompty"),
        ("refund", None, "2.0.0-rc.1", "refund@2.0.0-rc.1.prompty"),
        ("refund", "zh-CN", None, "refund.zh@1.2.0.prompty"),
        ("refund", "zh-CN", "1.0.0", "refund@1.0.0.prompty"),
        ("refund", "fr", None, "refund@1.2.0.prompty"),
        ("support/bill", "zh-CN", None, "support/bill.zh-CN.prompty"),
        ("support/bill", "ZH_cn", None, "support/bill.zh-CN.prompty"),
        ("support/bill", "zh_Hant_TW", None, "support/bill.zh.prompty"),
        ("support/bill", "de", None, "support/bill.prompty"),
        ("support/bill", "", None, "support/bill.prompty"),
    ],
)
def test_get_selects_the_best_version_and_language(
    lib: Path, key: str, lang: str | None, version: str | None, name: str
) -> None:
    assert PromptLibrary(lib).entry(key, lang, version).path == lib / name
    assert rendered_text(PromptLibrary(lib), key, lang, version) == f"lib/{name}"


KEYS = "available prompts: refund, refund.v2, support/bill, support/deep/er"
RANGES = "expected something like 1.2.0, 1.x, ^1.2, ~1.2, or bounds separated by a space such as >=1 <2"
VERSIONS = "available versions: 1.0.0, 1.2.0, 2.0.0-rc.1"


@pytest.mark.parametrize(
    ("key", "lang", "version", "message"),
    [
        ("refnd", None, None, f"no prompt 'refnd' (did you mean 'refund'?) in LIB; {KEYS}"),
        ("support", None, None, f"no prompt 'support' (did you mean 'support/bill'?) in LIB; {KEYS}"),
        ("/etc/passwd", None, None, f"no prompt '/etc/passwd' in LIB; {KEYS}"),
        ("a\0b", None, None, f"no prompt 'a\\x00b' in LIB; {KEYS}"),
        ("", None, None, f"no prompt '' in LIB; {KEYS}"),
        ("refund", None, "1.3.0", f"no version '1.3.0' of the prompt 'refund' (did you mean '1.2.0'?); {VERSIONS}"),
        ("refund", None, "^3", f"no version '^3' of the prompt 'refund'; {VERSIONS}"),
        ("refund", "zh", "3", f"no version '3' of the prompt 'refund'; {VERSIONS}"),
        ("support/bill", None, "1", "no version '1' of the prompt 'support/bill'; its file has no version in its name"),
        ("refund", None, "newest", f"invalid version or range 'newest'; {RANGES}"),
        ("refund", "no word", None, "invalid language 'no word'; expected something like zh, pt-BR or zh-Hant-TW"),
    ],
)
def test_missing_prompt_version_or_language_is_an_error_with_suggestions(
    lib: Path, key: str, lang: str | None, version: str | None, message: str
) -> None:
    with pytest.raises(PromptFileError) as error:
        PromptLibrary(lib).get(key, lang, version)
    assert str(error.value) == message.replace("LIB", str(lib))


def test_missing_prompt_error_lists_at_most_twelve_prompts_of_all_directories(tmp_path: Path) -> None:
    names = [f"p{number:02}" for number in range(12)]
    mine = write_library(tmp_path / "mine", *(f"{name}.prompty" for name in names[:6]))
    base = write_library(tmp_path / "base", *(f"{name}.prompty" for name in names[6:]))
    for more in ("", " and 1 more"):
        with pytest.raises(PromptFileMissingError) as error:
            PromptLibrary(mine, layers=[base]).get("other")
        assert str(error.value) == f"no prompt 'other' in {base}, {mine}; available prompts: {', '.join(names)}{more}"
        write_library(base, "p12.prompty")


@pytest.mark.parametrize(
    ("key", "lang", "message"),
    [
        ("a", None, "no prompt 'a' in the default language; pass lang=, one of fr, zh"),
        (
            "a",
            "fra",
            "no prompt 'a' in the language 'fra' or the default language (did you mean 'fr'?); pass lang=, one o",
        ),
        ("b", None, "no released version of the prompt 'b'; available versions: 1.0.0-rc.1; pass version="),
    ],
)
def test_prompt_without_a_default_language_or_a_released_version_is_an_error(
    tmp_path: Path, key: str, lang: str | None, message: str
) -> None:
    library = PromptLibrary(write_library(tmp_path, "a.zh.prompty", "a.fr.prompty", "b@1.0.0-rc.1.prompty"))
    with pytest.raises(PromptFileMissingError) as error:
        library.get(key, lang)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("a@1.0.0.prompty", "a@1.prompty", "a@1.0.0"),
        ("a@1.0.0+x.prompty", "a@1.0.0+y.prompty", "a@1.0.0"),
        ("a.zh-cn.prompty", "a.zh_CN.prompty", "a.zh-CN"),
        ("a.prompty", "a.yaml", "a"),
    ],
)
def test_two_files_of_the_same_prompt_are_an_error(tmp_path: Path, one: str, other: str, both: str) -> None:
    library = PromptLibrary(write_library(tmp_path, one, other, "b.prompty"))
    with pytest.raises(PromptFileError) as error:
        library.get("a", "zh-CN")
    what = f"are both {both}; rename one of them or change its version"
    assert str(error.value) == f"{tmp_path / one} and {tmp_path / other} {what}"
    assert rendered_text(library, "b")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("lib/s/bill@1.2.prompty", ("s/bill", "1.2.0")),
        ("lib/bill.zh.prompty", ("bill", None)),
        ("else/s/bill.prompty", ("bill", None)),
        ("lib/s/a.zh@new.prompty", ("a.zh@new", None)),
        ("lib/notes.txt", ("notes", None)),
    ],
)
def test_key_and_version_are_read_from_a_path(path: str, expected: tuple[str, str | None]) -> None:
    assert key_and_version(Path(path), [Path("other"), Path("lib")]) == expected


def test_unreadable_directory_is_an_error_with_its_path(lib: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PromptFileError) as error:
        PromptLibrary(lib).get("support/bill")
    assert str(error.value) == f"{lib / 'support'}:1:1: the directory cannot be read: Permission denied"


def test_pickled_trace_has_no_environment_values() -> None:
    trace = Trace()
    trace.file("a.prompty")
    trace.variable("KEY", "sk-hidden")
    again = pickle.loads(pickle.dumps(trace))  # noqa: S301 - our own bytes
    assert b"sk-hidden" not in pickle.dumps(trace)
    assert (again.files, again.variables) == ({}, {})


@pytest.mark.parametrize("name", ["a@latest.prompty", "a@.prompty", "@1.0.0.prompty"])
def test_invalid_file_name_is_an_error_with_its_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(PromptFileError, match=r"key\[.language\]\[@version\]") as error:
        PromptLibrary(write_library(tmp_path, name)).keys()
    assert str(error.value).startswith(f"{tmp_path / name}:1:1: ")


def test_file_name_suffix_such_as_old_or_dev_is_not_a_language(tmp_path: Path) -> None:
    # "old" is also a language code: refund.old.prompty was taken for "refund" in that language.
    words = ("old", "new", "v2", "qa", "dev", "tmp", "min")
    library = PromptLibrary(write_library(tmp_path, *(f"refund.{each}.prompty" for each in words)))
    assert library.keys() == tuple(sorted(f"refund.{each}" for each in words))
    assert library.languages("refund.old") == ()
    # A library without prompts is valid.
    empty = PromptLibrary(write_library(tmp_path / "empty", "notes.txt"))
    assert (len(empty), bool(empty)) == (0, True)
    with pytest.raises(PromptFileMissingError, match="; available prompts: none$"):
        empty.get("a")


def test_language_tags_of_file_names_are_normalized(tmp_path: Path) -> None:
    forms = {"ZH_cn": "zh-CN", "zh_hant_TW": "zh-Hant-TW", "es-419": "es-419", "PT-br": "pt-BR"}
    assert [language(each) for each in forms] == [*forms.values()]
    tags = ("de", "FR", "fil", "yue", "es-419", "sr_Latn", "tlh-Latn")
    library = PromptLibrary(write_library(tmp_path, *(f"a.{each}.prompty" for each in tags)))
    assert library.keys() == ("a",)
    assert set(library.languages("a")) == {"de", "fr", "fil", "yue", "es-419", "sr-Latn", "tlh-Latn"}


def test_prompt_is_selected_by_language_then_layer_then_version(tmp_path: Path) -> None:
    team = write_library(tmp_path / "team", "a.prompty", "b.zh.prompty", "c@1.0.0.prompty")
    base = write_library(
        tmp_path / "base", "a@3.0.0.prompty", "a.zh.prompty", "b.zh.prompty", "c@1.1.0.prompty", "d.prompty"
    )
    library = PromptLibrary(base, layers=[team])
    assert library.keys() == ("a", "b", "c", "d")
    # A file of the layer overrides that of the base, whatever its version.
    assert rendered_text(library, "a") == "team/a.prompty"
    # The language has priority over the layer.
    assert rendered_text(library, "a", "zh-CN") == "base/a.zh.prompty"
    assert rendered_text(library, "b", "zh") == "team/b.zh.prompty"
    assert rendered_text(library, "c") == "team/c@1.0.0.prompty"
    assert rendered_text(library, "c", None, ">1.0") == "base/c@1.1.0.prompty"
    assert rendered_text(library, "a", None, "3.x") == "base/a@3.0.0.prompty"
    assert rendered_text(library, "d") == "base/d.prompty"


def test_layer_overrides_the_included_files_of_the_base(tmp_path: Path) -> None:
    base = write_library(tmp_path / "base", "s/a.prompty", text='{% include "shared/tone.md" %}{% include "b.md" %}')
    write_library(base, "shared/tone.md", text="package")
    write_library(base, "s/b.md", text="b")
    team = write_library(tmp_path / "team", "shared/tone.md", text="team")
    assert PromptLibrary(base).get("s/a").render() == "packageb"
    assert PromptLibrary(base, layers=[team]).get("s/a").render() == "teamb"
    write_library(team, "s/b.md", text="B")
    assert PromptLibrary(base, layers=[team]).get("s/a").render() == "teamB"


@pytest.mark.parametrize("key", ["s/a", "link", "door/out"])
def test_files_outside_the_library_are_refused(tmp_path: Path, key: str) -> None:
    write_library(tmp_path, "out.md", "out.prompty", text="out")
    base = write_library(tmp_path / "base", "s/a.prompty", text='{% include "../../out.md" %}')
    write_library(base, "s/in.prompty", text='{% include "../top.md" %}')
    write_library(base, "top.md", text="top")
    (base / "link.prompty").symlink_to(tmp_path / "out.prompty")
    (base / "door").symlink_to(tmp_path)
    library = PromptLibrary(base)
    assert library.get("s/in").render() == "top"
    with pytest.raises(PromptFileError, match="outside allowed roots"):
        library.get(key)
    assert PromptLibrary(base, allowed_roots=[tmp_path]).get("s/a").render() == "out"


def test_yaml_prompt_file_is_loaded_by_prompter_and_refused_by_get(tmp_path: Path) -> None:
    write_library(tmp_path, "a.yaml", text="instruction: Answer {question}.")
    write_library(tmp_path, "b.prompty")
    library = PromptLibrary(tmp_path)
    assert library.prompter("a").slots == ("question",)
    assert "b.prompty" in str(library.prompter("b").generate_prompt())
    with pytest.raises(PromptFileError, match=r"a.yaml:1:1: this is a YAML prompt file.*\.prompter\('a'\)"):
        library.get("a")
    assert library.hash("a") == sha256(b'["yaml",{"instruction":"Answer {question}."}]').hexdigest()


def test_library_passes_params_and_undefined_to_its_prompts(tmp_path: Path) -> None:
    write_library(tmp_path, "a.prompty", text="---\nmodel: ${params:model}\n---\n{{ nobody }}!")
    prompt = PromptLibrary(tmp_path, params={"model": "m"}, undefined="empty").get("a")
    assert (prompt.model, prompt.render()) == ({"id": "m"}, "!")
    with pytest.raises(PromptFileError, match=r"^params\['model'\] has type set, which is not a JSON value$"):
        PromptLibrary(tmp_path, params={"model": {1}}).get("a")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write_library(tmp_path / "acme_prompts", "__init__.py", text="")
    write_library(tmp_path / "acme_prompts", "s/a.prompty", text='user:\n{% include "tone.md" %}')
    write_library(tmp_path / "acme_prompts", "tone.md", text="Kind.")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("acme_prompts", None)


def test_library_is_loaded_from_a_package_or_its_resources(package: Path) -> None:
    assert PromptLibrary("acme_prompts").get("s/a").render() == "user:\nKind."
    assert "acme_prompts" not in sys.modules, "loading a library must not import the package"
    assert PromptLibrary(files("acme_prompts")).keys() == ("s/a",)
    assert PromptLibrary(files("acme_prompts") / "s", allowed_roots=[package / "acme_prompts"]).keys() == ("a",)
    with pytest.raises(
        PromptFileError, match=r"tone.md: a library must be a directory or a package, not a file; for fi"
    ):
        PromptLibrary(package / "acme_prompts" / "tone.md")


@pytest.mark.parametrize("name", ["acme_nothing", "acme.nothing", "json.decoder", "no/where", "x..y", "bare"])
def test_name_of_a_missing_package_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bare", ModuleType("bare"))
    with pytest.raises(PromptFileMissingError, match=f"^{name}: .*(no such|does not exist)"):
        PromptLibrary(name)


def test_library_is_loaded_from_a_package_in_an_archive(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = package / "zipped.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((package / "acme_prompts").rglob("*.*")):
            file.write(path, f"zipped_prompts/{path.relative_to(package / 'acme_prompts')}")
    monkeypatch.syspath_prepend(str(archive))
    assert PromptLibrary("zipped_prompts").get("s/a").render() == "user:\nKind."
    found = zipfile.Path(archive) / "zipped_prompts"
    assert PromptLibrary(found).keys() == ("s/a",)
    with pytest.raises(PromptFileMissingError, match="tone.md: a library must be a directory or a package$"):
        PromptLibrary(found / "tone.md")
    # The archive has four members, of which one is in a directory, and 34 bytes in all, 29 of them in one file.
    limits = {"MAX_FILES": 4, "MAX_TOTAL": 34, "_MAX_DEPTH": 1}
    for name, limit in limits.items():
        monkeypatch.setattr(f"lazyprompt.files.library.layers.{name}", limit)
    assert PromptLibrary(found).keys() == ("s/a",)
    for name, limit in limits.items():
        monkeypatch.setattr(f"lazyprompt.files.library.layers.{name}", limit - 1)
        with pytest.raises(PromptFileError, match="a package in an archive can contain at most"):
            PromptLibrary(found)
        monkeypatch.setattr(f"lazyprompt.files.library.layers.{name}", limit)
    sys.modules.pop("zipped_prompts", None)


def test_prompt_in_an_archive_over_the_size_limit_is_reported(tmp_path: Path) -> None:
    """The library left the prompt out without an error."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("prompts/a.prompty", "x" * (MAX_BYTES + 9))
    library = PromptLibrary(zipfile.Path(tmp_path / "a.zip") / "prompts")
    with pytest.raises(PromptFileError, match="file is too large: 5,000,001 bytes; the limit is 5,000,000"):
        library.get("a")


@pytest.mark.parametrize("zipped", [False, True])
def test_loading_a_package_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, zipped: bool) -> None:
    # Parent packages and packages in archives were imported to find their paths.
    for name in ("loud/__init__.py", "loud/prompts/__init__.py"):
        write_library(tmp_path, name, text="raise SystemExit")
    write_library(tmp_path, "loud/prompts/a.prompty", text="user:\nHi")
    place = shutil.make_archive(str(tmp_path / "loud"), "zip", tmp_path, "loud") if zipped else tmp_path
    monkeypatch.setattr(sys, "path", [str(place), *sys.path])
    assert PromptLibrary("loud.prompts").keys() == ("a",)
    assert PromptLibrary("loud").keys() == ("prompts/a",)


def test_get_returns_the_same_prompt_until_a_file_changes(tmp_path: Path) -> None:
    write_library(tmp_path, "a.prompty", text='---\nmodel: ${file:model.txt}\n---\n{% include "tone.md" %}')
    write_library(tmp_path, "tone.md", text="one")
    write_library(tmp_path, "model.txt", text="m")
    library = PromptLibrary(tmp_path)
    first = library.get("a")
    assert library.get("a") is first
    write_library(tmp_path, "tone.md", text="three")
    second = library.get("a")
    assert second.render() == "three"
    assert library.get("a") is second
    write_library(tmp_path, "model.txt", text="other")
    assert library.get("a").model == {"id": "other"}
    (tmp_path / "a.prompty").write_text("new")
    assert library.get("a").render() == "new"


def test_changed_file_is_detected_by_time_or_size(tmp_path: Path) -> None:
    path = tmp_path / "a.prompty"
    library = PromptLibrary(write_library(tmp_path, "a.prompty", text="one"))
    assert library.get("a").render() == "one"
    for text, later in (("two", 1), ("three", 1)):  # another time and the same size, then the other way round
        path.write_text(text)
        os.utime(path, (LONG_AGO, LONG_AGO + later))
        assert library.get("a").render() == text


def test_new_and_deleted_files_are_detected(tmp_path: Path) -> None:
    write_library(tmp_path / "base", "s/a@1.0.0.prompty", text='{% include "tone.md" %}')
    write_library(tmp_path / "base", "tone.md", text="base")
    team = write_library(tmp_path / "team", "x.prompty")
    library = PromptLibrary(tmp_path / "base", layers=[team])
    assert rendered_text(library, "s/a") == "base"
    (team / "tone.md").write_text("team")
    assert rendered_text(library, "s/a") == "team"
    (team / "s").mkdir()
    (team / "s" / "a.prompty").write_text("mine")
    assert rendered_text(library, "s/a") == "mine"
    (team / "s" / "a.prompty").unlink()
    assert rendered_text(library, "s/a") == "team"
    (tmp_path / "base" / "s" / "a@1.1.0.prompty").write_text("newer")
    assert rendered_text(library, "s/a") == "newer"


def test_recently_written_file_is_read_again(tmp_path: Path) -> None:
    # Two writes within one tick of the disk's clock leave the same time, and here the same size.
    library = PromptLibrary(tmp_path)
    for number in range(5):
        (tmp_path / "a.prompty").write_text(str(number))
        now = time.time_ns()
        os.utime(tmp_path / "a.prompty", ns=(now // 10**9 * 10**9, now // 10**9 * 10**9 + 999_999_999))
        assert library.get("a").render() == str(number)


def test_changed_environment_variable_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_library(tmp_path, "a.prompty", text="---\nmodel: ${env:LAZY_MODEL:none}\n---\nHi")
    library = PromptLibrary(tmp_path)
    assert library.get("a").model == {"id": "none"}
    monkeypatch.setenv("LAZY_MODEL", "m")
    assert library.get("a").model == {"id": "m"}


def test_pickled_prompt_and_library_have_no_unused_environment_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAZY_UNUSED", "x-secret-x")
    write_library(tmp_path, "a.prompty", text="---\nname: n\n---\nHi {{ q }}")
    library = PromptLibrary(tmp_path)
    prompt = library.get("a")
    travelled = pickle.loads(pickle.dumps((prompt, library)))  # noqa: S301 - our own bytes
    assert travelled[0].render({"q": 1}) == "Hi 1"
    assert travelled[1].get("a") == prompt
    assert b"x-secret-x" not in pickle.dumps(library)


def test_prompt_cache_is_limited_and_drops_the_oldest_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazyprompt.files.library.library._MOST_PROMPTS", 2)
    library = PromptLibrary(write_library(tmp_path, "a.prompty", "b.prompty", "c.prompty"))
    first, second = library.get("a"), library.get("b")
    assert library.get("a") is first
    library.get("c")
    assert library.get("b") is second
    assert library.get("a") is not first
    # A file that was read again is the newest entry.
    write_library(tmp_path, "c.prompty", text="new")
    third = library.get("c")
    library.get("b")
    assert library.get("c") is third


def test_get_works_from_many_threads_and_aget_from_async_code(lib: Path) -> None:
    library = PromptLibrary(lib)
    keys = [*library.keys()] * 20
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(library.get, keys)]
    assert [each.path for each in found] == [library.get(key).path for key in keys]
    assert asyncio.run(library.aget("refund", "zh-CN")) is library.get("refund", "zh-CN")


HASHED = "---\nname: n\nmodel: {id: m, connection: {apiKey: k}}\n---\nuser:\nHi {{ q }}"


def test_hash_is_the_sha256_of_the_canonical_json() -> None:
    written = '["v2",{"instructions":"user:\\nHi \\u00e9\\n","kind":"prompt","model":{"id":"m"},"name":"a"}]'
    text = "---\nname: a\nmodel: {id: m, connection: {kind: key, apiKey: k}}\n---\nuser:\nHi é\n"
    assert Prompty.loads(text).hash == sha256(written.encode()).hexdigest()


def test_hash_depends_only_on_the_content(tmp_path: Path) -> None:
    def hash_of(text: str) -> str:
        return Prompty.loads(text, tmp_path).hash

    write_library(tmp_path, "tone.md", text="Hi {{ q }}")
    same = [HASHED, HASHED.replace("\n", "\r\n"), HASHED.replace("apiKey: k", "apiKey: z"), "\ufeff" + HASHED]
    same.append(HASHED.replace("Hi {{ q }}", '{% include "tone.md" %}'))
    same.append("---\n# a comment\nmodel: {connection: {}, id: m}\nname: n\n---\nuser:\nHi {{ q }}")
    assert {hash_of(text) for text in same} == {hash_of(HASHED)}
    assert PromptLibrary(write_library(tmp_path / "lib", "a.prompty", text=HASHED)).hash("a") == hash_of(HASHED)
    others = [HASHED.replace("Hi", "Ho"), HASHED.replace("name: n", "name: o"), HASHED.replace("id: m", "id: l")]
    assert len({hash_of(text) for text in (HASHED, *others)}) == 4


def test_get_of_an_unchanged_file_opens_no_file(lib: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = PromptLibrary(lib)
    library.get("support/bill")

    def refuse(*_: object) -> None:
        raise AssertionError("a file or a directory was read")

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(os, "scandir", refuse)
    counted: list[object] = []
    stat = os.stat

    def counting(path: str) -> os.stat_result:
        counted.append(path)
        return stat(path)

    monkeypatch.setattr(os, "stat", counting)
    library.get("support/bill")
    assert len(counted) == 2, "only the directory and the file are looked up"


def test_replaced_symlink_of_a_mounted_volume_is_followed(tmp_path: Path) -> None:
    # Kubernetes mounts volumes as symlinks to a hidden directory that is replaced as a whole.
    for number in ("1", "2"):
        write_library(tmp_path / f"..{number}", "a.prompty", text=number)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "a.prompty").symlink_to("..data/a.prompty")
    library = PromptLibrary(tmp_path)
    assert (library.keys(), rendered_text(library, "a")) == (("a",), "1")
    (tmp_path / "new").symlink_to("..2")
    (tmp_path / "new").replace(tmp_path / "..data")
    assert rendered_text(library, "a") == "2"


def test_library_is_a_mapping_of_names_to_prompts(lib: Path) -> None:
    library = PromptLibrary(lib)
    assert library["refund"] is library.get("refund")
    assert library["refund@1.0.0"] is library.get("refund", version="1.0.0")
    assert library["refund@^1"] is library.get("refund", version="^1")
    assert library["refund.zh@1.2.0"] is library.get("refund", "zh", "1.2.0")
    assert library["support/bill.zh-CN"] is library.get("support/bill", "zh-CN")
    # The part after a dot is a language only if the key has a file in that language.
    assert library["refund.v2"] is library.get("refund.v2")
    assert [*library] == [*library.keys()]
    assert len(library) == len(library.keys()) == 4
    assert "refund" in library
    assert "refund@1.2.0" in library
    assert [name for name in ("refund@9.0.0", "refnd", "support", "../lib/refund", "", 3) if name in library] == []
    with pytest.raises(PromptFileMissingError, match="did you mean 'refund'"):
        library["refnd"]
