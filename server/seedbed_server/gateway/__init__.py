"""The gateway: what users touch, and what keeps everything that must not be lost.

`app` puts together the HTTP routes; each handler is thin: `openai` passes completions through to the engine,
`feedback` takes rewards, `status` tells what is going on, `errors` gives every failure the shape that OpenAI
clients know. Behind them, `leases` gives each episode its member, `updates` turns a complete population into
an update (journal first, then the engine, then published), and `engine_link` keeps the engine process alive
and accounted for. `serve` runs all of it; `replay` proves from the outside that the journal makes the
weights.
"""
