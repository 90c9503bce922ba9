"""Options: courses of action that last several steps, and what it takes to run, script and watch them.

scripted     the protocol of a hand-written option, and a set of them as batched functions
statistics   who ran, for how long and how decidedly: the numbers under `option/`

The mathematics of learning over options is `modules.functional.options`, the algorithm `modules.sac_options.sac_options`. To add a
hand-written option: any class that satisfies `modules.sac_options.scripted.OptionPolicy`, named in a config by its
`class_path`.
"""
