"""Updates with their gradients written out, for plain networks on a CPU: the same results without autograd's cost.

layers          a ReLU network and its gradients, and what all of them ask before they take the shorter way
dqn  ppo  sac   what each algorithm adds: a `WrittenOut` that its module makes when training begins, if
                `can_be_written_out` knows all of it; the readable update in `modules.dqn.dqn`, `ppo` or `sac` stays what
                counts, and tests hold these to it
"""
