"""Networks of PPO: a policy and a value, acting, and the values of a rollout (`ActorCritic`)."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from datamodules.core.pytree import tree_map
from datamodules.core.types import Obs, PolicyInput, PolicyOutput, Rollout, State
from modules.base.algorithm import Algorithm
from modules.base.checks import check_recurrent
from modules.base.sequences import gather_states, next_values
from modules.networks.base import Network, RecurrentNetwork, call_without_hooks, no_episode_start
from modules.networks.distributions import Distribution, distribution_details
from modules.networks.heads.policy import ValueHead, policy_head
from modules.networks.multi_input import make_network, obs_shape_of
from modules.ppo.batch import PPOBatch


class ActorCritic(Algorithm):
    """Policy and value networks, separate or with one torso, and the actions and values that they give.

    Attributes:
        obs_normalizer: of the observations, or None; set it before `make_networks`.
        network: torso of the policy, and of the value if `value_network` is None.
        recurrent: whether `network` has a state.
        actor, critic: the heads.
    """

    obs_normalizer: Any

    def make_networks(self, network: Callable[[tuple[int, ...]], nn.Module], share_torso: bool) -> None:
        """Create the torsos and their heads."""
        spaces = self.spaces
        self.network = self.with_obs_scale(make_network(network, obs_shape_of(spaces)))
        self.recurrent = hasattr(self.network, "unroll")
        check_recurrent(self.network, share_torso)
        self.value_network = None if share_torso else self.with_obs_scale(make_network(network, obs_shape_of(spaces)))
        features, dimensions = cast(Network, self.network).features, len(spaces["action_low"])
        self.actor = policy_head(features, spaces["action_type"], spaces["action_sizes"], dimensions)
        self.critic = ValueHead(features)

    def initial_state(self, batch: int) -> State:
        """Return the network's state at the start of an episode."""
        return cast(Network, self.network).initial_state(batch)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the noise of the policy head's samples."""
        return self.actor.noise(shape, generator)

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Return the policy's mode if greedy, else a sample.

        Extras are the distribution's parameters and, from a shared torso, the value.
        """
        policy, value, state = self.policy_and_value(inputs)
        action = policy.mode if greedy else policy.sample(cast(Tensor, noise))
        return PolicyOutput(action, {"policy": policy.parameters} | ({} if value is None else {"value": value})), state

    def policy_and_value(self, inputs: PolicyInput) -> tuple[Distribution, Tensor | None, State]:
        """Return the policy, the value `[N]` if a feed-forward torso is shared, else None, and the next state."""
        obs, state, episode_start, mask = inputs
        features, state = call_without_hooks(self.network, self.normalized(obs), state, episode_start)
        policy = call_without_hooks(self.actor, features, mask)
        value = self.critic(features) if self.value_network is None and not self.recurrent else None
        return policy, value, state

    def action_details(self, inputs: PolicyInput, output: PolicyOutput, state: State) -> dict[str, Tensor]:
        """Return the value, and probabilities or standard deviations."""
        policy, value, _ = self.policy_and_value(inputs)
        before = {name: leaf.masked_fill(inputs.episode_start[:, None], 0) for name, leaf in inputs.state.items()}
        details = {"value": self.value(inputs.obs, before) if value is None else value}
        return details | distribution_details(policy)

    def normalized(self, obs: Obs) -> Obs:
        """Return normalised observations."""
        return obs if self.obs_normalizer is None else self.obs_normalizer(obs)

    def value(self, obs: Obs, state: State | None = None) -> Tensor:
        """Return v(s) `[N]` of observations `[N, *obs]`, given a recurrent network's state `[N, ...]` before them."""
        network = self.network if self.value_network is None else self.value_network
        return self.critic(network(self.normalized(obs), state or {}, no_episode_start(obs))[0])

    def values(self, rollout: Rollout) -> tuple[Tensor, State]:
        """Return v(s_0) to v(s_T) `[T+1, B]`, and a recurrent network's states after each of these observations."""
        if "value" in rollout.extras:
            last = self.value(tree_map(lambda part: part[-1], rollout.obs))
            return torch.cat([rollout.extras["value"], last.unsqueeze(0)]), {}
        episode_start = torch.cat([rollout.episode_start, rollout.terminated[-1:] | rollout.truncated[-1:]])
        return self.values_of_sequences(rollout.obs, rollout.state, episode_start)

    def values_of_sequences(self, obs: Obs, state: State, episode_start: Tensor) -> tuple[Tensor, State]:
        """Return the values and states of `values` from `[T+1, B, ...]`; the part of `prepare` that is compiled."""
        if self.recurrent:
            network = cast(RecurrentNetwork, self.network)
            features, states = network.unroll_with_states(self.normalized(obs), state, episode_start)
            return self.critic(features), states
        rows = tree_map(lambda part: part.flatten(0, 1), obs)
        return self.value(rows).view(episode_start.shape), {}

    def next_value(self, rollout: Rollout, values: Tensor, states: State | None = None) -> Tensor:
        """Return v(s_{t+1}) `[T, B]` before any reset, of the true last observation where truncated; see `values`."""
        value = partial(self.value, state=gather_states(states, rollout.final_step)) if states else self.value
        return next_values(rollout, values, value)

    def torso_features(self, batch: PPOBatch) -> tuple[Tensor, Tensor]:
        """Return the inputs of the policy head and the value head."""
        obs = self.normalized(batch.obs)
        if batch.episode_start is not None:
            features = cast(RecurrentNetwork, self.network).unroll(obs, batch.state, batch.episode_start)
            return features, features
        shape = batch.advantage.shape
        obs = tree_map(lambda part: part.flatten(0, len(shape) - 1), obs)
        networks = [self.network] if self.value_network is None else [self.network, self.value_network]
        each = [network(obs, {}, no_episode_start(obs))[0].unflatten(0, shape) for network in networks]
        return each[0], each[-1]
