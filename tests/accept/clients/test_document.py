"""The OpenAPI document is the truth: Schemathesis finds no 5xx and no answer that is not in it."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.accept.clients.document import check_document
from tests.e2e.served import Served

pytestmark = pytest.mark.engine

SECONDS = 45
ROUTES = {
    "/v1/chat/completions": {"post"},
    "/v1/completions": {"post"},
    "/v1/responses": {"post"},
    "/v1/models": {"get"},
    "/v1/models/{model}": {"get"},
    "/v1/episodes": {"post"},
    "/v1/episodes/{id}": {"get", "delete"},
    "/v1/feedback": {"post"},
    "/v1/status": {"get"},
    "/v1/updates": {"get"},
}
WITHOUT_BODY = {"/v1/learning/resume", "/v1/learning/step"}


def test_the_document_has_all_routes_with_bodies_answers_and_errors(toy: Served) -> None:
    document = httpx.get(f"{toy.url}/openapi.json").json()
    paths = {_plain(path): set(operations) for path, operations in document["paths"].items()}
    for path, methods in ROUTES.items():
        assert methods <= paths[_plain(path)], path
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            answers = operation["responses"]
            assert operation.get("summary") or operation.get("description"), where
            assert any(code.startswith("2") for code in answers), where
            for code, answer in answers.items():
                for content in answer.get("content", {}).values():
                    assert content.get("schema") or content.get("itemSchema"), f"{where} {code}"
            if method == "post" and path not in WITHOUT_BODY:
                assert operation["requestBody"]["content"]["application/json"]["schema"], where
                assert {"400", "503"} <= set(answers), where
    assert all("requestBody" not in document["paths"][path]["post"] for path in WITHOUT_BODY)


def _plain(path: str) -> str:
    """A path whatever its parameters are called."""
    return re.sub(r"\{[^}]*\}", "{}", path)


def test_schemathesis_finds_no_server_error_and_nothing_undocumented(toy: Served, tmp_path: Path) -> None:
    verdict = check_document(toy.url, tmp_path, seconds=SECONDS)
    assert not verdict.server_errors, verdict.output[-6000:]
    assert verdict.code == 0, verdict.output[-12000:]
    assert len(verdict.answers) > 100
    assert httpx.get(f"{toy.url}/readyz").status_code == 200
