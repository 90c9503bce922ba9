"""`python -m app export`: the decision of a trained agent as one file, compared with the agent, and its model card."""
