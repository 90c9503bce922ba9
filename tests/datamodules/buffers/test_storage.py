"""A replay on the disk is the replay in memory, without the memory."""

import gc
import resource
from pathlib import Path

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.buffers.ring_buffer import RingBuffer
from datamodules.buffers.storage import choose_storage_device, memmap_zeros
from datamodules.core.errors import ConfigurationError
from tests.datamodules.buffers.test_n_step_replay import replay_of
from tests.datamodules.test_replay import StopAt
from tests.support.replay_fixtures import fitted_dqn, replay_data
from tests.support.rollout_fixtures import Writer
from tests.support.small_runs import weights_hash

CPU = torch.device("cpu")


class Files(Callback):
    """What lies in the run's folder, and how many of its files without a name are mapped, at every iteration."""

    def __init__(self, folder: Path):
        self.folder, self.seen = folder, set[tuple[int, int]]()

    def on_train_batch_end(self, *_: object) -> None:
        mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if f"{self.folder}/replay-" in line]
        self.seen.add((len(list(self.folder.iterdir())), len(mapped)))


def own_memory() -> int:
    """Bytes of this process that no file holds."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def test_a_run_with_its_replay_on_the_disk_is_the_run_with_it_in_memory(tmp_path: Path) -> None:
    whole, files = fitted_dqn(tmp_path / "memory", replay_data()), Files(tmp_path)

    disk = fitted_dqn(tmp_path / "disk", replay_data(storage="disk", storage_folder=str(tmp_path)), files)

    assert weights_hash(disk) == weights_hash(whole) and disk.last_logged == whole.last_logged
    ((_, mapped),) = files.seen  # the same files at every iteration; those of the replay have no name
    assert mapped >= 5 and not [*tmp_path.glob("replay-*")]


def test_a_run_with_its_replay_on_the_disk_resumes_bit_for_bit(tmp_path: Path) -> None:
    whole = fitted_dqn(tmp_path / "whole", replay_data())
    fitted_dqn(tmp_path / "part", replay_data(storage="disk"), StopAt(9), RunCheckpoint())
    (last,) = (tmp_path / "part").rglob("last.ckpt")

    resumed = fitted_dqn(tmp_path / "rest", replay_data(storage="disk"), ckpt_path=last)

    assert weights_hash(resumed) == weights_hash(whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool], ids=str)
def test_zeros_on_the_disk_are_zeros_that_can_be_written(tmp_path: Path, dtype: torch.dtype) -> None:
    zeros = memmap_zeros((3, 5), dtype, tmp_path)

    assert torch.equal(zeros, torch.zeros(3, 5, dtype=dtype)) and not [*tmp_path.iterdir()]
    zeros[1] = 1
    assert zeros.sum() == 5


def test_a_disk_without_room_names_the_folder_and_leaves_nothing(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            memmap_zeros((10_000,), torch.uint8, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert error.value.filename == str(tmp_path) and not [*tmp_path.iterdir()]


def test_what_lies_on_the_disk_takes_no_memory_of_the_process(tmp_path: Path) -> None:
    before, size = own_memory(), 64 * 2**20

    on_disk = memmap_zeros((size,), torch.uint8, tmp_path).fill_(7)
    taken = own_memory() - before

    assert on_disk.sum(dtype=torch.int64) == 7 * size and taken < size / 8


def tensor_memory() -> int:
    """Bytes of all tensors that are reachable, every storage once."""
    gc.collect()
    kinds = (torch.Tensor, torch.nn.Parameter)  # not the FakeTensors that a compiler keeps, which have no memory
    storages = (each.untyped_storage() for each in gc.get_objects() if type(each) in kinds)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_drawing_from_a_full_replay_takes_no_more_memory_however_often(alpha: float) -> None:
    writer, generator = Writer(truncated=(3, 90)), torch.Generator()
    replay, held = replay_of(writer, n_step=2, rollouts=12, alpha=alpha), []

    for iteration in range(60):  # a minibatch that is kept would be 150 KiB
        found = replay.sample(replay.noise(2, 1000, generator))
        replay.update_priorities(found.indices, found.reward.sum(-1))
        replay.write(*writer.rollout(4))
        replay.ring.commit_()
        if iteration in (20, 59):
            held.append(tensor_memory())

    assert replay.ring.size == 31 and held[1] - held[0] < 50 * 2**10


def test_a_disk_without_room_is_refused_with_the_numbers(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"needs 953,674,316 MiB, and the disk of .* has .* at most .*storage_folder"
    ):
        choose_storage_device("disk", CPU, needed=10**15, capacity=10**6, folder=tmp_path)


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(
        ConfigurationError, match=r"cannot be written to .*file/folder \(Not a directory\): set data.storage_folder"
    ):
        choose_storage_device("disk", CPU, needed=1, capacity=1, folder=tmp_path / "file" / "folder")


def test_a_folder_for_a_replay_that_lies_in_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"storage_folder is .*, but data.storage auto .* add --data.storage disk\.$"
    ):
        replay_data(storage_folder=str(tmp_path))


def test_files_for_a_replay_on_a_gpu_are_refused(tmp_path: Path) -> None:
    rollout, masks = Writer().rollout(3)

    with pytest.raises(ConfigurationError, match="A replay buffer in files is on the CPU, not on meta"):
        RingBuffer(rollout, masks, 8, num_final_slots=4, device=torch.device("meta"), folder=tmp_path)
