"""`python -m app export`: write the policy of a trained agent as one file, with a model card."""
