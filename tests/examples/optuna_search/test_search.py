from pathlib import Path

import pytest

optuna = pytest.importorskip("optuna", reason="pip install optuna")

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "optuna_search"


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.chdir(tmp_path)
    import search

    return search


def test_a_study_goes_on_where_it_was_interrupted(search) -> None:
    study = search.main(["--trials", "1", "--total_env_steps", "24576"])
    killed = study.ask()
    rate = killed.suggest_float("learning_rate", 1e-3, 3e-2, log=True)

    again = search.main(["--trials", "2", "--total_env_steps", "24576"])

    states = [trial.state.name for trial in again.get_trials()]
    assert states == ["COMPLETE", "FAIL", "COMPLETE"] and again.trials[2].params["learning_rate"] == rate
    assert len(search.main(["--trials", "2", "--total_env_steps", "24576"]).trials) == 3  # nothing is missing


def test_a_trial_that_is_bad_enough_stops_early(search) -> None:
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.ThresholdPruner(lower=1e9))

    study.optimize(lambda trial: search.objective(trial, 40_960), n_trials=1)

    (trial,) = study.trials
    assert trial.state.name == "PRUNED" and list(trial.intermediate_values) == [5]  # iterations


def test_a_trial_below_the_median_of_the_earlier_ones_is_pruned(search) -> None:
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(1, 0))
    study.add_trial(optuna.trial.create_trial(value=500.0, intermediate_values={5: 500.0, 10: 500.0}))
    study.enqueue_trial({"learning_rate": 1e-3, "update_epochs": 1, "num_minibatches": 4})

    study.optimize(lambda trial: search.objective(trial, 40_960), n_trials=1)

    assert study.trials[1].state.name == "PRUNED"
