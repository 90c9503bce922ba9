"""Active learning of a latent dynamical system by informative actions."""
