"""What `connect()` chooses, and what it says when something it was told to use cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from server import in_database

from crewai_mongodb_memory import MemoryConnectionError
from workbook import keys, paths
from workbook.connect import ConnectError, Connection, connect

SETTINGS = ("MONGODB_URI", "ATLAS_URI", "VOYAGE_API_KEY", "MODEL", "MODEL_BASE_URL")


@pytest.fixture(autouse=True)
def _only_what_the_test_sets(monkeypatch: pytest.MonkeyPatch, mongodb_uri: str) -> None:
    for name in (*SETTINGS, "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MONGODB_URI", mongodb_uri)


def test_without_keys_everything_is_local_and_said_so(
    database_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with connect(database_name) as connection:
        said = capsys.readouterr().out
        assert connection.embedder.model == "all-MiniLM-L6-v2"
        assert connection.capabilities.llm.startswith("scripted")
    assert "all-MiniLM-L6-v2" in said
    assert "scripted" in said
    assert database_name in said


def test_no_credential_is_printed_or_shown(
    database_name: str, mongodb_uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with connect(database_name) as connection:
        shown = capsys.readouterr().out + repr(connection) + str(connection.capabilities.table())
    if "@" in mongodb_uri:
        password = mongodb_uri.split("@")[0].rsplit(":", 1)[1]
        assert password not in shown


def test_a_notebook_s_table_names_every_difference(database_name: str) -> None:
    with connect(database_name, quiet=True) as connection:
        table = connection.capabilities.table()
    assert list(table.columns) == ["this run", "on Atlas with keys"]
    assert (table != "").all(axis=None)


@pytest.mark.parametrize(
    ("uri", "advice"),
    [
        ("mongodb://alex:s3cretpw@127.0.0.1:1/", "access list"),
        ("not-a-uri", "must begin with mongodb://"),
        ("mongodb://alex:s3cretpw@127.0.0.1:notaport/", "check the address"),
        ("mongodb+srv://alex:s3cretpw@nowhere.invalid/", "address"),
    ],
)
def test_a_database_that_cannot_be_used_is_named_within_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, uri: str, advice: str
) -> None:
    monkeypatch.setenv("MONGODB_URI", uri)
    started = time.monotonic()
    with pytest.raises(MemoryConnectionError) as raised:
        connect(quiet=True)
    assert time.monotonic() - started < 10.5  # the promise of the README, not a speed
    assert advice in str(raised.value)
    assert "s3cretpw" not in str(raised.value)


def test_wrong_credentials_are_named(monkeypatch: pytest.MonkeyPatch, mongodb_uri: str) -> None:
    if "@" not in mongodb_uri:
        pytest.skip("this server asks for no credentials")
    user = mongodb_uri.split("://")[1].split(":")[0]
    host = mongodb_uri.split("@")[1]
    monkeypatch.setenv("MONGODB_URI", f"mongodb://{user}:s3cretpw@{host}")
    with pytest.raises(MemoryConnectionError, match="refuses the credentials") as raised:
        connect(quiet=True)
    assert "s3cretpw" not in str(raised.value)


def test_atlas_uri_is_read_when_mongodb_uri_is_not_set(
    monkeypatch: pytest.MonkeyPatch, mongodb_uri: str, database_name: str
) -> None:
    monkeypatch.delenv("MONGODB_URI")
    monkeypatch.setenv("ATLAS_URI", mongodb_uri)
    with connect(database_name, quiet=True) as connection:
        assert connection.uri == mongodb_uri


def test_the_connection_string_may_name_the_database(
    monkeypatch: pytest.MonkeyPatch, mongodb_uri: str
) -> None:
    monkeypatch.setenv("MONGODB_URI", in_database(mongodb_uri, "workshop_alex"))
    with connect(quiet=True) as connection, connect("other", quiet=True) as other:
        assert connection.backend.database.name == "workshop_alex"
        assert other.backend.database.name == "other"


def test_with_a_voyage_key_voyage_embeds(
    monkeypatch: pytest.MonkeyPatch, database_name: str
) -> None:
    monkeypatch.setenv("VOYAGE_API_KEY", "a-key-for-this-test")
    with connect(database_name, quiet=True) as connection:
        assert connection.embedder.model == "voyage-3.5"
        assert connection.embedder.dimensions == 1024
        assert "a-key-for-this-test" not in repr(connection)


@pytest.mark.parametrize(
    ("model", "advice"),
    [("openai/gpt-4o-mini", "needs OPENAI_API_KEY"), ("nowhere/nothing", "unset MODEL")],
)
def test_a_model_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, database_name: str, model: str, advice: str
) -> None:
    monkeypatch.setenv("MODEL", model)
    with pytest.raises(ConnectError, match=advice):
        connect(database_name, quiet=True)


def test_a_server_of_one_s_own_needs_no_key(
    monkeypatch: pytest.MonkeyPatch, database_name: str
) -> None:
    monkeypatch.setenv("MODEL", "openai/llama-3")
    monkeypatch.setenv("MODEL_BASE_URL", "http://127.0.0.1:9/v1")
    with connect(database_name, quiet=True) as connection:
        assert connection.llm.base_url == "http://127.0.0.1:9/v1"


def run_with_colab(tmp_path: Path, userdata: str) -> str:
    """Read a key in a process that has a stand-in for Colab's secrets."""
    package = tmp_path / "google" / "colab"
    package.mkdir(parents=True)
    (tmp_path / "google" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "userdata.py").write_text(textwrap.dedent(userdata))
    source = Path(keys.__file__).parents[1]
    read = "import os; from workbook import keys; print(keys.read('MODEL'), os.getenv('MODEL'))"
    done = subprocess.run(
        [sys.executable, "-c", read],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{tmp_path}{os.pathsep}{source}"},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.strip()


def test_colab_s_secrets_reach_the_environment(tmp_path: Path) -> None:
    said = run_with_colab(tmp_path, "def get(name): return 'ollama/llama3'")
    assert said == "ollama/llama3 ollama/llama3"


@pytest.mark.parametrize("error", ["KeyError(name)", "TimeoutError()", "Exception('denied')"])
def test_whatever_colab_raises_means_not_set(tmp_path: Path, error: str) -> None:
    assert run_with_colab(tmp_path, f"def get(name): raise {error}") == "None None"


def test_closing_a_connection_closes_its_client(database_name: str) -> None:
    connection: Connection = connect(database_name, quiet=True)
    connection.close()
    connection.close()
    with pytest.raises(MemoryConnectionError, match="closed"):
        connection.backend.count()


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for uri in ("", "mongodb://127.0.0.1:1/"):
        done = subprocess.run(
            [sys.executable, "-c", "from workbook.connect import connect; connect()"],
            env={
                **{"PATH": os.environ["PATH"], "PYTHONPATH": str(paths.PROJECT / "src")},
                **{"WORKBOOK_HOME": str(tmp_path / "file"), "MONGODB_URI": uri},
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert "set WORKBOOK_HOME to" in done.stderr.splitlines()[-1]
