from pathlib import Path

import pytest

from datamodules.core.errors import nearest
from tests.app.conftest import EXPERIMENT, Run

SENTENCES = {
    "a misspelt option of the model": ("--model.learning_rat 3", "did you mean `learning_rate`?"),
    "a misspelt option in init_args": ("--model.init_args.learning_rat 3", "did you mean `learning_rate`?"),
    "a misspelt option of the network": ("--model.network.hiden 3", "did you mean `hidden`?"),
    "a misspelt option of the data": ("--data.num_env 3", "did you mean `num_envs`?"),
    "a misspelt option of the Trainer": ("--trainer.max_epoch 3", "did you mean `trainer.max_epochs`?"),
    "a misspelt top-level option": ("--modl.update_epochs 3", "is not a setting"),
    "a learning rate in words": ("--model.learning_rate fast", "`fast`, but it must be a number"),
    "a fraction of a pass": ("--model.update_epochs 2.5", "`2.5`, but it must be a whole number"),
    "a fraction with an exponent": ("--model.update_epochs 1.5e0", "but it must be a whole number"),
    "more than any number": ("--data.num_envs 1e999", "but it must be a whole number"),
    "an optional number in words": ("--model.value_clip_range big", "`big`, but it must be a number or null"),
    "an unknown choice": ("--data.backend fast", "`fast`, but it must be one of auto, sync"),
    "a number where a list belongs": ("--model.network.hidden 3", "must be a list, each item a whole number"),
    "a class that does not exist": ("--model tests.support.fake_algorithm.Walkr", "did you mean `Walker`?"),
    "a class that a package does not export": ("--model.network modules.networks.MPL", "did you mean `MLP`?"),
    "a class of the wrong kind": ("--model torch.nn.Linear", "does not correspond to a subclass of Algorithm"),
    "a word that is no class path": ("--model.network Torsoo", "nor a dotted path"),
    "a module that may not be imported": ("--model their_module.Model", "add `--trust their_module`"),
    "an option without its value": ("--data.env", "`--data.env` needs a value"),
    "a short name with a mistake": (
        "--model PPOO",
        "nor a dotted path such as `my_module.MyClass`; did you mean `PPO`?",
    ),
    "a stray word": ("stray", "`stray` is not an option: every setting is written `--key value`."),
    "a shipped config without its option": ("ppo_fast.yaml", "is not an option: write `--config ppo_fast.yaml`."),
    "a shipped config without its ending": ("ppo_fast", "is not an option: write `--config ppo_fast.yaml`."),
    "a config of the user without its option": ("small.yaml", "is not an option: write `--config small.yaml`."),
}


@pytest.mark.parametrize(("words", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_bad_input_is_one_sentence(run: Run, words: str, sentence: str) -> None:
    outcome = run("fit", "--config", "small.yaml", *words.split())

    assert outcome.code == 2
    assert sentence in outcome.err
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err + outcome.out


def test_a_misspelt_environment_of_a_module_names_the_nearest(run: Run) -> None:
    outcome = run("fit", "--config", "ppo_cartpole.yaml", "--data.env", "tests.support.faulty_envs.Corridr")

    sentence = "The module `tests.support.faulty_envs` has no `Corridr`: did you mean `Corridor`?"
    assert outcome.code == 2 and outcome.err.splitlines()[-1] == sentence


@pytest.mark.parametrize("words", ["fit --config small.yaml", "test --config small.yaml", "play", "export"])
def test_an_empty_checkpoint_is_not_taken_for_none(run: Run, words: str) -> None:
    outcome = run(*words.split(), "--ckpt_path", "")

    assert outcome.code == 2 and outcome.err.splitlines()[-1].startswith("`--ckpt_path` is empty: give a file, the")


def test_a_setting_of_a_default_that_takes_none_asks_for_a_class(run: Run) -> None:
    data = ("--data", "datamodules.ReplayDataModule", "--data.env", "Pendulum-v1")

    outcome = run("fit", "--model", "modules.SAC", *data, "--model.network.hidden", "[64,64]")

    assert outcome.code == 2
    assert outcome.err.endswith("has none yet: name a class first, as in `--model.network modules.networks.MLP`.\n")


FILES = {
    "a misspelt key": ("num_envss: 3", "`data.init_args.num_envss` (bad.yaml, line 9)", "did you mean `num_envs`?"),
    "a wrong type": ("num_envs: many", "`data.init_args.num_envs` (bad.yaml, line 9)", "must be a whole number"),
    "a fraction": ("num_envs: 1.5e0", "`data.init_args.num_envs` (bad.yaml, line 9)", "must be a whole number"),
    "broken YAML": ("num_envs: [1", "`bad.yaml`, line 10", "is not valid YAML"),
}


@pytest.mark.parametrize(("line", "place", "sentence"), FILES.values(), ids=FILES)
def test_a_mistake_in_a_file_names_file_and_line(run: Run, folder: Path, line: str, place: str, sentence: str) -> None:
    (folder / "bad.yaml").write_text(EXPERIMENT.replace("    env:", f"    {line}\n    env:"))

    outcome = run("fit", "--config", "bad.yaml")

    assert outcome.code == 2
    assert place in outcome.err and sentence in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_mistake_in_a_file_elsewhere_names_file_and_line(run: Run, folder: Path) -> None:
    (folder / "far").mkdir()
    (folder / "far" / "bad.yaml").write_text(EXPERIMENT.replace("    env:", "    num_envss: 3\n    env:"))

    assert "`data.init_args.num_envss` (far/bad.yaml, line 9)" in run("fit", "--config", "far/bad.yaml").err


@pytest.mark.parametrize("content", ["", "- 1\n", "just text\n"])
def test_a_file_without_settings_is_named(run: Run, folder: Path, content: str) -> None:
    (folder / "bad.yaml").write_text(content)

    assert "`bad.yaml` holds no settings" in run("fit", "--config", "bad.yaml").err


def test_a_class_of_the_wrong_kind_in_a_file_is_named(run: Run, folder: Path) -> None:
    (folder / "bad.yaml").write_text(EXPERIMENT.replace("tests.support.fake_algorithm.Walker", "torch.nn.Linear"))

    outcome = run("fit", "--config", "bad.yaml")

    assert outcome.code == 2
    assert outcome.err.startswith("`torch.nn.Linear` (bad.yaml, line 3) cannot be used: it does not correspond")


def test_a_class_that_lacks_types_is_told_which(run: Run, folder: Path) -> None:
    scripted = "[{class_path: tests.support.fake_algorithm.Untyped}]"

    outcome = run("fit", "--config", "sac_options_fourrooms.yaml", "--model.scripted_options", scripted)

    asked = "OptionPolicy asks for `initiation(self, obs: torch.Tensor) -> torch.Tensor`, with these names and types."
    assert (outcome.code, outcome.err.partition("cannot be used: ")[2].strip()) == (2, asked)


def test_without_a_config_the_missing_parts_are_named(run: Run) -> None:
    cure = "add `--config ppo_fast.yaml` (or another config), or set them after `--`."
    assert run("fit").err == f"The experiment lacks `data` and `model`: {cure}\n"


def test_a_config_without_its_option_is_told_also_if_no_other_is_given(run: Run) -> None:
    outcome = run("fit", "ppo_fast.yaml")

    said = "`ppo_fast.yaml` is not an option: write `--config ppo_fast.yaml`.\n"
    assert (outcome.code, outcome.err) == (2, said)


def test_a_config_that_lacks_the_model_is_told_to_set_it(run: Run, folder: Path) -> None:
    (folder / "bad.yaml").write_text("data:" + EXPERIMENT.partition("data:")[2])

    outcome = run("fit", "--config", "bad.yaml")

    assert outcome.err == "The experiment lacks `model`: set it in the config or after `--`.\n"


def test_a_missing_argument_is_named_in_full(run: Run, folder: Path) -> None:
    (folder / "bad.yaml").write_text(EXPERIMENT.replace("env: CartPole-v1", "num_envs: 2"))

    outcome = run("fit", "--config", "bad.yaml")

    assert (outcome.code, "lacks `data.env`" in outcome.err) == (2, True)


def test_nearest_lists_candidates_when_none_is_close() -> None:
    assert nearest("xyz", ["gamma", "gae_lambda"]) == "choose from gae_lambda, gamma."


def test_an_argument_that_a_class_in_a_list_refuses_gets_the_sentence_of_the_class(run: Run) -> None:
    reward = "{class_path: datamodules.envs.four_rooms.Eigenpurpose, init_args: {index: 0}}"

    outcome = run(
        "fit", "--config", "sac_options_fourrooms.yaml", f"--model.option_rewards=[task, task, task, {reward}]"
    )

    assert outcome.code == 2 and "Eigenpurpose has index 0; choose an index" in outcome.err
