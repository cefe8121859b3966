"""Speculative decoding where layers are in several groups: what works, and why the rest does not.

A page is saved under hashes of tokens that are known, so drafts are in none: what a step verifies beyond them belongs to
later pages, and a page that a rejection cuts has no hash yet. Layers of a draft model are in pages like any others. The
last token's KV in a layer of EAGLE depends on the token behind it, which may be another one after a hit. That makes a
draft worse and no token wrong, because the model verifies every draft.
"""

from troupe import _groups
from troupe._kv_shape import DoesNotFit

# Methods that scripts/engines has played with several groups.
TESTED = ("ngram", "draft_model", "eagle")

# Methods that look tokens up.
WITHOUT_LAYERS = ("ngram", "ngram_gpu", "suffix")

WAY_OUT = "start vLLM without --speculative-config, or without a KV connector"


def refuse(vllm_config, groups):
    """Raises an error for speculative decoding that does not work with these groups, or was not tested with them."""
    speculative = getattr(vllm_config, "speculative_config", None)
    if speculative is None:
        return
    if any(group.kind == _groups.STATE for group in groups.groups):
        # vLLM moves the state of an accepted token to its block when the step has ended, and a save may read it before.
        raise DoesNotFit("Troupe does not support speculative decoding for models with states (Mamba, gated delta net, "
                         f"short convolutions), which vLLM moves between blocks then: {WAY_OUT}")
    if any(group.stage for group in groups.groups):
        raise DoesNotFit("Troupe was not tested with speculative decoding and pipeline stages that have groups of their "
                         f"own: {WAY_OUT}")
    if groups.table_count > 1 and speculative.method not in TESTED:
        raise DoesNotFit(f"Troupe was not tested with speculative decoding by {speculative.method} and several KV cache "
                         f"groups, but with {', '.join(TESTED)}: {WAY_OUT}")
