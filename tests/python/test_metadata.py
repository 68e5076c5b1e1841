"""Metadata of a run: the checks of the package agree with those of a real daemon."""

import unittest

from support import DaemonTest, ckptd, floats, save, unit

from ckptd import run_metadata


def nested(depth):
    value = {}
    for _ in range(depth - 1):
        value = {"in": value}
    return value


def filling(size):
    """Metadata whose text has so many bytes."""
    return {"text": "x" * (size - len(run_metadata.encode({"text": ""})))}


class Metadata(DaemonTest):
    def kept(self):
        with ckptd.Session(socket=self.daemon.socket, control=True) as session:
            return session.query("schema", target=self.tiny)["metadata"]

    def test_metadata_at_the_limits_are_taken(self):
        for metadata in (filling(run_metadata.BYTES_MAX), nested(run_metadata.DEPTH_MAX),
                         {"name": "ü\0\u2028"}, {}):
            with self.session() as session:
                session.register([unit("w")], metadata)
            self.assertTrue(self.kept() == metadata)

    def test_what_ckptd_would_refuse_is_refused(self):
        circle = {}
        circle["in"] = circle
        for metadata, why in (
                (filling(run_metadata.BYTES_MAX + 1), "1048577 bytes.*the most is 1048576"),
                (nested(run_metadata.DEPTH_MAX + 1), "nested 65 deep, the most is 64"),
                (nested(100000), "cannot become JSON"), (circle, "cannot become JSON"),
                ({"loss": float("nan")}, "cannot become JSON"), ({"of": {1}}, "cannot become JSON"),
                ({"name": "\ud800"}, "cannot become JSON"), ("text", "cannot become JSON")):
            with self.assertRaisesRegex(ckptd.InvalidArgument, why):
                run_metadata.encode(metadata)

    def test_equal_metadata_have_equal_texts(self):
        one, other = {"a": (1, 2), 3: "b"}, {"3": "b", "a": [1, 2]}
        self.assertEqual(run_metadata.encode(one), run_metadata.encode(other))
        self.assertEqual(run_metadata.summary(one), run_metadata.summary(other))
        self.assertNotEqual(run_metadata.summary(one), run_metadata.summary({}))
        self.assertEqual(run_metadata.summary({}), run_metadata.summary(None))
        self.assertEqual(run_metadata.summary({"hf_config": 1}), None, "rank 0's counts")

    def test_a_run_with_commits_keeps_its_metadata(self):
        for step, metadata in enumerate(({"a": 1}, {"a": 2}, None), 1):
            with self.session() as session:
                session.register([unit("w")], metadata)
                with session.join() as epoch:
                    save(epoch, step, {"w": floats(step)})
            self.assertEqual(self.kept(), {"a": 1})

    def test_a_run_in_use_keeps_its_metadata(self):
        first, second = self.session(), self.session()
        first.register([unit("w")], {"a": 1})
        with first.join() as epoch:
            second.register([unit("w")], {"a": 2})
            save(epoch, 1, {"w": floats(1)})
        self.assertEqual(self.kept(), {"a": 1})


if __name__ == "__main__":
    unittest.main()
