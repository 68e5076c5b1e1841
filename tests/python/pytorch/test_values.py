"""Documents of plain values: what survives, and hostile bytes."""

import random
import struct
import unittest
import zlib

import pytorch_support  # noqa: F401
from pytorch_support import ckptd, same, torch
from ckptd import values


def encoded(value, **options):
    return values.encode([("k", "lr", value)], {"world": 1}, lambda _: False, 0, **options)


def decoded(raw):
    return values.parse(raw, "unit trainer").value("k", "lr", lambda _: False)


def sealed(text, data=b"", sizes=None):
    """A document with a right checksum around any text."""
    sizes = sizes or (len(text), len(data))
    tail = struct.pack("<QQ", *sizes) + text + data
    return values.MAGIC + struct.pack("<II", 1, zlib.crc32(tail)) + tail


class Values(unittest.TestCase):
    def test_plain_values_round_trip(self):
        for value in (None, True, 1, 2**80, -1.5, float("inf"), "ä\ud800", [1, (2, [3])], b"\0\xff",
                      {"a": {1: 2}}, {"$tuple": 1}, {(1, 2): {}}, {}, (), {"a": []}):
            self.assertEqual(decoded(encoded(value)), value)
        for tensor in (torch.get_rng_state(), torch.ones(2, 3).bfloat16(), torch.empty(0, 2),
                       torch.tensor(1.5), torch.ones(4).to(torch.float8_e5m2)):
            self.assertTrue(same(decoded(encoded([tensor]))[0], tensor))

    def test_numpy_and_python_generators_round_trip(self):
        import numpy
        for state in (random.getstate(), numpy.random.get_state()):
            found = decoded(encoded(state))
            self.assertEqual(len(found), len(state))
            self.assertEqual(repr(found), repr(state))

    def test_objects_are_refused_by_name(self):
        for value in (object(), {1, 2}, lambda: 0, [torch.float32]):
            with self.assertRaisesRegex(ckptd.InvalidArgument,
                                        r'value lr: .* on rank 0 .*allow_pickle=\["lr"\]'):
                encoded(value)
        raw = values.encode([("k", "lr", {1, 2})], {}, lambda _: True, 0)
        with self.assertRaisesRegex(ckptd.InvalidArgument, "value lr is a pickle"):
            decoded(raw)
        self.assertEqual(values.parse(raw, "u").value("k", "lr", lambda _: True), {1, 2})

    def test_values_without_room_are_a_blob(self):
        named = [("k", "lr", "x" * 200), ("t", "rng", torch.get_rng_state())]
        document, blob = values.split(named, {"world": 1}, lambda _: False, 0, 100)
        self.assertLessEqual(len(document), 100)
        with self.assertRaisesRegex(ckptd.Corrupt, "blob ckptd.values is of another step"):
            values.parse(document, "u").with_blob(blob + b"0")
        found = values.parse(document, "u")
        self.assertTrue(found.needs_blob)
        found = found.with_blob(blob)
        self.assertEqual(list(found.names()), ["k", "t"])
        self.assertEqual(found.value("k", "lr", lambda _: False), "x" * 200)
        self.assertTrue(same(found.value("t", "rng", lambda _: False), torch.get_rng_state()))

    def test_documents_with_a_blob_have_the_second_version(self):
        whole, none = values.split([("k", "lr", 1)], {}, lambda _: False, 0, 1000)
        self.assertEqual((whole[8], none), (1, b""))
        document, _ = values.split([("k", "lr", "x" * 2000)], {}, lambda _: False, 0, 1000)
        self.assertEqual(document[8], 2)

    def test_an_overflow_names_the_largest_value(self):
        large = bytes(values.BLOB_BYTES_MAX)
        with self.assertRaisesRegex(ckptd.InvalidArgument,
                                    "value rng: the plain values of rank 3 have .* a tensor of"):
            values.split([("k", "lr", 1), ("r", "rng", large)], {}, lambda _: False, 3, 100)

    def test_an_overflow_beside_the_values_is_refused(self):
        with self.assertRaisesRegex(ckptd.InvalidArgument,
                                    "room for 100; .*larger values_bytes"):
            values.encode([], {"empty": ["x" * 200]}, lambda _: False, 0, 100)

    def test_every_flipped_byte_is_found(self):
        raw = bytearray(encoded({"a": [1, b"xyz"]}))
        for at in range(len(raw)):
            spoiled = bytearray(raw)
            spoiled[at] ^= 0x41
            with self.assertRaises((ckptd.Corrupt, ckptd.VersionMismatch)):
                values.parse(bytes(spoiled), "u")
        for size in range(len(raw)):
            with self.assertRaises(ckptd.Corrupt):
                values.parse(bytes(raw[:size]), "u")

    def test_hostile_documents_get_one_error(self):
        huge = 1 << 63
        for raw in (sealed(b"{}", sizes=(huge, huge)), sealed(b"{}", sizes=(2, huge)),
                    sealed(b"["*100_000), sealed(b"\xff"), sealed(b"[]"), sealed(b'{"values":1}')):
            with self.assertRaises(ckptd.Corrupt):
                values.parse(raw, "u")
        for inner in ('{"$bytes":[0,5]}', '{"$bytes":[-1,1]}', '{"$bytes":[0]}', '{"$no":1}',
                      '{"$bytes":[true,1]}', '{"$tensor":["F32",[1099511627776],0]}',
                      '{"$tensor":["F32",[-1],0]}', '{"$tensor":["no",[1],0]}', '{"$tensor":3}',
                      '{"$array":["BF16",[1],0]}', '{"$dict":[[[],1]]}', '{"$tuple":3}',
                      '{"$bytes":["0",1]}', '{"$tensor":["F32",[1],1.5]}'):
            text = '{"values":{"k":%s},"extra":{}}' % inner
            with self.subTest(inner), self.assertRaises(ckptd.Corrupt):
                decoded(sealed(text.encode(), b"1234"))

    def test_random_bytes_never_raise_anything_else(self):
        chance = random.Random(1)
        good = encoded({"a": [1, (2, b"xyz")], "t": torch.ones(3)})
        text = good[values.HEADER.size:]
        for _ in range(2000):
            raw = bytearray(text)
            for _ in range(chance.randint(1, 4)):
                raw[chance.randrange(len(raw))] = chance.randrange(256)
            split = chance.randrange(len(raw))
            try:
                decoded(sealed(bytes(raw[:split]), bytes(raw[split:])))
            except ckptd.Error:
                pass


if __name__ == "__main__":
    unittest.main()
