"""Experiments with speculative decoding: the KV cache has the layers of a draft model beside those of the model, and
a hit brings both."""

import functools
from dataclasses import replace

import tiny_model
from experiments import (BLOCK, EXACT, FULL, PROMPTS, SEVERAL_GROUPS, experiment, external, require, require_equal, usual,
                         versions, wrong)
from hybrid_experiments import KINDS, require_groups

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


# With several KV cache groups. All prompts with what is generated are within the longer window, so that a draft model with
# full attention has the output of a model with windows.
GENERATED, LONG_WINDOW = 300, 1024
SHORT, LONG = (replace(KINDS[0], groups=("full", f"window-{window}")) for window in (256, LONG_WINDOW))


def with_groups(what):
    """Adds an experiment with a model with several KV cache groups."""

    def note(function):
        experiment(what)(function)
        versions[function.__name__.replace("_", "-")] = (SEVERAL_GROUPS, None)
        return function

    return note


def long_windows(lab, layers):
    """A model with windows of which the first layers alone add something."""
    weights = functools.partial(tiny_model.shapes_of_first_layers, count=layers)
    return tiny_model.write(lab.directory / f"tiny-windows-of-{layers}", config=tiny_model.windows(window=LONG_WINDOW),
                            weights=weights)


def find_with_drafts(lab, this, made, least, **options):
    """Requires output and hits of engines that draft, of which the first one finds nothing, and that as much is accepted as
    without a cache: at least this share. What the first one has generated must be found by an engine that drafts likewise,
    and be right."""
    wanted, metrics = lab.play(usual(), None, GENERATED, **EXACT, **options)
    plain = {**EXACT, "model": options["model"]}
    require_equal(wanted, lab.baseline(usual(), GENERATED, **plain), ROUNDING)
    usually = share_accepted(metrics)
    require(least <= usually, f"only {usually:.3f} of the draft is accepted without a cache")
    made.start()
    prompts = [prompt + output["tokens"][:GENERATED - 20] for prompt, output in zip(usual(), wanted)]
    full = PROMPTS * (len(prompts[0]) // BLOCK * BLOCK)
    shares = []
    for played, expected in ((usual(), 0), (usual(), FULL), (prompts, full)):
        outputs, metrics = lab.play(played, lab.connector(made), GENERATED if played == usual() else 16, **EXACT,
                                    **options)
        require_groups(this, made)
        require_equal(outputs, wanted if played == usual() else lab.baseline(prompts, 16, **plain), ROUNDING)
        require(external(metrics) == expected, f"{external(metrics)} tokens in the place of {expected} were found")
        shares.append(share_accepted(metrics))
    if shares[1] < usually - 0.01:
        raise wrong(f"{shares[1]:.3f} of the draft is accepted after a hit, and {usually:.3f} without")
    return FULL + full, f"{shares[1]:.3f} of the draft accepted after a hit, {usually:.3f} without a cache"


@with_groups("windows, drafts out of a table with mistakes: pages have what was accepted, and nothing else")
def windows_drafts(lab):
    model = SHORT.engine(lab)["model"]
    plain = {**EXACT, "model": model}
    wanted = lab.baseline(usual(), GENERATED, **plain)
    lookup = {"method": "ngram", "num_speculative_tokens": TOKENS, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    made = lab.node("windows-drafts")
    out = find_with_drafts(lab, SHORT, made, 0.3, model=model, speculative_config=lookup,
                           foreseen=[(prompt, output["tokens"]) for prompt, output in zip(usual(), wanted)])
    # An engine that does not draft shares these pages, as a lookup has no layers of its own.
    outputs, metrics = lab.play(usual(), lab.connector(made), GENERATED, **plain)
    require_equal(outputs, wanted, ROUNDING)
    require(external(metrics) == FULL, f"{external(metrics)} tokens of {FULL} were found without drafts")
    return out


@with_groups("windows and a draft model: a hit brings the pages of both")
def windows_draft_model(lab):
    # vLLM wants all layers of the draft in one KV cache group: as many as there are of the model's.
    model = long_windows(lab, 2)
    draft = tiny_model.write(lab.directory / "tiny-first-layers", config=tiny_model.llama(layers=2),
                             weights=tiny_model.shapes_of_first_layers)
    return find_with_drafts(lab, LONG, lab.node("windows-draft-model"), 0.9, model=model, speculative_config={
        "method": "draft_model", "model": draft, "num_speculative_tokens": TOKENS})


@with_groups("windows and a head of EAGLE: a hit brings the pages of both")
def windows_eagle(lab):
    model = long_windows(lab, 1)
    head = tiny_model.write(lab.directory / "tiny-eagle", config=tiny_model.llama(layers=1),
                            weights=tiny_model.shapes_of_eagle)
    return find_with_drafts(lab, LONG, lab.node("windows-eagle"), 0.5, model=model, speculative_config={
        "method": "eagle", "model": head, "num_speculative_tokens": TOKENS})
