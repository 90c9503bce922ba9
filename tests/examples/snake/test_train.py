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


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--episodes -3", "--episodes is -3; it must be at least 1"),
        ("--device abacus", "--device abacus is not there"),
        ("--save nowhere/snake.pt", "--save nowhere/snake.pt cannot be written"),
        ("--figure nowhere/x.png", "--figure nowhere/x.png cannot be written"),
        ("--figure games.xyz", "--figure games.xyz is no picture"),
        ("--load missing.pt", "There is no checkpoint missing.pt"),
        ("--load .", "There is no checkpoint ."),
    ],
)
def test_what_would_fail_later_is_refused_before_training(words, sentence, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from train import main

    from datamodules.core.errors import ConfigurationError

    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=sentence):
        main(words.split())
    assert not list(tmp_path.iterdir())


def test_the_benchmark_counts_the_steps_it_makes():
    from benchmark import steps_per_second
    from train import DQNAgent, SnakeEnv

    agent = DQNAgent(100, 4, device="cpu", batch_size=8)
    assert steps_per_second(agent, SnakeEnv(), 40) > 0
    assert agent.memory.written == 40 + agent.batch_size + 1
