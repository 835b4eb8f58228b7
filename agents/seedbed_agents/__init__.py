"""Worked agents: programs that use Seedbed as any user would, and earn the rewards that move the model.

An agent needs the `openai` package and the address of a server, nothing of the server's own code. `brevity`
is the first and the smallest: it asks short factual questions and rewards short, right answers. Later
agents play games, search for heuristics and use the web.
"""
