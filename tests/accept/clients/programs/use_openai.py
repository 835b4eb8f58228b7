"""The openai package, unmodified: all cases with `OpenAI`, or with `AsyncOpenAI` where the options say so."""

import json
import sys

import answers
import episodes
import refusals
import retries
import routes
import structure
from kit import main

CASES = (answers, structure, routes, refusals, retries, episodes)

if __name__ == "__main__":
    main(asynchronous=json.loads(sys.argv[1]).get("options", {}).get("asynchronous", False))
