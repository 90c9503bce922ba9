"""A small run on some CPU processes; `python -m tests.support.ddp_resume_worker FOLDER RANKS [max_steps=N]`.

It continues from FOLDER/part.ckpt if that is there, and writes FOLDER/part.ckpt and FOLDER/counters.json at its end.
"""

import json
import sys
from pathlib import Path

import lightning
import torch

from tests.support.small_runs import small_ppo, snake_data, trainer


def main() -> None:
    """Train; rank 0 writes the counters."""
    torch.set_num_threads(1)
    folder, ranks, limits = Path(sys.argv[1]), int(sys.argv[2]), dict(word.split("=") for word in sys.argv[3:])
    lightning.seed_everything(1, verbose=False)
    data, part = snake_data(), folder / "part.ckpt"
    model, settings = small_ppo(data), {"strategy": "ddp" if ranks > 1 else "auto", "devices": ranks}
    run = trainer(folder, **settings, **{name: int(value) for name, value in limits.items()})
    run.fit(model, datamodule=data, ckpt_path=part if part.exists() else None, weights_only=True)
    run.save_checkpoint(part)
    if run.is_global_zero:
        counters = {"env_steps": model.env_steps, "global_step": model.global_step, "progress": model.progress}
        (folder / "counters.json").write_text(json.dumps(counters), encoding="utf-8")
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
