"""Find the correct key of a setting that has the wrong key, or the name that another library uses."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache

from jsonargparse import ArgumentParser

from app.class_paths import canonical_path, exported_classes, short_names
from datamodules.core.exports import class_path

FAMILIES = {
    ("data",): ("datamodules", "train_dataloader"),
    ("model",): ("modules", "action_types"),
    ("model", "network"): ("modules.networks", "forward"),
}
"""Package of the classes that are valid at a key, and an attribute that the package defines for them."""

SYNONYMS = {
    "lr": "learning_rate",
    "seed": "seed_everything",
    "n_envs": "num_envs",
    "env_id": "env",
    "n_steps": "rollout_length",
    "num_steps": "rollout_length",
    "total_timesteps": "total_env_steps",
    "n_epochs": "update_epochs",
    "ent_coef": "entropy_coef",
    "vf_coef": "value_loss_coef",
    "clip_coef": "clip_range",
    "buffer_size": "capacity",
    "lam": "gae_lambda q_lambda",
    "passes": "update_epochs",
    "minibatches": "num_minibatches",
    "clip": "clip_range",
    "clip_schedule": "clip_range_schedule",
    "value_clip": "value_clip_range",
    "value_weight": "value_loss_coef",
    "entropy_weight": "entropy_coef",
    "shared": "share_torso",
    "double": "double_q",
    "epsilon": "epsilon_end",
    "epsilon_steps": "epsilon_decay_steps",
    "alpha": "init_temperature",
    "tune_alpha": "learn_temperature",
    "target_entropy_share": "target_entropy_ratio",
    "options": "num_options",
    "scripted": "scripted_options",
    "prior": "prior_variance",
    "refit_every": "posterior_refit_interval",
    "horizon": "rollout_length train_freq",
    "staleness": "policy_lag",
    "chunk": "sequence_length",
    "recent": "num_recent",
    "held_out": "num_val_sequences",
    "held_out_steps": "val_sequence_length",
    "updates": "num_updates",
    "hide": "mask_prob",
    "hide_mean": "mask_with_mean",
    "detach_later": "detach_multi_step",
    "decay": "kl_decay",
    "multi_weight": "off_option_weight",
}
"""Names of settings in other libraries and in earlier versions, each with the names used in this one."""


def owners(written: str) -> list[str]:
    """Return the dotted paths of the classes that have a setting at its key; empty if none has.

    Args:
        written: the complete key, such as `data.init_args.rollout_length`.
    """
    *place, name = parts(written)
    if tuple(place) not in FAMILIES:
        return []
    return sorted(class_path(kind) for kind in family(tuple(place)) if name in arguments(kind))


def suggested(written: str, configured: Mapping[str, str], others: Iterable[str]) -> str | None:
    """Return the complete key of the setting that a nonexistent one probably means; None if no name is close.

    Args:
        written: the complete key.
        configured: the configured classes of `data` and `model`, by short name or dotted path.
        others: keys of settings that belong to neither.
    """
    *place, name = parts(written)
    known = [parts(each) for each in others]
    for key in ("data", "model"):
        kinds = [kind for kind in family((key,)) if is_named(kind, configured.get(key, ""))] or family((key,))
        known += [[key, each] for kind in kinds for each in sorted(arguments(kind))]
    words = [name, *SYNONYMS.get(name, "").split()]
    words += get_close_matches(name, {each[-1] for each in known}, n=1, cutoff=0.75)
    found = (each for word in words for each in sorted(known, key=lambda each: each[:-1] != place) if each[-1] == word)
    return next((".".join(each) for each in found), None)


def parts(written: str) -> list[str]:
    """Return the parts of a key without `init_args`, outermost first."""
    return [part for part in written.split(".") if part != "init_args"]


def family(place: tuple[str, ...]) -> list[type]:
    """Return the exported classes that are valid at a key."""
    package, attribute = FAMILIES[place]
    return [kind for kind in exported_classes(package) if gives(package, kind, attribute)]


def gives(package: str, kind: type, attribute: str) -> bool:
    """Return whether a class has an attribute that a class of the package defines."""
    definer = next((each for each in kind.__mro__ if attribute in vars(each)), type)
    return definer.__module__.startswith(f"{package}.")


def is_named(kind: type, path: str) -> bool:
    """Return whether a class is named by a short name or a dotted path."""
    return class_path(kind) == short_names().get(path, canonical_path(path))


@cache
def arguments(kind: type) -> frozenset[str]:
    """Return the names of the settings of a class, including those passed to its bases."""
    return frozenset(ArgumentParser().add_class_arguments(kind, None, fail_untyped=False))
