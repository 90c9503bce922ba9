"""Rendered episodes: a policy plays one environment, and every step comes with its image.

Environments of Gymnasium and on-device ones are rendered by themselves (`render_mode` `rgb_array`); the state of one
that is not is shown by its observation.
"""
