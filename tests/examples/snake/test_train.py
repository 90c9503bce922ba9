import pytest


def test_the_old_benchmark_snippet_runs_unchanged():
    from train import DQNAgent, SnakeEnv

    env = SnakeEnv(startingBlocks=3, dim=10, distToBorder=3)
    state, _ = env.reset()
    agent, losses = DQNAgent(state.size, env.action_space.n), 0
    for step in range(300):
        action = agent.act(state)
        next_state, reward, terminated, truncated, _ = env.step(action)
        agent.remember(state, action, reward, next_state, terminated or truncated)
        if step % 4 == 0 and len(agent.memory) > agent.batch_size:
            agent.replay()
            losses += 1
        state = env.reset()[0] if terminated or truncated else next_state
    assert losses == agent.updates > 50


def test_training_saves_draws_and_evaluates(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    from train import main

    saved, figure = tmp_path / "snake.pt", tmp_path / "snake.png"
    main(["--episodes", "20", "--dim", "8", "--save", str(saved), "--figure", str(figure)])
    main(["--dim", "8", "--load", str(saved), "--eval-only"])
    first, second = capsys.readouterr().out.splitlines()
    assert saved.exists() and figure.stat().st_size > 1000
    assert first == second and "greedy: mean length" in first


def test_the_benchmark_counts_the_steps_it_makes():
    from benchmark import steps_per_second
    from train import DQNAgent, SnakeEnv

    agent = DQNAgent(100, 4, device="cpu", batch_size=8)
    assert steps_per_second(agent, SnakeEnv(), 40) > 0
    assert agent.memory.written == 40 + agent.batch_size + 1
