"""`python -m app play`: watch an episode of a trained agent, as a video or in a window."""
