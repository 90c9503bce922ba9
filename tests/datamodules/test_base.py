"""What every data module of environments does."""

from pathlib import Path
from typing import Any

import pytest

from datamodules.core.errors import ConfigurationError
from tests.support.small_runs import small_ppo, snake_data, trainer


def test_only_predicting_records_trajectories(tmp_path: Path) -> None:
    data = snake_data()
    trainer(tmp_path, max_steps=1).fit(small_ppo(data), datamodule=data)

    recorded = [source().record for source in (data.val_dataloader, data.test_dataloader, data.predict_dataloader)]

    data.teardown("predict")
    assert recorded == [False, False, True]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"rewards": 3},
            r"^eval_env_kwargs\.rewards of Snake-v0 is 3; it must be a text or a mapping of a text to a finite",
        ),
        ({"rewardz": 3}, r"^Snake-v0 takes no eval_env_kwargs\.rewardz: did you mean rewards\?$"),
        ({"dim": 1}, "of dim 1; choose distance_to_border"),
    ],
)
def test_arguments_of_evaluation_are_checked_before_training(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        snake_data(eval_env_kwargs=changes)
