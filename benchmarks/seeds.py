"""Run the experiments of the chapters for five seeds: what a notebook shows once must hold every time.

    python benchmarks/seeds.py [06 …] [--write]

A notebook's own functions are used: its code cells run once, then each expression below is evaluated for seeds 0 to 4
and must stay within its bounds. ``--write`` stores the table in ``benchmarks/seeds.md``.
"""

import contextlib
import io
import os
import sys
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("TQDM_DISABLE", "1")

import nbformat
from timing import machine, table

HERE = Path(__file__).parent
FIVE = range(5)

# chapter: {what: (expression with ``seed``, lower bound, upper bound)}
CHAPTERS: dict[str, dict[str, tuple[str, float, float]]] = {
    "01": {
        "tagger with places, share right": ("share_right(mha.one_hot_positions(4), seed)", 1.0, 1.0),
        "tagger without places, share right": ("share_right(torch.zeros(4, 4), seed)", 0.74, 0.76),
    },
    "02": {
        "look-up, divided by √d_k": ("share_right(train_lookup(mha.attend, seed=seed))", 0.99, 1.0),
        "look-up, not divided": ("share_right(train_lookup(undivided, seed=seed))", 0.85, 0.99),
        "look-up, divided after the softmax": ("share_right(train_lookup(divide_after, seed=seed))", 0.75, 0.97),
        "look-up, not divided, W_q starts at 1/8": (
            "share_right(train_lookup(undivided, start=1 / 8, seed=seed))",
            0.97,
            1.0,
        ),
        "ten times the learning rate, divided by √d_k": (
            "share_right(train_lookup(mha.attend, lr=3e-2, seed=seed))",
            0.3,
            0.78,
        ),
        "ten times the learning rate, divided by d_k": (
            "share_right(train_lookup(divide_by_width, lr=3e-2, seed=seed))",
            0.75,
            1.0,
        ),
        "ten times the learning rate, soft cap": (
            "share_right(train_lookup(soft_cap, lr=3e-2, seed=seed))",
            0.75,
            0.99,
        ),
        "ten times the learning rate, QK-norm": ("share_right(train_lookup(qk_norm, lr=3e-2, seed=seed))", 0.95, 1.0),
    },
    "03": {
        "die, nothing hidden, first five places": (
            "share_right(train_guesser(hiding['nothing hidden'], seed)[0])[:5].mean()",
            0.99,
            1.0,
        ),
        "die, weights erased, first five places": (
            "share_right(train_guesser(hiding['weights erased'], seed)[0])[:5].mean()",
            0.9,
            1.0,
        ),
        "die, scores hidden, first five places": (
            "share_right(train_guesser(hiding['scores hidden'], seed)[0])[:5].mean()",
            0.2,
            0.3,
        ),
        "die, weights erased, last place": (
            "share_right(train_guesser(hiding['weights erased'], seed)[0])[5]",
            0.2,
            0.3,
        ),
        "die, weights erased, loss": ("train_guesser(hiding['weights erased'], seed)[1][-1]", 0.2, 0.6),
    },
    "05": {
        "find by name, right cut and join": ('share_right("right", "right", True, seed=seed)', 0.99, 1.0),
        "find by name, view and view, 4 heads": ('share_right("view", "view", True, 4, seed=seed)', 0.31, 0.38),
        "find by name, view and view, 8 heads": ('share_right("view", "view", True, 8, seed=seed)', 0.20, 0.27),
        "find by name, right cut, view join": ('share_right("right", "view", True, seed=seed)', 0.0, 0.4),
        "find by name, view cut, right join": ('share_right("view", "right", True, seed=seed)', 0.0, 0.4),
        "find by neighbor, view and view": ('share_right("view", "view", False, seed=seed)', 0.99, 1.0),
    },
    "06": {
        "previous minus first, with W^O, error": ("np.mean(solve(True, seed)[-50:])", 0.0, 0.02),
        "previous minus first, without W^O, error": ("np.mean(solve(False, seed)[-50:])", 0.80, 0.92),
        "language model, with W^O, nats": ("trained_loss(True, seed)", 1.5, 2.4),
        "language model, without W^O, nats": ("trained_loss(False, seed)", 1.5, 2.4),
    },
    "07": {
        "dates exactly right": ("right(translator(seed)[0])", 0.99, 1.0),
        "year digits, best head": ("best_digit_head(translator(seed)[0])", 0.45, 1.0),
        "part score over chance, smallest": (
            "min(part_score(translator(seed)[0], part) / by_chance(unseen, part) "
            "for part in ('year', 'month', 'day', 'weekday'))",
            2.0,
            20.0,
        ),
        "lies about the weekday believed": ("right(translator(seed)[0], lies)", 0.95, 1.0),
        "no mask, validation loss": ("judged(cheater(seed))[0]", 0.0, 0.02),
        "no mask, right": ("judged(cheater(seed))[1]", 0.0, 0.0),
    },
    "08": {
        "sinusoidal, characters 57-64 against 9-16, nats": (
            "(lambda p: p[-1] - p[1])(by_block(trained('sinusoidal', seed)))",
            0.4,
            1.5,
        ),
        "rotary, the same": ("(lambda p: p[-1] - p[1])(by_block(trained('rotary', seed)))", 0.6, 1.6),
        "linear bias, the same": ("(lambda p: p[-1] - p[1])(by_block(trained('linear bias', seed)))", -0.15, 0.15),
        "none, the same": ("(lambda p: p[-1] - p[1])(by_block(trained('none', seed)))", 0.0, 0.3),
        "rotary in a window, the same": (
            "(lambda m: by_block(m, near)[-1] - by_block(m)[1])(trained('rotary', seed))",
            -0.15,
            0.15,
        ),
        "sinusoidal in a window, the same": (
            "(lambda m: by_block(m, near)[-1] - by_block(m)[1])(trained('sinusoidal', seed))",
            0.4,
            1.5,
        ),
        "repeat the first word, sinusoidal": ("first_word('sinusoidal', seed)", 0.9, 1.0),
        "repeat the first word, rotary": ("first_word('rotary', seed)", 0.9, 1.0),
        "repeat the first word, linear bias": ("first_word('linear bias', seed)", 0.0, 0.4),
        "causal collapse, share kept in each layer": ("np.exp(halving(seed))", 0.48, 0.52),
        "unlikeness after 40 layers, sum, norm after": (
            "unlikeness(masks['causal'], 'sum, norm after', seed=seed)[40]",
            0.0,
            0.01,
        ),
        "unlikeness after 40 layers, sum": ("unlikeness(masks['causal'], 'sum', seed=seed)[40]", 0.002, 0.1),
        "unlikeness after 40 layers, sum, norm before": (
            "unlikeness(masks['causal'], 'sum, norm before', seed=seed)[40]",
            0.2,
            1.0,
        ),
        "two words with a norm, share that stays apart": ("(two_words(15, 0.5, seed=seed) < 0.999).mean()", 0.07, 0.13),
        "24 layers from Xavier, norm after, unlikeness": ("unlike_after(24, False, 'xavier', seed)", 0.0, 0.005),
        "24 layers from Xavier, norm before, unlikeness": ("unlike_after(24, True, 'xavier', seed)", 0.25, 1.0),
        "norm after, gradient of W_q, last against first layer": (
            "(lambda g: g['W_q'][-1] / g['W_q'][0])(gradients(False, seed=seed))",
            0.0,
            1e-3,
        ),
        "norm after, gradient of W_v, first against last layer": (
            "(lambda g: g['W_v'][0] / g['W_v'][-1])(gradients(False, seed=seed))",
            0.1,
            10.0,
        ),
        "last W_v, gradient with norm after against before": (
            "gradients(False, seed=seed)['W_v'][-1] / gradients(True, seed=seed)['W_v'][-1]",
            2.0,
            20.0,
        ),
        "12 layers, norm before, nats": ("np.mean(deep(**SETTINGS['before'], seed=seed)[1][-20:])", 2.4, 2.75),
        "12 layers, norm before, RMSNorm, nats": (
            "np.mean(deep(**SETTINGS['before, RMSNorm'], seed=seed)[1][-20:])",
            2.4,
            2.75,
        ),
        "12 layers, norm after, nats above letter frequencies": (
            "np.mean(deep(**SETTINGS['after'], seed=seed)[1][-20:]) - blind",
            -0.15,
            0.15,
        ),
        "12 layers, norm after, unlikeness of words": (
            "unlike_words(deep(**SETTINGS['after'], seed=seed)[0])",
            0.0,
            0.15,
        ),
        "12 layers, norm after, warm-up, nats": (
            "np.mean(deep(**SETTINGS['after, warm-up'], seed=seed)[1][-20:])",
            2.4,
            3.05,
        ),
        "12 layers, norm after, small start, nats from 2.7 (freed) or from letter frequencies (stuck)": (
            "(lambda x: min(abs(x - 2.7), abs(x - blind)))"
            "(np.mean(deep(**SETTINGS['after, small start'], seed=seed)[1][-20:]))",
            0.0,
            0.15,
        ),
        "price of no biases, sinusoidal, nats": ("cost_of_none('sinusoidal', seed)", -0.06, 0.06),
        "price of no biases, rotary, nats": ("cost_of_none('rotary', seed)", -0.02, 0.16),
    },
    "09": {
        "previous token, best head on unseen Python": ("best('previous', reader(seed))", 0.6, 1.0),
        "previous token, best untrained head": ("best('previous', null.untrained(model, seed=seed + 7))", 0.0, 0.2),
        "induction, best head on repeats": ("best('induction', reader(seed))", 0.85, 1.0),
        "induction, null": (
            "null.null([look(null.untrained(model, seed=seed + 7), repeat)], RULES['induction'][1])",
            0.0,
            0.3,
        ),
        "its bracket, best head on unseen Python": ("best('its bracket', reader(seed))", 0.42, 1.0),
        "its bracket, null": (
            "null.null([look(null.untrained(model, seed=seed + 7), python)], RULES['its bracket'][1])",
            0.0,
            0.45,
        ),
        "line end, best head less null": ("best('line end', reader(seed)) - opponent['line end']", 0.0, 0.5),
        "rarest, best head less null": ("best('rarest', reader(seed)) - opponent['rarest']", -0.1, 0.1),
        "name's value, best head less null": (
            "(lambda rule: best(rule, reader(seed)) - opponent[rule])(list(RULES)[6])",
            -0.2,
            0.0,
        ),
        "code alone: previous token": ("best('previous', reader(seed, 'code'))", 0.0, 1.0),
        "code alone: induction": ("best('induction', reader(seed, 'code'))", 0.0, 0.5),
        "code alone: its bracket": ("best('its bracket', reader(seed, 'code'))", 0.0, 1.0),
        "open bracket, one head a layer": ("finds_open(closer(1, seed)).max()", 0.5, 1.0),
        "open bracket, four heads a layer": ("finds_open(closer(4, seed)).max()", 0.5, 1.0),
        "open bracket, four heads a layer, second best head": (
            "finds_open(closer(4, seed)).topk(2).values[1]",
            0.1,
            0.6,
        ),
        "open bracket, null": (
            "null.null([look(null.untrained(closer(1), seed=seed + 7), nest)], still_open)",
            0.0,
            0.2,
        ),
        "heads of one layer differ less than of two, Python": (
            "(lambda w: w[2] - max(w[:2]))(within_and_between(mha.analysis.similarity.divergence(look(reader(seed), python))))",
            0.02,
            1.0,
        ),
        "the same, repeats": (
            "(lambda w: w[2] - max(w[:2]))(within_and_between(mha.analysis.similarity.divergence(look(reader(seed), repeat))))",
            0.1,
            1.0,
        ),
        "layer 2 removed against the sum of its heads, nats on repeats": (
            "damage(reader(seed), 1, without(range(4)))[1] / damages(reader(seed), without)[1, 4:].sum()",
            2.0,
            8.0,
        ),
        "sharpness and damage on Python, rank correlation": (
            "rank_correlation(sharpness(reader(seed), python), damages(reader(seed), without)[0])",
            -0.3,
            0.8,
        ),
        "sharpness and damage on repeats, rank correlation": (
            "rank_correlation(sharpness(reader(seed), repeat), damages(reader(seed), without)[1])",
            0.4,
            1.0,
        ),
        "induction without the previous-token heads": (
            "induction_left(reader(seed), previous_heads(reader(seed)))",
            0.0,
            0.4,
        ),
        "induction without the other heads of layer 1": (
            "induction_left(reader(seed), [h for h in range(4) if h not in previous_heads(reader(seed))])",
            0.8,
            1.0,
        ),
        "heads without a name on Python": (
            "sum(all(score <= opponent[rule] + 0.1 for rule, score in zip(RULES, head) if RULES[rule][0] is python)"
            " for head in jobs_of(reader(seed)).T.tolist())",
            1,
            5,
        ),
        "favorite distance of the heads of layer 2, most": (
            "own_distance(look(reader(seed), repeat))[4:].max()",
            0.05,
            0.35,
        ),
        "largest weight is largest contribution, worst head": ("agreement(reader(seed), python).min()", 0.65, 0.97),
        "largest weight is largest contribution, best head": ("agreement(reader(seed), python).max()", 0.9, 1.0),
        "all heads of layer 2 removed, nats on repeats": ("damage(reader(seed), 1, without(range(4)))[1]", 4.3, 5.0),
        "one head of layer 2 removed, most nats on repeats": ("damages(reader(seed), without)[1, 4:].max()", 0.05, 0.5),
        "heads of layer 1 differ on repeats": (
            "within_and_between(mha.analysis.similarity.divergence(look(reader(seed), repeat)))[0]",
            0.2,
            0.65,
        ),
        "heads of layer 2 differ on repeats": (
            "within_and_between(mha.analysis.similarity.divergence(look(reader(seed), repeat)))[1]",
            0.2,
            0.35,
        ),
        "heads of layer 2 differ more than those of layer 1, Python": (
            "(lambda w: w[1] - w[0])(within_and_between(mha.analysis.similarity.divergence(look(reader(seed), python))))",
            -0.1,
            0.25,
        ),
        "brackets, one head a layer: its own word": (
            "detect.found(look(closer(1, seed), nest), targets.offset(32, 0)).argmax[1]",
            0.3,
            0.5,
        ),
        "brackets, four heads a layer: its own word, most": (
            "detect.found(look(closer(4, seed), nest), targets.offset(32, 0)).argmax.max()",
            0.3,
            0.55,
        ),
        "brackets, one head a layer: the first word": (
            "detect.found(look(closer(1, seed), nest), targets.first(32)).argmax[1]",
            0.0,
            0.2,
        ),
        "two layers, nats on repeats": ("prices(reader(seed))[1]", 0.2, 0.6),
        "one layer, nats on repeats": ("prices(reader(seed, layers=1))[1]", 2.0, 4.2),
        "one layer, induction": ("best('induction', reader(seed, layers=1))", 0.0, 0.4),
    },
    "10": {
        "chants, first layer, damage of each head alone, summed": (
            "damage(trained(seed), 'chants')[0].sum()",
            -0.1,
            0.4,
        ),
        "chants, first layer silent, extra nats": (
            "price(trained(seed), 'chants', {LAYERS[0]: []}) - price(trained(seed), 'chants')",
            1.5,
            5.0,
        ),
        "chants, half of the heads kept by damage alone, extra nats": (
            "(lambda m: price(m, 'chants', best(8, damage(m, 'chants'))) - price(m, 'chants'))(trained(seed))",
            0.5,
            5.0,
        ),
        "chants, half of the heads kept by confidence, extra nats": (
            "(lambda m: price(m, 'chants', best(8, confidence(m, lesson))) - price(m, 'chants'))(trained(seed))",
            1.0,
            5.0,
        ),
        "importance against damage, English, rank correlation": (
            "agreement(trained(seed), 'English')['importance']",
            0.4,
            1.0,
        ),
        "importance against damage, chants, rank correlation": (
            "agreement(trained(seed), 'chants')['importance']",
            0.4,
            1.0,
        ),
        "lowest rank correlation of a guess, English": ("min(agreement(trained(seed), 'English').values())", 0.4, 1.0),
        "one by one, 12 of 16 kept, extra": (
            "(lambda m: both(m, best(12, patience(m))) - both(m))(trained(seed))",
            -0.05,
            0.15,
        ),
        "one by one against damage alone, 8 of 16 kept, nats saved": (
            "(lambda m: both(m, best(8, sum(damage(m, skill) for skill in EXAM))) - both(m, best(8, patience(m))))"
            "(trained(seed))",
            0.1,
            3.0,
        ),
        "one head in the first layer, English": ("lonely(trained(seed), 'English')[0].min()", -0.1, 0.2),
        "one head in the second layer, English": ("lonely(trained(seed), 'English')[1].min()", 0.2, 1.5),
        "one head in a layer, chants": ("lonely(trained(seed), 'chants').min()", 0.5, 4),
        "gates, price 0, heads kept": ("size(gated(0.0, seed)[1])", 16, 16),
        "gates, price 0.2, heads kept": ("size(gated(0.2, seed)[1])", 0, 8),
        "eight heads by importance, then training, extra nats": (
            "(lambda m: tuned(best(8, my_importance(m, lesson), 1), seed) - both(m))(trained(seed))",
            -0.1,
            0.25,
        ),
        "eight heads by importance, no training, extra nats": (
            "(lambda m: both(m, best(8, my_importance(m, lesson), 1)) - both(m))(trained(seed))",
            0.15,
            3,
        ),
        "eight heads at random, then training, extra nats": (
            "tuned(best(8, torch.rand(2, 8, generator=torch.Generator().manual_seed(seed)), 1), seed)"
            " - both(trained(seed))",
            -0.1,
            0.3,
        ),
        "noise in one head, 1 head against 8": ("disturbed(1, 32, seed) / disturbed(8, 4, seed)", 2.5, 30),
        "noise in four channels, 8 heads against 1": ("disturbed(8, 4, seed) / disturbed(1, 4, seed)", 0.8, 10),
        "spread of the gap between new and known English": ("np.ptp([gap(h, seed) for h in number])", 0, 0.1),
    },
    "12": {
        "4 key heads, at once, aligned mean against the better simple way": (
            "lost('aligned mean', 4, seed)[0] / min(lost(way, 4, seed)[0] for way in ('mean', 'first head'))",
            0.0,
            0.65,
        ),
        "2 key heads, at once, aligned mean against the better simple way": (
            "lost('aligned mean', 2, seed)[0] / min(lost(way, 2, seed)[0] for way in ('mean', 'first head'))",
            0.0,
            0.65,
        ),
        "1 key head, at once, aligned mean against the better simple way": (
            "lost('aligned mean', 1, seed)[0] / min(lost(way, 1, seed)[0] for way in ('mean', 'first head'))",
            0.0,
            0.65,
        ),
        "4 key heads, healed, aligned mean against the better simple way": (
            "lost('aligned mean', 4, seed)[1] / min(lost(way, 4, seed)[1] for way in ('mean', 'first head'))",
            0.0,
            0.75,
        ),
        "2 key heads, healed, aligned mean against the better simple way": (
            "lost('aligned mean', 2, seed)[1] / min(lost(way, 2, seed)[1] for way in ('mean', 'first head'))",
            0.0,
            0.75,
        ),
        "1 key head, healed, aligned mean against the better simple way": (
            "lost('aligned mean', 1, seed)[1] / min(lost(way, 1, seed)[1] for way in ('mean', 'first head'))",
            0.0,
            0.75,
        ),
        "4 key heads, healed, random more than mean, nats": (
            "lost('random', 4, seed)[1] - lost('mean', 4, seed)[1]",
            0.04,
            0.6,
        ),
        "2 key heads, healed, random more than mean, nats": (
            "lost('random', 2, seed)[1] - lost('mean', 2, seed)[1]",
            0.04,
            0.6,
        ),
        "1 key head, healed, random more than mean, nats": (
            "lost('random', 1, seed)[1] - lost('mean', 1, seed)[1]",
            0.04,
            0.6,
        ),
        "4 key heads, at once, mean more than first head, nats": (
            "lost('mean', 4, seed)[0] - lost('first head', 4, seed)[0]",
            -0.5,
            0.5,
        ),
        "1 key head, healed, first head more than mean, nats": (
            "lost('first head', 1, seed)[1] - lost('mean', 1, seed)[1]",
            -0.05,
            0.25,
        ),
        "4 key heads, turned in their places against the mean": (
            "same_places(4, seed) / lost('mean', 4, seed)[0]",
            0.0,
            0.65,
        ),
        "4 key heads, what the groups add to the turn, nats": (
            "same_places(4, seed) - lost('aligned mean', 4, seed)[0]",
            -0.15,
            0.25,
        ),
        "2 key heads, turned in their places against the mean": (
            "same_places(2, seed) / lost('mean', 2, seed)[0]",
            0.0,
            0.65,
        ),
        "2 key heads, what the groups add to the turn, nats": (
            "same_places(2, seed) - lost('aligned mean', 2, seed)[0]",
            -0.15,
            0.25,
        ),
        "2 key heads from the start, nats lost": ("from_the_start(seed)", -0.1, 0.1),
        "2 key heads, healed, aligned mean, nats lost": ("lost('aligned mean', 2, seed)[1]", 0.1, 0.25),
        "mask at the first key, in halves, nats more": ("pays_more([12, 12], upper_left, seed)", 0.3, 2.0),
        "mask at the first key, one by one, nats more": ("pays_more([1] * 24, upper_left, seed)", 0.3, 2.0),
    },
    "14": {
        "a third of the directions, share of the energy of the sum": ("energy_of_sum(seed)[15]", 0.95, 1.0),
        "half the channels, nats lost": ("price(collaborating, 24, seed)", 0.0, 0.06),
        "a third of the channels, nats lost": ("price(collaborating, 16, seed)", 0.03, 0.15),
        "half the channels, one by one against shared": (
            "price(one_by_one, 24, seed) / price(collaborating, 24, seed)",
            1.0,
            3.0,
        ),
        "a third, one by one against shared": (
            "price(one_by_one, 16, seed) / price(collaborating, 16, seed)",
            1.0,
            3.0,
        ),
        "a quarter, one by one against shared": (
            "price(one_by_one, 12, seed) / price(collaborating, 12, seed)",
            1.0,
            3.0,
        ),
        "a sixth, one by one against shared": ("price(one_by_one, 8, seed) / price(collaborating, 8, seed)", 0.9, 3.0),
        "a twelfth, one by one against shared": (
            "price(one_by_one, 4, seed) / price(collaborating, 4, seed)",
            0.3,
            3.0,
        ),
        "half the channels, nats lost after 80 more steps": ("retrained(24, seed) - retrained(48, seed)", -0.01, 0.03),
        "a third of the channels, nats lost after 80 more steps": (
            "retrained(16, seed) - retrained(48, seed)",
            0.005,
            0.06,
        ),
        "a sixth of the channels, nats lost after 80 more steps": (
            "retrained(8, seed) - retrained(48, seed)",
            0.03,
            0.12,
        ),
        "a third, wrong temperature, nats lost more": (
            "price(wrong_temperature, 16, seed) - price(collaborating, 16, seed)",
            0.01,
            0.5,
        ),
        "a sixth, wrong temperature, nats lost more": (
            "price(wrong_temperature, 8, seed) - price(collaborating, 8, seed)",
            0.02,
            1.0,
        ),
    },
    "15": {
        "look-up, 16 heads of 2": ("share_right('16 heads of 2', seed)", 0.5, 0.8),
        "look-up, the same with overlap 1": ("share_right('the same, overlap 1', seed)", 0.95, 1.0),
        "look-up, 10 heads of 4": ("share_right('10 heads of 4', seed)", 0.95, 1.0),
        "look-up, 8 heads of 4": ("share_right('8 heads of 4', seed)", 0.94, 1.0),
        "digits, 8 heads of 4": ("recognized('8 heads of 4', seed)", 0.88, 0.98),
        "digits, overlap 2": ("recognized('overlap 2', seed)", 0.88, 0.98),
        "digits, 5 heads of 8": ("recognized('5 heads of 8', seed)", 0.86, 0.98),
        "digits, overlap 2 above 8 heads of 4": (
            "recognized('overlap 2', seed) - recognized('8 heads of 4', seed)",
            -0.05,
            0.05,
        ),
        "digits, overlap 2 above 5 heads of 8": (
            "recognized('overlap 2', seed) - recognized('5 heads of 8', seed)",
            -0.05,
            0.06,
        ),
        "digits, steady learning rate, overlap 2 above 8 heads of 4": (
            "recognized('overlap 2', seed, steady=True) - recognized('8 heads of 4', seed, steady=True)",
            -0.1,
            0.1,
        ),
    },
    "16": {
        "second layer, most used head, β = 0 above β = 0.01": (
            "(served('β = 0', seed)[0] - served('β = 0.01', seed)[0]).item()",
            -0.15,
            0.5,
        ),
        "second layer, least used head, β = 0": ("served('β = 0', seed)[-1].item()", 0.0, 0.2),
        "second layer, least used head, β = 0.01": ("served('β = 0.01', seed)[-1].item()", 0.05, 0.33),
        "price of the balance loss, nats": ("judged('β = 0.01', seed) - judged('β = 0', seed)", -0.08, 0.08),
        "routed against plain with 8 heads, nats": (
            "judged('β = 0.01', seed) - judged('plain, 8 heads', seed)",
            -0.1,
            0.12,
        ),
        "routed against plain with 4 heads, nats": (
            "judged('β = 0.01', seed) - judged('plain, 4 heads', seed)",
            -0.15,
            0.12,
        ),
        "converted by longest queries, nats lost": (
            "after('longest queries', seed) - after('all eight heads', seed)",
            0.0,
            0.1,
        ),
        "converted by a die, above longest queries": (
            "after('by a die', seed) - after('longest queries', seed)",
            0.005,
            0.3,
        ),
        "converted by shortest queries, above longest": (
            "after('shortest queries', seed) - after('longest queries', seed)",
            0.02,
            0.6,
        ),
    },
    "17": {
        "one of two things told, two composed heads, error": ("error(trained('2 composed heads', seed))", 0.0, 0.03),
        "the same, two plain heads": ("error(trained('2 plain heads', seed))", 0.3, 0.45),
        "the same, two talking heads": ("error(trained('2 talking heads', seed))", 0.3, 0.45),
        "the same, four plain heads": ("error(trained('4 plain heads', seed))", 0.01, 0.45),
        "the same, four plain heads, 3,000 steps": ("error(trained('4 plain heads', seed, 3000))", 0.0, 0.03),
        "values that change the fruit with the bit": (
            "(lambda m: sum((a[0] > a[1]) != (b[0] > b[1]) for a, b in zip(looked_at(m, 0), looked_at(m, 1))))"
            "(trained('2 composed heads', seed))",
            2.0,
            2.0,
        ),
    },
    "18": {
        "256 names, softmax trained on 16, error": (
            "price_error(train_way('softmax', seed), 256)[0]",
            0.1,
            0.6,
        ),
        "256 names, 1.5-entmax, error": (
            "price_error(train_way('1.5-entmax', seed), 256)[0]",
            0.0,
            0.06,
        ),
        "16 names, ReLU / n, error": (
            "price_error(train_way('ReLU / n', seed))[0]",
            0.03,
            0.3,
        ),
        "16 names, sigmoid, error": (
            "price_error(train_way('sigmoid', seed))[0]",
            0.03,
            0.3,
        ),
        "16 names, nothing / n, error": (
            "price_error(train_way('nothing / n', seed))[0]",
            0.3,
            1.2,
        ),
        "256 names, softmax stretched, error against 1.5-entmax": (
            "stretched_error(train_way('softmax', seed), 256) / price_error(train_way('1.5-entmax', seed), 256)[0]",
            0.0,
            2.0,
        ),
        "two questions, smaller α": (
            "train_two('α learned', seed).layer.alpha.min().item()",
            1.0,
            1.2,
        ),
        "two questions, larger α": (
            "train_two('α learned', seed).layer.alpha.max().item()",
            1.4,
            2.0,
        ),
        "two questions, 256 names, price error of learned α against plain": (
            "price_error(train_two('α learned', seed), 256, True)[0]"
            " / price_error(train_two('plain', seed), 256, True)[0]",
            0.0,
            0.25,
        ),
        "two questions, mean error of α = 1.5 against learned α": (
            "price_error(train_two('α = 1.5', seed), both=True)[1]"
            " / price_error(train_two('α learned', seed), both=True)[1]",
            1.5,
            1000,
        ),
        "English, learned α minus plain, nats": (
            "language_model(True, seed)[0] - language_model(False, seed)[0]",
            -0.15,
            0.15,
        ),
        "English, share of zeros": (
            "language_model(True, seed)[1]",
            0.35,
            0.8,
        ),
    },
    "19": {
        "decoder of 18, Xavier: gradient of the first layer against the last": (
            "arrives('Xavier', seed=seed)",
            0.0,
            0.033,
        ),
        "decoder of 6, Xavier, the same": ("arrives('Xavier', 6, seed=seed)", 0.034, 1.0),
        "decoder of 18, released code, the same": ("arrives('released code', seed=seed)", 0.2, 20.0),
        "decoder of 18, formula, the same": ("arrives('formula', seed=seed)", 0.2, 20.0),
        "encoder of 18, Xavier, the same": ("arrives('Xavier', where='encoder', seed=seed)", 0.34, 20.0),
        "Xavier, factor of cross-attention": ("passed_on('Xavier', seed=seed)['cross']", 0.6, 0.8),
        "Xavier, factor of self-attention": ("passed_on('Xavier', seed=seed)['self']", 0.9, 1.3),
        "Xavier, factor of merged attention": ("passed_on('Xavier', 'merged', seed)['attention']", 0.73, 0.95),
        "formula, factor of cross-attention": ("passed_on('formula', seed=seed)['cross']", 0.95, 1.05),
        "dates, three sublayers, exactly right": ("exactly_right(translator('three sublayers', seed))", 0.85, 1.0),
        "dates, merged, exactly right": ("exactly_right(translator('merged', seed))", 0.85, 1.0),
        "dates, cross only, exactly right": ("exactly_right(translator('cross only', seed))", 0.85, 1.0),
        "the missing one, merged": ("share_right('merged', missing, seed)", 0.97, 1.0),
        "the missing one, cross only": ("share_right('cross only', missing, seed)", 0.0, 0.3),
        "two back, three sublayers": ("share_right('three sublayers', two_back, seed)", 0.97, 1.0),
        "two back, merged": ("share_right('merged', two_back, seed)", 0.3, 0.46),
        "twelve layers, norm after, Xavier": ("twelve('Xavier', seed=seed)", 0.0, 0.3),
        "twelve layers, norm after, released code": ("twelve('released code', seed=seed)", 0.4, 1.0),
        "twelve layers, norm after, formula": ("twelve('formula', seed=seed)", 0.8, 1.0),
        "twelve layers, norm before, Xavier": ("twelve('Xavier', True, seed)", 0.8, 1.0),
        "twelve layers, norm after, Xavier, unlikeness before training": ("unlikeness('Xavier', seed=seed)", 0.0, 0.01),
        "twelve layers, norm after, formula, unlikeness": ("unlikeness('formula', seed=seed)", 0.05, 1.0),
        "twelve layers, norm before, Xavier, unlikeness": ("unlikeness('Xavier', True, seed)", 0.05, 1.0),
    },
    "20": {
        "ball, feedback, 1 layer, worst of 8 swaps": (
            "share_right(trained('feedback', 1, seed))[:9].min()",
            0.95,
            1.0,
        ),
        "ball, feedback, 1 layer, after 12 swaps": ("share_right(trained('feedback', 1, seed))[12]", 0.85, 1.0),
        "ball, feedback, 1 layer, after 16 swaps": ("share_right(trained('feedback', 1, seed))[16]", 0.5, 1.0),
        "ball, plain, 1 layer, best after 3 swaps or more": (
            "share_right(trained('plain', 1, seed))[3:].max()",
            0.3,
            0.65,
        ),
        "ball, plain, 2 layers, best after 5 swaps or more": (
            "share_right(trained('plain', 2, seed))[5:].max()",
            0.3,
            0.65,
        ),
        "ball, plain, 4 layers, best after 8 swaps or more": (
            "share_right(trained('plain', 4, seed))[8:].max()",
            0.3,
            0.65,
        ),
        "ball after 3 swaps, plain, 2 layers over 1": (
            "share_right(trained('plain', 2, seed))[3] - share_right(trained('plain', 1, seed))[3]",
            0.05,
            1.0,
        ),
        "ball after 4 swaps, plain, 4 layers over 2": (
            "share_right(trained('plain', 4, seed))[4] - share_right(trained('plain', 2, seed))[4]",
            0.05,
            1.0,
        ),
        "only the bottom is remembered, best after 4 to 8 swaps": (
            "share_right(fixed(0, seed))[4:9].max()",
            0.3,
            0.5,
        ),
        "only the top is remembered, worst of 8 swaps": ("share_right(fixed(1, seed))[:9].min()", 0.9, 1.0),
        "learned mixture, share of the top": (
            "trained('feedback', 1, seed).decoder.mixing.detach().softmax(0)[1]",
            0.3,
            0.8,
        ),
        "one plain layer that writes, worst of 40 swaps": ("writes(writer(seed=seed)).min()", 0.95, 1.0),
        "memories without softmax against with it, two layers": ("growth(2, seed)", 1, 30),
        "memories without softmax against with it, six layers": ("growth(6, seed)", 1e3, 1e12),
    },
    "21": {
        "recall, plain, twice the steps": ("longer('plain', seed)", 0.98, 1.0),
        "recall, grouped, twice the steps": ("longer('grouped', seed)", 0.98, 1.0),
        "recall, plain, as stored": (
            "abs(choosing.quality('recall', 'plain', seed) - found['quality']['recall']['plain']['values'][seed])",
            0.0,
            0.05,
        ),
    },
}


def functions_of(chapter: str) -> dict:
    """Run a notebook's code cells silently and return its names."""
    (path,) = (HERE.parent / "notebooks").glob(f"{chapter}_*.ipynb")
    names: dict = {"__name__": f"chapter_{chapter}"}
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                exec(compile(cell.source, f"{path.name}:{cell.id}", "exec"), names)
    return names


def rows_of(chapter: str) -> list[list[str]]:
    """Evaluate the chapter's expressions for all seeds; a value out of bounds is marked."""
    names, rows = functions_of(chapter), []
    for what, (expression, low, high) in CHAPTERS[chapter].items():
        values = [float(eval(expression, names | {"seed": seed})) for seed in FIVE]
        held = all(low <= value <= high for value in values)
        rows.append([chapter, what, *(f"{v:.3f}" for v in values), f"{low} … {high}", "yes" if held else "**no**"])
        print(rows[-1], flush=True)
    return rows


def write(made: str, chosen: list[str]) -> None:
    """Store the table; the rows of chapters that were not run stay."""
    path = HERE / "seeds.md"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [line for line in lines if line[:1] == "|" and line[2:4].isdigit() and line[2:4] not in chosen]
    head, rows = made.splitlines()[:2], sorted([*made.splitlines()[2:], *kept], key=lambda line: line[2:4])
    begin = f"# Five seeds\n\nWritten by `python benchmarks/seeds.py --write`. {machine()}\n\n"
    path.write_text(begin + "\n".join([*head, *rows]) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Make the table for the chapters named, or for all."""
    chosen = [a for a in arguments if a in CHAPTERS] or list(CHAPTERS)
    head = ["chapter", "what", *(f"seed {seed}" for seed in FIVE), "bounds", "held"]
    made = table(head, [row for chapter in chosen for row in rows_of(chapter)])
    if "--write" in arguments:
        write(made, chosen)
    if "**no**" in made:
        sys.exit("a claim did not hold for every seed")


if __name__ == "__main__":
    main(sys.argv[1:])
