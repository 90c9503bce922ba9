"""The mathematics: pure functions of tensors that know neither networks nor Lightning.

returns    advantages, lambda- and n-step returns, targets
policy     the clipped surrogate, advantage normalisation, masked means
value      value regression and explained variance
soft       values in which entropy counts, the squashed density, the temperature
options    soft values and losses over options; option_choice: which option runs next
gaussian   independent normal distributions: draws, densities, divergences
schedule   values that change with the progress of a run
information  what a path would teach: gains, Fisher information, Bayesian linear regression

To add one: write a noun that takes tensors and returns tensors (a NamedTuple when there are several), with the
equation, the shapes, the errors and the source in its docstring; import torch and jaxtyping only; then test it in
`tests/modules/functional` against a slow float64 restatement of its definition and against its identities.
"""
