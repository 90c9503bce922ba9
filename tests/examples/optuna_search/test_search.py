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
    (step,) = trial.intermediate_values
    assert trial.state.name == "PRUNED" and 16_384 < step <= 20_480  # the first evaluation
