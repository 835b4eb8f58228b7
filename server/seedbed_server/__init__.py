"""The Seedbed server: a live language model that learns from rewards while it serves.

Three parts, arrows one way only: the gateway is what users touch (`gateway`, with its `store`), the
learner decides what rewards mean (`learner`, no I/O), and the engine keeps the live model
(`engine`, a process of its own around SGLang). `noise` says what a seed means; `config` and `cli` are
what an operator meets first. Importing this package imports none of them.
"""
