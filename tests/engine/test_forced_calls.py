"""Calls that `tool_choice` forces: which parsers hold them to a form, and what a cut-off list says."""

from __future__ import annotations

import json

import pytest


@pytest.mark.parametrize(
    ("parser", "expected"), [("", False), ("qwen25", False), ("llama3", False), ("deepseekv32", True)]
)
def test_parsers_that_only_have_tags_do_not_force_by_themselves(parser: str, expected: bool) -> None:
    from seedbed_server.engine.openai_handlers import forces_by_itself

    assert forces_by_itself(parser, None) is expected


def test_a_list_of_calls_is_read_as_far_as_it_goes() -> None:
    from sglang.srt.entrypoints.openai.protocol import Tool

    from seedbed_server.engine.openai_handlers import _calls_of

    tools = [Tool(type="function", function={"name": name}) for name in ("weather", "light")]
    wanted = [("weather", {"city": "Paris", "days": 2}), ("light", {"on": True})]
    text = json.dumps([{"name": name, "parameters": arguments} for name, arguments in wanted])
    seen = set()
    for length in range(len(text) + 1):
        calls = _calls_of(text[:length], tools)
        seen.add(len(calls))
        for number, call in enumerate(calls):
            assert call.name == wanted[number][0]
            if number < len(calls) - 1:
                assert json.loads(call.parameters) == wanted[number][1], "an earlier one is whole"
    assert seen == {0, 1, 2}
    found = [(call.name, json.loads(call.parameters)) for call in _calls_of(text, tools)]
    assert found == wanted
