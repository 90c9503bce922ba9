"""`python -m app envs`: list the environments that can be trained on, and check one of them."""
