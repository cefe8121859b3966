"""What each pipeline stage has of a model's layers, in all processes of an engine.

vLLM gives a worker the layers of its own stage, and the scheduler those of the first one. The identity of pages contains
all of them. So workers exchange what they have when they register their KV cache, which all of them do at the same time,
and the scheduler gets it with the metadata that vLLM collects from workers after that.
"""

import json

from troupe import _groups
from troupe._kv_shape import DoesNotFit


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
    out = [None] * group.world_size
    torch.distributed.all_gather_object(out, json.dumps(mine), group=group.cpu_group)
    return [json.loads(each) for each in out]


def checked(said):
    """The stages, without the errors of workers, which are raised."""
    for number, each in enumerate(said):
        if "error" in each:
            raise DoesNotFit(f"pipeline stage {number}: {each['error']}")
    return [each["stage"] for each in said]


def alike(stages):
    """Whether all stages have one KV cache group, with as many layers of one shape. Then each stage is a rank of one
    namespace; otherwise it has groups of its own."""
    return all(stage["one_group"] is not None and stage["one_group"] == stages[0]["one_group"] for stage in stages)


def require_alike(stages):
    """For versions of vLLM without several KV cache groups."""
    if not alike(stages):
        layers = ", ".join(str((stage["one_group"] or {}).get("layers", 0)) for stage in stages)
        raise DoesNotFit(f"this model's pipeline stages have different numbers of layers ({layers}), which Troupe supports "
                         "from vLLM 0.32 on: set VLLM_PP_LAYER_PARTITION to equal numbers, or start vLLM without a KV "
                         "connector")


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
    groups = [_groups.Group.of(each, number + 1) for number, stage in enumerate(stages) for each in stage["groups"]]
    return _groups.Groups(groups, page_tokens, tables)
