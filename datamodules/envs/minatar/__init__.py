"""The five MinAtar games as on-device environments; what they share is in `game`.

To add a game, write a subclass of `MinAtarGame`, or of `RampingGame`, in its own file and register it in
`datamodules.envs`.

Source: Young and Tian 2019, arXiv:1903.03176, and the behaviour of their package `minatar`, release 1.0.15.
"""
