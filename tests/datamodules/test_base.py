"""What every data module of environments does."""

from pathlib import Path

from tests.support.small_runs import small_ppo, snake_data, trainer


def test_only_predicting_records_trajectories(tmp_path: Path) -> None:
    data = snake_data()
    trainer(tmp_path, max_steps=1).fit(small_ppo(data), datamodule=data)

    recorded = [source().record for source in (data.val_dataloader, data.test_dataloader, data.predict_dataloader)]

    data.teardown("predict")
    assert recorded == [False, False, True]
