"""The command line, up to the point where a server would start."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seedbed_server.cli import app
from seedbed_server.config import ServeSettings

run = CliRunner()


def test_help_lists_the_commands_and_loads_nothing_heavy() -> None:
    program = (
        "import sys; sys.argv = ['seedbed', '--help']\n"
        "from seedbed_server.cli import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'sglang', 'transformers', 'sqlalchemy', 'fastapi', 'openai'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    for command in ("serve", "demo", "replay", "status", "version", "model"):
        assert command in done.stdout


def test_serve_has_a_flag_for_every_setting() -> None:
    shown = run.invoke(app, ["serve", "--help"], env={"COLUMNS": "200"}).output
    for name in ServeSettings.model_fields:
        assert f"--{name.replace('_', '-')} " in shown


def test_wrong_setting_ends_with_code_2() -> None:
    done = run.invoke(app, ["serve", "--sigma", "0"])
    assert done.exit_code == 2
    assert "sigma: '0': input should be greater than 0" in done.stderr


def test_unusable_model_ends_with_code_3_before_anything_starts(tmp_path: Path) -> None:
    done = run.invoke(app, ["serve", "--model", str(tmp_path)])
    assert done.exit_code == 3
    assert "config.json: is missing" in done.stderr


def test_replay_without_a_store_says_so() -> None:
    done = run.invoke(app, ["replay", "--store", "/no/such.sqlite", "--model", "smollm2"])
    assert done.exit_code == 2
    assert "/no/such.sqlite is not a file" in done.stderr


def test_fetch_of_an_unknown_model_lists_the_known_ones() -> None:
    done = run.invoke(app, ["model", "fetch", "gpt5"])
    assert done.exit_code == 2
    assert "Known models: smollm2" in done.stderr


def test_fetch_into_a_bad_cache_ends_with_code_3(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run.invoke(app, ["model", "fetch", "smollm2"], env={"SEEDBED_CACHE": str(tmp_path / "file")})
    assert done.exit_code == 3
    assert "cannot be written" in done.stderr


def test_list_says_what_is_fetched(tmp_path: Path) -> None:
    done = run.invoke(app, ["model", "list"], env={"SEEDBED_CACHE": str(tmp_path), "COLUMNS": "200"})
    assert done.exit_code == 0
    assert "smollm2" in done.output
    assert "(not fetched)" in done.output


def test_version_names_what_it_stands_on() -> None:
    done = run.invoke(app, ["version"])
    assert "seedbed 0.1.0" in done.output
    assert "sglang 0.5.23" in done.output


def test_status_without_a_server_ends_with_code_4() -> None:
    done = run.invoke(app, ["status", "--url", "http://127.0.0.1:9"])
    assert done.exit_code == 4
    assert "Is `seedbed serve` running there?" in done.stderr


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"version": 3, "population": {"size": 16}, "last_update": null}')

        def log_message(self, *_: object) -> None:
            return None

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()
    thread.join(timeout=5)


def test_status_prints_a_table_or_json(server: str) -> None:
    table = run.invoke(app, ["status", "--url", server]).output
    assert "population.size" in table
    assert "last_update" in table
    assert '"size": 16' in run.invoke(app, ["status", "--url", server, "--json"]).output


def test_launcher_without_the_server_extra_says_what_to_install() -> None:
    program = (
        "import seedbed_server.launch as launch\n"
        "launch.NEEDED = ('typer', 'not_installed_at_all')\n"
        "launch.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 5
    assert "not_installed_at_all missing" in done.stderr
    assert "./run setup" in done.stderr
