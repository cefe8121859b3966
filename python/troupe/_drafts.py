"""Speculative decoding where layers are in several groups: what works, and why the rest does not.

A page is saved under hashes of tokens that are known, so drafts are in none: what a step verifies beyond them belongs to
later pages, and a page that a rejection cuts has no hash yet. Layers of a draft model are in pages like any others. The
last token's KV in a layer of EAGLE depends on the token behind it, which may be another one after a hit. That makes a
draft worse and no token wrong, because the model verifies every draft. The same holds for MTP.

Of layers with states vLLM keeps one state for each draft, and copies that of the last accepted token, and that at the end
of a block that the step has passed, to their blocks when it has sampled. A state at the end of a block is offered in the
step that computes its last token, or in a later one. vLLM's two model runners call `wait_for_save` after the copy where
there is speculative decoding, so what is saved then is the state that the block is for; and no later step writes to it.
"""

from troupe._kv_shape import DoesNotFit

# Methods that scripts/engines has played with several groups.
TESTED = ("ngram", "draft_model", "eagle", "mtp")

# Methods that look tokens up.
WITHOUT_LAYERS = ("ngram", "ngram_gpu", "suffix")

WAY_OUT = "start vLLM without --speculative-config, or without a KV connector"


def refuse(vllm_config, groups):
    """Raises an error for speculative decoding that does not work with these groups, or was not tested with them."""
    speculative = getattr(vllm_config, "speculative_config", None)
    if speculative is None:
        return
    if any(group.stage for group in groups.groups):
        raise DoesNotFit("Troupe was not tested with speculative decoding and pipeline stages that have groups of their "
                         f"own: {WAY_OUT}")
    if groups.table_count > 1 and speculative.method not in TESTED:
        raise DoesNotFit(f"Troupe was not tested with speculative decoding by {speculative.method} and several KV cache "
                         f"groups, but with {', '.join(TESTED)}: {WAY_OUT}")
