"""A run with auxiliary losses on two CPU ranks: `python -m tests.support.ddp_auxiliary_worker FOLDER whole|part|rest`.

`part` ends after four iterations with FOLDER/part.ckpt, from which `rest` goes on. Every rank writes FOLDER/WORD-RANK.
"""

import sys
from pathlib import Path

import torch

from tests.modules.base.test_training_loop import SaveAt
from tests.support.auxiliary_runs import RECURRENT, every_loss, fit
from tests.support.small_runs import weights_hash


def main() -> None:
    """Train with every loss; the teachers lie in the folder."""
    torch.set_num_threads(1)
    folder, word = Path(sys.argv[1]), sys.argv[2]
    part = folder / "part.ckpt"
    callbacks = [SaveAt(4, part, stop=True)] if word == "part" else []
    ckpt_path = part if word == "rest" else None
    ranks = {"trainer_strategy": "ddp", "trainer_devices": 2}
    model = fit(folder, *callbacks, losses=every_loss(folder), ckpt_path=ckpt_path, **ranks, **RECURRENT)
    (folder / f"{word}-{model.global_rank}").write_text(weights_hash(model))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
