import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.vector.func_vector_env import PopulationVectorEnv, TensorVectorEnv
from tests.support.counting_env import CountingTensors

CPU = torch.device("cpu")
NOTHING = torch.zeros(3, dtype=torch.int64)


def device_env(seed: int = 0, num_envs: int = 3, **kwargs) -> TensorVectorEnv:
    return TensorVectorEnv(CountingTensors(**kwargs), num_envs, device=CPU, seed=seed)


def test_rows_that_end_start_anew_in_the_same_step():
    envs = device_env(length=2)
    envs.reset()
    envs.step(NOTHING)
    step = envs.step(NOTHING)
    assert step.terminated.all()
    assert step.reward.tolist() == [2, 2, 2]
    assert not step.obs[:, 0].any()
    assert step.valid.all()


def test_only_ended_rows_are_reset():
    envs = device_env(length=2)
    draws = envs.reset()[0][:, 1].clone()
    step = envs.step(torch.tensor([0, 1, 0]))
    assert step.obs[:, 0].tolist() == [1, 0, 1]
    assert torch.equal(step.obs[[0, 2], 1], draws[[0, 2]])
    assert step.obs[1, 1] != draws[1]


def test_episode_values_come_from_before_the_reset_and_masks_from_after():
    envs = device_env(length=3)
    envs.reset()
    envs.step(torch.tensor([1, 1, 0]))
    step = envs.step(NOTHING)
    assert step.info["length"].tolist() == [3, 3, 2]
    assert step.info["action_mask"].tolist() == [[True, False], [True, False], [True, False]]


def test_reset_returns_masks_only():
    assert list(device_env().reset()[1]) == ["action_mask"]


@pytest.mark.parametrize("end", ["terminated", "truncated", "both"])
def test_compiled_with_static_shapes_gives_the_same_results(end):
    envs = device_env(length=3, end=end)
    envs.reset(1)
    compiled = torch.compile(envs.stateless_step, backend="eager", fullgraph=True)
    for action in torch.randint(0, 2, (20, 3), generator=torch.Generator().manual_seed(0)):
        before, noise = envs.state, envs.noise(1)[0]
        lazy, (state, static, last) = envs.step(action, noise), compiled(before, action, noise)
        for name in ("obs", "reward", "terminated", "truncated", "valid"):
            assert torch.equal(getattr(lazy, name), getattr(static, name))
        assert all(torch.equal(lazy.info[key], static.info[key]) for key in lazy.info)
        assert all(torch.equal(envs.state[key], state[key]) for key in state)
        if lazy.truncated.any():
            assert torch.equal(lazy.final_obs[lazy.truncated], envs.observation(last)[lazy.truncated])


def test_noise_drawn_ahead_gives_the_same_episodes():
    one, two = device_env(length=2), device_env(length=2)
    one.reset(3), two.reset(3)
    for noise in one.noise(6):
        assert torch.equal(one.step(NOTHING, noise).obs, two.step(NOTHING).obs)


def test_continuous_actions_are_clipped():
    class Sliding(CountingTensors):
        spaces = CountingTensors.spaces | {"action_type": "continuous", "action_low": [-1.0], "action_high": [2.0]}

        def transition(self, state, action, noise):
            return state, action[:, 0], torch.zeros(3, dtype=torch.bool), torch.zeros(3, dtype=torch.bool)

    envs = TensorVectorEnv(Sliding(), 3, device=CPU)
    envs.reset()
    assert envs.step(torch.tensor([[-5.0], [0.5], [5.0]])).reward.tolist() == [-1, 0.5, 2]


def test_constant_parts_of_an_action_are_filled_in():
    class Sliding(CountingTensors):
        spaces = CountingTensors.spaces | {
            "action_type": "continuous",
            "action_low": [3.0, -1.0],
            "action_high": [3.0, 2.0],
        }

        def transition(self, state, action, noise):
            return state, action.sum(1), torch.zeros(3, dtype=torch.bool), torch.zeros(3, dtype=torch.bool)

    envs = TensorVectorEnv(Sliding(), 3, device=CPU)
    envs.reset()
    assert (envs.spaces["action_low"], envs.spaces["action_high"]) == ([-1.0], [2.0])
    assert envs.step(torch.tensor([[-5.0], [0.5], [5.0]])).reward.tolist() == [2, 3.5, 5]


def test_state_dict_continues_exactly():
    envs, restored = device_env(length=3), device_env(seed=9, length=3)
    envs.reset()
    envs.step(NOTHING)
    restored.load_state_dict(envs.state_dict())
    for _ in range(10):
        assert torch.equal(envs.step(NOTHING).obs, restored.step(NOTHING).obs)


def test_a_state_of_other_rows_is_refused():
    saved = device_env(num_envs=2)
    saved.reset()
    with pytest.raises(ConfigurationError, match="have 2 rows and these 3"):
        device_env().load_state_dict(saved.state_dict())


def test_rows_of_a_member_are_those_of_environments_that_are_reset_with_its_seed():
    together = PopulationVectorEnv(device_env(num_envs=6, length=2), [5, 9])
    alone = [device_env(length=2) for _ in range(2)]

    first = together.reset(1)[0].chunk(2)
    assert all(torch.equal(part, envs.reset(seed)[0]) for part, envs, seed in zip(first, alone, (5, 9), strict=True))
    noise = together.noise(4)
    assert torch.equal(noise, torch.cat([envs.noise(4) for envs in alone], 1)) and together.num_members == 2
    for each in noise:
        parts = zip(together.step(torch.cat([NOTHING] * 2), each).obs.chunk(2), each.chunk(2), alone, strict=True)
        assert all(torch.equal(own, envs.step(NOTHING, draws).obs) for own, draws, envs in parts)


def test_a_population_needs_plain_on_device_environments():
    with pytest.raises(ConfigurationError, match="A population needs an on-device environment of one agent"):
        PopulationVectorEnv(object(), [1, 2])
