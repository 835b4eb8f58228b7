"""Independent answers to check the product against.

`noise` is noise specification 1 in NumPy, written from docs/noise.md; it shares no code with the product.
`vectors` makes the test vectors of that page. `materialised` is a program for a process of its own: a model
in transformers whose weights really are W + sigma E, and its log-probabilities; `client` runs it.
"""
