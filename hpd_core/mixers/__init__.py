"""Token mixers beside attention: layers that pass information between tokens through a state that runs along the text.

A causal convolution, a gated delta rule: each folds all that came before into a state of fixed size. In `tree`, a
document's branches continue from one state, that of its trunk. It is kept once per document and read for all of its
branches. The effect of a branch's own tokens on it is kept token by token, in columns, like keys and values. So a
branch that grows, a node of a trie and a finished prompt are here the same as for attention: columns that a row sees,
or not (hpd_core/layout.py).

    modules.py       modules that are such mixers, and sizes of what they keep (by model: families/table.py)
    running.py       makes transformers' own modules call our functions while the engine runs them
    states.py        memory of a cohort: states of trunks, columns of branches
    step_plan.py     places, ancestors and visibility of the tokens of a step
    convolution.py   a causal convolution over packed rows; Qwen 4's features of a token and those before it
    delta_rule.py    the gated delta rule over packed rows
    scans.py         scans over packed rows: Mamba 2's and Mamba 1's, lightning attention
"""
