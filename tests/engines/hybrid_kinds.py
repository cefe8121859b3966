"""Models whose layers need several KV cache groups, or have several shapes in one, and what is known of their hits."""

import functools
from dataclasses import dataclass, field, replace

import tiny_heads
import tiny_hybrids
import tiny_model
from experiments import BLOCK, EXACT, PROMPT, PROMPTS, ROUNDING

# Like `ROUNDING`, where queries and keys are not scaled, which makes more of their last bits. vLLM's own prefix cache
# gives 3e-4 with 2,000 tokens.
UNSCALED = 1e-3


@dataclass(frozen=True)
class kind:
    """A model, and what is known of its hits."""

    name: str
    what: str
    config: callable
    weights: callable
    # Hits are multiples of so many tokens.
    unit: int
    # Ends of the names of Troupe's namespaces, one for each of its groups.
    groups: tuple
    options: dict = field(default_factory=dict)
    # Options with which the schedule makes no difference above `rounding`. Where there are none, requests play one at a
    # time, so that the schedule is always the same.
    exact: dict = field(default_factory=lambda: EXACT)
    limit: int | None = None
    # How much logprobs of one schedule may differ: of how many tokens are computed behind a hit.
    gap: float = 0.0
    # Prompts, their tokens, generated tokens, and so few blocks that some of the requests are preempted.
    crowd: tuple = ()
    # Prompts whose pages do not fit into 32 MiB.
    many: int = 0
    # Options for workers in processes of their own, beside `options`.
    apart: dict = field(default_factory=dict)
    # Whether a store has more than vLLM's own cache keeps, since the bytes of all blocks are there for a step.
    keeps_all: bool = False

    @property
    def rounding(self):
        """How much logprobs may differ with the `exact` options."""
        return 0.0 if self.limit else max(ROUNDING, self.gap)

    def found(self, tokens=PROMPT):
        """The hit of a prompt of so many tokens, the last of which is always computed."""
        return (tokens - 1) // self.unit * self.unit

    def pages(self, group, prompts=PROMPTS, tokens=PROMPT):
        """The number of pages of such prompts in a group."""
        return prompts * (1 if group.endswith("state") else tokens // self.unit)

    def engine(self, lab):
        model = tiny_model.write(lab.directory / f"tiny-{self.name}", config=self.config(), weights=self.weights)
        return {"model": model, "enable_prefix_caching": True, **self.options}


KINDS = (
    kind("windows", "windows", tiny_model.windows, tiny_model.shapes, unit=BLOCK, groups=("full", "window-256"),
         crowd=(6, 250, 300, 60), many=16, keeps_all=True),
    # vLLM makes its blocks twice as long, so that a state fits into a page. Where workers are processes, its scheduler
    # does not get to know of that, and vLLM keeps no state at all, with or without a connector: hence the block size.
    # Its kernels for CPUs need bfloat16.
    kind("delta-net", "gated delta net", tiny_hybrids.delta_net, tiny_hybrids.delta_net_weights, unit=2 * BLOCK,
         groups=("full", "state"), exact={}, limit=1, crowd=(4, 700, 120, 24), many=48,
         apart={"block_size": 2 * BLOCK}),
    kind("mamba2", "Mamba 2", tiny_hybrids.mamba2, tiny_hybrids.mamba2_weights, unit=BLOCK, groups=("full", "state"),
         options={"cut_prefills": True}, crowd=(4, 600, 200, 26), many=48),
    # vLLM gives the layers with smaller heads blocks of twice as many tokens.
    kind("heads", "windows with other heads than full attention", tiny_heads.gemma4, tiny_heads.gemma4_weights,
         unit=2 * BLOCK, groups=("full", "window-256"), options=EXACT, gap=UNSCALED, crowd=(4, 600, 200, 36), many=24,
         keeps_all=True),
)


# Kernels have blocks of 32 tokens, with heads apart, as FlashInfer's on GPUs of the Blackwell generation.
SPLIT = replace(KINDS[1], name="split-blocks", what="gated delta net, blocks split by kernels",
                options={"kernel_block": 32})

# Played as little as possible, since Troupe does not distinguish it from the other kinds with states.
CONVOLUTIONS = kind("convolutions", "short convolutions", tiny_model.convolutions, tiny_hybrids.convolution_weights,
                    unit=BLOCK, groups=("full", "state"), limit=1)

# vLLM pads blocks of the smaller heads. Of the last layers, three read what others have stored.
PADDED = kind("padded-heads", "windows with padded heads, shared layers",
              tiny_heads.gemma4_padded, tiny_heads.gemma4_weights, unit=BLOCK, groups=("full", "window-256"),
              options=EXACT, gap=UNSCALED, keeps_all=True)

# Two workers have half of all heads each, and blocks of the same numbers of tokens.
MORE_HEADS = kind("more-heads", "windows with more and smaller heads than full attention",
                  functools.partial(tiny_heads.gemma4, heads=4, full_heads=2), tiny_heads.gemma4_weights,
                  unit=2 * BLOCK, groups=("full", "window-256"), options=EXACT, gap=UNSCALED, keeps_all=True)

# One KV cache group of layers with several shapes.
SEVERAL_SHAPES = kind("shapes", "layers of several shapes in one group", tiny_heads.gemma4, tiny_heads.gemma4_weights,
                      unit=BLOCK, groups=("full",), options={**EXACT, "disable_hybrid_kv_cache_manager": True},
                      gap=UNSCALED, keeps_all=True)
