"""Deep Q-networks: DQN with a replay buffer, PQN without."""
