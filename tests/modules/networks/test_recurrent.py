"""LSTM, GRU and MinGRU: a sequence equals its steps, rows and episodes do not leak, cells are the known ones."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from modules.networks import GRU, LSTM, MinGRU
from modules.networks.recurrent import RecurrentTorso

CELLS = pytest.mark.parametrize("network", [LSTM, GRU])
EVERY = pytest.mark.parametrize("network", [LSTM, GRU, MinGRU])
DEPTHS = pytest.mark.parametrize("layers", [1, 2])
T, ROWS = 6, 8  # a matrix product rounds a row the same way in any batch from about eight rows on


def network_and_sequence(
    network: type[RecurrentTorso], layers: int = 1, **settings: Any
) -> tuple[RecurrentTorso, Tensor, Any, Tensor]:
    """A network in float64, observations, a state that is not zero, and resets in the middle."""
    net = network((3, 2), hidden=16, encoder=(12,), layers=layers, **settings).double()
    state = {name: torch.randn_like(leaf) for name, leaf in net.initial_state(ROWS).items()}
    episode_start = torch.rand(T, ROWS) < 0.3
    return net, torch.randn(T, ROWS, 3, 2, dtype=torch.float64), state, episode_start


def stepped(net: RecurrentTorso, obs: Tensor, state: Any, episode_start: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    features, states = [], []
    for observation, fresh in zip(obs, episode_start, strict=True):
        output, state = net(observation, state, fresh)
        features.append(output)
        states.append(state)
    return torch.stack(features), {name: torch.stack([state[name] for state in states]) for name in state}


@CELLS
@DEPTHS
def test_collecting_step_by_step_equals_unrolling_bit_for_bit(network: type[RecurrentTorso], layers: int) -> None:
    net, obs, state, episode_start = network_and_sequence(network, layers)
    features, states = stepped(net, obs, state, episode_start)
    traced, trace = net.unroll_with_states(obs, state, episode_start)
    assert torch.equal(net.unroll(obs, state, episode_start), features) and torch.equal(traced, features)
    assert all(torch.equal(trace[name], leaf) for name, leaf in states.items())


@DEPTHS
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-5), (torch.float64, 1e-14)])
def test_the_scan_equals_its_steps_over_512_steps_with_resets(dtype: torch.dtype, atol: float, layers: int) -> None:
    net = MinGRU((3, 2), hidden=16, encoder=(12,), layers=layers).to(dtype)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    obs, episode_start = torch.randn(512, ROWS, 3, 2, dtype=dtype), torch.rand(512, ROWS) < 0.02
    state = {"hidden": torch.randn(ROWS, 16 * layers, dtype=dtype)}

    features, states = stepped(net, obs, state, episode_start)
    found, trace = net.unroll_with_states(obs, state, episode_start)

    torch.testing.assert_close(found, features, rtol=0, atol=atol)
    torch.testing.assert_close(trace["hidden"], states["hidden"], rtol=0, atol=atol)


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_gates_that_are_open_or_shut_give_finite_features_and_gradients(size: float) -> None:
    net = MinGRU((3,), hidden=16, encoder=())
    nn.init.constant_(net.inputs[0].bias[:16].detach(), size)
    obs, episode_start = torch.randn(512, ROWS, 3, requires_grad=True), torch.zeros(512, ROWS, dtype=torch.bool)

    features = net.unroll(obs, net.initial_state(ROWS), episode_start)
    features.square().sum().backward()

    assert features.isfinite().all() and obs.grad is not None and obs.grad.isfinite().all()
    assert features.any() == (size > 0)


@EVERY
@DEPTHS
def test_environments_do_not_leak_into_each_other(network: type[RecurrentTorso], layers: int) -> None:
    net, obs, state, episode_start = network_and_sequence(network, layers)
    before = net.unroll(obs, state, episode_start)
    obs[:, 1], episode_start[:, 1] = torch.randn_like(obs[:, 1]), ~episode_start[:, 1]
    state = {name: leaf.index_fill(0, torch.tensor([1]), 9.0) for name, leaf in state.items()}
    after = net.unroll(obs, state, episode_start)
    others = [0, *range(2, ROWS)]
    assert torch.equal(before[:, others], after[:, others]) and not torch.equal(before[:, 1], after[:, 1])


@EVERY
@DEPTHS
def test_a_row_with_a_reset_starts_from_the_initial_state_whatever_it_held(
    network: type[RecurrentTorso], layers: int
) -> None:
    net, obs, state, _ = network_and_sequence(network, layers)
    everywhere = torch.ones(ROWS, dtype=torch.bool)
    broken = {name: torch.full_like(leaf, torch.nan) for name, leaf in state.items()}
    features, after = net(obs[0], broken, everywhere)
    expected, expected_after = net(obs[0], net.initial_state(ROWS), ~everywhere)
    assert torch.equal(features, expected)
    assert all(torch.equal(after[name], leaf) for name, leaf in expected_after.items())


@EVERY
def test_no_gradient_flows_back_through_a_reset(network: type[RecurrentTorso]) -> None:
    net, obs, state, episode_start = network_and_sequence(network)
    episode_start[:] = False
    episode_start[3, 0] = True
    net.unroll(obs.requires_grad_(), state, episode_start)[-1, :2].sum().backward()
    assert obs.grad is not None
    assert not obs.grad[:3, 0].any() and obs.grad[3, 0].any() and obs.grad[0, 1].any()


@DEPTHS
@pytest.mark.parametrize(("network", "known"), [(LSTM, nn.LSTM), (GRU, nn.GRU)])
def test_without_resets_the_cells_are_those_of_torch(network: type[RecurrentTorso], known: Any, layers: int) -> None:
    net, obs, state, episode_start = network_and_sequence(network, layers)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    reference = known(12, 16, layers).double()
    for i, (inputs, recurrent) in enumerate(zip(net.inputs, net.recurrent, strict=True)):
        ours = {"weight_ih": inputs.weight, "weight_hh": recurrent.weight, "bias_ih": inputs.bias}
        ours["bias_hh"] = torch.zeros_like(inputs.bias) if recurrent.bias is None else recurrent.bias
        for name, value in ours.items():
            getattr(reference, f"{name}_l{i}").data.copy_(value)
    leaves = tuple(torch.stack(state[name].chunk(layers, -1)) for name in net.state_names)
    encoded = net.encoder(obs.flatten(0, 1)).unflatten(0, (T, ROWS))
    expected, _ = reference(encoded, leaves if len(leaves) > 1 else leaves[0])
    torch.testing.assert_close(
        net.unroll(obs, state, torch.zeros_like(episode_start)), expected, rtol=1e-12, atol=1e-12
    )


@EVERY
def test_a_compiled_sequence_is_one_graph_and_equals_the_eager_one(network: type[RecurrentTorso]) -> None:
    net, obs, state, episode_start = network_and_sequence(network, layers=2)
    compiled = torch.compile(net.unroll, backend="eager", fullgraph=True, dynamic=False)
    expected, features = net.unroll(obs, state, episode_start), compiled(obs, state, episode_start)
    torch.testing.assert_close(features, expected, rtol=1e-12, atol=1e-12)
    weight = net.inputs[0].weight
    gradients = [torch.autograd.grad(output.square().sum(), weight)[0] for output in (expected, features)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


@EVERY
def test_arguments_stay_as_they_are(network: type[RecurrentTorso]) -> None:
    net, obs, state, episode_start = network_and_sequence(network)
    copies = obs.clone(), {name: leaf.clone() for name, leaf in state.items()}, episode_start.clone()
    net.unroll_with_states(obs, state, episode_start)
    assert torch.equal(obs, copies[0]) and torch.equal(episode_start, copies[2])
    assert all(torch.equal(state[name], leaf) for name, leaf in copies[1].items())


@EVERY
def test_weights_are_orthogonal_and_biases_zero(network: type[RecurrentTorso]) -> None:
    net = network((4,), hidden=16, encoder=(16,), layers=2)
    for layer in (*net.inputs, *getattr(net, "recurrent", ())):
        assert isinstance(layer.weight, Tensor)
        torch.testing.assert_close(layer.weight.T @ layer.weight, torch.eye(layer.weight.shape[1]))
    assert not any(parameter.any() for name, parameter in net.named_parameters() if name.endswith("bias"))


@EVERY
def test_the_state_keeps_float32_under_autocast_and_bytes_are_taken(network: type[RecurrentTorso]) -> None:
    net = network((4,), hidden=16, encoder=())
    obs, episode_start = torch.randint(0, 2, (ROWS, 4), dtype=torch.uint8), torch.zeros(ROWS, dtype=torch.bool)
    state = net.initial_state(ROWS)
    with torch.autocast("cpu", torch.bfloat16):
        features, after = net(obs, state, episode_start)
    assert features.shape == (ROWS, net.features)
    assert {name: (leaf.shape, leaf.dtype) for name, leaf in after.items()} == {
        name: ((ROWS, 16), torch.float32) for name in state
    }


@EVERY
@pytest.mark.parametrize("name", ["hidden", "layers"])
def test_a_size_of_zero_is_refused(network: type[RecurrentTorso], name: str) -> None:
    with pytest.raises(ValueError, match=rf"{network.__name__}: {name} is 0; it must be at least 1"):
        network((4,), **{name: 0})
