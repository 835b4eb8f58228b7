"""Commands about versions, up to the point where an engine would start."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from seedbed_server.cli import app
from seedbed_server.gateway.adaptation import read
from seedbed_server.gateway.adopt import _command
from seedbed_server.store import Store, journal, place_of, runs
from seedbed_server.store.rows import RunRow
from tests.unit.journals import START, history

run = CliRunner()
RUN = RunRow(1.0, "toy", b"\x01" * 32, START, "float32", "full", 1, 1, {}, 0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store.sqlite"

    def fill(connection: sa.Connection) -> None:
        runs.insert(connection, RUN)
        for row in history([None, None, 1, None]):
            journal.append(connection, replace(row, population=None))

    with Store(path) as opened:
        opened.submit(fill).result(10)
    return path


def _damage(store: Path, statement: str) -> None:
    with Store(store) as opened:
        opened.submit(lambda connection: connection.exec_driver_sql(statement)).result(10)


def test_a_sound_journal_is_shown_and_ends_with_code_0(store: Path) -> None:
    done = run.invoke(app, ["journal", "verify", "--store", str(store)])
    assert done.exit_code == 0, done.output
    assert "The journal is sound: 4 versions." in done.stdout
    report = json.loads(run.invoke(app, ["journal", "verify", "--store", str(store), "--json"]).stdout)
    assert report["sound"]
    assert [row["to_version"] for row in report["versions"]] == [None, None, 1, None]


def test_a_damaged_journal_ends_with_code_1_its_first_bad_version_and_what_to_do(store: Path) -> None:
    _damage(store, "UPDATE journal SET record = x'00' WHERE version = 3")
    done = run.invoke(app, ["journal", "verify", "--store", str(store)])
    assert done.exit_code == 1
    assert "version 3: the record is not the one that was written" in done.stderr
    assert "Versions up to 2 can be trusted" in done.stderr
    shown = run.invoke(app, ["journal", "verify", "--store", str(store), "--json"])
    assert shown.exit_code == 1
    report = json.loads(shown.stdout)
    assert report["findings"][0]["version"] == 3
    assert report["versions"][0]["problems"] == []


def test_a_store_that_is_missing_or_empty(tmp_path: Path) -> None:
    done = run.invoke(app, ["journal", "verify", "--store", str(tmp_path / "no.sqlite")])
    assert (done.exit_code, "is not a file" in done.stderr) == (2, True)
    with Store(tmp_path / "empty.sqlite"):
        pass
    assert run.invoke(app, ["journal", "verify", "--store", str(tmp_path / "empty.sqlite")]).exit_code == 0


def test_a_store_that_is_served_is_left_alone(store: Path) -> None:
    with Store(store):
        done = run.invoke(app, ["journal", "verify", "--store", str(store)])
    assert done.exit_code == 2
    assert "in use by process" in done.stderr


def _export(store: Path, *options: str) -> tuple[int, str]:
    done = run.invoke(app, ["export", "--store", str(store), *options])
    return done.exit_code, done.output


def test_an_adaptation_needs_the_store_alone(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "two.adaptation"
    code, said = _export(store, "--kind", "adaptation", "--version", "2", "--to", str(target))
    assert code == 0, said
    adaptation = read(target)
    assert adaptation.digest.hex() in said
    assert [record.version for record in adaptation.records] == [1, 2]
    code, said = _export(store, "--kind", "adaptation", "--to", str(tmp_path / "newest"))
    assert code == 0, said
    assert [record.version for record in read(tmp_path / "newest").records] == [1, 4]


def test_exports_that_cannot_be_are_refused_and_leave_nothing(store: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("mine")
    for options, said in (
        (("--kind", "adaptation", "--to", str(there)), "exists already"),
        (("--kind", "adaptation", "--to", str(tmp_path / "no" / "where")), "its parent does not"),
        (("--kind", "adaptation", "--version", "9", "--to", str(tmp_path / "x")), "0 to 4"),
        (("--kind", "folder", "--to", str(tmp_path / "x")), "--model"),
        (("--kind", "zip", "--to", str(tmp_path / "x")), "zip"),
    ):
        code, output = _export(store, *options)
        assert (code, said in output) == (2, True), output
    _damage(store, "UPDATE journal SET record = x'00' WHERE version = 3")
    code, output = _export(store, "--kind", "adaptation", "--to", str(tmp_path / "x"))
    assert (code, "version 3" in output) == (2, True)
    assert there.read_text() == "mine"
    assert not (tmp_path / "x").exists()


def test_imports_that_cannot_be_are_refused_before_an_engine_starts(store: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    good, bad = tmp_path / "good", tmp_path / "bad"
    assert _export(store, "--kind", "adaptation", "--to", str(good))[0] == 0
    bad.write_bytes(good.read_bytes()[:-1])
    before = sorted(tmp_path.iterdir())

    def attempt(file: Path, target: Path) -> tuple[int, str]:
        options = ["--adaptation", str(file), "--model", str(model), "--store", str(target)]
        done = run.invoke(app, ["import", *options])
        return done.exit_code, done.output

    assert attempt(good, tmp_path / "new")[0] == 3, "the model is no model"
    (model / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (model / "model.safetensors").write_bytes(b"")
    (model / "tokenizer.json").write_text("{}")
    code, said = attempt(bad, tmp_path / "new")
    if code == 2:
        assert "length" in said
    assert sorted(tmp_path.iterdir()) == before


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if sent["to_version"] == 99:
            status, answer = 400, {"error": {"message": "to_version: 99 is not older"}}
        elif sent["to_version"] == 98:
            status, answer = 503, {"error": {"message": "learning halted"}}
        else:
            state = "done" if sent["to_version"] == 12 else "pending"
            answer = {"version": 31, "to_version": sent["to_version"], "digest": "ab", "status": state}
            status = 200 if state == "done" else 202
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("to", "code", "said"),
    [
        (12, 0, "version 31 has the weights of version 12"),
        (11, 0, "will be live when"),
        (99, 2, "99 is not older"),
        (98, 3, "learning halted"),
    ],
)
def test_rollback_says_what_came_of_it(url: str, to: int, code: int, said: str) -> None:
    done = run.invoke(app, ["rollback", "--to", str(to), "--url", url])
    assert done.exit_code == code
    assert said in done.output


def test_rollback_without_a_server_ends_with_code_4() -> None:
    done = run.invoke(app, ["rollback", "--to", "1", "--url", "http://127.0.0.1:9"])
    assert done.exit_code == 4


def test_an_import_names_the_command_that_serves_it() -> None:
    def command(scope: str) -> list[str]:
        return _command("a model", place_of("/a/store"), replace(RUN, scope=scope, dtype="bfloat16"))

    assert command("full") == ["seedbed", "serve", "--model=a model", "--store=/a/store", "--dtype=bfloat16"]
    assert command("*.mlp.*,*.q_proj.*,!*norm*,!*bias")[-2:] == [
        "--scope=*.mlp.*,*.q_proj.*",
        "--exclude=*norm*,*bias",
    ]
