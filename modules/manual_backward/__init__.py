"""Updates with hand-written gradients, for MLPs on a CPU: the same results without autograd's cost.

callback        `ManualBackward` replaces methods of the algorithm during a fit; only this module is imported elsewhere
dqn  ppo  sac   the `methods` of each algorithm, for models that it `supports`
relu_mlp        forward and backward pass of a ReLU network, and shared conditions

The algorithms' own methods are the reference; tests compare both.
"""
