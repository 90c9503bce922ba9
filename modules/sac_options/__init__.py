"""Soft actor-critic over options (call and return), learned or hand-written.

sac_options           the algorithm
controller            policy over options and terminations
intra_option_policy   policies and Q-values of all options at once
option_record         which option acted, as stored in rollout and replay
option_reward         rewards of the options' own
checkpoint_option     learned option of a checkpoint as a hand-written one
scripted              protocol and batch of hand-written options
usage_metrics         usage, durations and terminations of options, logged under `option/`
update_metrics        metrics of the updates

The mathematics is in `modules.functional.options`. To add a hand-written option: any class that satisfies
`modules.sac_options.scripted.OptionPolicy`, named in a config by its `class_path`.
"""
