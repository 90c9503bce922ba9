"""`python -m app play`: show episodes of a trained agent, as a video or in a window."""
