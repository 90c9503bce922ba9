"""Pure functions of tensors; no networks, no Lightning.

policy_gradient     clipped surrogate, clipped value loss, advantage normalisation, explained variance
returns             GAE, V-trace, n-step returns, TD and double Q-learning targets
q_learning          Huber loss, C51's projection, quantile regression
soft_actor_critic   soft values and targets, log-density of a squashed Gaussian, temperature loss
contrastive         InfoNCE loss, and which steps are its positives
priorities          probabilities and importance weights of prioritised segments
options             soft values and losses over options, call-and-return choice of the next option
scans               parallel scans of linear recurrences
sampling            Gumbel noise, epsilon-greedy
schedules           schedules over the progress of a run
dynamics            ELBO, Gaussians, information gain, prediction metrics

To add one: write a function that takes tensors and returns tensors (a NamedTuple if there are several), with the
equation, the shapes, the errors and the source in its docstring; import torch and jaxtyping only; test it in
`tests/modules/functional` against a slow float64 restatement of its definition and against its identities.
"""
