"""The brevity agent and its demo: a model that rambles learns to answer in few words, while it serves.

Read it in this order. `questions` has what is asked: one set earns rewards, the other only measures.
`reward` says what an answer is worth. `agent` asks through the unmodified `openai` package, once per member
and question, and posts the rewards. `evaluate` asks the unperturbed live model and counts words and
keywords. `rounds` leads one population to its update, and `learning` repeats that until enough updates are
made.

Around it stands the demo: `run_directory` (which store to use, and how an interrupted demo goes on),
`server` (the server as a child process, and the replay in a fresh engine), `progress` (what is shown
meanwhile), `report` (what must hold at the end, the tables and the JSON) and `demo`, which tells the story
from the first line to the exit code.
"""
