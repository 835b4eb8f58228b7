"""The gateway: what users touch, and what keeps everything that must not be lost.

`app` puts together the HTTP routes; each handler is thin: `openai` passes completions through to the engine,
`episode_routes` opens and closes episodes, `feedback` takes rewards, `model_routes` and `status` tell what is
loaded and what is going on, `errors` gives every failure the shape that OpenAI clients know, and `document`
publishes all of it from the same models that check it (`shapes`, `answers`).

On its way a completion is checked and stripped of what is ours (`request`, `refusals`), finds its episode
(`association` where it is named, `conversations` where it is not), and runs as a task of its own
(`completion`) that writes a recording (`retries`), from which its client and the client's retries read;
`dialects` knows what differs between the OpenAI routes, `admission` how many may be on their way.

Behind them, `leases` gives each episode its member, `updates` turns a complete population into an update
(journal first, then the engine, then published), and `engine_link` keeps the engine process alive and
accounted for. `serve` runs all of it; `replay` proves from the outside that the journal makes the weights.
"""
