"""Experiments with speculative decoding: the KV cache has the layers of a draft model beside those of the model, and
a hit brings both."""

from experiments import FULL, experiment, external, require, require_equal, usual, wrong

DRAFT, ACCEPTED = "vllm:spec_decode_num_draft_tokens", "vllm:spec_decode_num_accepted_tokens"
TOKENS = 3
# How many tokens a step verifies depends on what was accepted, and sums of other shapes are rounded in another order.
ROUNDING = 1e-3


def share_accepted(metrics):
    """The share of the draft's tokens that the model has accepted. It says what the draft's own KV cache is worth: the
    model corrects what a wrong one proposes, so that tokens alone do not show it."""
    require(metrics.get(DRAFT, 0) > 0, "the draft model has proposed no token")
    return metrics.get(ACCEPTED, 0) / metrics[DRAFT]


@experiment("speculative decoding: after a hit the output is the same, and as much of the draft is accepted")
def speculative_decoding(lab):
    # The model is its own draft, so that nearly all is accepted, unless the draft's KV cache is wrong.
    options = {"speculative_config": {"method": "draft_model", "model": lab.model, "num_speculative_tokens": TOKENS}}
    wanted, without = lab.play(usual(), None, **options)
    usually = share_accepted(without)
    made = lab.node("speculative").start()
    outputs, metrics = lab.play(usual(), lab.connector(made), **options)
    require(external(metrics) == 0, f"{external(metrics)} hits in an empty cache")
    require_equal(outputs, wanted, ROUNDING)
    outputs, metrics = lab.play(usual(), lab.connector(made), **options)
    require_equal(outputs, wanted, ROUNDING)
    require(external(metrics) == FULL, f"{external(metrics)} tokens of {FULL} were found")
    if share_accepted(metrics) < usually - 0.01:
        raise wrong(f"{share_accepted(metrics):.3f} of the draft is accepted after a hit, and {usually:.3f} without")
    return external(metrics), f"{share_accepted(metrics):.3f} of the draft accepted, {usually:.3f} without a cache"
