"""Token mixers beside attention: layers whose tokens hear of others through a state that runs along the text.

A causal convolution, a gated delta rule: each folds all that came before into a state of fixed size. In `tree`, a
document's branches go on from one state, that of its trunk. It is kept once a document, and read for all of its
branches; what a branch's own tokens do to it is kept token by token, in columns, as keys and values are. So a branch
that grows, a node of a trie and a finished prompt are here what they are for attention: columns that a
row sees, or not (hpd_core/layout.py).

    families.py      which modules of which models these are
    shapes.py        what their layers keep
    running.py       has transformers' own modules call our functions while the engine runs them
    states.py        what a cohort keeps: states of trunks, columns of branches
    seen_columns.py  who sees which column
    step_plan.py     which tokens of a step go where, and who their ancestors are
    convolution.py   a causal convolution over packed rows
    delta_rule.py    the gated delta rule over packed rows
    selective_scan.py  Mamba 2's scan over packed rows
    channel_scan.py  a scan whose channels fade each by itself: Mamba 1's, RecurrentGemma's
    ngrams.py        Qwen 4's features of a token and those before it
    lightning.py     lightning attention, whose states fade alike for all tokens
"""
