"""Name every tag that runs log, with its unit and meaning: the source of `docs/reference/metrics.md`."""

from typing import NamedTuple


class Section(NamedTuple):
    """Tags that are logged together.

    rows: tags separated by spaces, unit and meaning; `N` stands for a number.
    """

    title: str
    text: str
    rows: tuple[tuple[str, str, str], ...]


def known_tags() -> list[str]:
    """Return the tags of all sections; environments, callbacks and algorithms of a user log others beside them."""
    return [tag for section in SECTIONS for tags, _, _ in section.rows for tag in tags.split()]


PPO = Section(
    "PPO",
    "What a run of `ppo_fast.yaml` logs; `food`, `snake_length` and `full_board` are reported by Snake.",
    (
        ("rollout/return_mean rollout/length_mean", "reward, env steps", "undiscounted return and length of training"
         " episodes that ended since the last log, at least 100"),
        ("rollout/food_mean rollout/snake_length_mean", "food, cells", "reported by Snake at their end"),
        ("rollout/full_board_mean", "share", "episodes that ended with a full board"),
        ("train/policy_loss", "normalised advantage", "negative clipped surrogate objective"),
        ("train/value_loss", "(scaled) return squared", "half the squared error of the value"),
        ("train/entropy", "nats", "entropy of the policy"),
        ("train/approx_kl", "nats", "KL divergence between the policy before the update and the updated one"),
        ("train/clip_fraction", "share", "transitions whose ratio is outside the clipping interval"),
        ("train/explained_variance", "share", "of the variance of the returns that the value explains: 1 is all, 0 or"
         " less is none"),
        ("train/grad_norm", "loss per unit of weight", "global norm of the gradient before clipping"),
        ("train/learning_rate", "1", "learning rate at the time of the log"),
        ("eval/return_mean eval/return_std eval/return_interval", "reward", "whole evaluation episodes, greedy by"
         " default: mean, standard deviation, half-width of the 95 % confidence interval of the mean"),
        ("eval/length_mean eval/episodes", "env steps, 1", "mean length and number of these episodes"),
        ("eval/food_mean eval/food_max eval/snake_length_mean eval/snake_length_max", "food, cells", "reported by Snake"
         " at their end"),
        ("eval/full_board_mean eval/full_board_max", "share, 1", "episodes that ended with a full board, and whether"
         " any did"),
        ("time/env_steps_per_s time/updates_per_s", "1/s", "since the last log, without evaluation, all ranks"),
        ("time/collect_share time/prepare_share time/update_share", "share of wall clock", "environment and policy;"
         " returns and targets; optimizer steps"),
        ("time/eval_share time/other_share", "share of wall clock", "evaluation; logging, saving and the loop itself"),
        ("hp_metric", "reward", "`eval/return_mean` of the best checkpoint, shown beside the hyperparameters"),
    ),
)  # fmt: skip

POLICY_LAG = Section(
    "Collecting with an older policy",
    "With `--data.policy_lag 1`. Collecting then runs in parallel with the update: the other shares add up to 1 without"
    " `time/collect_share`, and waiting for it is part of `time/other_share`.",
    (("rollout/policy_lag", "iterations", "how far the collecting policy is behind the updated one"),),
)

RESTARTS = Section(
    "Restarted environments",
    "With `--data.on_env_error restart`.",
    (
        (
            "env/restarts",
            "1",
            "environments restarted since the start of the process, all ranks together; their episodes are dropped",
        ),
    ),
)

AGENTS = Section(
    "Several agents",
    "In environments of several agents returns are means over them; `NAME` is an agent's name. See"
    " [several agents](../guides/several_agents.md).",
    (
        ("rollout/agent_steps", "agent steps", "valid steps of all agents so far, all ranks"),
        ("eval/NAME_return_mean eval/NAME_return_max", "reward", "return of one agent in the evaluation's episodes"),
    ),
)

AUXILIARY = Section(
    "Auxiliary losses of PPO",
    "With `model.auxiliary_losses`; values before the coefficients. See"
    " [auxiliary losses](../guides/auxiliary_losses.md).",
    (
        ("kickstart/action_loss", "nats", "cross-entropy of the teachers' policies and the agent's, their mean"),
        ("kickstart/value_loss", "(scaled) return squared", "half the squared difference of the values"),
        ("kickstart/share", "share", "of the coefficients that is left by annealing"),
        ("behavior_cloning/loss", "nats", "negative log-likelihood of the stored actions"),
        ("behavior_cloning/share", "share", "of the coefficient that is left by annealing"),
        ("contrastive/loss", "nats", "InfoNCE"),
        ("contrastive/accuracy", "share", "of the steps whose positive is more similar than every negative"),
        ("l2_init/distance", "weights", "Euclidean distance of the weights to the initial ones"),
    ),
)  # fmt: skip

DQN = Section(
    "DQN and PQN",
    "Beside the tags of episodes, evaluation and time. PQN logs `train/td_loss`, `train/q_mean`, `train/epsilon` and"
    " `train/updates`.",
    (
        ("train/td_loss", "depends on the head", "weighted loss of the head"),
        ("train/q_mean", "reward", "mean value of the actions taken"),
        ("train/td_error", "reward", "mean absolute temporal-difference error"),
        ("train/epsilon", "share", "random actions"),
        ("train/updates", "1", "optimizer steps so far"),
        ("replay/size", "env steps", "steps stored"),
        ("replay/priority_max", "1", "largest priority weight"),
        ("time/store_share time/sample_share time/reprioritize_share", "share of wall clock", "writing to the replay,"
         " drawing from it, updating priorities"),
    ),
)  # fmt: skip

SAC = Section(
    "SAC",
    "Beside the tags of episodes, evaluation, replay and time.",
    (
        ("train/critic_loss", "return squared", "sum of both critics' losses"),
        ("train/actor_loss train/q_mean", "return", "objective of the actor; mean action value"),
        ("train/alpha_action", "return per nat", "temperature"),
        ("train/entropy", "nats", "of actions in [-1, 1] or of discrete choices"),
        ("train/critic_grad_norm train/actor_grad_norm", "loss per unit of weight", "norms before clipping"),
    ),
)

CURIOSITY = Section(
    "Curiosity",
    "With `--model.curiosity modules.Curiosity`. Losses are logged before weighting.",
    (
        ("curiosity/scale", "reward", "mean reward added to a step"),
        ("curiosity/forward_loss", "features squared", "error of the forward model"),
        ("curiosity/inverse_loss", "actions squared, or nats", "error of the inverse model"),
    ),
)

OPTIONS = Section(
    "SAC with options",
    "Beside the tags of SAC; `N` is the number of an option.",
    (
        ("option/usage_N", "share of steps", "steps in which the option ran"),
        ("option/select_N", "share of choices", "choices of the option"),
        ("option/beta_N", "probability", "probability of ending"),
        ("option/q_N", "return", "its value"),
        ("option/usage_min option/usage_entropy", "share; 1 is even", "least used option; evenness of usage"),
        ("option/length_mean option/length_p50 option/length_p95", "env steps", "how long options run"),
        ("option/term_rate option/switch_rate", "per step", "terminations; changes of the option"),
        ("option/master_entropy option/marginal_entropy option/mutual_information", "nats", "of the choice, of its mean"
         " over states, and the difference"),
        ("option/divergence_mean", "nats", "between the policies of two options"),
        ("option/advantage_std option/advantage_positive", "return, share", "advantage of going on: deviation; share"
         " above 0"),
        ("train/alpha_option", "return per nat", "temperature of the choice of options"),
        ("train/master_loss train/termination_loss", "return", "losses of the controller"),
        ("train/q_min", "return", "lowest estimate in a minibatch"),
        ("option/alarms", "1", "alarms of `callbacks.OptionCollapseMonitor`"),
        ("option/timeline option/usage", "image", "figures of `callbacks.OptionFigures`"),
        ("option/regime_information", "nats", "mutual information of the option and a synthetic market's regime"
         " (`callbacks.RegimeInformation`)"),
    ),
)  # fmt: skip

DYNAMICS = Section(
    "Active dynamics",
    "See [active dynamics](../algorithms/active_dynamics.md).",
    (
        ("dynamics/field_r2", "share", "of the variance of the true vector field that the learned one explains, on a"
         " grid over the region of interest"),
        ("dynamics/r2_1 dynamics/r2_5 dynamics/r2_10 dynamics/r2_20", "share", "the same of held-out observations, so"
         " many steps ahead; nan, with a warning, where no held-out episode is as long"),
        ("dynamics/information", "nats, twice", "information that the newest steps gave about the last layer"),
        ("dynamics/log_likelihood dynamics/kl", "nats per observation", "the two parts of a latent model's bound"),
        ("dynamics/loss dynamics/grad_norm", "nats; nats per unit of weight", "loss of the gradient steps, and the norm"
         " of its gradient before clipping"),
        ("dynamics/beta", "share", "weight of the dynamics' part of the KL term, during annealing"),
        ("dynamics/drift", "standard deviations", "distance between the agent's belief and a fresh encoding of what it"
         " observed"),
        ("train/largest_obs", "as the observation", "largest absolute value in memory; the run stops when it is nan"),
        ("dynamics/plan_ms", "ms", "one decision for all agents"),
        ("dynamics/field dynamics/paths dynamics/exploration", "image", "true field, learned field and difference;"
         " held-out paths and predictions; video of the states visited"),
    ),
)  # fmt: skip

TRADING = Section(
    "Trading",
    "Reported at the end of an episode, as `rollout/NAME_mean` and `eval/NAME_mean`."
    " `callbacks.TradingReport`"
    " adds the figure `trading/equity/SYMBOL` and the table `trading/report` at every evaluation.",
    (
        ("log_return", "log equity", "return of the episode"),
        ("sharpe", "per year", "Sharpe ratio of simple returns"),
        ("drawdown", "share", "largest fall from a peak"),
        ("cost", "log equity", "costs paid"),
        ("turnover", "equities per year", "traded value"),
        ("exposure", "share", "mean absolute weight"),
    ),
)

CARBALL = Section(
    "Car-ball",
    "Reported at the end of an episode, as `rollout/NAME_mean` and `eval/NAME_mean`: means over the learning cars. See"
    " [Car-ball](../guides/carball.md).",
    (
        ("goals conceded", "1", "goals of the car's team, and of the other one"),
        ("touches aerial_touches", "env steps", "in which the car touched the ball; with the ball above 300 units"),
        ("boost_used", "% of a full tank", "boost that the car used"),
        ("curriculum/stage", "1", "stage that training plays, from 1, with `callbacks.StageCurriculum`"),
    ),
)

GPU = Section(
    "GPU monitor",
    "With `callbacks.GPUMonitor`; `N` is the number of a GPU.",
    (
        ("gpu/N/utilisation", "%", "utilisation"),
        ("gpu/N/memory_mib gpu/N/memory_peak_mib", "MiB", "memory in use, and its peak"),
        ("gpu/N/temperature_c", "°C", "temperature"),
        ("gpu/N/power_w", "W", "power"),
        ("gpu/N/clock_mhz", "MHz", "clock"),
    ),
)

ANALYSIS = Section(
    "Analysis and system",
    "With `callbacks.WeightAnalysis` (`LAYER` is the name of a linear layer), `callbacks.GradientStatistics` and"
    " `callbacks.SystemMonitor`. See [analysis](../guides/analysis.md).",
    (
        ("weights/LAYER/frobenius_norm", "weights", "root of the sum of squares"),
        ("weights/LAYER/largest weights/LAYER/mean", "weights", "largest and mean singular value"),
        ("weights/LAYER/condition_number", "1", "largest by smallest singular value"),
        ("weights/LAYER/effective_rank", "1", "how many of the largest singular values have 99 % of the sum"),
        ("weights/LAYER/collapsed_share", "share", "singular values below 1 % (`collapsed_below`) of the largest"),
        ("gradients/mean gradients/variance gradients/norm", "loss per unit of weight", "over all gradients of the last"
         " optimizer step, after averaging and clipping"),
        ("system/cpu_percent", "% of a core", "processor load of the process and its workers since the last log"),
        ("system/memory_mib system/num_processes", "MiB, 1", "resident memory of these processes, and their number"),
        ("system/device_memory_mib system/device_memory_peak_mib", "MiB", "memory of the GPU that torch has reserved"),
    ),
)  # fmt: skip

SECTIONS = (
    PPO,
    POLICY_LAG,
    RESTARTS,
    AGENTS,
    AUXILIARY,
    DQN,
    SAC,
    CURIOSITY,
    OPTIONS,
    DYNAMICS,
    TRADING,
    CARBALL,
    GPU,
    ANALYSIS,
)
