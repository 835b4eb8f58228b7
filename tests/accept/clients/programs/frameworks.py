"""What the programs of the frameworks share: three ways to be in an episode, and a reward at its end."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kit import World


@dataclass(frozen=True)
class Way:
    """How a framework is pointed at an episode: nothing else in it knows of Seedbed."""

    name: str
    base_url: str
    key: str
    headers: dict[str, str]


async def through_every_way(w: World, work: Callable[[Way], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """One multi-turn episode for each way, and its reward; the facts of each."""
    facts = {}
    usual = f"{w.setting.url}/v1"
    for number, name in enumerate(("url", "key", "header")):
        episode = await w.episode(group="frameworks")
        way = {
            "url": Way("url", episode["base_url"], "none", {}),
            "key": Way("key", usual, episode["api_key"], {}),
            "header": Way("header", usual, "none", {"X-Seedbed-Episode": episode["id"]}),
        }[name]
        before = len(w.record.exchanges)
        told = await work(way)
        asked = [e for e in w.record.exchanges[before:] if e.completion]
        reward = {"reward": 1.5 + number, "reward_id": f"{name} {episode['id']}"}
        if name == "header":
            posted = await w.ours("post", "/feedback", {"episode_id": episode["id"], **reward})
        else:
            client = w.client(key=way.key, base_url=way.base_url)
            posted = await w.get(client.post("/feedback", cast_to=object, body=reward))
        facts[name] = {
            "episode": episode["id"],
            "member": episode["member"],
            "told": told,
            "asked": [[e.headers.get("x-seedbed-episode"), e.headers.get("x-seedbed-member")] for e in asked],
            "streamed": [bool(e.asked.get("stream")) for e in asked],
            "tools": [bool(e.asked.get("tools")) for e in asked],
            "reward": reward["reward"],
            "posted": posted,
            "state": await w.ours("get", f"/episodes/{episode['id']}"),
        }
    return facts
