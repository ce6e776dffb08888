"""The decoder: prompts in, the tokens of their values out. It knows nothing of products.

Terms that every file here uses:

    trunk       the tokens of a prompt that all of its values see: the prefix, which prompts of a category share, and
                the document
    branch      an open end of the prompt: a key after the trunk, and the value that grows after the key
    scope       who sees a token: everybody (PUBLIC), or only the branch that it belongs to (hpd_core/layout.py)
    cohort      prompts that were admitted together; they share one block of KV cache and run in lock-step, each step
                one more token for every value that is not finished
    own tokens  the tokens of a prompt after its prefix
    live        (of a value) not finished

The life of a prompt, and the file of each part:

    admit    Scheduler picks waiting prompts and makes them a cohort            scheduler.py, cohort.py
    prefill  the cohort feeds its prompts' own tokens, some columns a step      cohort.py
    decode   the cohort feeds the last token of every live value                value_states.py
    retire   finished prompts get their tokens and leave the cohort             cohort.py

Decoder (decoder.py) runs the steps: it packs the tokens that all cohorts feed into one row and runs one forward of the
model. Then it chooses the next tokens (next_token.py) and hands them back to the cohorts.
"""
