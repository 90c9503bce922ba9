"""Tests, in the shape of the tree they test.

`tests/modules/functional/test_returns.py` tests `modules/functional/returns.py`, and so on; beside the mirror stand
`contracts` (every env, algorithm, network and config), `architecture` (the house rules), `learning` (marker slow) and
`fault` (marker fault).
A test is given, when, then in about 15 lines; Torch, Lightning and Gymnasium are never mocked.
"""
