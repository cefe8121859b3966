"""Experiments with pipeline parallelism: two stages, in processes of their own, with the same and with different numbers
of layers, and with one and with several KV cache groups.

Where stages differ, what each has of a group is a namespace of its own, and a hit takes pages of all of them. So each
experiment erases or damages the pages of one stage alone: then nothing, or less, may be found, and no token may change.
"""

import functools
import time

import tiny_hybrids
import tiny_model
from experiments import (BLOCK, EXACT, PROMPT, PROMPTS, SEVERAL_GROUPS, equal, experiments, failed_loads, require,
                         require_equal, usual, versions, wrong)
from hybrid_experiments import (PATIENT, damage, find_apart, kind, missing_pages, namespace, play_apart, require_groups,
                                require_hits)

STAGES = {"pipeline_parallel_size": 2}

# How long workers wait for each other's layers, as in troupe/_stages.py.
EXCHANGE_SECONDS = 300

KINDS = (
    # Two layers, then one.
    kind("stages", "stages with two layers and one", functools.partial(tiny_model.llama, layers=3), tiny_model.shapes,
         unit=BLOCK, groups=("stage-0.full", "stage-1.full"), options=STAGES),
    # Four layers with two of full attention, then three with none.
    kind("stages-windows", "windows in stages of four layers and three", functools.partial(tiny_model.windows, layers=7),
         tiny_model.shapes, unit=BLOCK, groups=("stage-0.full", "stage-0.window-256", "stage-1.full",
                                                "stage-1.window-256"), options=STAGES),
    kind("stages-mamba2", "Mamba 2 in two stages", tiny_hybrids.mamba2, tiny_hybrids.mamba2_weights, unit=BLOCK,
         groups=("stage-0.full", "stage-0.state", "stage-1.full", "stage-1.state"),
         options={"cut_prefills": True, **STAGES}),
)

# As many layers in each, of which one keeps no KV: the scheduler takes stages for alike until workers say what they have.
# With prefix caching, vLLM looks for states in this class of model.
WITHOUT_KV = kind("stages-without", "stages with two layers each, of which one keeps no KV",
                  functools.partial(tiny_hybrids.mamba2, pattern="***-"), tiny_hybrids.mamba2_weights, unit=BLOCK,
                  groups=("stage-0.full", "stage-1.full"), options={"enable_prefix_caching": False, **STAGES})

# As many layers in each: a namespace with two ranks.
ALIKE = kind("stages-alike", "two stages with two layers each", tiny_model.llama, tiny_model.shapes, unit=BLOCK,
             groups=("",), options=STAGES)


def of_each_kind(what, kinds=KINDS):

    def note(function):
        for each in kinds:
            name = f"{each.name}-{function.__name__.replace('_', '-')}"
            experiments[name] = (f"{each.what}: {what}", functools.partial(function, each))
            if each is not ALIKE:
                versions[name] = (SEVERAL_GROUPS, None)
        return function

    return note


def wanted_of(lab, this):
    return lab.baseline(usual(), multiprocessing="fork", **this.engine(lab), **EXACT)


def warm(lab, this, name):
    made = lab.node(f"{this.name}-{name}").start()
    find_apart(lab, this, made, wanted_of(lab, this), 0)
    return made


def found_by(turns):
    return [x["cached"] for x in turns[0]]


@of_each_kind("an empty cache; then another engine finds the longest prefix that every stage has", (ALIKE, *KINDS, WITHOUT_KV))
def restarted(this, lab):
    made = warm(lab, this, "restarted")
    find_apart(lab, this, made, wanted_of(lab, this), PROMPTS * this.found())
    if this is ALIKE:
        ranks = [rank["live"] for rank in namespace(made, "")["ranks"]]
        require(ranks == [this.pages("")] * 2, f"the stages have {ranks} pages")
    return PROMPTS * this.found(), f"{this.found()} of {PROMPT} tokens each"


@of_each_kind("the same engine without stages finds nothing of it, as its layers are divided in another way")
def other_division(this, lab):
    made = warm(lab, this, "division")
    whole = {**this.engine(lab), "pipeline_parallel_size": 1}
    outputs, metrics = lab.play(usual(), lab.connector(made), **whole, **EXACT)
    require_equal(outputs, lab.baseline(usual(), **whole, **EXACT), this.rounding)
    require_hits(metrics, 0)
    # Not because nothing can be found.
    find_apart(lab, this, made, wanted_of(lab, this), PROMPTS * this.found())
    return PROMPTS * this.found(), "0 without stages"


@of_each_kind("bytes changed on the disk in one group of each stage in turn: no wrong token, and saved anew")
def damaged_stage(this, lab):
    made, remarks = warm(lab, this, "damaged"), []
    for group in this.groups:
        damaged, pages = damage(made, group, None, after=0)
        turns, metrics, *_ = play_apart(lab, this, made)
        for outputs in turns:
            require_equal(outputs, wanted_of(lab, this), this.rounding)
        require(failed_loads(metrics) > 0, f"{group}: no load has failed: the damage was not met")
        require(not any(found_by(turns)), f"{group}: {found_by(turns)} tokens were found, where all pages are damaged")
        remarks.append(f"{damaged} of {pages} of {group}")
    find_apart(lab, this, made, wanted_of(lab, this), PROMPTS * this.found())
    return PROMPTS * this.found(), f"damaged {', '.join(remarks)}; saved anew"


@of_each_kind("one group of each stage is erased in turn: nothing is found, and all is saved again")
def erased_stage(this, lab):
    made = warm(lab, this, "erased")
    for group in this.groups:
        require(made.clear(namespace(made, group)["id"]) > 0, f"there was no page of {group}")
        find_apart(lab, this, made, wanted_of(lab, this), 0)
        require(not missing_pages(this, made), f"not all pages of {group} were saved again")
    find_apart(lab, this, made, wanted_of(lab, this), PROMPTS * this.found())
    return PROMPTS * this.found(), "0 where a stage had no pages"


@of_each_kind("the worker of one stage refuses: the other one ends at once and says why", KINDS[:1])
def refusal(this, lab):
    made, began = lab.node(f"{this.name}-refusal").start(), time.monotonic()
    run = lab.start(lambda one: one.metrics(), lab.connector(made, name="RefusingStageConnector", module="spoiling"),
                    multiprocessing="fork", **this.engine(lab), **EXACT)
    try:
        run.result()
        raise wrong("an engine has started of which one worker refuses")
    except RuntimeError:
        took, said = time.monotonic() - began, run.log.read_text(errors="replace")
    said = [line for line in said.splitlines() if "DoesNotFit: pipeline stage 1: as the experiment wants" in line]
    workers = {stage for stage in ("PP0", "PP1") if any(stage in line for line in said)}
    require(len(workers) == 2, f"of the workers, {sorted(workers)} say why they end")
    require(took < EXCHANGE_SECONDS / 2, f"the engine has ended after {took:.0f} s")
    # It is not the node or the model.
    find_apart(lab, this, made, wanted_of(lab, this), 0)
    return 0, f"ended after {took:.0f} s"


@of_each_kind("control: what one stage has loaded is changed, and then the other, and each output differs",
              (*KINDS, WITHOUT_KV))
def control(this, lab):
    made = warm(lab, this, "control")
    wanted = lab.baseline(usual(), limit=1, multiprocessing="fork", **this.engine(lab), **EXACT)
    for stage in ("0", "1"):
        outputs = play_spoilt(lab, this, made, stage)
        require_groups(this, made)
        same = sum(equal([x], [y]) for x, y in zip(outputs, wanted, strict=True))
        require(same == 0, f"changed blocks of stage {stage} make no difference to {same} of {PROMPTS} outputs")
    return 2 * PROMPTS * this.found(), "differs, as it must"


def play_spoilt(lab, this, made, stage):
    """Outputs of an engine that changes what a stage has loaded. Where loads have failed, as those of a node that has no
    turn for long, another engine counts."""
    connector = lab.connector(made, name="StageSpoilingConnector", module="spoiling", **PATIENT)
    for _ in range(3):
        outputs, metrics = lab.play(usual(), connector, limit=1, multiprocessing="fork",
                                    environment={"SPOILT_STAGE": stage}, **this.engine(lab), **EXACT)
        if failed_loads(metrics) == 0:
            break
    require_hits(metrics, PROMPTS * this.found())
    return outputs
