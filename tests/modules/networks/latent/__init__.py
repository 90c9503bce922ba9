"""Parts of latent models, tested one file each."""
