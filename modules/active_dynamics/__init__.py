"""Active dynamics: learn a latent dynamical system by choosing actions that inform."""
