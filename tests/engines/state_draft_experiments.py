"""Experiments with speculative decoding and layers that keep a state. vLLM keeps the state after each draft, and copies
that of the last accepted one to where it belongs when the step has ended. So pages of states must be saved behind that:
the controls save them before, and their output must differ."""

import functools
import time

import tiny_hybrids
import tiny_model
from experiments import PROMPTS, external, require, require_equal, runs_apart, schedules_ahead, usual, wrong
from hybrid_experiments import KINDS, PATIENT, play_spoilt, require_groups, require_like, require_none_equal
from speculative_experiments import GENERATED, TOKENS, share_accepted, with_groups

DELTA_NET = next(each for each in KINDS if each.name == "delta-net")
# States are kept of what is generated, too.
EVERY_PAGE = {"prefix_cache_retention_interval": DELTA_NET.unit}
# Where drafts read the model's output, vLLM ends a step, and keeps a state, one page before the longest hit of a prompt.
PREDICTED = PROMPTS * (DELTA_NET.found() - DELTA_NET.unit)


def lookup(lab, **options):
    """Options for drafts from a table with mistakes. What the model generates with drafts is not what it generates
    without, as bfloat16 rounds sums of other shapes otherwise; with drafts of that it is the same again."""
    config = {"method": "ngram", "num_speculative_tokens": TOKENS, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    drafting, foreseen = {**options, **EVERY_PAGE, "speculative_config": config}, None
    for changes in (options, drafting):
        outputs = lab.baseline(usual(), GENERATED, 1, **changes, **({"foreseen": foreseen} if foreseen else {}))
        foreseen = [(prompt, output["tokens"]) for prompt, output in zip(usual(), outputs)]
    return {**drafting, "foreseen": foreseen}


def continued(outputs):
    """The usual prompts with most of what was generated."""
    return [prompt + output["tokens"][:GENERATED - 20] for prompt, output in zip(usual(), outputs)]


def without_cache(lab, options):
    """What an engine without a connector generates: for the usual prompts, and for these with what was generated, of
    which it finds a part in its own cache. Also the share of drafts that is accepted."""

    def play_both(one):
        first, metrics = one.play(usual(), GENERATED, 1), one.metrics()
        return first, one.play(continued(first), 16, 1), metrics

    first, second, metrics = lab.start(play_both, **options).result()
    return first, second, share_accepted(metrics)


def find_with_drafts(lab, name, options, least, hits):
    """Requires what `without_cache` says of engines that draft, of which the first one finds nothing; a restarted one
    finds the prompts (`hits`), and another one also what was generated, whose states were saved while drafts were
    accepted."""
    longest = DELTA_NET.found(len(usual()[0]) + GENERATED - 20)
    wanted, after, usually = without_cache(lab, options)
    require(least <= usually, f"only {usually:.3f} of the drafts are accepted without a cache")
    made, shares, total = lab.node(name).start(), [], 0
    for prompts, expected, outputs_wanted, generate in (
            (usual(), 0, wanted, GENERATED), (usual(), hits, wanted, GENERATED),
            (continued(wanted), PROMPTS * longest, after, 16)):
        outputs, metrics = lab.play(prompts, lab.connector(made), generate, 1, **options)
        require_groups(DELTA_NET, made)
        found = external(metrics)
        # vLLM does not keep the state at the end of a page that one step passes with accepted drafts.
        passed = prompts != usual() and hits == PREDICTED < found < expected
        require(found == expected or passed, f"{found} tokens in the place of {expected} were found")
        if outputs_wanted is wanted or all(each["cached"] == longest for each in after):
            require_equal(outputs, outputs_wanted)
        else:
            # Where layers of drafts read the model's output, vLLM's own hits are shorter: then rounding differs.
            require_like(DELTA_NET, outputs, outputs_wanted)
        shares.append(share_accepted(metrics))
        total += found
    if shares[1] < usually - 0.01:
        raise wrong(f"{shares[1]:.3f} of the drafts are accepted after a hit, and {usually:.3f} without")
    return total, f"{shares[1]:.3f} of the drafts accepted after a hit, {usually:.3f} without a cache"


@with_groups("gated delta net, drafts out of a table with mistakes: also states of what was generated are right")
def delta_net_drafts(lab):
    return find_with_drafts(lab, "delta-net-drafts", lookup(lab, **DELTA_NET.engine(lab)), 0.5,
                            PROMPTS * DELTA_NET.found())


@with_groups("control: states saved before vLLM has moved them: what was generated is found, and the output differs")
def delta_net_drafts_control(lab):
    options = lookup(lab, **DELTA_NET.engine(lab))
    wanted, after, _ = without_cache(lab, options)
    made = lab.node("delta-net-drafts-control").start()
    early = lab.connector(made, name="EarlySavingConnector", module="spoiling")
    outputs, _ = lab.play(usual(), early, GENERATED, 1, **options)
    require_equal(outputs, wanted)
    outputs, metrics = lab.play(continued(wanted), lab.connector(made), 16, 1, **options)
    expected = sum(each["cached"] for each in after)
    require(expected > PROMPTS * len(usual()[0]), "vLLM does not keep the states of what it generates")
    require(external(metrics) == expected, f"{external(metrics)} tokens in the place of {expected} were found")
    require_none_equal(outputs, after, "states from before the end of a step")
    return expected, "differs, as it must"


def predicting(lab, states=0.01):
    """Options for MTP: the model's own layer that predicts one more token, asked for several."""
    weights = functools.partial(tiny_hybrids.delta_net_with_mtp_weights, states=states)
    model = tiny_model.write(lab.directory / f"tiny-delta-net-mtp-{states}", config=tiny_hybrids.delta_net_with_mtp(),
                             weights=weights)
    return {"model": model, "enable_prefix_caching": True, **EVERY_PAGE,
            "speculative_config": {"method": "mtp", "num_speculative_tokens": TOKENS}}


@with_groups("gated delta net and MTP: a hit brings the pages of the predicting layer, and as much is accepted")
def delta_net_mtp(lab):
    return find_with_drafts(lab, "delta-net-mtp", predicting(lab), 0.3, PREDICTED)


@with_groups("gated delta net and MTP, scheduled ahead: states of what was generated are right")
def delta_net_mtp_ahead(lab):
    # States matter so much that few drafts are accepted. At the end of a page they are moved all the same.
    options, made = predicting(lab, 0.3), lab.node("delta-net-mtp-ahead").start()

    def play_until_saved(one):
        outputs = one.play(usual(), GENERATED, 1)
        one.say("played")
        one.wait()
        return outputs, runs_apart(one), schedules_ahead(one)

    run = lab.start(play_until_saved, lab.connector(made, **PATIENT), multiprocessing="fork", async_scheduling=True,
                    **DELTA_NET.apart, **options)
    run.hear()
    time.sleep(20)
    run.say("end")
    first, apart, ahead = run.result()
    require(apart and ahead, "scheduling is not asynchronous in a process of its own")
    prompts = continued(first)
    outputs, metrics = lab.play(prompts, lab.connector(made), 16, 1, **options)
    require(PREDICTED < external(metrics), f"{external(metrics)} tokens were found, none of them generated")
    require_like(DELTA_NET, outputs, lab.baseline(prompts, 16, 1, **options))
    return external(metrics), ""


@with_groups("control: loaded blocks of MTP's layer are zeroed: less of its drafts is accepted")
def delta_net_mtp_control(lab):
    options, made = predicting(lab), lab.node("delta-net-mtp-control").start()
    lab.play(usual(), lab.connector(made), 24, 1, **options)
    shares = []
    for what in ("none", "layer-mtp.layers.0"):
        _, metrics = play_spoilt(lab, DELTA_NET, made, what, **options)
        require(external(metrics) == PREDICTED, f"{external(metrics)} tokens were found")
        shares.append(share_accepted(metrics))
    require(shares[1] < shares[0] - 0.05, f"{shares[1]:.3f} of the drafts are accepted without their KV, "
            f"and {shares[0]:.3f} with it")
    return 2 * PREDICTED, f"{shares[0]:.3f} accepted, and {shares[1]:.3f} with zeroes"
