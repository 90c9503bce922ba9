"""Pure functions for models of dynamics: ELBO, Gaussians, information gain, prediction metrics."""
