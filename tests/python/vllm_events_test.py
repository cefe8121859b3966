"""KV events of the plug-in for vLLM: what is announced of which blocks, and when it is withdrawn. Objects stand in for
vLLM's; scripts/engines compares events with those that vLLM publishes for its GPU."""

import ctypes
import gc
import hashlib
import random
import struct
import sys
import types
import unittest
from unittest import mock

import fake_vllm

fake_vllm.install(several_groups=True)

import fake_library  # noqa: E402
from troupe import _descriptions, _events, _groups, _interface  # noqa: E402
from troupe.vllm import KVConnectorRole, TroupeConnector  # noqa: E402

STORED, REMOVED, CLEARED, ON_DISK, SAVING, NOT_SAVED = range(6)


class request(fake_vllm.request):
    """Hashes are chained, as vLLM's are."""

    def append(self, *tokens):
        self.all_token_ids += tokens
        while len(self.block_hashes) < len(self.all_token_ids) // self.block:
            first = len(self.block_hashes) * self.block
            said = [self.block_hashes[-1:], self.all_token_ids[first:first + self.block], self.cache_salt,
                    getattr(self.lora_request, "name", None)]
            self.block_hashes.append(hashlib.sha256(repr(said).encode()).digest())

    def __init__(self, name, tokens, block=4, **members):
        super().__init__(name, (), block)
        for key, value in members.items():
            setattr(self, key, value)
        self.append(*tokens)

    def numbers(self, first=0, last=None):
        return [int.from_bytes(each[-8:], "big") for each in self.block_hashes[first:last]]


class view:
    """What a router knows after these events; it checks that they are about blocks in the order that it needs."""

    def __init__(self, test):
        self.test, self.blocks = test, {}

    def take(self, events):
        for event in events:
            known = self.blocks.setdefault((event.medium, event.group_idx), {})
            self.test.assertIsNot(type(event), fake_vllm.AllBlocksCleared)
            if isinstance(event, fake_vllm.BlockRemoved):
                for each in event.block_hashes:
                    del known[each]
                continue
            size, parent = event.block_size, event.parent_block_hash
            self.test.assertEqual(len(event.token_ids), size * len(event.block_hashes))
            self.test.assertEqual(len(event.extra_keys), len(event.block_hashes))
            for number, each in enumerate(event.block_hashes):
                self.test.assertNotIn(each, known)
                known[each] = (parent, event.token_ids[number * size:(number + 1) * size])
                parent = each
        return self

    def there(self, medium="CPU", group=0):
        return set(self.blocks.get((medium, group), ()))


class rules(unittest.TestCase):
    def setUp(self):
        self.requests = {}
        self.view = view(self)
        self.made(4)

    def made(self, limit=_events.LIMIT, groups=((_events.Table(0, 4),),), page_tokens=4, hash_tokens=4, **members):
        self.page_tokens = page_tokens
        self.events = _events.Events(_events.Format(), list(groups), hash_tokens, limit, **members)

    def request(self, name, tokens, **members):
        self.requests[name] = request(name, tokens, **members)
        return self.requests[name]

    @staticmethod
    def keys(name, first, pages):
        """Of the library, which names none where it has none."""
        return b"".join(f"{name} {page}".encode().ljust(16) for page in range(first, first + pages)) if name else b""

    def take(self, *events):
        """Events of the library: kind, request, first page, pages, and maybe save and group."""
        whole = [(kind, name, group, first, pages, save, self.keys(name, first, pages))
                 for kind, name, first, pages, save, group in ((*each, 0, 0)[:6] for each in events)]
        out = self.events.take(whole, self.page_tokens, self.requests.get)
        self.view.take(out)
        return out

    def test_a_block_is_announced_when_its_save_has_ended(self):
        self.made()
        one = self.request("one", range(14))
        self.assertEqual(self.take((SAVING, "one", 0, 3, 7)), [])
        self.assertEqual(self.events.saving(), 1)
        first, second = self.take((STORED, "one", 0, 1, 7), (STORED, "one", 2, 1, 7), (NOT_SAVED, "one", 1, 1, 7))
        self.assertEqual(first, fake_vllm.BlockStored(
            block_hashes=one.numbers(0, 1), parent_block_hash=None, token_ids=[0, 1, 2, 3], block_size=4, lora_id=None,
            lora_name=None, medium="CPU", extra_keys=[None], group_idx=0, kv_cache_spec_kind=None,
            kv_cache_spec_sliding_window=None))
        self.assertEqual((second.block_hashes, second.parent_block_hash, second.token_ids),
                         (one.numbers(2, 3), one.numbers(1, 2)[0], [8, 9, 10, 11]))
        self.assertEqual((self.events.saving(), self.events.announced()), (0, 2))

    def test_a_save_may_end_after_its_request(self):
        self.made()
        one = self.request("one", range(14))
        self.take((SAVING, "one", 0, 3, 7))
        del self.requests["one"]
        self.take((STORED, "", 0, 3, 7))
        self.assertEqual(self.view.there(), set(one.numbers()))

    def test_a_request_with_the_same_name_is_another_one(self):
        self.made()
        one = self.request("one", range(14))
        self.take((SAVING, "one", 0, 3, 7))
        self.request("one", range(100, 114))
        self.take((STORED, "one", 0, 3, 7))
        self.assertEqual(self.view.there(), set(one.numbers()))

    def test_an_unknown_save_or_request_says_nothing(self):
        self.made()
        self.assertEqual(self.take((STORED, "one", 0, 3, 7), (NOT_SAVED, "one", 0, 3, 8), (SAVING, "one", 0, 3, 9),
                                   (STORED, "one", 0, 3), (REMOVED, "one", 0, 3)), [])
        self.assertEqual(self.events.saving(), 0)

    def test_found_blocks_are_announced_once_and_withdrawn_when_missed(self):
        self.made()
        one, two = self.request("one", range(18)), self.request("two", [*range(8), *range(50, 60)])
        self.take((STORED, "one", 0, 3), (REMOVED, "one", 3, 1))
        self.assertEqual(self.view.there(), set(one.numbers(0, 3)))
        self.assertEqual(self.take((STORED, "one", 0, 3)), [])
        # The rest of a chain of which the beginning is known.
        event, = self.take((STORED, "two", 0, 4))
        self.assertEqual((event.block_hashes, event.parent_block_hash), (two.numbers(2, 4), two.numbers(1, 2)[0]))
        removed, = self.take((REMOVED, "two", 1, 3))
        self.assertEqual(removed.block_hashes, two.numbers(1, 4))
        self.assertEqual(self.view.there(), {one.numbers()[0], one.numbers()[2]})
        self.take((SAVING, "two", 1, 3, 1), (STORED, "two", 1, 3, 1))
        self.assertEqual(self.view.there(), {*one.numbers(0, 3), *two.numbers()})

    def test_a_move_between_tiers_is_a_removal_and_a_store(self):
        self.made()
        one = self.request("one", range(18))
        self.take((STORED, "one", 0, 4))
        removed, stored = self.take((ON_DISK, "one", 1, 2))
        self.assertEqual((removed.block_hashes, removed.medium), (one.numbers(1, 3), "CPU"))
        self.assertEqual((stored.block_hashes, stored.medium), (one.numbers(1, 3), "STORAGE"))
        # A save that finds the page there says nothing of where it is.
        self.assertEqual(self.take((SAVING, "one", 1, 2, 5), (STORED, "one", 1, 2, 5)), [])
        self.take((STORED, "one", 0, 4))
        self.assertEqual((self.view.there("CPU"), self.view.there("STORAGE")), (set(one.numbers()), set()))

    def test_all_is_withdrawn_by_name(self):
        self.made()
        self.request("one", range(18)), self.request("two", range(50, 68))
        self.take((STORED, "one", 0, 4), (ON_DISK, "two", 0, 4), (SAVING, "two", 0, 4, 5))
        self.assertEqual(len(self.take((CLEARED, "", 0, 0))), 2)
        self.assertEqual((self.view.there("CPU"), self.view.there("STORAGE")), (set(), set()))
        self.assertEqual(self.take((STORED, "two", 0, 4, 5)), [])  # the save may be of a cache that was reset
        self.assertEqual((self.events.saving(), self.take((CLEARED, "", 0, 0))), (0, []))

    def test_many_removals_are_several_events(self):
        self.made()
        count = _events.MOST_REMOVED + 1
        self.request("one", range(4 * count + 1))
        self.take((STORED, "one", 0, count))
        self.assertEqual([len(each.block_hashes) for each in self.take((CLEARED, "", 0, 0))], [count - 1, 1])

    def test_beyond_the_limit_the_oldest_end_is_withdrawn(self):
        self.made(limit=6)
        one, two = self.request("one", range(17)), self.request("two", range(50, 67))
        self.take((STORED, "one", 0, 4))
        *_, removed = self.take((STORED, "two", 0, 4))
        self.assertEqual(removed.block_hashes, list(reversed(one.numbers(2, 4))))
        # A lookup of what is known keeps it.
        self.take((STORED, "one", 0, 2), (REMOVED, "one", 2, 2))
        three = self.request("three", range(90, 97))
        *_, removed = self.take((STORED, "three", 0, 1))
        self.assertEqual(removed.block_hashes, two.numbers(3, 4))
        self.assertEqual(self.view.there(), {*one.numbers(0, 2), *two.numbers(0, 3), *three.numbers()})
        self.assertEqual(self.events.announced(), 6)

    def test_pages_of_several_blocks(self):
        self.made(page_tokens=8)
        one = self.request("one", range(30))
        self.take((SAVING, "one", 0, 3, 1))
        event, = self.take((STORED, "one", 1, 2, 1))
        self.assertEqual((event.block_hashes, event.parent_block_hash, event.token_ids, event.block_size),
                         (one.numbers(2, 6), one.numbers(1, 2)[0], list(range(8, 24)), 4))
        removed, = self.take((REMOVED, "one", 2, 1))
        self.assertEqual(removed.block_hashes, one.numbers(4, 6))

    def test_hashes_of_smaller_blocks(self):
        self.made(hash_tokens=2)
        one = self.request("one", range(18), block=2)
        event, = self.take((STORED, "one", 1, 2))
        self.assertEqual((event.block_hashes, event.parent_block_hash, event.token_ids),
                         (one.numbers()[3:6:2], one.numbers()[1], list(range(4, 12))))

    def test_blocks_without_a_hash_are_left_out(self):
        self.made()
        one = self.request("one", range(18))
        one.block_hashes = one.block_hashes[:2]
        self.take((STORED, "one", 0, 4), (REMOVED, "one", 1, 3))
        self.assertEqual(self.view.there(), set(one.numbers(0, 1)))
        one.block_hashes = []
        self.assertEqual(self.take((STORED, "one", 0, 4), (REMOVED, "one", 0, 4), (SAVING, "one", 0, 4, 1),
                                   (STORED, "one", 0, 4, 1)), [])

    def test_what_hashes_cover_besides_tokens(self):
        self.made()
        lora = fake_vllm.some(name="sql", lora_name="sql", adapter_id=3)
        self.request("one", range(12), cache_salt="secret", lora_request=lora)
        event, = self.take((STORED, "one", 0, 2))
        self.assertEqual((event.extra_keys, event.lora_id, event.lora_name),
                         ([(("lora", "sql"), ("salt", "secret")), (("lora", "sql"),)], 3, "sql"))
        event, = self.take((STORED, "one", 2, 1))
        self.assertEqual(event.extra_keys, [(("lora", "sql"),)])

    def test_groups_have_tables_of_their_own(self):
        full, windows, state = _events.Table(1, 2), (_events.Table(0, 2), _events.Table(3, 2)), _events.Table(2, 4)
        self.made(groups=((full,), windows, (state,)), hash_tokens=2)
        one = self.request("one", range(16), block=2)
        self.take((SAVING, "one", 0, 3, 1, 0), (SAVING, "one", 2, 1, 2, 1), (SAVING, "one", 2, 1, 3, 2))
        self.take((STORED, "", 0, 3, 1, 0), (STORED, "", 2, 1, 2, 1), (STORED, "", 2, 1, 3, 2))
        for group, numbers in ((1, one.numbers(0, 6)), (0, one.numbers(4, 6)), (3, one.numbers(4, 6)),
                               (2, one.numbers(5, 6))):
            self.assertEqual(self.view.there(group=group), set(numbers), group)
        self.take((REMOVED, "one", 2, 1, 0, 1))
        self.assertEqual((self.view.there(group=0), self.view.there(group=3), len(self.view.there(group=1))),
                         (set(), set(), 6))

    def test_the_limit_is_for_all_tables_together(self):
        self.made(limit=8, groups=((_events.Table(0, 4),), (_events.Table(1, 4), _events.Table(2, 4))))
        self.request("one", range(40))
        self.take((STORED, "one", 0, 9), (STORED, "one", 0, 9, 0, 1))
        self.assertEqual(self.events.announced(), 6)

    def test_pages_with_gaps_of_one_save(self):
        self.made()
        one = self.request("one", range(30))
        self.take((SAVING, "one", 0, 1, 4), (SAVING, "one", 3, 2, 4))
        self.take((STORED, "", 0, 1, 4), (NOT_SAVED, "", 3, 1, 4))
        self.assertEqual(self.events.saving(), 1)
        self.take((STORED, "", 4, 1, 4))
        self.assertEqual((self.events.saving(), self.view.there()), (0, {one.numbers()[0], one.numbers()[4]}))

    def test_any_order_of_events_keeps_the_view_of_a_router(self):
        for seed in range(60):
            dice = random.Random(seed)
            self.view, saves, number = view(self), [], 0
            limit = dice.choice((5, 12, 1000))
            self.made(limit=limit, page_tokens=dice.choice((4, 8)))
            per_page, stems = self.page_tokens // 4, [[dice.randrange(99) for _ in range(60)] for _ in range(3)]
            for name in "abcdefgh":
                stem = dice.choice(stems)
                self.request(name, stem[:dice.randrange(60)] + [dice.randrange(99) for _ in range(9)])
            for _ in range(200):
                name = dice.choice("abcdefgh")
                pages = len(self.requests[name].block_hashes) // per_page
                first = dice.randrange(pages)
                count = dice.randrange(1, pages - first + 1)
                what = dice.choice(9 * (STORED, STORED, REMOVED, ON_DISK, SAVING, SAVING, "end", "end") + (CLEARED,))
                if what == SAVING:
                    number += 1
                    saves.append((number, first, count))
                    self.take((SAVING, name, first, count, number))
                elif what == "end" and saves:
                    save, first, count = saves.pop(dice.randrange(len(saves)))
                    for page in range(first, first + count):
                        self.take((dice.choice((STORED, NOT_SAVED)), "", page, 1, save))
                elif what != "end":
                    self.take((what, name, first, count))
                self.assertLessEqual(self.events.announced(), limit)
                known = [each for tables in self.events._announced for table in tables for each in table]
                self.assertEqual(sorted(known), sorted(each for blocks in self.view.blocks.values() for each in blocks))
            self.assertLessEqual(self.events.saving(), len(saves))


class descriptions(rules):
    """The rules above hold with descriptions, too; and these are about what is described."""

    def setUp(self):
        super().setUp()
        encoder = types.SimpleNamespace(msgpack=types.SimpleNamespace(encode=lambda said: repr(said).encode()))
        replaced = mock.patch.dict(sys.modules, msgspec=encoder)
        replaced.start()
        self.addCleanup(replaced.stop)

    def made(self, *given, **members):
        super().made(*given, **{"describes": True, **members})

    def described(self):
        """By key: what was said of each page."""
        out = []
        for batch in self.events.take_descriptions():
            count, blocks, ends = len(batch.parents), batch.per_page, [0, *batch.extra_ends]
            size = blocks * batch.block_tokens
            self.assertLessEqual(count, _descriptions.MOST_PAGES)
            self.assertEqual((len(batch.keys), len(batch.hashes), len(batch.has_parent), len(batch.tokens),
                              len(ends) - 1), (16 * count, blocks * count, count, size * count, count))
            for i in range(count):
                out.append((bytes(batch.keys[16 * i:16 * i + 16]).decode().rstrip(),
                            list(batch.hashes[blocks * i:blocks * (i + 1)]),
                            batch.parents[i] if batch.has_parent[i] else None,
                            list(batch.tokens[size * i:size * (i + 1)]), batch.lora,
                            bytes(batch.extra[ends[i]:ends[i + 1]])))
        return out

    def test_a_page_is_described_when_its_save_has_ended(self):
        self.made()
        one = self.request("one", range(14))
        self.take((SAVING, "one", 0, 3, 7))
        del self.requests["one"]
        self.assertEqual(self.described(), [])
        self.take((STORED, "", 2, 1, 7), (STORED, "", 0, 1, 7), (NOT_SAVED, "", 1, 1, 7))
        self.assertEqual(self.described(), [("one 2", one.numbers(2), one.numbers(1)[0], [8, 9, 10, 11], None, b""),
                                            ("one 0", one.numbers(0, 1), None, [0, 1, 2, 3], None, b"")])
        self.assertEqual(self.described(), [])

    def test_found_pages_are_described_once_until_they_are_missed_or_all_are_lost(self):
        self.made()
        self.request("one", range(18))
        for event, count in (((STORED, "one", 0, 2), 2), ((STORED, "one", 0, 2), 0), ((ON_DISK, "one", 0, 2), 2),
                             ((REMOVED, "one", 1, 1), 0), ((ON_DISK, "one", 1, 1), 1), ((CLEARED, "", 0, 0), 0),
                             ((STORED, "one", 0, 4), 4)):
            self.take(event)
            self.assertEqual(len(self.described()), count, event)

    def test_a_page_that_is_saved_anew_is_described_anew(self):
        # Another engine may have saved it before, which described nothing, or the node may have evicted it.
        self.made()
        self.request("one", range(18))
        self.take((STORED, "one", 0, 4))
        self.described()
        self.assertEqual(self.take((SAVING, "one", 1, 2, 5), (STORED, "one", 1, 2, 5)), [])
        self.assertEqual([key for key, *_ in self.described()], ["one 1", "one 2"])

    def test_descriptions_of_pages_of_several_blocks(self):
        self.made(page_tokens=8)
        one = self.request("one", range(30))
        self.take((SAVING, "one", 0, 3, 1), (STORED, "one", 1, 2, 1))
        numbers = one.numbers()
        self.assertEqual(self.described(), [("one 1", numbers[2:4], numbers[1], list(range(8, 16)), None, b""),
                                            ("one 2", numbers[4:6], numbers[3], list(range(16, 24)), None, b"")])

    def test_pages_of_groups_are_described_with_their_tables(self):
        self.made(groups=((_events.Table(1, 4, "full_attention"),),
                          (_events.Table(0, 4, "sliding_window", 8), _events.Table(2, 4, "sliding_window", 8))))
        one = self.request("one", range(18))
        self.take((STORED, "one", 0, 2, 0, 0), (SAVING, "one", 1, 2, 5, 1), (STORED, "one", 1, 2, 5, 1))
        said = self.events.take_descriptions()
        self.assertEqual([(each.group, each.tables, list(each.hashes)) for each in said],
                         [(0, ((1, 0, b"full_attention"),), one.numbers(0, 2)),
                          (1, ((0, 8, b"sliding_window"), (2, 8, b"sliding_window")), one.numbers(1, 3))])

    def test_pages_without_all_hashes_are_not_described(self):
        self.made(page_tokens=8)
        one = self.request("one", range(30))
        one.block_hashes = one.block_hashes[:3]
        self.take((STORED, "one", 0, 3), (ON_DISK, "one", 1, 2))
        self.assertEqual([key for key, *_ in self.described()], ["one 0"])

    def test_a_call_has_limits(self):
        self.made()
        count = 2 * _descriptions.MOST_PAGES + 5
        one = self.request("one", range(4 * count + 1))
        self.request("two", range(90, 99))
        self.take((STORED, "two", 0, 2), (STORED, "one", 0, count))
        said = self.described()
        self.assertEqual([key for key, *_ in said], ["two 0", "two 1", *(f"one {page}" for page in range(count))])
        self.assertEqual([hashes[0] for _, hashes, *_ in said[2:]], one.numbers())
        self.assertEqual([parent for _, _, parent, *_ in said[2:]], [None, *one.numbers(0, -1)])

    def test_adapters_and_extra_keys(self):
        self.made()
        lora = fake_vllm.some(name="sql", lora_name="sql", adapter_id=3)
        self.request("one", range(12), cache_salt="secret")
        self.request("two", range(12), lora_request=lora)
        self.request("long", range(12), cache_salt="s" * _descriptions.MOST_EXTRA)
        self.request("huge", [1 << 32, *range(11)])
        self.take(*((STORED, name, 0, 3) for name in ("one", "two", "long")))
        self.take((STORED, "huge", 0, 1))
        self.assertEqual([(key, lora, extra) for key, _, _, _, lora, extra in self.described()],
                         [("one 0", None, b"[(('salt', 'secret'),)]"), ("one 1", None, b""), ("one 2", None, b""),
                          ("long 1", None, b""), ("long 2", None, b""),
                          *((f"two {page}", b"sql", b"[(('lora', 'sql'),)]") for page in range(3))])

    def test_hashes_with_all_bytes(self):
        self.made()
        one = self.request("one", range(12))
        self.events._form._whole = True
        self.take((STORED, "one", 1, 2))
        numbers = one.numbers()
        self.assertEqual([(hashes, parent) for _, hashes, parent, *_ in self.described()],
                         [([numbers[1]], numbers[0]), ([numbers[2]], numbers[1])])

    def test_nothing_is_kept_where_nothing_is_wanted(self):
        self.made()
        self.request("one", range(12))
        self.take((STORED, "one", 0, 1))
        self.events.describe_nothing()
        self.take((STORED, "one", 0, 3))
        self.assertEqual(self.described(), [])


class connector(unittest.TestCase):
    def setUp(self):
        self.library = fake_library.fake().install()
        self.addCleanup(self.library.uninstall)
        self.waiting = []

        def events(handle, out):
            said, self.waiting = self.waiting, []
            self.library.ids(out.requests, [name for _, name, *_ in said])
            kinds, names, groups, firsts, pages, saves = zip(*said) if said else [()] * 6
            keys = [rules.keys(*each) for each in zip(names, firsts, pages)]
            ends = [len(b"".join(keys[:number + 1])) // 16 for number in range(len(said))]
            for name, form, values in (("kinds", "B", kinds), ("groups", "I", groups), ("first_pages", "I", firsts),
                                       ("page_counts", "I", pages), ("saves", "Q", saves), ("key_ends", "I", ends)):
                held = _interface.Bytes()
                self.library.bytes(held, struct.pack(f"{len(said)}{form}", *values))
                setattr(out, name, held.data)
            held = _interface.Bytes()
            self.library.bytes(held, b"".join(keys))
            out.keys, out.key_count = held.data, len(b"".join(keys)) // 16
            out.count, out.page_tokens = len(said), 16
            return 0

        def identity(*given):
            given[-2].value, given[-1].value = b"0" * 32, b"engine-0"
            return 0

        for name in ("troupe_namespace_identity", "troupe_group_identity"):
            self.library.answers[name] = identity
        self.library.answers["troupe_scheduler_take_events"] = events

    def node(self, publishes=True, there=True):
        """What the library says of its node."""
        self.described = []

        def wants(handle, wanted):
            wanted.value = int(publishes and there)
            return 0

        def describe(handle, pages):
            blocks = pages.count * pages.blocks_per_page
            self.described.append((ctypes.string_at(pages.keys, 16 * pages.count),
                                   list((ctypes.c_uint64 * blocks).from_address(pages.hashes)),
                                   list((ctypes.c_uint64 * pages.count).from_address(pages.parents)),
                                   ctypes.string_at(pages.has_parent, pages.count),
                                   list((ctypes.c_uint32 * (blocks * pages.block_tokens)).from_address(pages.tokens)),
                                   pages.block_tokens, pages.scheduler_group,
                                   [(each.index, each.kind, each.window) for each in
                                    (_interface.DescribedGroup * pages.group_count).from_address(pages.groups or 0)]
                                   if pages.groups else None, pages.lora, pages.extra, pages.extra_ends))
            return 0

        self.library.answers["troupe_scheduler_wants_descriptions"] = wants
        self.library.answers["troupe_scheduler_describe"] = describe
        self.library.answers["troupe_scheduler_attached"] = lambda handle: 0 if there else _interface.UNREACHABLE

    def created(self):
        return self.library.names().count("troupe_scheduler_create")

    def made(self, address="/run/troupe", cache=None, **changes):
        return TroupeConnector(fake_vllm.vllm_config({"troupe.address": address}, **changes),
                               KVConnectorRole.SCHEDULER, cache or fake_vllm.kv_cache_config())

    def engine_options(self):
        return [given[2] for name, given in self.library.asked if name.startswith("troupe_scheduler_create")][-1]

    def test_nothing_is_kept_or_asked_without_events(self):
        scheduler = self.made(kv_events_config__enable_kv_cache_events=False)
        self.assertEqual(self.engine_options().events, _interface.EVENTS_NONE)
        one = request("one", range(40), 16)
        scheduler.on_new_request(one)
        scheduler.request_finished(one, [])
        self.assertEqual(scheduler.take_events(), ())
        self.assertNotIn("troupe_scheduler_take_events", self.library.names())
        self.made(kv_events_config=None)
        self.assertEqual(self.engine_options().events, _interface.EVENTS_NONE)

    def step_with_a_save(self, scheduler, name="one"):
        one = request(name, range(40), 16)
        scheduler.on_new_request(one)
        self.waiting = [(SAVING, name, 0, 0, 2, 1), (STORED, "", 0, 0, 2, 1)]
        return one, scheduler.take_events()

    def test_pages_are_described_to_a_node_that_publishes_events(self):
        self.node()
        for settings in ({"kv_events_config": None}, {}):
            scheduler = self.made(**settings)
            self.assertEqual(self.engine_options().events, _interface.EVENTS_ALL)
            one, events = self.step_with_a_save(scheduler)
            self.assertEqual(len(events), bool(scheduler._publishes))
            said, = self.described
            first, second = one.numbers()
            self.assertEqual(said, (rules.keys("one", 0, 2), [first, second], [0, first], b"\0\1", list(range(32)), 16,
                                    0, [(0, None, 0)], None, None, None))
            self.described.clear()

    def test_nothing_is_asked_in_steps_where_no_events_are_wanted(self):
        self.node(publishes=False)
        scheduler = self.made(kv_events_config=None)
        self.assertEqual((self.engine_options().events, self.created()), (_interface.EVENTS_NONE, 1))
        self.library.asked.clear()
        self.assertEqual(self.step_with_a_save(scheduler)[1], ())
        self.assertEqual([name for name in self.library.names() if "event" in name or "descri" in name], [])

    def test_a_node_that_publishes_nothing_gets_no_descriptions(self):
        self.node(publishes=False)
        scheduler = self.made()
        self.assertEqual(len(self.step_with_a_save(scheduler)[1]), 1)
        self.step_with_a_save(scheduler, "two")
        self.assertFalse(scheduler._kv_events.describes())
        self.assertEqual(self.library.names().count("troupe_scheduler_wants_descriptions"), 1)

    def test_a_node_that_comes_after_the_engine(self):
        for publishes in (True, False):
            self.node(there=False)
            scheduler = self.made(kv_events_config=None)
            self.assertEqual(self.engine_options().events, _interface.EVENTS_ALL)
            self.assertEqual(scheduler._half.connection, scheduler._connection)
            self.assertEqual([given[0].wait_for_node_seconds for name, given in self.library.asked
                              if name == "troupe_connect"], [0.0, -1.0])
            self.step_with_a_save(scheduler)
            self.node(publishes)
            self.step_with_a_save(scheduler, "two")
            self.assertEqual(len(self.step_with_a_save(scheduler, "three")[1]), 0)
            self.assertEqual(bool(self.described), publishes)
            self.assertEqual((scheduler._kv_events is None, scheduler._discards), (not publishes, not publishes))
            self.library.asked.clear()
            scheduler.take_events()
            self.assertEqual(self.library.names(), ["troupe_scheduler_take_events"] * publishes)
            # What the library keeps nevertheless is discarded once a second.
            self.library.asked.clear()
            scheduler._counted = -10.0
            scheduler.get_kv_connector_stats()
            scheduler.get_kv_connector_stats()
            self.assertEqual(self.library.names().count("troupe_scheduler_take_events"), int(not publishes))
            self.library.asked.clear()
            del scheduler
            gc.collect()

    def test_the_option_says_whether_pages_are_described(self):
        self.node()
        for wish, described in (("off", 0), ("on", 1)):
            scheduler = TroupeConnector(fake_vllm.vllm_config({"troupe.node_events": wish}), KVConnectorRole.SCHEDULER,
                                        fake_vllm.kv_cache_config())
            self.step_with_a_save(scheduler)
            self.assertEqual(len(self.described), described)
        before = self.created()
        for wish, events in (("off", _interface.EVENTS_NONE), ("on", _interface.EVENTS_ALL)):
            TroupeConnector(fake_vllm.vllm_config({"troupe.node_events": wish}, kv_events_config=None),
                            KVConnectorRole.SCHEDULER, fake_vllm.kv_cache_config())
            self.assertEqual(self.engine_options().events, events)
        self.assertEqual(self.created() - before, 2)

    def test_a_refused_description_ends_no_engine(self):
        self.node()
        scheduler = self.made()
        self.library.answers["troupe_scheduler_describe"] = lambda *_: 1
        with self.assertLogs("vllm.troupe", "ERROR"):
            self.assertEqual(len(self.step_with_a_save(scheduler)[1]), 1)
        self.step_with_a_save(scheduler, "two")
        self.assertEqual(self.library.names().count("troupe_scheduler_describe"), 1)

    def test_a_request_that_has_ended_in_the_step_is_known(self):
        scheduler = self.made()
        self.assertEqual(self.engine_options().events, _interface.EVENTS_ALL)
        one = request("one", range(40), 16)
        scheduler.on_new_request(one)
        scheduler.request_finished(one, [])
        self.waiting = [(SAVING, "one", 0, 0, 2, 1), (STORED, "one", 0, 0, 2, 1)]
        event, = scheduler.take_events()
        self.assertEqual(event.block_hashes, one.numbers())
        # After that it is forgotten.
        self.waiting = [(STORED, "one", 0, 0, 2, 0)]
        self.assertEqual(scheduler.take_events(), [])

    def test_a_name_that_is_used_again_in_the_same_step(self):
        scheduler = self.made()
        one, again = request("one", range(40), 16), request("one", range(100, 140), 16)
        scheduler.on_new_request(one)
        scheduler.request_finished(one, [])
        self.waiting = [(STORED, "one", 0, 0, 2, 0)]
        scheduler.on_new_request(again)
        self.waiting = [(STORED, "one", 0, 0, 1, 0)]
        first, second = scheduler.take_events()
        self.assertEqual((first.block_hashes, second.block_hashes), (one.numbers(), again.numbers(0, 1)))

    def test_requests_that_have_ended_are_not_kept_without_a_step(self):
        from troupe import vllm

        scheduler, kept = self.made(), []
        for number in range(3 * vllm.ENDED_MOST):
            one = request(f"r{number}", range(4), 16)
            scheduler.on_new_request(one)
            scheduler.request_finished(one, [])
            kept.append(len(scheduler._ended))
        self.assertEqual(max(kept), vllm.ENDED_MOST)

    def test_after_vllm_has_cleared_all_blocks_found_ones_are_announced_again(self):
        scheduler, pool = self.made(), fake_vllm.some(cached_block_hash_to_block=object())
        scheduler.bind_gpu_block_pool(pool)
        one, two = request("one", range(40), 16), request("two", range(60, 100), 16)
        for each in (one, two):
            scheduler.on_new_request(each)
        self.waiting = [(STORED, "one", 0, 0, 2, 0), (SAVING, "two", 0, 0, 2, 1)]
        self.assertEqual(len(scheduler.take_events()), 1)
        # A name is used again, so that events are taken before the reset and published after it.
        scheduler.request_finished(one, [])
        self.waiting = [(STORED, "two", 0, 0, 1, 0)]
        scheduler.on_new_request(one)
        pool.cached_block_hash_to_block = object()
        self.waiting = [(STORED, "one", 0, 0, 2, 0), (STORED, "two", 0, 0, 2, 1)]
        self.assertEqual([each.block_hashes for each in scheduler.take_events()], [one.numbers(), two.numbers()])

    def test_groups_of_vllm(self):
        self.node()
        layout = mock.patch.object(_groups, "layout", lambda *_: "as it is")
        layout.start()
        self.addCleanup(layout.stop)
        full, window = fake_vllm.FullAttentionSpec(), fake_vllm.SlidingWindowSpec()
        cache = fake_vllm.grouped_config([(window, ("a", "b")), (full, ("c", "d")), (window, ("e", "f"))])
        self.made(cache=cache, kv_events_config=None)
        # The node publishes events, so the library is made again with them.
        self.assertEqual((self.engine_options().events, self.library.names().count("troupe_scheduler_create_groups")),
                         (_interface.EVENTS_ALL, 2))
        scheduler = self.made(cache=cache)
        one = request("one", range(40), 16)
        scheduler.on_new_request(one)
        self.waiting = [(STORED, "one", 0, 0, 2, 0), (STORED, "one", 1, 1, 1, 0)]
        events = scheduler.take_events()
        self.assertEqual([(each.group_idx, each.block_hashes) for each in events],
                         [(1, one.numbers()), (0, one.numbers(1)), (2, one.numbers(1))])
        # Pages of each group are described once, with all of vLLM's groups whose blocks lie in them.
        self.assertEqual([said[:3] + said[6:8] for said in self.described],
                         [(rules.keys("one", 0, 2), one.numbers(), [0, one.numbers()[0]], 0, [(1, None, 0)]),
                          (rules.keys("one", 1, 1), one.numbers(1), one.numbers(0, 1), 1, [(0, None, 0), (2, None, 0)])])

    def test_locality(self):
        for address, said in (("/run/troupe", "LOCAL"), ("data/troupe", "LOCAL"), ("127.0.0.1:4600", None)):
            self.assertEqual(_events.locality(address), said)


if __name__ == "__main__":
    unittest.main()
