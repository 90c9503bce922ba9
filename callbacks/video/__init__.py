"""Videos of episodes: frames with an overlay of the decision, their encoding, and the callback that records them."""
