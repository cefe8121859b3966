"""What each pipeline stage has of a model's layers, in all processes of an engine. Without stages, what a worker has of
them that its scheduler does not know.

vLLM gives a worker the layers of its own stage, and the scheduler those of the first one. The identity of pages contains
all of them. So workers exchange what they have when they register their KV cache, which all of them do at the same time,
and the scheduler gets it with the metadata that vLLM collects from workers after that.
"""

import datetime
import json

from troupe import _drafts, _groups
from troupe._kv_shape import DoesNotFit

# For all workers to have reached the exchange. One that has failed before never does, and vLLM may not say so until the
# others have answered.
EXCHANGE_SECONDS = 300


def described(make):
    """What `make` returns about the stage of this worker, or why there is nothing: others wait for it either way."""
    try:
        return {"stage": make()}
    except Exception as error:  # it is raised in every worker
        return {"error": f"{error}"}


def exchanged(mine):
    """What all stages have, in their order. All workers of an engine call this at the same time."""
    import torch
    from vllm.distributed.parallel_state import get_pp_group

    group = get_pp_group()
    try:
        torch.distributed.monitored_barrier(group.cpu_group, datetime.timedelta(seconds=EXCHANGE_SECONDS))
    except RuntimeError as error:
        raise DoesNotFit(f"not all pipeline stages have registered their KV cache after {EXCHANGE_SECONDS} s: the log of "
                         f"the worker that is missing says why ({error})") from None
    out = [None] * group.world_size
    torch.distributed.all_gather_object(out, json.dumps(mine), group=group.cpu_group)
    return [json.loads(each) for each in out]


def checked(said):
    """The stages, without the errors of workers, which are raised."""
    for number, each in enumerate(said):
        if "error" in each:
            where = f"pipeline stage {number}: " if len(said) > 1 else ""
            raise DoesNotFit(f"{where}{each['error']}")
    return [each["stage"] for each in said]


def alike(stages):
    """Whether all stages have one KV cache group, with as many layers of one shape. Then each stage is a rank of one
    namespace; otherwise it has groups of its own."""
    return all(stage["one_group"] is not None and stage["one_group"] == stages[0]["one_group"] for stage in stages)


def alike_by_config(vllm_config, kv_cache_config):
    """Whether the config alone says that stages are alike, of which this process knows one. Then nothing has to be passed
    on to the scheduler, which vLLM's `MultiConnector` does for the first of its connectors only."""
    speculative = getattr(vllm_config, "speculative_config", None)
    if _groups.needed(kv_cache_config) or _groups.uneven(kv_cache_config):
        return False
    if speculative is not None and speculative.method not in _drafts.WITHOUT_LAYERS:
        return False
    try:
        from vllm.distributed.utils import get_pp_indices
        layers = vllm_config.model_config.get_total_num_hidden_layers()
    except (ImportError, AttributeError):
        return False
    if not kv_cache_config.kv_cache_groups:
        return True  # no layer keeps KV: what takes one group refuses that
    count = vllm_config.parallel_config.pipeline_parallel_size
    ends = [get_pp_indices(layers, stage, count) for stage in range(count)]
    return {end - first for first, end in ends} == {len(kv_cache_config.kv_cache_groups[0].layer_names)}


def require_alike(stages):
    """For versions of vLLM without several KV cache groups."""
    if not alike(stages):
        layers = ", ".join(str((stage["one_group"] or {}).get("layers", 0)) for stage in stages)
        raise DoesNotFit(f"this model's pipeline stages have different layers ({layers} with a KV cache), which Troupe "
                         "supports from vLLM 0.32 on: set VLLM_PP_LAYER_PARTITION so that these numbers are equal, or start vLLM without "
                         "--pipeline-parallel-size, or without a KV connector")


def groups_of(stages, page_tokens, tables):
    """The groups of all stages."""
    for number, stage in enumerate(stages):
        if (stage["page_tokens"], stage["tables"]) != (page_tokens, tables):
            raise DoesNotFit(f"pipeline stage {number} has pages of {stage['page_tokens']} tokens in {stage['tables']} "
                             f"KV cache groups, and another one of {page_tokens} in {tables}: start vLLM without "
                             "--pipeline-parallel-size, or without a KV connector")
        if not stage["groups"]:
            raise DoesNotFit(f"pipeline stage {number} has no layer with a KV cache: start vLLM with another "
                             "VLLM_PP_LAYER_PARTITION, or without a KV connector")
    # One stage is none.
    groups = [_groups.Group.of(each, number + 1 if len(stages) > 1 else 0)
              for number, stage in enumerate(stages) for each in stage["groups"]]
    return _groups.Groups(groups, page_tokens, tables)
